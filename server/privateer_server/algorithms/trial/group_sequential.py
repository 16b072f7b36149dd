"""Group-sequential tests: boundaries at every look, what they find, and the effect at the stop without its bias.

Boundaries follow from public counts of people alone.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

Array = NDArray[np.float64]

ALPHAS: Final = tuple(np.geomspace(1e-8, 0.9, 45).tolist())
"""Levels between which a sequential p-value is interpolated; below the first it is the first."""
_POINTS: Final = 201
_STEP: Final = 1e-3
"""Least information, as a share of the plan, that a look must add to be a look: the grid resolves no less."""
_EDGE_HALVINGS: Final = 45
_DRIFT_HALVINGS: Final = 50
_LIMIT_HALVINGS: Final = 60
POWER: Final = 0.8
"""Probability with which a detectable effect is found."""


@dataclass(frozen=True)
class _Walk:
    """Brownian motion that has crossed no boundary so far, at each of A levels.

    ``time`` is that of the last look with a boundary; ``edges`` (A,) its boundary, ``density`` (A, points) the
    density of the survivors on a grid between the boundaries, ``critical`` (A, looks) every look's critical value.
    """

    time: float
    edges: Array
    density: Array
    critical: Array


def information(people: Array, planned: float) -> tuple[float, ...]:
    """Return the public information fractions t of looks after so many people."""
    return tuple(np.minimum(1.0, people / planned).tolist())


def critical_values(times: tuple[float, ...], alpha: float) -> Array:
    """Return critical values c, (looks,): without an effect |z| exceeds its c at any look with probability alpha.

    Spends alpha t^2 (Kim and DeMets 1987) over the looks: at each, what of it falls due since the look before
    (Armitage, McPherson and Rowe 1969; Lan and DeMets 1983). Only past looks matter, so sizes may differ from plan.
    A look that adds less than a thousandth of the plan has no boundary (infinity); the next spends its share.
    """
    return np.asarray(_walked(times, (alpha,)).critical[0])


@dataclass(frozen=True)
class Look:
    """One look with a boundary, and who had crossed none before: the survivors of the look before."""

    # before, time: information fractions of the look before (0 if none) and of this
    before: float
    time: float
    edge: float  # this look's boundary of B(t)
    # points, mass: shape (points,): where B was at the look before, and with what probability, without drift
    points: Array
    mass: Array

    def above(self, value: float, drift: Array) -> Array:
        """Return the probability, for each drift, that no boundary was crossed before and B(t) now is above ``value``.

        With drift the survivors' density is multiplied by exp(drift x - drift^2 t/2), whatever their path.
        """
        tilted = self.mass * np.exp(drift[:, None] * self.points - np.square(drift[:, None]) * self.before / 2)
        step = self.time - self.before
        beyond = ndtr((self.points + drift[:, None] * step - value) / np.sqrt(step))
        return np.asarray((tilted * beyond).sum(axis=1))

    def crossed(self, drift: Array) -> tuple[Array, Array]:
        """Probabilities that this look is the first to cross its upper and its lower boundary."""
        return self.above(self.edge, drift), self.above(self.edge, -drift)


def effective_looks(times: tuple[float, ...], alpha: float) -> list[Look]:
    """Looks of `critical_values` that have a boundary."""
    found: list[Look] = []
    before = Look(0.0, 0.0, 0.0, np.zeros(1), np.ones(1))
    for looks in range(1, len(times) + 1):
        walk = _walk(times[:looks], (alpha,))
        if walk.time > before.time:
            start, mass = before.points, before.mass
            if found:
                previous = _walk(times[: looks - 1], (alpha,))
                start, mass = _grid(previous.edges)[0], (previous.density * _steps(previous.edges))[0]
            before = Look(before.time, walk.time, float(walk.edges[0]), start, mass)
            found.append(before)
    return found


def p_values(times: tuple[float, ...], scores: Array) -> Array:
    """Return sequential p-values after each look, shape (looks, ...) as the scores.

    The least alpha whose boundary was crossed at this look or before: it never rises, and is valid at any look. Where
    a score is nan nothing is crossed.
    """
    at_looks = np.ones(scores.shape)
    if times:
        critical = _walked(times, ALPHAS).critical
        for look, values in enumerate(np.abs(scores)):
            at_looks[look] = _least_alpha(critical[:, look], values)
    return np.minimum.accumulate(at_looks, axis=0)


def _least_alpha(critical: Array, scores: Array) -> Array:
    """Return the level whose critical value is the score, interpolated as normal quantiles; 1 where none is crossed."""
    if np.isinf(critical[0]):
        return np.ones(scores.shape)
    quantiles = np.interp(scores, critical[::-1], ndtri(np.array(ALPHAS) / 2)[::-1])
    return np.where(np.nan_to_num(scores) >= critical[-1], 2 * ndtr(quantiles), 1.0)


def _walked(times: tuple[float, ...], alphas: tuple[float, ...]) -> _Walk:
    """Walk look by look, so that each starts from what the cache has of the one before."""
    for looks in range(len(times)):
        _walk(times[:looks], alphas)
    return _walk(times, alphas)


@lru_cache(maxsize=128)
def _walk(times: tuple[float, ...], alphas: tuple[float, ...]) -> _Walk:
    levels = np.array(alphas)
    if not times:
        return _Walk(0.0, np.zeros(len(levels)), np.ones((len(levels), 1)), np.zeros((len(levels), 0)))
    walk, time = _walk(times[:-1], alphas), times[-1]
    if time - walk.time < _STEP:
        return _Walk(walk.time, walk.edges, walk.density, _with(walk.critical, np.full(len(levels), np.inf)))
    due = levels * (time**2 - walk.time**2)
    edges = -ndtri(due / 2) * np.sqrt(time) if walk.time == 0 else _edges(walk, time, due)
    return _Walk(time, edges, _survivors(walk, time, edges), _with(walk.critical, edges / np.sqrt(time)))


def _with(critical: Array, column: Array) -> Array:
    return np.concatenate([critical, column[:, None]], axis=1)


def _edges(walk: _Walk, time: float, due: Array) -> Array:
    """Boundaries (A,) that the survivors cross with probability ``due``, by bisection."""
    scale = np.sqrt(time - walk.time)
    at, mass = _grid(walk.edges), walk.density * _steps(walk.edges)
    low, high = np.zeros(len(due)), walk.edges + 12 * scale
    for _ in range(_EDGE_HALVINGS):
        middle = (low + high) / 2
        # Both sides alike: the density of a walk without drift is even.
        crossed = 2 * (mass * ndtr((at - middle[:, None]) / scale)).sum(axis=1)
        low, high = np.where(crossed > due, middle, low), np.where(crossed > due, high, middle)
    return np.asarray((low + high) / 2)


def _survivors(walk: _Walk, time: float, edges: Array) -> Array:
    scale = np.sqrt(time - walk.time)
    to = _grid(edges)
    if walk.time == 0:
        return np.asarray(_normal(to / scale) / scale)
    mass = walk.density * _steps(walk.edges)
    start = _grid(walk.edges)
    # Level by level: a kernel fits the processor's cache, all of them do not.
    moved = [_normal((to[a][:, None] - start[a]) / scale) @ mass[a] for a in range(len(to))]
    return np.asarray(np.array(moved) / scale)


def _grid(edges: Array) -> Array:
    """Points (A, points) between minus the edges and the edges."""
    return np.asarray(edges[:, None] * np.linspace(-1.0, 1.0, _POINTS))


def _steps(edges: Array) -> Array:
    """Simpson's weights (A, points) of the grid."""
    weights = np.full(_POINTS, 2.0)
    weights[1::2] = 4.0
    weights[[0, -1]] = 1.0
    return np.asarray(edges[:, None] * 2 / (_POINTS - 1) / 3 * weights)


def _normal(values: Array) -> Array:
    """Return the standard normal density."""
    return np.asarray(np.exp(-np.square(values) / 2) / np.sqrt(2 * np.pi))


def power(times: tuple[float, ...], alpha: float, drift: Array) -> Array:
    """Return the probability (D,) that an effect of ``drift`` deviations at the end of plan crosses a boundary."""
    return np.asarray(
        sum((np.add(*look.crossed(drift)) for look in effective_looks(times, alpha)), np.zeros(len(drift)))
    )


@lru_cache(maxsize=1024)
def drift_of(times: tuple[float, ...], alpha: float, probability: float = POWER) -> float:
    """Return the effect found with this probability, in standard deviations of the estimate at the end of plan."""
    low, high = 0.0, 20.0
    for _ in range(_DRIFT_HALVINGS):
        middle = (low + high) / 2
        enough = power(times, alpha, np.array([middle]))[0] >= probability
        low, high = (low, middle) if enough else (middle, high)
    return (low + high) / 2


def decision_time(times: tuple[float, ...], alpha: float, drift: float) -> float:
    """Return the mean share of the plan's people after which an effect of ``drift`` is decided; 1 if it is not."""
    looks, effect = effective_looks(times, alpha), np.array([drift])
    decided = [float(np.add(*look.crossed(effect))[0]) for look in looks]
    return sum(look.time * crossed for look, crossed in zip(looks, decided, strict=True)) + max(0.0, 1 - sum(decided))


@dataclass(frozen=True)
class StoppedEffect:
    """A median-unbiased estimate and its interval, in units of the difference that was tested.

    Not valid for other effects, nor after stopping for other reasons; repeated intervals are.
    """

    estimate: float
    low: float
    high: float


def stagewise(times: tuple[float, ...], alpha: float, score: float, deviation: float) -> StoppedEffect:
    """Order outcomes by look and side, then by size (Siegmund 1978; Tsiatis, Rosner and Mehta 1984).

    p(drift) is the probability of having crossed above earlier, or of a larger value here, and rises with the drift:
    limits where it is alpha/2 and 1 - alpha/2, the estimate where it is 1/2.

    times: information fractions of the looks, the last the one that stopped the trial and crossed first, or the end.
    alpha: 1 - the level; the boundaries' own.
    score, deviation: the difference over its standard deviation at that look, and the standard deviation.
    """
    if score < 0:
        mirrored = stagewise(times, alpha, -score, deviation)
        return StoppedEffect(-mirrored.estimate, -mirrored.high, -mirrored.low)
    looks = effective_looks(times, alpha)
    value, scale = score * np.sqrt(times[-1]), deviation * np.sqrt(times[-1])

    def at_least(drift: Array) -> Array:
        earlier = sum((look.above(look.edge, drift) for look in looks[:-1]), np.zeros(len(drift)))
        return np.asarray(earlier + looks[-1].above(value, drift))

    wanted = np.array([0.5, alpha / 2, 1 - alpha / 2])
    reach = 10 / np.sqrt(looks[0].time) + abs(value) / times[-1]
    low, high = np.full(3, -reach), np.full(3, reach)
    for _ in range(_LIMIT_HALVINGS):
        middle = (low + high) / 2
        enough = at_least(middle) >= wanted
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    estimate, lower, upper = ((low + high) / 2 * scale).tolist()
    return StoppedEffect(estimate, lower, upper)
