"""How the tuned learner drops arms and halves bins."""

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer.algorithms.partition import corners
from privateer_server.algorithms.partition.halving import halved
from privateer_server.algorithms.partition.knowing import Knowing
from privateer_server.algorithms.partition.smoothness import Smoothness, usual_lengths
from privateer_server.algorithms.partition.state import PartitionState

Array = NDArray[np.float64]

_DROP: Final = 2.2
_DROP_IN_KEY: Final = 1.8
"""Standard deviations of a difference at which an arm is dropped. Where the arm is in the key the square of its share
counts, so that one that is rarely played tells next to nothing and is dropped earlier."""
_DROP_LARGE: Final = 3.0
"""Standard deviations at which an arm is dropped in large bins."""
_USUAL_SPREAD: Final = 2
"""Place of the spread that bins have at most when arms are dropped, .75; lengths are the usual ones."""
_SPLIT: Final = 0.5
_HALF_KNOWN: Final = 0.6
"""Standard deviation of a half's share of people from one half, relative to it, before people are counted."""
_NOBODY: Final = 1e-18
_FIRST_BINS: Final = 32
"""Bins that the tree begins with after features were screened, at most."""


class Growing(Knowing):
    """The tree: which arms may be the best somewhere in a bin, and which bins are known well enough to be halved."""

    def _grown(self, state: PartitionState) -> PartitionState:
        """Halve bins until none is known well enough to be halved."""
        while len(state.depths) < len((after := self._halved(self._sifted(state))).depths) <= _FIRST_BINS:
            state = after
        return state

    def _sifted(self, state: PartitionState) -> PartitionState:
        """Active arms are those that may be the best at some place of the bin, as far as is known now.

        No wide bin counts as more even than usual, whatever was fitted: it does not show what is hidden in it. An arm
        that was dropped comes back when what its neighbours learn makes it likely again.
        """
        leader = np.where(state.active, state.mean, -np.inf).argmax(axis=1)[:, None]
        lower, upper = self._corners(state)
        space = self._kept(state)[0]
        usual = Smoothness(usual_lengths(space.parts), _USUAL_SPREAD, space)
        within = self._smoothness(state).within(lower, upper)
        within = np.where(self._wide(state), np.maximum(within, usual.within(lower, upper)), within)[:, None]
        variance = state.variance + np.take_along_axis(state.variance, leader, axis=1) + 2 * within
        gap = np.take_along_axis(state.mean, leader, axis=1) - state.mean
        usual_most = _DROP_IN_KEY if self.spec.privacy.arm_in_key else _DROP
        most = np.where(self._large(state), _DROP_LARGE, usual_most)[:, None]
        return replace(state, active=~(gap > most * np.sqrt(variance)) & self.playable)

    def _halved(self, state: PartitionState) -> PartitionState:
        """Halve undecided bins whose best arm is known better than its values in the halves are alike."""
        lower, upper = self._corners(state)
        space, columns = self._kept(state)
        differences = self._smoothness(state).halves(lower, upper)
        leader = np.where(self.playable, state.mean, -np.inf).argmax(axis=1)[:, None]
        known = np.take_along_axis(state.variance, leader, axis=1)[:, 0] < _SPLIT * differences.max(axis=1)
        ready = known & (state.active.sum(axis=1) > 1) & (state.depths < space.depth)
        if not ready.any():
            return state
        deepest = ready & (state.depths == len(state.axes))
        if deepest.any():
            # A new level halves the column along which its bins differ most, of those that still part people.
            left = self._space.left(state.axes)[columns]
            differ = np.where(left, differences[deepest].mean(axis=0), -1.0)
            state = replace(state, axes=np.append(state.axes, columns[differ.argmax()]))
        return self._computed(self._cut(state, ready))

    def _by_levels(self, state: PartitionState) -> PartitionState:
        """Halve bins until each holds one level of the features whose levels the tree begins with."""
        for level, column in enumerate(self._first_columns):
            whole = self._smoothness(state).halves(*self._corners(state))[:, column] > 0
            ready = whole & (state.depths == level)
            state = self._cut(replace(state, axes=np.append(state.axes, column)), ready)
        return self._computed(state)

    def _cut(self, state: PartitionState, ready: NDArray[np.bool_]) -> PartitionState:
        """Halve bins, of which the posterior then knows nothing yet."""
        copies, fresh, depths, paths = halved(state.depths, state.paths, ready)
        below = replace(state, depths=depths, paths=paths)
        mass = state.mass[:, copies] * np.where(fresh, self._expected(below) / self._expected(state)[copies], 1.0)
        return replace(
            below,
            active=state.active[copies],
            precision=state.precision[copies] * ~fresh[:, None],
            moment=state.moment[copies] * ~fresh[:, None],
            past_depths=np.append(state.past_depths, state.depths[ready]),
            past_paths=np.append(state.past_paths, state.paths[ready]),
            past_precision=np.concatenate([state.past_precision, state.precision[ready]]),
            past_moment=np.concatenate([state.past_moment, state.moment[ready]]),
            mass=mass,
            mass_precision=np.where(fresh, (_HALF_KNOWN * mass) ** -2, state.mass_precision[:, copies]),
            bank=state.bank.halved(copies, fresh, ready) if state.bank else None,
        )

    def _expected(self, state: PartitionState) -> Array:
        """Share of people in each bin as the spec alone has it; not 0, since people may be where nobody should be."""
        box = corners(state.depths, state.paths, state.axes, self.spec.dimension)
        return np.maximum(self._space.expected(*box), _NOBODY)
