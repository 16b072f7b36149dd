"""A learner's state for people."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.partition.spec import PartitionSpec
from privateer_core.context import inhabited


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
