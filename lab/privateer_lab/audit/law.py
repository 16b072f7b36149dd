"""Lower confidence bounds of epsilon and delta from samples of two neighbours, and p-values of noise."""

import math
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import beta, binom

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Event, Gaussian
from privateer_core.accounting.gaussian import gaussian_epsilon

Scores = NDArray[np.float64]
_MAX_THRESHOLDS: Final = 200
"""Largest number of thresholds among which the training half of the samples selects one."""
_MAX_DISTINCT_SCORES: Final = 64
"""Largest number of distinct scores for which each score is an event."""
_EPSILON_FRACTIONS: Final = (0.0, 0.25, 0.5, 1.0)
"""Epsilons, as fractions of the claim, at which delta is compared with the claimed curve."""
_N_BOUNDS: Final = 4 * (len(_EPSILON_FRACTIONS) + 2)
"""Clopper-Pearson bounds of one attack, which share its false-alarm rate (Bonferroni)."""


@dataclass(frozen=True)
class LowerBounds:
    """Lower confidence bounds of an attack."""

    lower_bound: float  # lower bound of epsilon at the claimed delta
    excess: float  # largest lower bound of delta minus the claimed delta; above 0 the claim is broken

    def is_consistent_with(self, epsilon: float) -> bool:
        """Whether the bounds refute neither the claimed epsilon nor the claimed curve."""
        return self.excess <= 0 and self.lower_bound <= epsilon * (1 + 1e-9)


def bound_losses(
    left: Scores, right: Scores, event: Event, epsilon: float, delta: float, alarm_rate: float
) -> LowerBounds:
    """Compute lower bounds of epsilon at ``delta`` and of delta, and compare delta with the claimed curve, ``event``.

    Larger scores of the observations of both neighbours favour the left one; a true claim fails with ``alarm_rate``.
    """
    curve, bound_rate = account(event), alarm_rate / _N_BOUNDS
    train_halves, test_halves = zip(*(np.array_split(sample, 2) for sample in (left, right)), strict=True)
    lower, excess = 0.0, -1.0
    for sign in (1, -1):
        train, test = ([np.sort(sign * half) for half in halves[::sign]] for halves in (train_halves, test_halves))
        events = _select_events(train)
        train_bounds, test_bounds = (_probability_bounds(events, halves, bound_rate) for halves in (train, test))
        lower = max(lower, _best_bound(_epsilon_bounds(train_bounds, delta), _epsilon_bounds(test_bounds, delta)))
        for point in (fraction * epsilon for fraction in _EPSILON_FRACTIONS):
            delta_bound = _best_bound(_delta_bounds(train_bounds, point), _delta_bounds(test_bounds, point))
            excess = max(excess, delta_bound - curve.delta(point))
    if isinstance(event, Gaussian):
        lower = max(lower, _gaussian_epsilon_bound(left, right, delta, bound_rate))
    return LowerBounds(lower, excess)


@dataclass(frozen=True)
class _ScoreEvents:
    """Events of a score: at least a value, or equal to it."""

    values: Scores
    is_equality: NDArray[np.bool_]

    def count_hits(self, sorted_scores: Scores) -> NDArray[np.int64]:
        """Count the sorted scores in each event."""
        below = np.searchsorted(sorted_scores, self.values, side="left")
        above = np.searchsorted(sorted_scores, self.values, side="right")
        return np.asarray(np.where(self.is_equality, above, len(sorted_scores)) - below)


def _select_events(samples: list[Scores]) -> _ScoreEvents:
    """Choose the events to test: single scores if they are few, and thresholds at scores or their quantiles."""
    values = np.unique(np.concatenate(samples))
    distinct = values if len(values) <= _MAX_DISTINCT_SCORES else values[:0]
    if len(values) > _MAX_THRESHOLDS:
        values = np.unique(np.quantile(values, np.linspace(0, 1, _MAX_THRESHOLDS)))
    return _ScoreEvents(np.concatenate([distinct, values]), np.arange(len(distinct) + len(values)) < len(distinct))


_ProbabilityBounds = tuple[Scores, Scores]
"""Lower bounds of the events' probabilities for the left scores, and upper bounds for the right scores."""


def _bound_below(hits: NDArray[np.int64], trials: int, alpha: float) -> Scores:
    positive_hits = np.maximum(hits, 1)
    return np.where(hits > 0, beta.ppf(alpha, positive_hits, trials - positive_hits + 1), 0.0)


def _bound_above(hits: NDArray[np.int64], trials: int, alpha: float) -> Scores:
    capped_hits = np.minimum(hits, trials - 1)
    return np.where(hits < trials, beta.isf(alpha, capped_hits + 1, trials - capped_hits), 1.0)


def _probability_bounds(events: _ScoreEvents, samples: list[Scores], alpha: float) -> _ProbabilityBounds:
    left, right = samples
    lower = _bound_below(events.count_hits(left), len(left), alpha)
    return lower, _bound_above(events.count_hits(right), len(right), alpha)


def _epsilon_bounds(bounds: _ProbabilityBounds, delta: float) -> Scores:
    low, high = bounds
    return np.log(np.maximum(low - delta, np.finfo(float).tiny) / high)


def _delta_bounds(bounds: _ProbabilityBounds, epsilon: float) -> Scores:
    low, high = bounds
    return low - math.exp(epsilon) * high


def _best_bound(train_bounds: Scores, test_bounds: Scores) -> float:
    """Return the test half's bound of the event that has the largest bound in the training half."""
    return float(test_bounds[np.argmax(train_bounds)])


def _gaussian_epsilon_bound(left: Scores, right: Scores, delta: float, alpha: float) -> float:
    """Return a lower bound of normal noise's epsilon from the errors of one threshold (Gaussian trade-off function).

    The threshold is selected on the first tenth of the scores, and its errors are counted on the others.
    """
    n_train = min(len(left), len(right)) // 10
    threshold = float(np.median(np.concatenate([left[:n_train], right[:n_train]])))
    left, right = left[n_train:], right[n_train:]
    miss_rate = _bound_above((left < threshold).sum(keepdims=True), len(left), alpha)
    false_positive_rate = _bound_above((right >= threshold).sum(keepdims=True), len(right), alpha)
    mu = float((ndtri(1 - false_positive_rate) - ndtri(miss_rate))[0])
    return gaussian_epsilon(delta, 1 / mu) if mu > 1e-6 else 0.0


Array = NDArray[np.float64]
Integers = NDArray[np.int64]
_CELLS_PER_NUMBER: Final = 16
"""Cells of about the same probability, into which the values of one number are counted."""
_CELLS_PER_PAIRED_NUMBER: Final = 4
"""Cells of each number when pairs of numbers are counted."""


class Law(Protocol):
    """The probability distribution of one whole number of noise."""

    def assign_cells(self, values: Integers, count: int) -> tuple[Integers, Array]:
        """Return the cell of each value, and the exact probabilities of the about ``count`` cells."""

    def log_density(self, values: Integers) -> Array:
        """Return each value's log-probability or log-density up to a constant."""


def _assign_cells(values: Integers, upper_edges: Integers, below: Array) -> tuple[Integers, Array]:
    """Return cells with these upper edges, and their probabilities, from the distribution function at the edges."""
    return np.searchsorted(upper_edges, values, side="left"), np.diff(below, prepend=0.0, append=1.0)


@dataclass(frozen=True)
class NormalLaw:
    """Normal noise, rounded to whole numbers."""

    standard_deviation: float

    def assign_cells(self, values: Integers, count: int) -> tuple[Integers, Array]:
        """Cut at quantiles."""
        upper_edges = np.unique(np.rint(self.standard_deviation * ndtri(np.arange(1, count) / count))).astype(np.int64)
        return _assign_cells(values, upper_edges, ndtr((upper_edges + 0.5) / self.standard_deviation))

    def log_density(self, values: Integers) -> Array:
        """Return the log-density of each value up to a constant."""
        return np.asarray(-np.square(values / self.standard_deviation) / 2)


@dataclass(frozen=True)
class LaplaceLaw:
    """Discrete Laplace noise."""

    scale: int

    def assign_cells(self, values: Integers, count: int) -> tuple[Integers, Array]:
        """Cut at quantiles."""
        levels = np.arange(1, count) / count
        tail = np.log(2 * np.minimum(levels, 1 - levels))
        upper_edges = np.unique(np.rint(self.scale * np.where(levels < 0.5, tail, -tail))).astype(np.int64)
        decay = math.exp(-1 / self.scale)
        above = np.exp(-(np.abs(upper_edges) + (upper_edges >= 0)) / self.scale) / (1 + decay)
        return _assign_cells(values, upper_edges, np.where(upper_edges >= 0, 1 - above, above))

    def log_density(self, values: Integers) -> Array:
        """Return the logarithm of the chance."""
        return np.asarray(-np.abs(values) / self.scale)


@dataclass(frozen=True)
class BinomialLaw:
    """A binomial number of bits."""

    trials: int
    probability: float

    def assign_cells(self, values: Integers, count: int) -> tuple[Integers, Array]:
        """Cut at quantiles."""
        levels = np.arange(1, count) / count
        upper_edges = np.unique(binom.ppf(levels, self.trials, self.probability)).astype(np.int64)
        return _assign_cells(values, upper_edges, binom.cdf(upper_edges, self.trials, self.probability))

    def log_density(self, values: Integers) -> Array:
        """Return the logarithm of the chance."""
        return np.asarray(binom.logpmf(values, self.trials, self.probability))


@dataclass(frozen=True)
class UniformLaw:
    """A whole number from 0 up to ``below``, a multiple of 16."""

    below: int

    def assign_cells(self, values: Integers, count: int) -> tuple[Integers, Array]:
        """Assign values to cells of equal width."""
        return values * count // self.below, np.full(count, 1 / count)

    def log_density(self, values: Integers) -> Array:
        """Return zeros, since all values have the same probability."""
        return np.zeros(len(values))


def counts_p_value(counts: Integers, probabilities: Array) -> float:
    """Return cells' smallest two-sided binomial p-value times their number (Bonferroni), valid at every sample size."""
    total = int(counts.sum())
    min_tail = np.minimum(binom.cdf(counts, total, probabilities), binom.sf(counts - 1, total, probabilities)).min()
    return float(min(1.0, 2 * len(counts) * min_tail))


def noise_p_value(noise: Integers, laws: tuple[Law, ...], tested: tuple[int, ...]) -> float:
    """Return a p-value of noise (n, numbers): the ``tested`` numbers follow their laws and are pairwise independent.

    Pairs with at least one tested number are counted. All p-values are combined by Bonferroni's inequality.
    """
    tested_cells = [laws[k].assign_cells(noise[:, k], _CELLS_PER_NUMBER) for k in tested]
    coarse_cells = [laws[k].assign_cells(noise[:, k], _CELLS_PER_PAIRED_NUMBER) for k in range(noise.shape[1])]
    for (i, (rows, row_pmf)), (j, (columns, column_pmf)) in combinations(enumerate(coarse_cells), 2):
        if i in tested or j in tested:
            tested_cells.append((rows * len(column_pmf) + columns, np.outer(row_pmf, column_pmf).ravel()))
    p_values = [counts_p_value(np.bincount(cells, minlength=len(pmf)), pmf) for cells, pmf in tested_cells]
    return min(1.0, len(p_values) * min(p_values))
