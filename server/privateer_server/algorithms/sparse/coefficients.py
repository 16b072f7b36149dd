"""Coefficients from noisy second moments, the gain of a policy, and the number of participants required."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from scipy.special import ndtr, ndtri

from privateer_core.algorithms.sparse import SparsePolicy, SparseSpec
from privateer_core.answer.estimates import Estimate
from privateer_core.answer.facts import Kind, Table
from privateer_core.answer.parts import Gain
from privateer_core.arrays import Array, Ints
from privateer_core.errors import SpecError
from privateer_core.mechanisms import ScreenedMoments
from privateer_core.privacy.terms import calibrate

CONFIDENCE: Final = 0.95
"""All intervals of a result hold together, and no feature is kept that does not matter, with this probability."""
UNIFORM: Final = 1 / 3  # second moment of a feature that is uniform within its bounds
_MIN_REWARD_VARIANCE: Final = 1e-3  # the least that people's rewards are taken to vary by, in squared half ranges
_SHRINKAGE_DEVIATIONS: Final = 2.0  # an estimate of so many standard deviations and less counts as none
_FALSE_ALARM_RATE: Final = 0.01
"""Probability that features which do not correlate are taken to, at most: it costs little."""
_N_SIMULATED: Final = 1 << 14  # people drawn to learn what features those have who get the best arm
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
        """The absolute deviation of coefficients from their prior means, in standard deviations, (p,)."""
        return np.asarray(np.abs(self.values - self.centres) / self.deviations)

    @property
    def shrunk(self) -> Array:
        """Coefficients for decisions, (p,): shrunk to the prior mean by their noise."""
        return np.asarray(self.centres + (self.values - self.centres) * _retained_share(self.ratios))


def _retained_share(ratios: Array) -> Array:
    """Return the share of an estimate that James-Stein shrinkage retains at this ratio to its noise."""
    return np.maximum(0.0, 1 - (_SHRINKAGE_DEVIATIONS / np.maximum(ratios, 1e-9)) ** 2)


def estimate_coefficients(n_participants: int, moments: Array, variances: Array, expected: Array) -> Estimates:
    """Return the coefficients of a linear model of the value by the other coordinates.

    Eigenvalues of the noisy matrix below what noise alone has are raised to that: sqrt(2 p) standard deviations of an
    entry off the diagonal, for a symmetric matrix of normal entries.

    n_participants: number of participants.
    moments, variances (p + 1, p + 1): sums of products of coordinates, the value last, and the variances of noise in
        them.
    expected (arms,): what arms, the first coordinates, are expected to have. An arm that nobody played has that.
    """
    size = len(moments) - 1
    matrix, products = moments[:-1, :-1], moments[:-1, -1]
    centres = np.pad(expected, (0, size - len(expected)))
    noise = float(np.median(variances[:-1, :-1][~np.eye(size, dtype=bool)])) if size > 1 else variances[0, 0]
    eigenvalues, vectors = np.linalg.eigh(matrix)
    inverse = (vectors / np.maximum(eigenvalues, 1 + np.sqrt(2 * size * noise))) @ vectors.T
    values = centres + inverse @ (products - matrix @ centres)
    # Twice the noise of the sum of squares, so that it is hardly ever taken for too small.
    unexplained = moments[-1, -1] + 2 * np.sqrt(variances[-1, -1]) - values @ products
    residual_variance = min(1.0, max(_MIN_REWARD_VARIANCE, float(unexplained) / n_participants))
    product_covariance = np.diag(variances[:-1, -1] + variances[:-1, :-1] @ values**2)
    product_covariance += residual_variance * np.maximum(matrix, 0) * np.eye(size)
    covariance = inverse @ (product_covariance + residual_variance * (matrix - np.diag(np.diag(matrix)))) @ inverse
    return Estimates(values, np.sqrt(np.maximum(np.diag(covariance), 1e-12)), centres)


def has_correlated_features(n_arms: int, n_participants: int, moments: Array, variances: Array) -> bool:
    """Whether features correlate, or are off-centre, beyond chance among participants with random arms."""
    size = len(moments) - 1
    totals, noise = (matrix[:n_arms, n_arms:size].sum(axis=0) for matrix in (moments, variances))
    mean_ratios = np.abs(totals) / np.sqrt(noise + n_participants * UNIFORM)
    pairs = n_arms + np.array(np.triu_indices(size - n_arms, 1))
    pair_ratios = np.abs(moments[*pairs]) / np.sqrt(variances[*pairs] + n_participants * UNIFORM**2)
    ratios = np.concatenate([mean_ratios, pair_ratios])
    return bool((ratios > threshold(len(ratios), _FALSE_ALARM_RATE)).any())


def has_clearer_residuals(n_people: int, predicted: Sequence[float], n_arms: int, scale: float, level: float) -> bool:
    """Whether products with residuals select features better than products with rewards.

    What is predicted no longer varies from person to person. And where features decide, they are off the middle among
    those who get an arm: up to (arms - 1) / (arms + 1), of uniform ones. Their products with a level then hide what the
    feature does. But scores have a wider range, and with it a choice's Gumbel noise, of variance (pi scale)^2 / 6.

    predicted: predictions by the ``n_arms`` arms, then by features.
    scale: of a choice's noise in a sum of products with rewards.
    level: what rewards are off the middle, as far as that is sure, where features decide; 0 where coins do.
    """
    intercepts, values = np.array(predicted[:n_arms]), np.array(predicted[n_arms:])
    predicted_variance = np.square(intercepts).mean() + UNIFORM * np.square(values).sum()
    range_ratio = 1 + np.abs(intercepts).max() + np.abs(values).sum()
    offset = n_people * level * (n_arms - 1) / (n_arms + 1)
    return bool(n_people * UNIFORM * predicted_variance + offset**2 > (np.pi * scale) ** 2 / 6 * (range_ratio**2 - 1))


def threshold(features: int, chance: float = 1 - CONFIDENCE) -> float:
    """Return the z threshold that any of ``features`` normal numbers exceeds with at most this probability."""
    return -float(ndtri(chance / (2 * features)))


def shrink_to_range(values: Array, intercepts: Array) -> tuple[Array, Array]:
    """Return coefficients and intercepts, scaled such that no prediction leaves the range of rewards."""
    max_prediction = float(np.abs(intercepts).max() + np.abs(values).sum())
    return (values, intercepts) if max_prediction <= 1 else (values / max_prediction, intercepts / max_prediction)


def compute_policy_moments(policy: SparsePolicy, places: Ints) -> Array:
    """Return second moments of features among participants to whom a policy gives its best arm."""
    rng = np.random.default_rng([policy.seed, policy.version])
    features = rng.uniform(-1.0, 1.0, (_N_SIMULATED, len(policy.playable), len(policy.places)))
    scores = policy.intercepts + features @ policy.coefficients
    chosen_features = features[np.arange(_N_SIMULATED), np.where(policy.playable, scores, -np.inf).argmax(axis=1)]
    matrix = UNIFORM * np.eye(len(places))
    policy_indices = np.searchsorted(places, policy.places)
    matrix[np.ix_(policy_indices, policy_indices)] = chosen_features.T @ chosen_features / _N_SIMULATED
    return np.asarray(matrix)


@dataclass(frozen=True)
class RewardTotals:
    """The total rewards of participants of some rounds."""

    people: int  # number of people
    shares: Array  # shape (arms,): how many of them each arm would have where coins give those that are not retired
    sums: Array  # shape (arms,): rewards in [-1, 1] of each arm, with noise
    noise: float  # variance of what was added to each

    def merge(self, other: "RewardTotals") -> "RewardTotals":
        """Return the totals of both groups of participants."""
        people, shares = self.people + other.people, self.shares + other.shares
        return RewardTotals(people, shares, self.sums + other.sums, self.noise + other.noise)

    @property
    def mean(self) -> tuple[float, float]:
        """The overall mean reward, and its standard error."""
        mean = float(self.sums.sum()) / self.people
        return mean, float(_mean_deviations(np.array(mean), len(self.sums) * self.noise, np.array(float(self.people))))

    @property
    def level(self) -> float:
        """The lower confidence bound, by one standard error, on the mean's distance from the middle; or 0."""
        return max(0.0, abs(self.mean[0]) - self.mean[1]) if self.people else 0.0

    @property
    def means(self) -> tuple[Array, Array]:
        """The mean reward of each arm where coins gave it, (arms,), and its standard error."""
        each = np.maximum(self.shares, 1.0)
        means = np.clip(self.sums / each, -1.0, 1.0)
        return means, _mean_deviations(means, self.noise, each)

    @property
    def shrunk_means(self) -> Array:
        """The arms' mean rewards, (arms,), shrunk to the overall mean; 0 without participants."""
        if not self.people:
            return np.zeros(len(self.sums))
        means, deviations = self.means
        return Estimates(means, deviations, np.full(len(means), self.mean[0])).shrunk


def _mean_deviations(means: Array, noise: float, people: Array) -> Array:
    """Return standard errors of mean rewards in [-1, 1], with noise added to the sums.

    Nothing of mean m varies by more than 1 - m^2. The mean is taken to be a standard deviation closer to the middle, so
    that an arm's luck does not make it sure.
    """
    max_deviations = np.sqrt(noise + people) / people
    bounded_means = np.maximum(np.abs(means) - max_deviations, 0.0)
    return np.asarray(np.sqrt(noise + people * np.maximum(1 - bounded_means**2, _MIN_REWARD_VARIANCE)) / people)


class FeatureFinding(NamedTuple):
    """A feature's coefficient with its interval, and the probability that the feature matters."""

    estimate: Estimate
    confidence: float


def build_feature_findings(spec: SparseSpec, places: Ints, estimates: Estimates) -> list[FeatureFinding]:
    """Return the coefficients of features with simultaneous intervals, noise included.

    places, estimates: features, (k,), and the estimates of their coefficients.
    """
    unit, z = spec.reward.half_range, threshold(spec.arm_features)
    names = [spec.context.names[place] for place in places.tolist()]
    values, radii = unit * estimates.values, unit * z * estimates.deviations
    probabilities = 1 - np.minimum(1.0, 2 * spec.arm_features * ndtr(-estimates.ratios))
    rows = zip(names, values.tolist(), radii.tolist(), probabilities.tolist(), strict=True)
    return [FeatureFinding(Estimate(name, x, x - radius, x + radius), chance) for name, x, radius, chance in rows]


def features_table(findings: list[FeatureFinding]) -> Table:
    """Return the features, ranked by the probability that they matter."""
    ranked = sorted(findings, key=lambda row: -row.confidence)
    rows = ((row.estimate.name, round(row.estimate.value, _DIGITS), round(row.confidence, _DIGITS)) for row in ranked)
    names: tuple[str, ...] = "feature", "coefficient", "confidence that it matters"
    kinds: tuple[Kind, ...] = "words", "difference", "probability"
    return Table.of("features found", dict(zip(names, kinds, strict=True)), tuple(rows))


def compare_with_best_arm(spec: SparseSpec, explored: RewardTotals, followed: RewardTotals) -> Gain | None:
    """Compare the mean reward of the policy with that of the best arm for all; None before both have reports.

    explored, followed: the rewards of participants who got any arm, and of those who got the best one.
    """
    if not (explored.people and followed.people):
        return None
    unit, z = spec.reward.half_range, threshold(spec.arm_count + 1)
    means, deviations = explored.means
    best = int(np.where(spec.playable, means, -np.inf).argmax())
    (mean, mean_deviation), constant, arm_deviation = followed.mean, float(means[best]), float(deviations[best])

    def mean_reward(name: str, value: float, deviation: float) -> Estimate:
        middle, radius = spec.reward.middle + unit * value, unit * z * deviation
        return Estimate.within(name, middle, radius, (spec.reward.low, spec.reward.high))

    difference, radius = unit * (mean - constant), unit * z * float(np.hypot(mean_deviation, arm_deviation))
    value, low, high = (round(number, _DIGITS) for number in (difference, difference - radius, difference + radius))
    policy = mean_reward("the policy, by the features found", mean, mean_deviation)
    everybody = mean_reward(f"everybody gets {spec.options[best]}", constant, arm_deviation)
    return Gain(spec.options[best], value, low, high, means=(policy, everybody))


_EXTRA_DEVIATIONS: Final = 1.0
"""Standard deviations beyond the threshold that a coefficient needs to be found more often than not."""
_SELECTION_MARGIN: Final = 2.0  # how far the largest of many choices may be beyond its usual place, in scales
_REWARD_VARIANCE: Final = 0.25  # what rewards are taken to vary by, in squared half ranges
_FEATURE_COUNTS: Final = (10, 30, 100, 300, 1000, 3000, 10_000)
_PEOPLE_MAX: Final = 1 << 34


def smallest_coefficient(spec: SparseSpec, n_features: int, n_participants: int) -> float:
    """Return the smallest coefficient, in half ranges of rewards, that can be detected.

    Features are taken to be uniform within their bounds, and not to correlate.
    """
    question = msgspec.structs.replace(spec.make_question(n_features, 0), screened=min(spec.max_kept, n_features))
    mechanism: Any = calibrate(spec.privacy, n_participants, question).mechanism
    signal, required = n_participants * UNIFORM, threshold(n_features) + _EXTRA_DEVIATIONS
    if isinstance(mechanism, ScreenedMoments):
        reward_variance = n_participants * UNIFORM * _REWARD_VARIANCE
        chance = math.sqrt(2 * reward_variance * math.log(2 * n_features))
        selection_threshold = mechanism.score_scale * (math.log(n_features) + _SELECTION_MARGIN) + chance
        return max(selection_threshold, required * math.sqrt(mechanism.product_variance + reward_variance)) / signal
    n_asked = n_participants / getattr(mechanism, "classes", 1)
    variance = mechanism.error_bounds(max(1, int(n_asked)))[0] + UNIFORM * _REWARD_VARIANCE / n_asked
    return required * math.sqrt(variance) / UNIFORM


def check_first_round(spec: SparseSpec) -> None:
    """Refuse a first round in which no coefficient can be detected, however large."""
    n_people = spec.first_batch("")
    if smallest_coefficient(spec, spec.arm_features, n_people) <= 1:
        return
    n_features, remedy, required_people = spec.arm_features, "raise epsilon, or name fewer features", 2 * n_people
    detail = f"{n_people} people cannot show which of {n_features} features matter, however large their coefficients"
    while required_people <= _PEOPLE_MAX and smallest_coefficient(spec, spec.arm_features, required_people) > 1:
        required_people *= 2
    if required_people <= _PEOPLE_MAX:
        remedy = f"{required_people} people can; or {remedy}"
    raise SpecError(detail, field="experiment.round_size", remedy=remedy)


def build_forecast_tables(spec: SparseSpec) -> tuple[Table, ...]:
    """Return a table of the detectable coefficient by number of features, in units of rewards.

    It is, if coefficients are found that share half the range of rewards among as many features as may matter.
    """
    first, half_horizon, unit = spec.first_batch(""), max(1, spec.experiment.horizon // 2), spec.reward.half_range
    required = 1 / (2 * spec.max_kept)
    rows = []
    for features in sorted({*_FEATURE_COUNTS, spec.arm_features}):
        if not spec.can_hold(features):
            continue
        sizes = [smallest_coefficient(spec, features, max(people, first)) for people in (first, half_horizon)]
        rows.append((features, *(round(unit * size, 4) for size in sizes), "yes" if sizes[1] <= required else "no"))
    title = f"smallest coefficients found; it learns where {unit * required:.4g} is found by half the horizon"
    columns: dict[str, Kind] = {
        "features": "count",
        "by the first round": "difference",
        "by half the horizon": "difference",
        "learns": "words",
    }
    return (Table.of(title, columns, tuple(rows)),)
