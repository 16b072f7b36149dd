"""A learner over a tree of bins, as both learners of paper 1 are: arms are dropped in a bin until it is halved."""

from dataclasses import replace
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.partition import PartitionSpec, corners
from privateer_server.algorithms.partition.bin_tree import Space, halved
from privateer_server.algorithms.partition.cohorts import CohortLearner

Array = NDArray[np.float64]
S = TypeVar("S")


class EliminationLearner(CohortLearner[S]):
    """A learner that drops arms in bins, and halves bins in which it has seen enough.

    States have ``depths``, ``paths`` and ``active``, as in `PartitionPolicy`.
    """

    # fields of a state that add up what was reported on each bin, and the axis of theirs that has the bins
    sums: ClassVar[tuple[str, ...]]
    bin_axis: ClassVar[int] = 0

    def __init__(self, spec: PartitionSpec) -> None:
        super().__init__(spec)
        self.space = Space(spec.blocks)
        self.axes = self.space.in_turn()

    @override
    def edges(self, state: Any) -> tuple[Array, Array]:
        return corners(state.depths, state.paths, self.axes, self.spec.dimension)

    def refined(self, state: S, ready: NDArray[np.bool_]) -> S:
        """Return the state with bins halved that are ``ready``, (bins,), and undecided; halves start with no sums."""
        before: Any = state
        halves = ready & (before.active.sum(axis=1) > 1) & (before.depths < self.space.depth)
        copies, fresh, depths, paths = halved(before.depths, before.paths, halves)
        sums = {name: np.take(getattr(before, name), copies, axis=self.bin_axis) for name in self.sums}
        for kept in sums.values():
            kept[(slice(None),) * self.bin_axis + (fresh,)] = 0
        return cast(S, replace(before, depths=depths, paths=paths, active=before.active[copies], **sums))
