"""What a partition learner knows of its bins, for people."""

import math
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.partition.spec import PartitionSpec
from privateer_core.answer.estimates import Estimate
from privateer_core.answer.parts import BinMeans, MeansOfBin
from privateer_core.context import columns_of, conditions_of, inhabited

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


def describe(
    state: Any,
    edges: tuple[NDArray[np.float64], NDArray[np.float64]],
    means: NDArray[np.float64],
    errors: NDArray[np.float64],
    spec: PartitionSpec,
    error: str = "standard_error",
    tree: Any = None,
) -> dict[str, Any]:
    """Describe each active arm's mean reward with its error, for every bin in which anybody can be.

    Parameters
    ----------
    edges
        Lower and upper corners of the bins, each (bins, columns).
    means, errors
        Shape (bins, arms).
    spec
        That of the experiment: it names the arms, and says which bins nobody can be in.
    error
        What the errors are.
    tree
        What has ``depths`` and ``paths``, if the state itself has not.
    """
    tree = state if tree is None else tree
    names, kept = spec.experiment.arms, inhabited(spec.features, *edges)
    lower, upper = (corners.tolist() for corners in edges)
    rows = [
        {
            "depth": int(tree.depths[b]),
            "path": int(tree.paths[b]),
            "lower": lower[b],
            "upper": upper[b],
            "arms": {
                names[k]: {"mean": _rounded(means[b, k]), error: _rounded(errors[b, k])}
                for k in np.flatnonzero(state.active[b])
            },
        }
        for b in np.flatnonzero(kept)
    ]
    return {"rounds": state.rounds, "seen": state.seen, "bins": rows}


def _rounded(value: float) -> float | None:
    return round(float(value), 4) if math.isfinite(value) else None
