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
    scales_of,
    settled,
)
from privateer_server.algorithms.additive.white_posterior import WhitePosterior

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
    common = [one.average(one.before) for one in scales]
    scales = [scales[0], *(one.from_nothing(_OWN) for one in features)]
    own = [one.average(one.before) for one in scales]
    common[0] = np.full((1, 1), _LEVEL**2)
    for _ in range(_STEPS if information.any() else 0):
        before = [*common[1:], *own]
        alike = _common(information, away, parts, own, common)
        common[1:] = _rescaled(features, alike, 1)
        apart = WhitePosterior.of(information, away - information @ alike.means[0], parts, own)
        own = _rescaled(scales, apart, 0)
        if settled(before, [*common[1:], *own]):
            break
    alike = _common(information, away, parts, own, common)
    apart = WhitePosterior.of(information, away - information @ alike.means[0], parts, own)
    # What the common part leaves open of an arm: own covariances times the own prior's precision.
    spread, [doubt], [mean] = apart.covariances, alike.covariances, alike.means
    passed = np.eye(spread.shape[1]) - spread @ information
    covariances = spread + passed @ doubt @ passed.transpose(0, 2, 1)
    means = apart.means + mean
    means[:, 0] += level
    left = np.asarray(np.linalg.cholesky(covariances + _TINY * np.eye(spread.shape[1])), np.float64)
    return TermPosterior(means, left, float(level + mean[0]))


def _rescaled(scales: list[TermScales], known: WhitePosterior, start: int) -> list[Array]:
    """Return the covariances of blocks, from ``start`` on, by scales that are likely after a posterior."""
    return [
        one.average(softmax(one.evidence(*known.told(place)) + np.log(one.before)))
        for place, one in enumerate(scales, start)
    ]


def _common(
    information: Array, scores: Array, parts: list[slice], own: list[Array], common: list[Array]
) -> WhitePosterior:
    """Return the posterior of what all arms have in common, as that of one arm."""
    apart = WhitePosterior.of(information, scores, parts, own)
    told = (information - information @ apart.covariances @ information).sum(axis=0)
    scored = (scores - np.einsum("kij,kj->ki", information, apart.means)).sum(axis=0)
    return WhitePosterior.of(((told + told.T) / 2)[None], scored[None], parts, common)
