"""The partition bandit as published: paper 1, Algorithm 2, eq. (8) to (17), with honest noise for every cell."""

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer.contributions import CellSums
from privateer.experiment import Spec
from privateer.policies.partition import DEPTH_MAX, PartitionPolicy
from privateer.privacy.terms import calibrate
from privateer.slots import UNIT, Layout

_CONFIDENCE: Final = 2.0
"""C_n of eq. (14) is 2 log2(n), as in the authors' code."""


@dataclass(frozen=True)
class PublishedState:
    """Bins as in `PartitionPolicy`, with noisy sums; shapes (bins,) and (bins, arms).

    ``people`` counts those who reported while the bin was active: eq. (9).
    """

    rounds: int
    seen: int
    depths: NDArray[np.int64]
    paths: NDArray[np.int64]
    active: NDArray[np.bool_]
    people: NDArray[np.int64]
    rewards: NDArray[np.float64]
    counts: NDArray[np.float64]


class PublishedPartitionLearner:
    """Algorithm 2 with the authors' constants, which learn where the paper's own do not.

    C_n = 2 log2(n); a bin may drop arms after log2(n)^2 people; tau_s = 2^(-s/d), where eq. (17) has 2 sqrt(d) times
    that; a bin is refined when all its active arms are narrow, where the paper asks for one.
    """

    state_type = PublishedState

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def start(self) -> PublishedState:
        """One bin, all arms."""
        shape = (1, self.spec.arm_count)
        zero = np.zeros(1, np.int64)
        return PublishedState(0, 0, zero, zero, np.ones(shape, bool), zero, np.zeros(shape), np.zeros(shape))

    def policy(self, state: PublishedState, version: int, batch: int, seed: int) -> PartitionPolicy:
        """Every active arm of a bin is equally likely, eq. (8); every bin is a key.

        At the end (``batch`` 0), which the paper leaves open, every bin plays the active arm of the highest estimate.
        """
        active = state.active if batch else self._best(state)
        shares = self._shares(state) if batch else active
        edges = np.rint(np.cumsum(shares, axis=1)[:, :-1] * UNIT).astype(np.uint32)
        return PartitionPolicy(
            version=version,
            dimension=self.spec.dimension,
            depths=state.depths,
            paths=state.paths,
            active=active,
            bins=np.arange(len(state.depths)),
            layout=Layout(seed, edges),
            terms=replace(calibrate(self.spec.privacy, batch, 1.0, 1.0), batch=batch),
        )

    def learn(self, state: PublishedState, _policy: PartitionPolicy, release: CellSums) -> PublishedState:
        """Add the round's sums, eq. (13), drop arms, eq. (16), and refine bins."""
        state = replace(
            state,
            rounds=state.rounds + 1,
            seen=state.seen + release.reports,
            people=state.people + release.reports,
            rewards=state.rewards + release.rewards,
            counts=state.counts + release.counts,
        )
        mean, radius = self._estimates(state)
        state = replace(state, active=self._surviving(state, mean, radius))
        return self._refined(state, radius)

    def _shares(self, state: PublishedState) -> NDArray[np.float64]:
        """Chance of every arm in each bin, eq. (8)."""
        return np.asarray(state.active / state.active.sum(axis=1, keepdims=True))

    def _surviving(
        self, state: PublishedState, mean: NDArray[np.float64], radius: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        """Active arms less those that eq. (16) drops."""
        lower = np.where(state.active, mean - 2 * radius, -np.inf).max(axis=1, keepdims=True)
        explored = state.people >= math.log2(max(2, self.spec.experiment.horizon)) ** 2
        return np.asarray(state.active & ~(explored[:, None] & (lower > mean + 2 * radius)))

    def _best(self, state: PublishedState) -> NDArray[np.bool_]:
        mean = np.where(state.active, self._estimates(state)[0], -np.inf)
        return np.asarray(np.arange(state.active.shape[1]) == mean.argmax(axis=1)[:, None])

    def _estimates(self, state: PublishedState) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Estimates of eq. (13) and radii of eq. (14).

        Estimates are clipped to the range of rewards, since ratios of noise are wild; the radius is infinite where the
        noisy count is not positive.
        """
        some = state.counts > 0
        count = np.where(some, state.counts, 1.0)
        noise = state.people[:, None] / self.spec.privacy.bound**2
        factor = _CONFIDENCE * math.log2(max(2, self.spec.experiment.horizon))
        radius = np.sqrt(factor * np.maximum(noise, state.counts)) / np.abs(count)
        return np.where(some, np.clip(state.rewards / count, 0.0, 1.0), 0.0), np.where(some, radius, np.inf)

    def _refined(self, state: PublishedState, radius: NDArray[np.float64]) -> PublishedState:
        tau = 2.0 ** (-state.depths / self.spec.dimension)
        narrow = (~state.active | (radius < tau[:, None])).all(axis=1)
        ready = narrow & (state.active.sum(axis=1) > 1) & (state.depths < DEPTH_MAX)
        copies = np.repeat(np.arange(len(ready)), 1 + ready)
        fresh = ready[copies]
        second = np.concatenate([[False], copies[1:] == copies[:-1]])
        keep = ~fresh
        return replace(
            state,
            depths=state.depths[copies] + fresh,
            paths=np.where(fresh, 2 * state.paths[copies] + second, state.paths[copies]),
            active=state.active[copies],
            people=state.people[copies] * keep,
            rewards=state.rewards[copies] * keep[:, None],
            counts=state.counts[copies] * keep[:, None],
        )

    def describe(self, state: PublishedState) -> dict[str, Any]:
        """The state for people: estimate and radius of each active arm, bin by bin."""
        mean, radius = self._estimates(state)
        names = self.spec.experiment.arms
        rows = [
            {
                "depth": int(state.depths[b]),
                "path": int(state.paths[b]),
                "arms": {
                    names[k]: {"mean": float(mean[b, k]), "radius": float(min(radius[b, k], 1e9))}
                    for k in np.flatnonzero(state.active[b])
                },
            }
            for b in range(len(state.depths))
        ]
        return {"rounds": state.rounds, "seen": state.seen, "bins": rows}
