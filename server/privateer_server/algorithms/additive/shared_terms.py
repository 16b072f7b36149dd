"""What is known of the terms of many arms: what all have in common, and each arm's own part."""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from privateer_core.algorithms.additive.cells import Cells
from privateer_server.algorithms.additive.posterior import (
    TermPosterior,
    TermScales,
    common_level,
    posterior_under,
    scales_of,
)

Array = NDArray[np.float64]
SHARED_FROM: Final = 17
"""So many arms tell what they have in common from what is their own."""
_OWN: Final = 0.1
"""How likely a feature does something to one arm that it does not do to others, before any report."""
_STEPS: Final = 5
_TINY: Final = 1e-12
_LEVEL: Final = 0.5
"""Standard deviation of the level that all arms have in common, before any report."""


def shared_terms(
    information: Array, scores: Array, cells: Cells, masses: Array, declared: float | None
) -> TermPosterior:
    """Return the posterior under a hierarchical prior; the parameters are those of `TermPosterior.of`.

    Notes
    -----
    The terms of an arm are c + d_k, with c common to all and d_k its own. Each feature has a scale and length for c and
    others for d, and so has the arms' level, all averaged by marginal likelihood. With J_k and h_k the information and
    scores of an arm and P the prior of d, what the arm says of c has the information J_k - J_k (J_k + 1/P)^-1 J_k: an
    arm of which little is known says little. What is not known of c is in all covariances.
    """
    level = common_level(information, scores, declared)
    away = scores - level * information[:, :, 0]
    bounded = min(max(level, 0.005), 0.995)
    unit = 4 * bounded * (1 - bounded)
    parts = [slice(0, 1), *(cells.of_feature(place) for place in range(len(cells.features)))]
    features = [scales_of(one, masses[own], unit) for one, own in zip(cells.features, parts[1:], strict=True)]
    scales = [TermScales.of_level(unit), *features]
    common = _averages(scales, parts)
    scales = [scales[0], *(one.from_nothing(_OWN) for one in features)]
    own = _averages(scales, parts)
    common[0, 0] = _LEVEL**2
    for _ in range(_STEPS if information.any() else 0):
        mean, doubt = _common(information, away, own, common)
        _rescale(common, features, parts[1:], doubt[None], mean[None])
        means, factors = posterior_under(information, away - information @ mean, own)
        _rescale(own, scales, parts, factors @ factors.transpose(0, 2, 1), means)
    mean, doubt = _common(information, away, own, common)
    means, factors = posterior_under(information, away - information @ mean, own)
    spread = factors @ factors.transpose(0, 2, 1)
    # What the common part leaves open of an arm: own covariances times the own prior's precision.
    passed = np.eye(len(own)) - spread @ information
    covariances = spread + passed @ doubt @ passed.transpose(0, 2, 1)
    means = means + mean
    means[:, 0] += level
    left = np.asarray(np.linalg.cholesky(covariances + _TINY * np.eye(len(own))), np.float64)
    return TermPosterior(means, left, float(level + mean[0]))


def _averages(scales: list[TermScales], parts: list[slice]) -> Array:
    """Return the prior covariance (terms, terms) before any report."""
    found = np.zeros((parts[-1].stop, parts[-1].stop))
    for one, part in zip(scales, parts, strict=True):
        found[part, part] = one.average(one.before)
    return found


def _rescale(prior: Array, scales: list[TermScales], parts: list[slice], covariances: Array, means: Array) -> None:
    """Give each feature's part of a prior the scales that are likely after a posterior under the prior."""
    for one, part in zip(scales, parts, strict=True):
        evidence = one.evidence(covariances[:, part, part], means[:, part], prior[part, part])
        prior[part, part] = one.average(softmax(evidence + np.log(one.before)))


def _common(information: Array, scores: Array, own: Array, common: Array) -> tuple[Array, Array]:
    """Return mean (terms,) and covariance (terms, terms) of what all arms have in common."""
    means, factors = posterior_under(information, scores, own)
    spread = factors @ factors.transpose(0, 2, 1)
    told = (information - information @ spread @ information).sum(axis=0)
    scored = (scores - np.einsum("kij,kj->ki", information, means)).sum(axis=0)
    [mean], [factor] = posterior_under(((told + told.T) / 2)[None], scored[None], common)
    return mean, factor @ factor.T
