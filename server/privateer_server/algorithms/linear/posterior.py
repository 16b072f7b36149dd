"""Bayesian linear regression of every arm's parameter, with a prior by evidence: of all coordinates, or of each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, TypeAlias

import numpy as np
from scipy.special import softmax

from privateer_core.algorithms.linear.policy import LinearPolicy
from privateer_core.arrays import Array

_N_KEPT_ROUNDS: Final = 10
"""How many rounds are kept: where rounds grow by .3, those before them have a tenth of the people."""
Statistics: TypeAlias = tuple[Array, Array]  # information and scores, as a learner's state has them


@dataclass(frozen=True)
class RoundResiduals:
    """The released residuals of a round."""

    policy: LinearPolicy  # that of the round
    sums: Array  # shape (classes, arms * d)
    reports: int  # how many
    noise: float  # variance of noise in a coordinate of ``sums``


@dataclass(frozen=True)
class RecentRounds:
    """The latest rounds, and the statistics of earlier rounds."""

    # information, scores: those of rounds that are not kept
    information: Array
    scores: Array
    rounds: tuple[RoundResiduals, ...] = ()  # those that are, oldest first

    def keep_latest_rounds(
        self, rounds: Sequence[RoundResiduals], statistics: Sequence[Statistics]
    ) -> tuple["RecentRounds", Statistics]:
        """Return the rounds that are kept for revision, and the statistics of all rounds.

        No round is kept whose people report no contexts, nor one that other policies decided: they would be kept, too.
        """
        first_kept = len(rounds) - _N_KEPT_ROUNDS
        kept, other_statistics = [], []
        for index, (entry, entry_statistics) in enumerate(zip(rounds, statistics, strict=True)):
            if index >= first_kept and entry.policy.share and not entry.policy.deciders:
                kept.append(entry)
            else:
                other_statistics.append(entry_statistics)
        folded = (self.information, self.scores)
        recent = RecentRounds(*_sum_statistics(folded, other_statistics), tuple(kept))
        return recent, _sum_statistics(folded, statistics)


def _sum_statistics(first: Statistics, others: Sequence[Statistics]) -> Statistics:
    return first[0] + sum(statistic for statistic, _ in others), first[1] + sum(statistic for _, statistic in others)


@dataclass(frozen=True)
class BaseStatistics:
    """The statistics of parameters and contexts at the start of a continual release."""

    information: Array
    scores: Array
    moments: Array
    precision: Array


@dataclass(frozen=True)
class ResidualSums:
    """Sums over the rounds of a continual release, in which reports add up to matrices (theta - centre) and noise."""

    before: BaseStatistics  # what was known then
    people: int  # people of these rounds
    matrices: Array  # shape (arms, d, d): their slopes, times people
    observed: Array  # shape (arms, d): sums of reports, less what they would be if parameters were the centre
    # spread, doubt: shape (arms,): variance of a coordinate of ``observed`` that comes of how people differ, and the
    # standard deviation that comes of slopes, which may be off in all rounds alike
    spread: Array
    doubt: Array
    context_sums: Array  # shape (d (d + 1) / 2,): the sum of the second moments of people's contexts
    context_scales: Array  # shape (d, d): what these are multiplied with, summed over people

    @classmethod
    def start(cls, before: BaseStatistics) -> "ResidualSums":
        """Return the sums of no rounds."""
        arms, d = before.scores.shape
        zeros, pairs = np.zeros(arms), np.zeros(d * (d + 1) // 2)
        return cls(before, 0, np.zeros((arms, d, d)), np.zeros((arms, d)), zeros, zeros, pairs, np.zeros((d, d)))

    def information_and_scores(self, noise: float) -> tuple[Array, Array]:
        """Return information and scores; ``noise`` is the variance of noise in a coordinate of ``observed``."""
        precision = 1 / (noise + self.spread + self.doubt**2)
        information = np.einsum("k,kij,kil->kjl", precision, self.matrices, self.matrices)
        scores = np.einsum("k,kij,ki->kj", precision, self.matrices, self.observed)
        return self.before.information + information, self.before.scores + scores


_LEVEL_DEVIATIONS: Final = (0.03, 0.1, 0.3)
"""Standard deviations tried for what arms differ by for everybody, in expected reward."""
_SLOPE_DEVIATIONS: Final = (0.01, 0.03, 0.06, 0.12, 0.25, 0.5)
"""Those tried for the other coordinates' parameters, each by itself."""
_COMMON_SLOPE_DEVIATIONS: Final = (0.03, 0.06, 0.12, 0.25, 0.5)
"""Those tried for all of them together, by half of a feature's range."""
_MIN_LOG_BAYES_FACTOR: Final = 3.0
"""Logarithm of how much more evident scales of their own must be: 20 times is strong (Kass and Raftery 1995)."""
_N_STEPS: Final = 20
_PRIOR_COUNT: Final = 2.0  # how many coordinates the assumption weighs that all of these are as likely


_COMMON_LEVEL_DEVIATION: Final = 0.5
"""Standard deviation of the level that all arms have in common, in expected reward, before any report."""


@dataclass(frozen=True)
class Posterior:
    """A normal posterior over the arms' parameters."""

    means: Array  # shape (arms, d): how far parameters are from those of the prior, on average
    covariances: Array  # shape (arms, d, d)
    prior: Array  # shape (d,): standard deviations of the coordinates before any report, in the frame


@dataclass(frozen=True)
class RewardLevel:
    """The common level of all arms' parameters, relative to the prior's mean."""

    shift: float  # how far it is from the middle
    min_shift: float  # the same as far as it is known: a standard deviation less, or 0


def estimate_level(information: Array, scores: Array, scale: float, frame: Array, declared: float = 0.0) -> RewardLevel:
    """Return the level that arms have in common at the mean context, from the arguments of `fit_posterior`.

    Before any report it is ``declared``, give or take half of ``scale``.
    """
    level_direction, prior = frame[:, 0], 1 / (_COMMON_LEVEL_DEVIATION * scale) ** 2
    precision = float(np.einsum("i,kij,j->", level_direction, information, level_direction)) + prior
    shift = (float((scores @ level_direction).sum()) + prior * declared) / precision
    return RewardLevel(shift, math.copysign(max(0.0, abs(shift) - precision**-0.5), shift))


def fit_posterior(information: Array, scores: Array, scale: float, frame: Array, shift: float = 0.0) -> Posterior:
    """Return the posterior under a prior that is fitted by evidence.

    Slopes have one scale, by a feature's range, as long as releases do not say clearly that features differ. Where all
    matter alike a scale of each coordinate would doubt those of which less was reported. Either way the prior's
    variance is the mean over scales, so that what is not known stays wide: the largest evidence alone shuts arms out
    early.

    information (arms, d, d): the sum of M^T S^-1 M over observations M theta + noise of covariance S.
    scores (arms, d): the sum of M^T S^-1 observation, of parameters less the prior's middle.
    scale: parameter by expected reward.
    frame (d, d): theta is ``frame`` times the coordinates that are independent of each other in the prior. Its diagonal
        has 1 and, by feature, 1 over the standard deviation.
    shift: how far from its middle the prior expects all arms at the mean context.
    """
    rotated_information = frame.T @ information @ frame
    rotated_scores = scores @ frame - shift * rotated_information[:, :, 0]
    rotated = rotated_information, rotated_scores
    separate_variances = _separate_scale_variances(*rotated, scale)
    common_variances = _common_scale_variances(*rotated, scale, 1 / np.diag(frame)[1:])
    log_bayes_factor = _log_evidence(*rotated, separate_variances) - _log_evidence(*rotated, common_variances)
    variances = separate_variances if log_bayes_factor > _MIN_LOG_BAYES_FACTOR else common_variances
    means, covariances = _posterior_moments(*rotated, variances)
    means[:, 0] += shift
    covariances = frame @ covariances @ frame.T
    symmetric = np.asarray((covariances + covariances.transpose(0, 2, 1)) / 2)
    return Posterior(means @ frame.T, symmetric, np.sqrt(variances))


def _common_scale_variances(information: Array, scores: Array, scale: float, deviations: Array) -> Array:
    """Return variances (d,) of slopes with one scale, averaged over scales by evidence."""
    pairs = product(_LEVEL_DEVIATIONS, _COMMON_SLOPE_DEVIATIONS)
    candidates = np.square([scale * np.concatenate([[level], slope * deviations]) for level, slope in pairs])
    evidence = np.array([_log_evidence(information, scores, variances) for variances in candidates])
    return np.asarray(softmax(evidence) @ candidates)


def _separate_scale_variances(information: Array, scores: Array, scale: float) -> Array:
    """Return variances (d,) with a scale for each coordinate.

    A coordinate's scale is common to all arms. It is one of a few with probabilities that the evidence gives, all other
    coordinates integrated out (automatic relevance determination, MacKay 1992, by cavities as in expectation
    propagation, Minka 2001); how frequent each scale is follows from all coordinates.
    """
    level_candidates = np.square(scale * np.array(_LEVEL_DEVIATIONS))
    slope_candidates = np.square(scale * np.array(_SLOPE_DEVIATIONS))
    level_frequencies = np.full(len(level_candidates), 1 / len(level_candidates))
    n_slopes = len(slope_candidates)
    scale_frequencies = np.full(n_slopes, 1 / n_slopes)
    variances = np.full(scores.shape[1], slope_candidates.mean())
    variances[0] = level_candidates.mean()
    for _ in range(_N_STEPS):
        cavity = _cavity(variances, *_posterior_moments(information, scores, variances))
        probabilities = _scale_probabilities(slope_candidates, scale_frequencies, cavity)[:, 1:]
        counts = probabilities.sum(axis=1) + _PRIOR_COUNT / n_slopes
        scale_frequencies = counts / (probabilities.shape[1] + _PRIOR_COUNT)
        level_probabilities = _scale_probabilities(level_candidates, level_frequencies, cavity)[:, :1]
        variances = np.concatenate([level_candidates @ level_probabilities, slope_candidates @ probabilities])
    return variances


def _log_evidence(information: Array, scores: Array, variances: Array) -> float:
    """Return the log marginal likelihood under a prior, up to a constant."""
    deviations = np.sqrt(variances)
    scaled = np.eye(len(deviations)) + deviations[:, None] * information * deviations
    scaled_scores = deviations * scores
    means = np.linalg.solve(scaled, scaled_scores[..., None])[..., 0]
    return float((scaled_scores * means).sum() - np.linalg.slogdet(scaled)[1].sum()) / 2


def _posterior_moments(information: Array, scores: Array, variances: Array) -> tuple[Array, Array]:
    """Return means (arms, d) and covariances (arms, d, d) under a prior of these variances."""
    deviations = np.sqrt(variances)
    # In units of the prior, so that matrices have eigenvalues of 1 and more.
    inverse = np.linalg.inv(np.eye(len(deviations)) + deviations[:, None] * information * deviations)
    means = np.einsum("kij,kj->ki", inverse, deviations * scores)
    return deviations * means, deviations[:, None] * inverse * deviations


def _cavity(variances: Array, means: Array, covariances: Array) -> tuple[Array, Array]:
    """Return the likelihood's means and variances of each coordinate, (arms, d), without the prior."""
    posterior_variances = covariances.diagonal(axis1=1, axis2=2)
    precisions = np.maximum(1 / posterior_variances - 1 / variances, 1e-9 / variances)
    return means / posterior_variances / precisions, 1 / precisions


def _scale_probabilities(candidates: Array, prior: Array, cavity: tuple[Array, Array]) -> Array:
    """Return the posterior probability of every candidate variance, (candidates, d), over all arms."""
    means, variances = cavity
    total = candidates[:, None, None] + variances
    evidence = -(np.log(total) + means**2 / total).sum(axis=1) / 2
    return np.asarray(softmax(evidence + np.log(prior)[:, None], axis=0))
