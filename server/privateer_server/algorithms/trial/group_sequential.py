"""Group-sequential tests: boundaries at every look, power, and the effect at the stop without selection bias.

Boundaries follow from public counts of people alone.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from scipy.special import ndtr, ndtri

from privateer_core.arrays import Array

ALPHAS: Final = tuple(np.geomspace(1e-8, 0.9, 45).tolist())
"""Levels between which a sequential p-value is interpolated; below the first it is the first."""
_N_GRID_POINTS: Final = 201
_MIN_INFORMATION_STEP: Final = 1e-3
"""Least information, as a share of the plan, that a look must add to be a look: the grid resolves no less."""
_EDGE_HALVINGS: Final = 45
_DRIFT_HALVINGS: Final = 50
_LIMIT_HALVINGS: Final = 60
POWER: Final = 0.8  # probability with which a detectable effect is found


@dataclass(frozen=True)
class _Walk:
    """Brownian motion conditional on no crossing of a boundary so far, at each of A levels.

    ``time`` is that of the last look with a boundary; ``edges`` (A,) its boundary, ``density`` (A, points) the
    density of the survivors on a grid between the boundaries, ``critical`` (A, looks) every look's critical value.
    """

    time: float
    edges: Array
    density: Array
    critical: Array


def information_fractions(n_participants: Array, n_planned: float) -> tuple[float, ...]:
    """Return the public information fractions t of looks after so many people."""
    return tuple(np.minimum(1.0, n_participants / n_planned).tolist())


def critical_values(times: tuple[float, ...], alpha: float) -> Array:
    """Return critical values c, (looks,): without an effect |z| exceeds its c at any look with probability alpha.

    Each look spends the increase of alpha t^2 (Kim and DeMets 1987) since the look before (Armitage, McPherson and
    Rowe 1969; Lan and DeMets 1983). Only past looks matter, so sizes may differ from plan.
    A look that adds less than a thousandth of the plan has no boundary (infinity); the next spends its share.
    """
    return np.asarray(_walk_looks(times, (alpha,)).critical[0])


@dataclass(frozen=True)
class Look:
    """A look with a boundary, and the distribution of paths that crossed no boundary before it."""

    # before, time: information fractions of the look before (0 if none) and of this
    before: float
    time: float
    edge: float  # this look's boundary of B(t)
    # points, mass: shape (points,): where B was at the look before, and with what probability, without drift
    points: Array
    mass: Array

    def probability_above(self, value: float, drift: Array) -> Array:
        """Return the probability, for each drift, that no boundary was crossed before and B(t) now is above ``value``.

        With drift the survivors' density is multiplied by exp(drift x - drift^2 t/2), whatever their path.
        """
        tilt_masses = self.mass * np.exp(drift[:, None] * self.points - np.square(drift[:, None]) * self.before / 2)
        step = self.time - self.before
        tail_probability = ndtr((self.points + drift[:, None] * step - value) / np.sqrt(step))
        return np.asarray((tilt_masses * tail_probability).sum(axis=1))

    def crossing_probabilities(self, drift: Array) -> tuple[Array, Array]:
        """Return the probabilities that this look is the first to cross its upper and its lower boundary."""
        return self.probability_above(self.edge, drift), self.probability_above(self.edge, -drift)


def list_effective_looks(times: tuple[float, ...], alpha: float) -> list[Look]:
    """Return the looks of `critical_values` that have a boundary."""
    looks_with_boundary: list[Look] = []
    last_look = Look(0.0, 0.0, 0.0, np.zeros(1), np.ones(1))
    for n_looks in range(1, len(times) + 1):
        walk = _advance_walk(times[:n_looks], (alpha,))
        if walk.time > last_look.time:
            start, mass = last_look.points, last_look.mass
            if looks_with_boundary:
                previous = _advance_walk(times[: n_looks - 1], (alpha,))
                start, mass = _build_grid(previous.edges)[0], (previous.density * _simpson_weights(previous.edges))[0]
            last_look = Look(last_look.time, walk.time, float(walk.edges[0]), start, mass)
            looks_with_boundary.append(last_look)
    return looks_with_boundary


def p_values(times: tuple[float, ...], scores: Array) -> Array:
    """Return sequential p-values after each look, shape (looks, ...) as the scores.

    The least alpha whose boundary was crossed at this look or before: it never rises, and is valid at any look. Where
    a score is nan nothing is crossed.
    """
    values = np.ones(scores.shape)
    if times:
        critical = _walk_looks(times, ALPHAS).critical
        for look, absolute_scores in enumerate(np.abs(scores)):
            values[look] = _smallest_crossed_alpha(critical[:, look], absolute_scores)
    return np.minimum.accumulate(values, axis=0)


def _smallest_crossed_alpha(critical: Array, scores: Array) -> Array:
    """Return the level whose critical value is the score, interpolated as normal quantiles; 1 where none is crossed."""
    if np.isinf(critical[0]):
        return np.ones(scores.shape)
    quantiles = np.interp(scores, critical[::-1], ndtri(np.array(ALPHAS) / 2)[::-1])
    return np.where(np.nan_to_num(scores) >= critical[-1], 2 * ndtr(quantiles), 1.0)


def _walk_looks(times: tuple[float, ...], alphas: tuple[float, ...]) -> _Walk:
    """Return the walk after all looks, computed look by look to use the cache."""
    for n_looks in range(len(times)):
        _advance_walk(times[:n_looks], alphas)
    return _advance_walk(times, alphas)


@lru_cache(maxsize=128)
def _advance_walk(times: tuple[float, ...], alphas: tuple[float, ...]) -> _Walk:
    """Return the walk after the last of these looks, from the cached walk after the look before."""
    levels = np.array(alphas)
    if not times:
        return _Walk(0.0, np.zeros(len(levels)), np.ones((len(levels), 1)), np.zeros((len(levels), 0)))
    walk, time = _advance_walk(times[:-1], alphas), times[-1]
    if time - walk.time < _MIN_INFORMATION_STEP:
        return _Walk(walk.time, walk.edges, walk.density, _append_column(walk.critical, np.full(len(levels), np.inf)))
    spent_alpha = levels * (time**2 - walk.time**2)
    edges = -ndtri(spent_alpha / 2) * np.sqrt(time) if walk.time == 0 else _find_edges(walk, time, spent_alpha)
    critical = _append_column(walk.critical, edges / np.sqrt(time))
    return _Walk(time, edges, _survivor_density(walk, time, edges), critical)


def _append_column(critical: Array, column: Array) -> Array:
    return np.concatenate([critical, column[:, None]], axis=1)


def _find_edges(walk: _Walk, time: float, spent_alpha: Array) -> Array:
    """Return boundaries (A,) that the survivors cross with probability ``spent_alpha``, by bisection."""
    scale = np.sqrt(time - walk.time)
    points, mass = _build_grid(walk.edges), walk.density * _simpson_weights(walk.edges)
    low, high = np.zeros(len(spent_alpha)), walk.edges + 12 * scale
    for _ in range(_EDGE_HALVINGS):
        middle = (low + high) / 2
        # Both sides alike: the density of a walk without drift is even.
        crossed = 2 * (mass * ndtr((points - middle[:, None]) / scale)).sum(axis=1)
        low, high = np.where(crossed > spent_alpha, middle, low), np.where(crossed > spent_alpha, high, middle)
    return np.asarray((low + high) / 2)


def _survivor_density(walk: _Walk, time: float, edges: Array) -> Array:
    """Return the density (A, points) of paths that have crossed no boundary up to and including this look."""
    scale = np.sqrt(time - walk.time)
    points = _build_grid(edges)
    if walk.time == 0:
        return np.asarray(_normal_density(points / scale) / scale)
    mass = walk.density * _simpson_weights(walk.edges)
    start = _build_grid(walk.edges)
    # Level by level: a kernel fits the processor's cache, all of them do not.
    densities = [_normal_density((points[a][:, None] - start[a]) / scale) @ mass[a] for a in range(len(points))]
    return np.asarray(np.array(densities) / scale)


def _build_grid(edges: Array) -> Array:
    return np.asarray(edges[:, None] * np.linspace(-1.0, 1.0, _N_GRID_POINTS))


def _simpson_weights(edges: Array) -> Array:
    weights = np.full(_N_GRID_POINTS, 2.0)
    weights[1::2] = 4.0
    weights[[0, -1]] = 1.0
    return np.asarray(edges[:, None] * 2 / (_N_GRID_POINTS - 1) / 3 * weights)


def _normal_density(values: Array) -> Array:
    return np.asarray(np.exp(-np.square(values) / 2) / np.sqrt(2 * np.pi))


def power(times: tuple[float, ...], alpha: float, drift: Array) -> Array:
    """Return the probability (D,) that an effect of ``drift`` deviations at the end of plan crosses a boundary."""
    crossing_probabilities = (look.crossing_probabilities(drift) for look in list_effective_looks(times, alpha))
    return np.asarray(sum((upper + lower for upper, lower in crossing_probabilities), np.zeros(len(drift))))


@lru_cache(maxsize=1024)
def find_drift(times: tuple[float, ...], alpha: float, probability: float = POWER) -> float:
    """Return the effect detected with this probability, in standard errors of the estimate at the end of plan."""
    low, high = 0.0, 20.0
    for _ in range(_DRIFT_HALVINGS):
        middle = (low + high) / 2
        has_power = power(times, alpha, np.array([middle]))[0] >= probability
        low, high = (low, middle) if has_power else (middle, high)
    return (low + high) / 2


def decision_time(times: tuple[float, ...], alpha: float, drift: float) -> float:
    """Return the mean share of the plan's people after which an effect of ``drift`` is decided; 1 if it is not."""
    looks, effect = list_effective_looks(times, alpha), np.array([drift])
    crossing_probabilities = [float(np.add(*look.crossing_probabilities(effect))[0]) for look in looks]
    decided = sum(look.time * crossed for look, crossed in zip(looks, crossing_probabilities, strict=True))
    return decided + max(0.0, 1 - sum(crossing_probabilities))


@dataclass(frozen=True)
class StoppedEffect:
    """A median-unbiased estimate and its interval, in units of the difference that was tested.

    Not valid for other effects, nor after stopping for other reasons; repeated intervals are.
    """

    estimate: float
    low: float
    high: float


def estimate_stagewise(times: tuple[float, ...], alpha: float, score: float, deviation: float) -> StoppedEffect:
    """Return the median-unbiased estimate and interval by stagewise ordering (Siegmund 1978).

    p(drift) is the probability of having crossed above earlier, or of a larger value here, and rises with the drift:
    limits where it is alpha/2 and 1 - alpha/2, the estimate where it is 1/2.

    times: information fractions of the looks, the last the one that stopped the trial and crossed first, or the end.
    alpha: 1 - the level; the boundaries' own.
    score, deviation: the difference over its standard deviation at that look, and the standard deviation.
    """
    if score < 0:
        mirrored = estimate_stagewise(times, alpha, -score, deviation)
        return StoppedEffect(-mirrored.estimate, -mirrored.high, -mirrored.low)
    looks = list_effective_looks(times, alpha)
    value, scale = score * np.sqrt(times[-1]), deviation * np.sqrt(times[-1])

    def at_least(drift: Array) -> Array:
        earlier = sum((look.probability_above(look.edge, drift) for look in looks[:-1]), np.zeros(len(drift)))
        return np.asarray(earlier + looks[-1].probability_above(value, drift))

    targets = np.array([0.5, alpha / 2, 1 - alpha / 2])
    max_drift = 10 / np.sqrt(looks[0].time) + abs(value) / times[-1]
    low, high = np.full(3, -max_drift), np.full(3, max_drift)
    for _ in range(_LIMIT_HALVINGS):
        middle = (low + high) / 2
        is_reached = at_least(middle) >= targets
        low, high = np.where(is_reached, low, middle), np.where(is_reached, middle, high)
    estimate, lower, upper = ((low + high) / 2 * scale).tolist()
    return StoppedEffect(estimate, lower, upper)
