"""The posterior of the terms of many arms: a common part, a part of each arm, and a spike-and-slab prior."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import softmax

from privateer_core.algorithms.additive.cells import Cells, ShapeCells
from privateer_core.arrays import Array
from privateer_server.algorithms.additive import posterior as posteriors

_SPIKE_PROBABILITY: Final = 0.7  # probability before any report that a feature does nothing
_SPIKED_SCALES: Final = np.array([0.015, 0.03, 0.06, 0.12, 0.25])
_SPIKED_LENGTHS: Final = (0.25, 1.5)
_RIDGE_SHARE: Final = 1e-3  # share of variance that is left of what a feature's terms have in common
_SHARED_RESIDUAL_DEVIATION: Final = 0.05
"""Standard deviation of what all of an arm's residuals have in common, as its level is not known exactly."""


@dataclass(frozen=True)
class SpikedTerms:
    """The posterior of one feature's terms."""

    means: Array  # shape (arms, cells): without what an arm's cells have in common
    covariances: Array  # shape (arms, cells, cells)
    active: float  # how probable it is that the feature does something

    @classmethod
    def from_statistics(cls, feature: ShapeCells, masses: Array, information: Array, scores: Array) -> "SpikedTerms":
        """Return the average over priors, weighted by evidence of all arms; ``masses`` (cells,) are people's shares."""
        centre = np.eye(feature.count) - masses
        shared = np.full((feature.count, feature.count), _SHARED_RESIDUAL_DEVIATION**2)
        kernels = [
            scale**2 * (centre @ kernel @ centre.T + _RIDGE_SHARE * np.eye(feature.count))
            for kernel in posteriors.build_kernels(feature, _SPIKED_LENGTHS)
            for scale in _SPIKED_SCALES
        ]
        spike = _RIDGE_SHARE * _SPIKED_SCALES[0] ** 2 * np.eye(feature.count)
        fits = [_fit_prior(prior + shared, information, scores) for prior in (spike, *kernels)]
        probabilities = np.append(_SPIKE_PROBABILITY, np.full(len(kernels), (1 - _SPIKE_PROBABILITY) / len(kernels)))
        weights = softmax(np.log(probabilities) + np.array([evidence for evidence, _, _ in fits]))
        means = np.array([centre @ mean.T for _, mean, _ in fits]).transpose(0, 2, 1)
        mean_terms = np.tensordot(weights, means, 1)
        deviations = means - mean_terms
        covariances = np.zeros_like(information)
        for weight, deviation, (_, _, covariance) in zip(weights, deviations, fits, strict=True):
            covariances += weight * (centre @ covariance @ centre.T + deviation[:, :, None] * deviation[:, None, :])
        return cls(mean_terms, covariances, float(1 - weights[0]))

    def root_mean_square(self, masses: Array) -> float:
        """Return the root of the mean square of terms, variances included, over arms and participants."""
        squares = self.means**2 + np.diagonal(self.covariances, axis1=1, axis2=2)
        return float(np.sqrt(max(0.0, (squares @ masses).mean())))


def _fit_prior(prior: Array, information: Array, scores: Array) -> tuple[float, Array, Array]:
    """Return the log evidence up to a constant, means and covariances under a prior of each arm's terms."""
    root = np.linalg.cholesky(prior)
    inner = np.eye(len(prior)) + root.T @ information @ root
    factors = root @ np.linalg.inv(np.linalg.cholesky(inner)).transpose(0, 2, 1)
    covariances = factors @ factors.transpose(0, 2, 1)
    means = np.einsum("kij,kj->ki", covariances, scores)
    evidence = (np.einsum("ki,ki->", means, scores) - np.linalg.slogdet(inner)[1].sum()) / 2
    return float(evidence), means, covariances


def fit_features(cells: Cells, masses: Array, information: Array, scores: Array) -> list[SpikedTerms]:
    """Return the posterior of every feature; ``information`` (arms, terms, terms) has a block for each feature."""
    slices = [cells.feature_slice(index) for index in range(len(cells.features))]
    return [
        SpikedTerms.from_statistics(feature, masses[columns], information[:, columns, columns], scores[:, columns])
        for feature, columns in zip(cells.features, slices, strict=True)
    ]


MIN_ARMS_FOR_SHARED_TERMS: Final = 17  # so many arms tell what they have in common from what is their own
_OWN_EFFECT_PROBABILITY: Final = 0.1
"""How likely a feature does something to one arm that it does not do to others, before any report."""
_N_STEPS: Final = 5
_JITTER: Final = 1e-12
_COMMON_LEVEL_DEVIATION: Final = 0.5  # standard deviation of the level that all arms have in common, before any report


def fit_shared_terms(
    information: Array, scores: Array, cells: Cells, masses: Array, declared: float | None
) -> posteriors.TermPosterior:
    """Return the posterior under a hierarchical prior; the parameters are those of `TermPosterior.from_statistics`.

    The terms of an arm are c + d_k, with c common to all and d_k its own. Each feature has a scale and length for c and
    others for d, and so has the arms' level, all averaged by marginal likelihood. With J_k and h_k the information and
    scores of an arm and P the prior of d, what the arm says of c has the information J_k - J_k (J_k + 1/P)^-1 J_k: an
    arm of which little is known says little. What is not known of c is in all covariances.
    """
    level = posteriors.estimate_common_level(information, scores, declared)
    residuals = scores - level * information[:, :, 0]
    unit = posteriors.reward_unit(level)
    blocks = posteriors.list_blocks(cells)
    feature_blocks = zip(cells.features, blocks[1:], strict=True)
    features = [posteriors.build_scales(feature, masses[block], unit) for feature, block in feature_blocks]
    scales = [posteriors.TermScales.from_level(unit), *features]
    common_priors = [family.mean_covariance(family.prior) for family in scales]
    scales = [scales[0], *(family.with_spike(_OWN_EFFECT_PROBABILITY) for family in features)]
    own_priors = [family.mean_covariance(family.prior) for family in scales]
    common_priors[0] = np.full((1, 1), _COMMON_LEVEL_DEVIATION**2)
    for _ in range(_N_STEPS if information.any() else 0):
        old_priors = [*common_priors[1:], *own_priors]
        common = _common_posterior(information, residuals, blocks, own_priors, common_priors)
        common_priors[1:] = posteriors.update_priors(features, common, 1)
        own_posterior = posteriors.WhitePosterior.fit(
            information, residuals - information @ common.means[0], blocks, own_priors
        )
        own_priors = posteriors.update_priors(scales, own_posterior, 0)
        if posteriors.has_converged(old_priors, [*common_priors[1:], *own_priors]):
            break
    common = _common_posterior(information, residuals, blocks, own_priors, common_priors)
    own_posterior = posteriors.WhitePosterior.fit(
        information, residuals - information @ common.means[0], blocks, own_priors
    )
    # What the common part leaves open of an arm: own covariances times the own prior's precision.
    own_covariances, [common_covariance], [mean] = own_posterior.covariances, common.covariances, common.means
    transfer = np.eye(own_covariances.shape[1]) - own_covariances @ information
    covariances = own_covariances + transfer @ common_covariance @ transfer.transpose(0, 2, 1)
    means = own_posterior.means + mean
    means[:, 0] += level
    root = np.asarray(np.linalg.cholesky(covariances + _JITTER * np.eye(own_covariances.shape[1])), np.float64)
    prior = tuple(own + shared for own, shared in zip(own_priors, common_priors, strict=True))
    return posteriors.TermPosterior(means, root, float(level + mean[0]), prior)


def _common_posterior(
    information: Array, scores: Array, blocks: list[slice], own_priors: list[Array], common_priors: list[Array]
) -> posteriors.WhitePosterior:
    """Return the posterior of the arms' common part, as that of one arm."""
    own_posterior = posteriors.WhitePosterior.fit(information, scores, blocks, own_priors)
    information_sum = (information - information @ own_posterior.covariances @ information).sum(axis=0)
    score_sum = (scores - np.einsum("kij,kj->ki", information, own_posterior.means)).sum(axis=0)
    return posteriors.WhitePosterior.fit(
        ((information_sum + information_sum.T) / 2)[None], score_sum[None], blocks, common_priors
    )
