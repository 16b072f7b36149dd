"""Coefficients from noisy second moments, with intervals, and what a policy by them gains."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from privateer_core.algorithms.sparse import SparsePolicy, SparseSpec
from privateer_core.answer.estimates import Estimate
from privateer_core.answer.facts import Kind, Table
from privateer_core.answer.parts import Gain

Array = NDArray[np.float64]
CONFIDENCE: Final = 0.95
"""All intervals of a result hold together, and no feature is kept that does not matter, with this probability."""
UNIFORM: Final = 1 / 3
"""Second moment of a feature that is uniform within its bounds."""
_LEAST: Final = 1e-3
"""The least that people's rewards are taken to vary by, in squared half ranges."""
_SHRUNK: Final = 2.0
"""An estimate of so many standard deviations and less counts as none."""
_ALARM: Final = 0.01
"""Probability that features which do not correlate are taken to, at most: it costs little."""
_PEOPLE: Final = 1 << 14
"""People drawn to learn what features those have who get the best arm."""
_DIGITS: Final = 4


@dataclass(frozen=True)
class Estimates:
    """Coefficients of the coordinates of a block: of arms, then of features."""

    # values, deviations: shape (p,), with the standard deviations that noise and people's own variation give them
    values: Array
    deviations: Array
    centres: Array | float = 0.0  # what is expected of each beforehand, shape (p,), or 0 of all

    @property
    def ratios(self) -> Array:
        """How many standard deviations coefficients are from what is expected, (p,)."""
        return np.asarray(np.abs(self.values - self.centres) / self.deviations)

    @property
    def shrunk(self) -> Array:
        """Coefficients to decide by, (p,): those that noise may have made are closer to the centre, or there."""
        return np.asarray(self.centres + (self.values - self.centres) * _kept(self.ratios))


def _kept(ratios: Array) -> Array:
    """Return which part of an estimate so many standard deviations from the centre is believed (James and Stein)."""
    return np.maximum(0.0, 1 - (_SHRUNK / np.maximum(ratios, 1e-9)) ** 2)


def estimates(people: int, moments: Array, variances: Array, expected: Array) -> Estimates:
    """Return the coefficients of a linear model of the value by the other coordinates.

    Eigenvalues of the noisy matrix below what noise alone has are raised to that: sqrt(2 p) standard deviations of an
    entry off the diagonal, for a symmetric matrix of normal entries.

    people: number of people.
    moments, variances (p + 1, p + 1): sums of products of coordinates, the value last, and the variances of noise in
        them.
    expected (arms,): what arms, the first coordinates, are expected to have. An arm that nobody played has that.
    """
    size = len(moments) - 1
    matrix, products = moments[:-1, :-1], moments[:-1, -1]
    centres = np.pad(expected, (0, size - len(expected)))
    noise = float(np.median(variances[:-1, :-1][~np.eye(size, dtype=bool)])) if size > 1 else variances[0, 0]
    found, vectors = np.linalg.eigh(matrix)
    inverse = (vectors / np.maximum(found, 1 + np.sqrt(2 * size * noise))) @ vectors.T
    values = centres + inverse @ (products - matrix @ centres)
    # Twice the noise of the sum of squares, so that it is hardly ever taken for too small.
    unexplained = moments[-1, -1] + 2 * np.sqrt(variances[-1, -1]) - values @ products
    own = min(1.0, max(_LEAST, float(unexplained) / people))
    spread = np.diag(variances[:-1, -1] + variances[:-1, :-1] @ values**2) + own * np.maximum(matrix, 0) * np.eye(size)
    covariance = inverse @ (spread + own * (matrix - np.diag(np.diag(matrix)))) @ inverse
    return Estimates(values, np.sqrt(np.maximum(np.diag(covariance), 1e-12)), centres)


def correlate(arms: int, people: int, moments: Array, variances: Array) -> bool:
    """Whether features correlate, or are off the middle of their bounds, beyond chance where people got any arm.

    arms: how many of the first coordinates are of arms.
    people, moments, variances: as of `estimates`.
    """
    size = len(moments) - 1
    of_all, noise = (one[:arms, arms:size].sum(axis=0) for one in (moments, variances))
    off = np.abs(of_all) / np.sqrt(noise + people * UNIFORM)
    pairs = arms + np.array(np.triu_indices(size - arms, 1))
    together = np.abs(moments[*pairs]) / np.sqrt(variances[*pairs] + people * UNIFORM**2)
    ratios = np.concatenate([off, together])
    return bool((ratios > threshold(len(ratios), _ALARM)).any())


def is_clearer(people: int, predicted: Sequence[float], arms: int, scale: float, level: float) -> bool:
    """Whether so many people's products with what is left of rewards tell features apart better than with rewards.

    What is predicted no longer varies from person to person. And where features decide, they are off the middle among
    those who get an arm: up to (arms - 1) / (arms + 1), of uniform ones. Their products with a level then hide what the
    feature does. But scores have a wider range, and with it a choice's Gumbel noise, of variance (pi scale)^2 / 6.

    predicted, arms: what is predicted by arms, the first, and by features.
    scale: of a choice's noise in a sum of products with rewards.
    level: what rewards are off the middle, as far as that is sure, where features decide; 0 where coins do.
    """
    intercepts, values = np.array(predicted[:arms]), np.array(predicted[arms:])
    varied = np.square(intercepts).mean() + UNIFORM * np.square(values).sum()
    wider = 1 + np.abs(intercepts).max() + np.abs(values).sum()
    off = people * level * (arms - 1) / (arms + 1)
    return bool(people * UNIFORM * varied + off**2 > (np.pi * scale) ** 2 / 6 * (wider**2 - 1))


def threshold(features: int, chance: float = 1 - CONFIDENCE) -> float:
    """Return the standard deviations beyond which one of so many numbers is by chance with this probability at most."""
    return -float(ndtri(chance / (2 * features)))


def in_ball(values: Array, intercepts: Array) -> tuple[Array, Array]:
    """Return coefficients and intercepts by which no prediction leaves the range of rewards: shrunk if they must be."""
    most = float(np.abs(intercepts).max() + np.abs(values).sum())
    return (values, intercepts) if most <= 1 else (values / most, intercepts / most)


def moments_by_policy(policy: SparsePolicy, places: NDArray[np.int64]) -> Array:
    """Return second moments of some features, a policy's own among them, among those who get what it decides."""
    rng = np.random.default_rng([policy.seed, policy.version])
    people = rng.uniform(-1.0, 1.0, (_PEOPLE, len(policy.playable), len(policy.places)))
    scores = policy.intercepts + people @ policy.coefficients
    played = people[np.arange(_PEOPLE), np.where(policy.playable, scores, -np.inf).argmax(axis=1)]
    matrix = UNIFORM * np.eye(len(places))
    mine = np.searchsorted(places, policy.places)
    matrix[np.ix_(mine, mine)] = played.T @ played / _PEOPLE
    return np.asarray(matrix)


@dataclass(frozen=True)
class Played:
    """The rewards that people of some rounds had."""

    people: int  # number of people
    shares: Array  # shape (arms,): how many of them each arm would have where coins give those that are not retired
    sums: Array  # shape (arms,): rewards in [-1, 1] of each arm, with noise
    noise: float  # variance of what was added to each

    def merged(self, other: "Played") -> "Played":
        """Return what people of both had."""
        people, shares = self.people + other.people, self.shares + other.shares
        return Played(people, shares, self.sums + other.sums, self.noise + other.noise)

    @property
    def mean(self) -> tuple[float, float]:
        """The mean reward of all, and its standard deviation."""
        mean = float(self.sums.sum()) / self.people
        return mean, float(_deviations(np.array(mean), len(self.sums) * self.noise, np.array(float(self.people))))

    @property
    def level(self) -> float:
        """How far the mean reward is from the middle, as far as that is sure: a standard deviation less, or 0."""
        return max(0.0, abs(self.mean[0]) - self.mean[1]) if self.people else 0.0

    @property
    def means(self) -> tuple[Array, Array]:
        """The mean reward of each arm where coins gave it, (arms,), and its standard deviation."""
        each = np.maximum(self.shares, 1.0)
        means = np.clip(self.sums / each, -1.0, 1.0)
        return means, _deviations(means, self.noise, each)

    @property
    def expected(self) -> Array:
        """What arms are expected to have, (arms,): as much as all, but for what is beyond chance; 0 of nobody."""
        if not self.people:
            return np.zeros(len(self.sums))
        means, deviations = self.means
        return Estimates(means, deviations, np.full(len(means), self.mean[0])).shrunk


def _deviations(means: Array, noise: float, people: Array) -> Array:
    """Return standard deviations of mean rewards in [-1, 1], to the sums of which noise of a variance was added.

    Nothing of mean m varies by more than 1 - m^2. The mean is taken to be a standard deviation closer to the middle, so
    that an arm's luck does not make it sure.
    """
    most = np.sqrt(noise + people) / people
    closer = np.maximum(np.abs(means) - most, 0.0)
    return np.asarray(np.sqrt(noise + people * np.maximum(1 - closer**2, _LEAST)) / people)


class FoundFeature(NamedTuple):
    """A feature's coefficient with its interval, and the probability that the feature matters."""

    estimate: Estimate
    confidence: float


def coefficients(spec: SparseSpec, places: NDArray[np.int64], found: Estimates) -> list[FoundFeature]:
    """Return what is known of features, of all of which the intervals hold together, noise included.

    places, found: features, (k,), and the estimates of their coefficients.
    """
    unit, reach = spec.reward.half_range, threshold(spec.arm_features)
    names = [spec.context.names[place] for place in places.tolist()]
    values, radii = unit * found.values, unit * reach * found.deviations
    sure = 1 - np.minimum(1.0, 2 * spec.arm_features * ndtr(-found.ratios))
    return [
        FoundFeature(Estimate(name, value, value - radius, value + radius), confidence)
        for name, value, radius, confidence in zip(names, values.tolist(), radii.tolist(), sure.tolist(), strict=True)
    ]


def features_table(found: list[FoundFeature]) -> Table:
    """Return the features, those first that matter most surely."""
    ranked = sorted(found, key=lambda one: -one.confidence)
    rows = ((one.estimate.name, round(one.estimate.value, _DIGITS), round(one.confidence, _DIGITS)) for one in ranked)
    columns: dict[str, Kind] = {
        "feature": "words",
        "coefficient": "difference",
        "confidence that it matters": "probability",
    }
    return Table.of("features found", columns, tuple(rows))


def gain(spec: SparseSpec, explored: Played, followed: Played) -> Gain | None:
    """Compare the mean reward of the policy with that of the best arm for all; None as long as nobody had one.

    explored, followed: what people had who got any arm, and those who got the best one.
    """
    if not (explored.people and followed.people):
        return None
    unit, reach = spec.reward.half_range, threshold(spec.arm_count + 1)
    means, spreads = explored.means
    best = int(np.where(spec.playable, means, -np.inf).argmax())
    (mean, spread), constant, of_arm = followed.mean, float(means[best]), float(spreads[best])

    def mean_reward(name: str, value: float, deviation: float) -> Estimate:
        middle, radius = spec.reward.middle + unit * value, unit * reach * deviation
        return Estimate.within(name, middle, radius, (spec.reward.low, spec.reward.high))

    difference, radius = unit * (mean - constant), unit * reach * float(np.hypot(spread, of_arm))
    value, low, high = (round(one, _DIGITS) for one in (difference, difference - radius, difference + radius))
    policy = mean_reward("the policy, by the features found", mean, spread)
    everybody = mean_reward(f"everybody gets {spec.options[best]}", constant, of_arm)
    return Gain(spec.options[best], value, low, high, means=(policy, everybody))
