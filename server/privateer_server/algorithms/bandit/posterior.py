"""The posterior of every arm's mean reward from private reports, with the variances of estimates.

Private reports are seen as bits of a fainter coin would be: an arm of mean m whose n reports are as informative as
n / c^2 rewards has bits of mean 1/2 + (m - 1/2) / c (Zheng et al. 2020, Theorems 11 and 12, with their proxy).
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Self

import numpy as np

from privateer_core.arrays import Array, Bools
from privateer_core.primitives.contributions import CellHits
from privateer_server.algorithms.forgetting import SufficientStatistics

_MAX_TRIAL_RATIO: Final = 2.0
"""Trials that are counted are taken for no fewer than those expected by this factor, and for no more."""
_MIN_SUCCESS_SHARE: Final = 0.002  # the least share of successes by which rounds are weighted
_PRIOR_VARIANCE: Final = 1 / 12  # of a mean reward around 1/2, by which half-lives predict rounds: uniform on [0, 1]


@dataclass(frozen=True)
class SuccessCounts(SufficientStatistics):
    """Estimated successes and trials of arms, (..., arms); rewards between 0 and 1 count as parts of a success."""

    people: Array  # trials that are expected, by public shares
    # successes, trials: for an arm of mean m, ``successes - m trials`` has the expectation 0
    successes: Array
    trials: Array
    # spread, noise: its variance is m (1 - m) ``spread`` + ((1 - m)^2 + m^2) ``noise``: people differ, and releases
    # have noise
    spread: Array
    noise: Array

    @classmethod
    def empty(cls, n_arms: int) -> Self:
        """Return the counts of no reports."""
        return cls(*np.zeros((5, n_arms)))

    @classmethod
    def from_means(cls, people: Array, means: Array, information: Array) -> Self:
        """Return the counts of estimated means, whose variance at a mean of 1/2 is the inverse of ``information``."""
        variances = _divide(np.ones(len(people)), information, 0.0)
        constant = np.maximum(0.0, people**2 * variances - people / 4)
        return cls(people, people * means, people, people + 2 * constant, constant)

    @classmethod
    def from_scores(cls, people: Array, sums: Array, trials: Array, hit_rates: Array, release: Any) -> Self:
        """Return the counts of sums of scores from -1 to 1, if participants by arm are known from public shares.

        people, sums: participants who report on each arm, and the sums of their scores.
        trials, hit_rates: reports whose scores may count for an arm, and the probability that one does.
        release: their `KeyedSums`, of which the gain and the variance of noise count.
        """
        gain = release.gain
        squares = _divide(people**2, trials, 0.0)
        constant = np.where(people > 0, trials * hit_rates - gain**2 * squares + release.noise, 0.0) / (2 * gain) ** 2
        # A variance that is the same for all m: (1 - m)^2 + m^2 and 2 m (1 - m) are 1 together.
        return cls(people, (sums / gain + people) / 2, people, squares + 2 * constant, constant)

    @classmethod
    def from_hits(cls, people: Array, positive: Array, hits: Array, release: CellHits) -> Self:
        """Return the counts of positive and all hits of arms, with ``people`` expected participants of each."""
        gain, random_hits = release.gain, release.reports * release.other
        successes, trials = (positive - random_hits) / gain, (hits - 2 * random_hits) / gain
        noise = (random_hits * (1 - release.other) + release.noise) / gain**2
        spread = people / gain + 2 * random_hits * release.other / gain**2
        return cls(people, successes, trials, spread, np.full(len(people), noise))

    def weigh_by_information(self, success_share: float) -> Self:
        """Return a round's counts, weighted by the information of each arm under noise that is equal for all.

        An arm with an equal share has the weight 1; a small share tells less than its people are worth. Weights are by
        the ``success_share`` of all arms before the round: by an arm's own rate, luck would have a larger weight.
        """
        variance = max(_MIN_SUCCESS_SHARE, success_share * (1 - success_share))
        variances = variance * self.spread + (1 - 2 * variance) * self.noise
        uniform = float(self.people.sum()) / max(1, int(np.count_nonzero(self.people)))
        weights = _divide(self.people * (variances + variance * (uniform - self.people)), uniform * variances, 0.0)
        people, successes, trials = weights * self.people, weights * self.successes, weights * self.trials
        return type(self)(people, successes, trials, weights**2 * self.spread, weights**2 * self.noise)

    @property
    def bounded_trials(self) -> Array:
        """Trials, clipped to within a factor of the expected number."""
        return np.asarray(np.clip(self.trials, self.people / _MAX_TRIAL_RATIO, self.people * _MAX_TRIAL_RATIO))

    @property
    def means(self) -> Array:
        """Estimated mean rewards; 1/2 where there are no trials."""
        return _divide(self.successes, self.bounded_trials, 0.5)

    @property
    def variances(self) -> Array:
        """Variances of `means`; infinite without trials. A success and a failure are added, so that none is 0."""
        trials = self.bounded_trials
        smoothed_means = (np.clip(self.successes, 0.0, trials) + 1) / (trials + 2)
        return _divide(self._count_variances(smoothed_means), trials**2, np.inf)

    def _count_variances(self, means: Array) -> Array:
        """Return the variances of ``successes - m trials`` for arms of these means m."""
        return means * (1 - means) * self.spread + ((1 - means) ** 2 + means**2) * self.noise

    def predictive_log_density(self, new: "SuccessCounts") -> float:
        """Return the log density that these counts, under a normal prior on means, predicted for those of a round."""
        precision = 1 / _PRIOR_VARIANCE + 1 / self.variances
        means = np.clip((0.5 / _PRIOR_VARIANCE + self.means / self.variances) / precision, 0.0, 1.0)
        variances = new._count_variances(means) + new.people**2 / precision
        squares = (new.successes - means * new.trials) ** 2 / np.maximum(variances, 1e-12)
        log_densities = -(squares + np.log(2 * np.pi * np.maximum(variances, 1e-12))) / 2
        return float(log_densities[new.people > 0].sum())

    @property
    def attenuation(self) -> Array:
        """The attenuation c >= 1: estimates vary like bits of mean 1/2 + (m - 1/2) / c, times c."""
        count_variances = self._count_variances(np.clip(self.means, 0.0, 1.0))
        variance_per_trial = _divide(count_variances, self.bounded_trials, 0.0)
        # c^2 b (1 - b) for the mean b of the bits; an estimate beyond 0 or 1 has one, too.
        return np.asarray(2 * np.sqrt(np.maximum(0.25, variance_per_trial + (self.means - 0.5) ** 2)))

    @property
    def pooled_success_rate(self) -> tuple[float, float]:
        """The share of successes among all trials, and its standard deviation; 1/2 and infinite without trials."""
        trials = self.bounded_trials
        shares, is_tried = trials / max(1.0, float(trials.sum())), trials > 0
        if not is_tried.any():
            return 0.5, np.inf
        return float(shares @ self.means), float(np.sqrt(np.square(shares[is_tried]) @ self.variances[is_tried]))


def _divide(numerator: Array, denominator: Array, default: float) -> Array:
    is_positive = denominator > 0
    return np.where(is_positive, numerator / np.where(is_positive, denominator, 1.0), default)


PRECISION_PER_REWARD: Final = 4.0
"""Precision of a mean that one reward in [0, 1] adds: a sub-Gaussian proxy of 1/4 (Hoeffding)."""
_MIXING_PRECISION: Final = 100.0
"""Precision for which intervals are narrowest: arms a fifth apart take a few times as much."""
_RARE_REWARD_SHARE: Final = 0.02
"""Share of successes, or of failures, from which on the loss of a wrong choice is known well enough to plan by it."""


@dataclass(frozen=True)
class ArmPosterior(SufficientStatistics):
    """A posterior over the mean reward of every arm; all shapes (..., arms)."""

    people: Array  # people who reported on each arm, or as many as its share of the coins stands for
    # inverse of a sub-Gaussian variance proxy of each arm's estimate: what every release adds is known before it
    precision: Array
    weighted: Array  # sum of estimates of the mean reward, from 0 to 1, by their precisions: what guarantees rest on
    # sum of losses around the middle of the range, each divided by the share of its arm: unbiased, no matter who chose
    # the rewards
    losses: Array
    # successes and trials of each arm, with the variance that they have: what decides who plays what
    counts: SuccessCounts

    @classmethod
    def empty(cls, n_arms: int) -> Self:
        """Return the posterior of no reports."""
        zeros = np.zeros(n_arms)
        return cls(zeros, zeros, zeros, zeros, SuccessCounts.empty(n_arms))

    @classmethod
    def from_round(cls, people: Array, precision: Array, means: Array, losses: Array, counts: SuccessCounts) -> Self:
        """Return the posterior of one round; a ``precision`` of 0 means that the arm was not observed."""
        is_observed = precision > 0
        weighted = np.where(is_observed, precision * np.where(is_observed, means, 0.0), 0.0)
        counts = counts.map_arrays(lambda values: np.where(is_observed, values, 0.0))
        return cls(people, precision, weighted, losses, counts)

    @property
    def means(self) -> Array:
        """Estimated mean rewards; 1/2 without reports."""
        return self.counts.means

    @property
    def variances(self) -> Array:
        """Variances of `means`; infinite without reports."""
        return self.counts.variances

    @property
    def attenuation(self) -> Array:
        """The standard deviation of an estimate relative to that of as many rewards, 1 or more."""
        return self.counts.attenuation

    @property
    def interval_centres(self) -> Array:
        """Estimated mean rewards at the centres of `radii`, with weights that are known before each release."""
        is_observed = self.precision > 0
        return np.where(is_observed, self.weighted / np.where(is_observed, self.precision, 1.0), 0.5)

    @property
    def is_rare(self) -> bool:
        """Whether the pooled success or failure rate is below 2 % up to one standard deviation."""
        level, deviation = self.counts.pooled_success_rate
        return min(level, 1 - level) - deviation < _RARE_REWARD_SHARE

    def radii(self, failure_probability: float) -> Array:
        """Return radii around `interval_centres`: all intervals hold at all times, but with ``failure_probability``.

        Normal mixtures of the likelihood (Robbins 1970): valid whatever decides who plays what, and when that ends.
        """
        log = math.log(len(self.people) / failure_probability) + _mixture_cost(self.precision)
        precision = np.maximum(self.precision, 1e-12)
        return np.where(self.precision > 0, np.sqrt(2 * log * (self.precision + _MIXING_PRECISION)) / precision, np.inf)

    def compare_with_leader(self, playable: Bools, failure_probability: float) -> tuple[int, Array]:
        """Return the arm of the highest interval centre, and the margin of its lead over each arm, if above 0.

        If every other playable arm is beaten at any time, the leader is the best arm but with probability
        ``failure_probability``. A pair's likelihood is mixed arm by arm: a wrong leader takes that one arm and the best
        one are off together by their difference, which happens with probability failure / (arms - 1) to each.
        """
        best = int(np.argmax(np.where(playable, self.interval_centres, -np.inf)))
        margins = self._log_evidence()[best] - math.log(max(1, int(playable.sum()) - 1) / failure_probability)
        margins[best] = np.inf
        return best, np.where(playable, margins, np.inf)

    def find_best_arms(self, playable: Bools, count: int) -> Bools:
        """Return a mask of the ``count`` playable arms with the highest interval centres."""
        is_best = np.zeros(len(playable), bool)
        is_best[np.argsort(np.where(playable, -self.interval_centres, np.inf), kind="stable")[:count]] = True
        return is_best

    def bound_set_error(self, is_best: Bools, playable: Bools) -> float:
        """Return a bound p of the error probability of a set: an arm outside has a higher mean than one inside.

        At any time, whatever decided who played what, p is at most a while the set is wrong with probability a or less.
        A wrong set has one of the k (arms - k) pairs of a worse and a best arm in the wrong order.
        """
        is_rival = playable & ~is_best
        n_pairs = int(is_best.sum()) * int(is_rival.sum())
        return min(1.0, n_pairs * math.exp(-float(self._log_evidence()[np.ix_(is_best, is_rival)].min())))

    def _log_evidence(self) -> Array:
        """Return by how much the mixed log likelihood says that arm i is better than arm j, net of costs; (i, j)."""
        mixed, costs = self.precision**2 / (self.precision + _MIXING_PRECISION), _mixture_cost(self.precision)
        pair_precision = mixed[:, None] * mixed / np.maximum(mixed[:, None] + mixed, 1e-300)
        gaps = np.maximum(self.interval_centres[:, None] - self.interval_centres, 0.0)
        return np.asarray(pair_precision * gaps**2 / 2 - costs[:, None] - costs)


def _mixture_cost(precision: float | Array) -> Array:
    return np.asarray(0.5 * np.log1p(precision / _MIXING_PRECISION))


@dataclass(frozen=True)
class PairContrast:
    """Evidence on the difference of two arms' mean rewards, if the errors of both are independent."""

    precision: float  # sum of the inverse variance proxies of the rounds' differences
    weighted: float  # sum of the rounds' differences, first arm minus second, by their precisions

    def add(self, latest: ArmPosterior, playable: Bools) -> "PairContrast":
        """Return the contrast with a round added, unless the round lacks an arm."""
        precisions, means = latest.precision[playable], latest.interval_centres[playable]
        if not precisions.all():
            return self
        precision = float(precisions.prod() / precisions.sum())
        return PairContrast(self.precision + precision, self.weighted + precision * float(means[0] - means[1]))

    @property
    def log_evidence(self) -> float:
        """The log of the mixed likelihood ratio to equal means: a wrong order reaches it with its inverse at most."""
        return self.weighted**2 / (2 * (self.precision + _MIXING_PRECISION)) - float(_mixture_cost(self.precision))


@lru_cache(maxsize=4096)
def variance_proxy(share: float) -> float:
    """Return a sub-Gaussian variance proxy of a score of -1, 0 or 1 that differs from 0 with probability ``share``.

    The largest, over the sign's bias, of 2 (ln E e^(t X) - t E X) / t^2; 1 at share 1.
    """
    if share >= 1:
        return 1.0
    t = np.concatenate([-np.geomspace(1e-2, 40, 120)[::-1], np.geomspace(1e-2, 40, 120)])[:, None]
    positive = np.linspace(0.0, 1.0, 41)
    exponent = np.log1p(share * (positive * np.expm1(t) + (1 - positive) * np.expm1(-t)))
    return float(max(share, np.max(2 * (exponent - t * share * (2 * positive - 1)) / t**2)))
