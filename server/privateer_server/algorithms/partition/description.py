"""A learner's state for people."""

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.partition.spec import PartitionSpec
from privateer_core.context import inhabited


class Bins(Protocol):
    """What every partition learner's state has."""

    @property
    def rounds(self) -> int: ...  # noqa: D102
    @property
    def seen(self) -> int: ...  # noqa: D102
    @property
    def depths(self) -> NDArray[np.int64]: ...  # noqa: D102
    @property
    def paths(self) -> NDArray[np.int64]: ...  # noqa: D102
    @property
    def active(self) -> NDArray[np.bool_]: ...  # noqa: D102


def describe(
    state: Bins,
    edges: tuple[NDArray[np.float64], NDArray[np.float64]],
    means: NDArray[np.float64],
    errors: NDArray[np.float64],
    spec: PartitionSpec,
    error: str = "standard_error",
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
    """
    names, kept = spec.experiment.arms, inhabited(spec.features, *edges)
    lower, upper = (corners.tolist() for corners in edges)
    rows = [
        {
            "depth": int(state.depths[b]),
            "path": int(state.paths[b]),
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
