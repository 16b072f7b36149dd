"""The policy of bandits on a convex set: what a device does."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.convex.spec import ConvexSpec, even
from privateer_core.answer.policy_view import Point, PolicyView
from privateer_core.mechanisms import GroupedBit
from privateer_core.policies.decisions import Arms, Points, age_of
from privateer_core.policies.policy import Policy
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import Layout
from privateer_core.privacy.terms import Terms
from privateer_core.spec.reward import numbers_of

Array = NDArray[np.float64]
_SHORTEST: Final = 1e-9
"""The shortest way from the centre to a point, in radii: differences of rewards are divided by it."""
_SIDE: Final = np.uint64(20)
"""The bit of a hash that chooses a side: neither groups nor signs nor buckets use it."""


@dataclass(frozen=True)
class ConvexPolicy(Policy):
    """Points around a centre: coins choose everybody's direction and, of ``one-point``, its side."""

    version: int
    centre: Array  # shape (d,)
    # shape (d, d), float64: rows are ways from the centre to a point, to both sides; 0 in a round that asks nobody
    axes: Array
    points: int  # how many a person gets: 1, or the 2 at both sides
    # span, lipschitz: from the lowest reward to the highest, and the most that rewards change per unit of distance (0:
    # not used)
    span: float
    lipschitz: float
    seed: int  # what the coins of a choice mean
    fresh_coins: bool = field()  # whether the direction is in a report's key, so that its coins are its own
    terms: Terms

    mixes = True

    @cached_property
    def measured(self) -> Array:
        """What scores measure of a gradient, direction by direction: it times these rows, shape (d, d).

        Of two points that is the slope between them, so that their distance does not matter. The mean score of a
        direction, where several policies decided, is of the mean of what they measure: all have the same frame.
        """
        if self.deciders:
            return np.asarray(sum(share * one.measured for one, share in self.deciders))
        return self.axes / np.linalg.norm(self.axes, axis=1, keepdims=True) if self.points == 2 else self.axes

    @cached_property
    def asked_at(self) -> Array:
        """Shape (d,): the point at which the round's scores measure a gradient.

        Where several policies decided it is a mean of their centres, which is exact where losses are quadratic.
        """
        if not self.deciders:
            return self.centre
        around = sum(share * one.measured @ one.centre for one, share in self.deciders)
        return np.asarray(np.linalg.solve(self.measured, around), np.float64)

    @property
    def lag(self) -> float:
        """How many rounds before this one people chose, on average."""
        return float(sum(share * (age_of(self.version, one.version) or 0) for one, share in self.deciders))

    @override
    def fits(self, spec: ConvexSpec) -> bool:
        return self._well_typed(spec.domain.dimension) and self._agrees(spec) and self._asks(spec)

    def _well_typed(self, dimension: int) -> bool:
        shapes = self.centre.shape == (dimension,) and self.axes.shape == (dimension, dimension)
        return shapes and self.centre.dtype == self.axes.dtype == np.float64 and 0 <= self.seed < 1 << 63

    def _agrees(self, spec: ConvexSpec) -> bool:
        reach = np.concatenate([self.centre[None], self.centre + self.axes, self.centre - self.axes])
        ways, least = np.abs(self.axes).sum(axis=1), _SHORTEST * spec.domain.radius
        away = bool((ways >= least).all()) if self.terms.batch else not self.axes.any()
        told = (self.points, self.lipschitz) == (spec.algorithm.points, spec.algorithm.slope)
        return spec.domain.holds(reach) and away and told and self.span == spec.reward.span

    def _asks(self, spec: ConvexSpec) -> bool:
        mechanism, asked = self.terms.mechanism, spec.asked(self.seed)
        grouped = spec.groups_arms and self.terms.batch > 0
        if self.fresh_coins != spec.privacy.arm_in_key or isinstance(mechanism, GroupedBit) != grouped:
            return False
        layout = getattr(mechanism, "layout", None)
        if not isinstance(layout, Layout):
            return False
        return layout.seed == asked.layout.seed and np.array_equal(layout.thresholds, asked.layout.thresholds)

    def decide(self, _contexts: Array, coins: NDArray[np.uint32]) -> Points:
        """Decide by coins, whatever the contexts are: arm 2 i + 1 is the positive side of axis i, and 2 i the other."""
        arms = self._arms(coins)
        ways = self.axes[arms >> 1] * (2 * (arms & 1) - 1)[:, None]
        sides = (ways, -ways)[: self.points]
        return Points(arms, np.stack([self.centre + way for way in sides], axis=1))

    def _arms(self, coins: NDArray[np.uint32]) -> NDArray[np.int64]:
        if isinstance(self.terms.mechanism, GroupedBit):
            return self.terms.mechanism.groups_of(coins)
        choice, key = even(self.seed, len(self.axes)), np.zeros(1, np.int64)
        hashes = choice.hashes(coins, key)
        side = (hashes >> _SIDE & np.uint64(1)).astype(np.int64)
        return 2 * choice.group(hashes, key) + side

    def contribute(self, _contexts: Any, coins: NDArray[np.uint32], decisions: Arms, rewards: Array) -> KeyedValues:
        """Return everybody's score along their axis, as a value in [0, 1].

        rewards: in [0, 1]: shape (n,) of one point, (n, 2) of two.
        """
        axis, values = decisions.arms >> 1, (self.scores(decisions, rewards) + 1) / 2
        none = np.zeros_like(axis)
        if isinstance(self.terms.mechanism, GroupedBit):
            return KeyedValues(coins, none, decisions.arms, values)
        return KeyedValues(coins, axis, none, values) if self.fresh_coins else KeyedValues(coins, none, axis, values)

    def scores(self, decisions: Arms, rewards: Array) -> Array:
        """Return everybody's score along their axis, between -1 and 1, shape (n,).

        Of one point it is the reward from the middle of its range, with the sign of its side; of two the slope between
        them, clipped to the Lipschitz constant and divided by it.
        """
        sign = 2.0 * (decisions.arms & 1) - 1
        return np.asarray(sign * (self._slopes(decisions, rewards) if self.points == 2 else 2 * rewards - 1))

    def _slopes(self, decisions: Arms, rewards: Array) -> Array:
        """Return slopes between two points, by the Lipschitz constant; an earlier policy may have chosen the points."""
        if isinstance(decisions, Points):
            lengths = np.linalg.norm(decisions.points[:, 0] - decisions.points[:, 1], axis=1)
        else:
            lengths = 2 * np.linalg.norm(self.axes, axis=1)[decisions.arms >> 1]
        apart = np.maximum(lengths, 1e-300) * self.lipschitz
        differences = self.span * (rewards[:, 0] - rewards[:, 1])
        return np.where(np.abs(differences) < apart, differences / apart, np.sign(differences))

    @override
    def shown(self, spec: ConvexSpec, decisions: Points) -> Any:
        return decisions.shown

    @override
    def read(self, spec: ConvexSpec, reward: Any) -> tuple[Array, bool]:
        names = Points.NAMES[: self.points]
        told = numbers_of(reward if self.points == 2 else {names[0]: reward}, names, "reward", f"report {names}")
        values, clipped = zip(*(spec.reward.scaled(one) for one in told.tolist()), strict=True)
        return np.array([values] if self.points == 2 else values), any(clipped)

    def view(self, spec: ConvexSpec) -> PolicyView:
        """Return the centre, and how far from it people's points are."""
        lengths = np.linalg.norm(self.axes, axis=1)
        centre = dict(zip(spec.options, self.centre.tolist(), strict=True))
        point = Point(centre, nearest=float(lengths.min()), farthest=float(lengths.max()))
        return PolicyView(spec.algorithm.name, self.version, point)
