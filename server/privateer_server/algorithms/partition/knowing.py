"""What the tuned learner knows of values, by bins that learn from their neighbours."""

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.partition import DEPTH_MAX, PartitionSpec, corners
from privateer_server.algorithms.partition.field import Evidence
from privateer_server.algorithms.partition.halving import ancestry
from privateer_server.algorithms.partition.remembering import Remembering
from privateer_server.algorithms.partition.screening import new_screening, said
from privateer_server.algorithms.partition.slabs import slabs_of
from privateer_server.algorithms.partition.smoothness import Smoothness
from privateer_server.algorithms.partition.space import Space
from privateer_server.algorithms.partition.state import PartitionState

Array = NDArray[np.float64]

_NARROW: Final = 0.25
"""Bins of this width or less are not wide: they are as even as was fitted."""
_FEW: Final = 0.2
"""Where the tree began with levels, bins with this share of the people or less are not wide: they serve few."""
_FIRST_LEVELS: Final = 16
"""Bins that the tree begins with at most, of levels or sets of levels."""
_HEARD_OF: Final = 0.5
"""Arms take turns once the variance of each one's average over the bin is below this share of a value's at first."""
_LARGE: Final = 0.0625
"""After a screening bins with a larger share of the people count as wide, whatever their width: they may be few."""
_TOGETHER: Final = 256
"""Bins that learn from each other, at most: neighbourhoods above this size are cut in two."""


class Knowing(Remembering):
    """Values are a Gaussian process over the features that are kept, which bins and slabs observe."""

    def __init__(self, spec: PartitionSpec) -> None:
        super().__init__(spec)
        self._cohorts = ["", *(source.name for source in spec.sources)]
        self._space, self._slabs = Space(spec.blocks), slabs_of(spec)
        screens = new_screening(spec, self._slabs) is not None
        self._first_columns = [] if screens else self._space.columns_of_levels(_FIRST_LEVELS)

    def _wide(self, state: PartitionState) -> NDArray[np.bool_]:
        wide = self._kept(state)[0].widest(*self._corners(state)) > _NARROW
        if self._first_columns:
            wide &= state.mass[0] > _FEW
        return np.asarray(wide | self._large(state))

    def _takes_turns(self, state: PartitionState) -> NDArray[np.bool_]:
        """Tell which bins play one arm a round: narrow ones where values are known, and keys have the arm.

        Where nothing is known of an arm yet it is played beside the others, or it might wait for long. (In wide bins
        of a rough function an average is known from the start: it is near the middle.)
        """
        most = np.where(state.active, state.variance, 0.0).max(axis=1)
        heard_of = most < _HEARD_OF * self._smoothness(state).variance
        return np.asarray(heard_of & ~self._wide(state) & self.spec.privacy.arm_in_key)

    def _large(self, state: PartitionState) -> NDArray[np.bool_]:
        """Tell which bins have many people, where features were screened."""
        return np.asarray((state.mass[0] > _LARGE) & (state.screening is not None))

    def _kept(self, state: PartitionState) -> tuple[Space, NDArray[np.int64]]:
        """Return the space of the features that matter, as far as is known, and its columns."""
        return self._space.only(self._blocks(state))

    def _blocks(self, state: PartitionState) -> NDArray[np.int64]:
        kept = [
            one.blocks for place, one in enumerate(self._slabs) if not state.screening or state.screening.kept[place]
        ]
        return np.concatenate(kept)

    def _corners(self, state: PartitionState) -> tuple[Array, Array]:
        """Return the corners of the bins, along the columns that are kept."""
        columns = self._kept(state)[1]
        lower, upper = corners(state.depths, state.paths, state.axes, self.spec.dimension)
        return lower[:, columns], upper[:, columns]

    def _smoothness(self, state: PartitionState) -> Smoothness:
        """How values vary over the space of the features that are kept."""
        return Smoothness(state.lengths[self._blocks(state)], state.spread, self._kept(state)[0])

    def _axes(self, axes: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.concatenate([axes, np.arange(len(axes), DEPTH_MAX) % self.spec.dimension])

    def _evidence(self, state: PartitionState) -> list[tuple[slice, Evidence]]:
        """What is known of values, by groups of bins that learn from each other."""
        lower, upper = self._corners(state)
        beside, groups = self._beside(state), []
        for some, past, inside in ancestry(state.depths, state.paths, state.past_depths, state.past_paths, _TOGETHER):
            shares = inside * state.mass[0, some]
            shares = shares / shares.sum(axis=1, keepdims=True)
            information = np.einsum("pi,pk,pj->kij", shares, state.past_precision[past], shares, optimize=True)
            size = np.arange(some.stop - some.start)
            information[:, size, size] += state.precision[some].T
            weighted = state.moment[some].T + state.past_moment[past].T @ shares
            evidence = Evidence(lower[some], upper[some], information, weighted)
            groups.append((some, evidence.beside(beside) if beside else evidence))
        return groups

    def _beside(self, state: PartitionState) -> Evidence | None:
        """What is known of slabs. From the end of the screening on it fades as evidence of bins does."""
        if state.screening is None:
            return None
        people = 0 if state.screening.open else state.own - state.screening.ended
        left = 0.5 ** (max(0, people) / self._half_life(state))
        return said(state.screening.faded(left), self._slabs, self._kept(state)[1])

    def _fitted(self, state: PartitionState) -> PartitionState:
        [(_, evidence)] = self._evidence(state)
        found = evidence.fitted(self._smoothness(state))
        lengths = state.lengths.copy()
        lengths[self._blocks(state)] = found.lengths
        return replace(state, lengths=lengths, spread=found.spread, fitted=state.seen)

    def _computed(self, state: PartitionState) -> PartitionState:
        smoothness, found = self._smoothness(state), []
        for some, evidence in self._evidence(state):
            found.append([part[: some.stop - some.start] for part in evidence.posterior(smoothness)])
        means, variances = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return replace(state, mean=means, variance=variances)
