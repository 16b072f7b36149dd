"""How the tuned learner drops arms and halves bins."""

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.partition import DEPTH_MAX, PartitionPolicy, corners
from privateer_server.algorithms.partition.halving import halved
from privateer_server.algorithms.partition.knowing import Knowing
from privateer_server.algorithms.partition.parts import Parts
from privateer_server.algorithms.partition.smoothness import Smoothness, usual_lengths
from privateer_server.algorithms.partition.state import PartitionState

Array = NDArray[np.float64]

_DROP: Final = 2.2
_DROP_SHARED: Final = 1.8
"""Standard deviations of a difference at which an arm is dropped. Where the arm is in the key and arms share a bin, the
square of a share counts, so that one that is rarely played tells next to nothing and is dropped earlier."""
_DROP_LARGE: Final = 3.0
"""Standard deviations at which an arm is dropped in large bins."""
_USUAL_SPREAD: Final = 2
"""Place of the spread that bins have at most when arms are dropped, .75; lengths are the usual ones."""
_SPLIT: Final = 0.5
_SPLIT_IN_KEY: Final = 0.7
"""A bin is halved when the variance of an arm's value is below this share of the variance between its halves: that of
the best arm, or, where the arm is in the key, of any active one: the best may not have had its turn."""
_HALF_KNOWN: Final = 0.4
"""Standard deviation of a half's share of people from one half, relative to it, before people are counted."""
_NOBODY: Final = 1e-18
_HALVINGS: Final = 2
"""How often undecided bins are halved to tell their people apart, where reports are about the bins."""
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
        usual_most = np.where(self.spec.privacy.arm_in_key & ~self._takes_turns(state), _DROP_SHARED, _DROP)
        most = np.where(self._large(state), _DROP_LARGE, usual_most)[:, None]
        return replace(state, active=~(gap > most * np.sqrt(variance)) & self.playable)

    def _halved(self, state: PartitionState) -> PartitionState:
        """Halve undecided bins of which an arm is known better than its values in the halves are alike."""
        lower, upper = self._corners(state)
        space = self._kept(state)[0]
        differences = self._smoothness(state).halves(lower, upper)
        most = differences.max(axis=1)
        if self.spec.privacy.arm_in_key:
            known = np.where(state.active, state.variance, np.inf).min(axis=1) < _SPLIT_IN_KEY * most
        else:
            leader = np.where(self.playable, state.mean, -np.inf).argmax(axis=1)[:, None]
            known = np.take_along_axis(state.variance, leader, axis=1)[:, 0] < _SPLIT * most
        ready = known & (state.active.sum(axis=1) > 1) & (state.depths < space.depth)
        if not ready.any():
            return state
        return self._computed(self._cut(self._deeper(state, ready, differences), ready))

    def _deeper(self, state: PartitionState, ready: NDArray[np.bool_], differences: Array) -> PartitionState:
        """Add a level, if bins at the deepest are ready: it halves the column along which these differ most."""
        deepest = ready & (state.depths == len(state.axes))
        if not deepest.any():
            return state
        # Columns that part nobody any more are left out.
        columns = self._kept(state)[1]
        differ = np.where(self._space.left(state.axes)[columns], differences[deepest].mean(axis=0), -1.0)
        return replace(state, axes=np.append(state.axes, columns[differ.argmax()]))

    def _parts(self, state: PartitionState) -> Parts:
        """Halve undecided bins a few times; the parts' means are those that neighbours make likely."""
        fine, rows = state, np.arange(len(state.depths))
        for _ in range(_HALVINGS):
            ready = (fine.active.sum(axis=1) > 1) & (fine.depths < self._space.depth)
            if not ready.any():
                break
            fine = self._deeper(fine, ready, self._smoothness(fine).halves(*self._corners(fine)))
            rows, fine = rows[np.repeat(np.arange(len(ready)), 1 + ready)], self._cut(fine, ready)
        expected = self._expected(fine)
        shares = expected / np.bincount(rows, expected)[rows]
        mean = self._means_of(state, rows, *self._corners(fine))
        return Parts(rows, fine.axes, fine.depths, fine.paths, shares, mean)

    def _undivided(self, state: PartitionState) -> Parts:
        """Return the bins as they are."""
        rows = np.arange(len(state.depths))
        return Parts(rows, state.axes, state.depths, state.paths, np.ones(len(rows)), state.mean)

    def _asked(self, state: PartitionState, policy: PartitionPolicy) -> Parts:
        """Return what is thought of the parts that a policy told apart."""
        starts = state.paths << (DEPTH_MAX - state.depths)
        rows = np.searchsorted(starts, policy.starts[policy.bins], side="right") - 1
        columns = self._kept(state)[1]
        lower, upper = (corner[policy.bins] for corner in policy.edges())
        expected = np.maximum(self._space.expected(lower, upper), _NOBODY)
        shares = expected / np.bincount(rows, expected)[rows]
        mean = self._means_of(state, rows, lower[:, columns], upper[:, columns])
        return Parts(rows, policy.axes, policy.depths[policy.bins], policy.paths[policy.bins], shares, mean)

    def _means_of(self, state: PartitionState, rows: NDArray[np.int64], lower: Array, upper: Array) -> Array:
        """Return posterior means of averages over parts of the bins, (parts, arms)."""
        smoothness, means = self._smoothness(state), np.empty((len(rows), self.spec.arm_count))
        for some, evidence in self._evidence(state):
            here = (rows >= some.start) & (rows < some.stop)
            means[here] = evidence.elsewhere(smoothness, lower[here], upper[here])
        return means

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
