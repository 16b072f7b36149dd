"""What a partition learner knows of its bins, for people."""

import math
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.partition.spec import PartitionSpec
from privateer_core.answer.estimates import Estimate
from privateer_core.answer.parts import BinMeans, MeansOfBin
from privateer_core.spec.context import columns_of, conditions_of, inhabited

Array = NDArray[np.float64]
CONFIDENCE: Final = 0.95
"""The probability with which the interval of one mean holds, about: estimates are nearly normal."""
DEVIATIONS: Final = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
"""Standard errors to either side of a mean that make its interval."""
_DIGITS: Final = 4


def bin_means(
    active: NDArray[np.bool_],
    edges: tuple[Array, Array],
    means: Array,
    radii: Array,
    spec: PartitionSpec,
    confidence: float,
) -> BinMeans:
    """Return each active arm's mean reward with its interval, for every bin in which anybody can be.

    Parameters
    ----------
    active
        Shape (bins, arms): arms that are played.
    edges
        Lower and upper corners of the bins, each (bins, columns).
    means, radii
        Shape (bins, arms); nothing is known where a radius is not finite.
    spec
        That of the experiment: it names the arms, and says which bins nobody can be in.
    confidence
        The probability with which each interval by itself holds.
    """
    bounds, (lower, upper) = (spec.reward.low, spec.reward.high), edges
    rows = []
    for b in np.flatnonzero(inhabited(spec.features, *edges)):
        known = (
            Estimate.within(spec.experiment.arms[k], round(float(means[b, k]), _DIGITS), float(radii[b, k]), bounds)
            for k in np.flatnonzero(active[b])
            if math.isfinite(means[b, k]) and math.isfinite(radii[b, k])
        )
        where = conditions_of(spec.features, lower[b], upper[b])
        rows.append(MeansOfBin(tuple(lower[b].tolist()), tuple(upper[b].tolist()), where, tuple(known)))
    return BinMeans(tuple(columns_of(spec.features)), tuple(rows), confidence)
