"""Bayesian linear regression of every arm's parameter, with a prior by evidence: of all coordinates, or of each."""

import math
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

Array = NDArray[np.float64]
_FIRST: Final = (0.03, 0.1, 0.3)
"""Standard deviations tried for what arms differ by for everybody, in expected reward."""
_OTHERS: Final = (0.01, 0.03, 0.06, 0.12, 0.25, 0.5)
"""Those tried for the other coordinates' parameters, each by itself."""
_ALIKE: Final = (0.03, 0.06, 0.12, 0.25, 0.5)
"""Those tried for all of them together, by half of a feature's range."""
_STRONG: Final = 3.0
"""Logarithm of how much more evident scales of their own must be: 20 times is strong (Kass and Raftery 1995)."""
_STEPS: Final = 20
_PRIOR_COUNT: Final = 2.0
"""How many coordinates the assumption weighs that all of these are as likely."""


_LEVEL: Final = 0.5
"""Standard deviation of the level that all arms have in common, in expected reward, before any report."""


@dataclass(frozen=True)
class Posterior:
    """A normal posterior over the arms' parameters."""

    means: Array  # shape (arms, d): how far parameters are from those of the prior, on average
    covariances: Array  # shape (arms, d, d)
    prior: Array  # shape (d,): standard deviations of the coordinates before any report, in the frame


@dataclass(frozen=True)
class RewardLevel:
    """The level that the parameters of all arms have in common, around the prior's middle."""

    shift: float  # how far it is from the middle
    sure: float  # the same as far as it is known: a standard deviation less, or 0


def level_of(information: Array, scores: Array, scale: float, frame: Array, declared: float = 0.0) -> RewardLevel:
    """Return the level that arms have in common at the mean context, by what `posterior` takes.

    Before any report it is ``declared``, give or take half of ``scale``.
    """
    first, prior = frame[:, 0], 1 / (_LEVEL * scale) ** 2
    precision = float(np.einsum("i,kij,j->", first, information, first)) + prior
    shift = (float((scores @ first).sum()) + prior * declared) / precision
    return RewardLevel(shift, math.copysign(max(0.0, abs(shift) - precision**-0.5), shift))


def posterior(information: Array, scores: Array, scale: float, frame: Array, shift: float = 0.0) -> Posterior:
    """Return the posterior, whose prior tells coordinates that matter from those that noise alone explains.

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
    own = frame.T @ information @ frame
    rotated = scores @ frame - shift * own[:, :, 0]
    apart, alike = _apart(own, rotated, scale), _alike(own, rotated, scale, 1 / np.diag(frame)[1:])
    clearly = _evidence(own, rotated, apart) > _evidence(own, rotated, alike) + _STRONG
    variances = apart if clearly else alike
    means, covariances = _under(own, rotated, variances)
    means[:, 0] += shift
    return Posterior(means @ frame.T, _symmetric(frame @ covariances @ frame.T), np.sqrt(variances))


def _alike(information: Array, scores: Array, scale: float, deviations: Array) -> Array:
    """Return variances (d,) of slopes with one scale: the mean over scales, by their evidence."""
    tried = np.square(
        [scale * np.concatenate([[first], others * deviations]) for first, others in product(_FIRST, _ALIKE)]
    )
    evidence = np.array([_evidence(information, scores, variances) for variances in tried])
    return np.asarray(softmax(evidence) @ tried)


def _apart(information: Array, scores: Array, scale: float) -> Array:
    """Return variances (d,), each of its own.

    A coordinate's scale is common to all arms. It is one of a few with probabilities that the evidence gives, all other
    coordinates integrated out (automatic relevance determination, MacKay 1992, by cavities as in expectation
    propagation, Minka 2001); how frequent each scale is follows from all coordinates.
    """
    first, others = np.square(scale * np.array(_FIRST)), np.square(scale * np.array(_OTHERS))
    frequent = np.full(len(others), 1 / len(others))
    variances = np.full(scores.shape[1], others.mean())
    variances[0] = first.mean()
    for _ in range(_STEPS):
        cavity = _cavity(variances, *_under(information, scores, variances))
        likely = _likely(others, frequent, cavity)[:, 1:]
        frequent = (likely.sum(axis=1) + _PRIOR_COUNT / len(others)) / (likely.shape[1] + _PRIOR_COUNT)
        middle = first @ _likely(first, np.full(len(first), 1 / len(first)), cavity)[:, :1]
        variances = np.concatenate([middle, others @ likely])
    return variances


def _evidence(information: Array, scores: Array, variances: Array) -> float:
    """Return the logarithm of how likely what was observed is under a prior, up to a constant."""
    deviations = np.sqrt(variances)
    scaled = np.eye(len(deviations)) + deviations[:, None] * information * deviations
    scaled_scores = deviations * scores
    means = np.linalg.solve(scaled, scaled_scores[..., None])[..., 0]
    return float((scaled_scores * means).sum() - np.linalg.slogdet(scaled)[1].sum()) / 2


def _under(information: Array, scores: Array, variances: Array) -> tuple[Array, Array]:
    """Return means (arms, d) and covariances (arms, d, d) under a prior of these variances."""
    deviations = np.sqrt(variances)
    # In units of the prior, so that matrices have eigenvalues of 1 and more.
    inverse = np.linalg.inv(np.eye(len(deviations)) + deviations[:, None] * information * deviations)
    means = np.einsum("kij,kj->ki", inverse, deviations * scores)
    return deviations * means, deviations[:, None] * inverse * deviations


def _cavity(variances: Array, means: Array, covariances: Array) -> tuple[Array, Array]:
    """Return what data alone say of each coordinate, (arms, d): means and variances."""
    spreads = covariances.diagonal(axis1=1, axis2=2)
    precisions = np.maximum(1 / spreads - 1 / variances, 1e-9 / variances)
    return means / spreads / precisions, 1 / precisions


def _likely(tried: Array, before: Array, cavity: tuple[Array, Array]) -> Array:
    """Return the probability of every variance tried, (tried, d), by what data say of all arms."""
    means, spreads = cavity
    total = tried[:, None, None] + spreads
    evidence = -(np.log(total) + means**2 / total).sum(axis=1) / 2
    return np.asarray(softmax(evidence + np.log(before)[:, None], axis=0))


def _symmetric(matrices: Array) -> Array:
    return np.asarray((matrices + matrices.transpose(0, 2, 1)) / 2)
