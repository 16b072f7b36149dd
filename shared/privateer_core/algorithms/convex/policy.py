"""The policy of bandits on a convex set: points around a centre, chosen by coins."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from typing_extensions import override

from privateer_core.algorithms.convex.spec import ConvexSpec, uniform_layout
from privateer_core.answer.policy_view import Point, PolicyView
from privateer_core.arrays import Array, Coins, Ints
from privateer_core.mechanisms import GroupedBit
from privateer_core.policies.policy import Arms, Points, Policy, decision_age
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import Layout
from privateer_core.privacy.terms import Terms
from privateer_core.spec.reward import read_numbers

_MIN_AXIS_LENGTH: Final = 1e-9
"""Minimum distance from the centre to a point, in radii: differences of rewards are divided by it."""
_SIDE_BIT: Final = np.uint64(20)
"""The bit of a hash that chooses the sign of the direction; groups, signs and buckets do not use it."""


@dataclass(frozen=True)
class ConvexPolicy(Policy):
    """Points around a centre: coins choose a participant's axis and, for ``one-point``, its sign."""

    version: int
    centre: Array  # shape (d,)
    # shape (d, d), float64: rows are offsets of points from the centre, of both signs; 0 in a round without reports
    axes: Array
    points: int  # number of a participant's points: 1, or the 2 of both signs
    # span, lipschitz: the range of rewards, and the maximum change of rewards per unit of distance (0:
    # not used)
    span: float
    lipschitz: float
    seed: int  # the seed of the choices' coins
    has_fresh_coins: bool = field()  # whether the direction is in a report's key, so that its coins are its own
    terms: Terms

    is_mixture = True

    @cached_property
    def gradient_axes(self) -> Array:
        """The rows whose products with the gradient are the mean scores, shape (d, d).

        With two points a score is the slope between them, so that their distance does not matter. If several policies
        decided, the rows are means over the policies, which have the same frame.
        """
        if self.deciders:
            return np.asarray(sum(share * policy.gradient_axes for policy, share in self.deciders))
        return self.axes / np.linalg.norm(self.axes, axis=1, keepdims=True) if self.points == 2 else self.axes

    @cached_property
    def gradient_point(self) -> Array:
        """The point at which the round's scores estimate the gradient, shape (d,).

        If several policies decided, it is a mean of their centres, which is exact for quadratic losses.
        """
        if not self.deciders:
            return self.centre
        weighted_centre = sum(share * policy.gradient_axes @ policy.centre for policy, share in self.deciders)
        return np.asarray(np.linalg.solve(self.gradient_axes, weighted_centre), np.float64)

    @property
    def mean_age(self) -> float:
        """Mean number of rounds between the choices and this round."""
        return float(sum(share * (decision_age(self.version, policy.version) or 0) for policy, share in self.deciders))

    @override
    def is_compatible(self, spec: ConvexSpec) -> bool:
        return self._is_shaped(spec.domain.dimension) and self._is_of_spec(spec) and self._has_mechanism(spec)

    def _is_shaped(self, dimension: int) -> bool:
        has_shapes = self.centre.shape == (dimension,) and self.axes.shape == (dimension, dimension)
        return has_shapes and self.centre.dtype == self.axes.dtype == np.float64 and 0 <= self.seed < 1 << 63

    def _is_of_spec(self, spec: ConvexSpec) -> bool:
        """Whether the set contains all points, and points, span and Lipschitz constant are the spec's."""
        points = np.concatenate([self.centre[None], self.centre + self.axes, self.centre - self.axes])
        axis_norms, min_norm = np.abs(self.axes).sum(axis=1), _MIN_AXIS_LENGTH * spec.domain.radius
        is_away = bool((axis_norms >= min_norm).all()) if self.terms.batch_size else not self.axes.any()
        has_settings = (self.points, self.lipschitz) == (spec.algorithm.points, spec.algorithm.slope)
        return spec.domain.contains(points) and is_away and has_settings and self.span == spec.reward.span

    def _has_mechanism(self, spec: ConvexSpec) -> bool:
        """Whether the mechanism's layout, seed and hiding of arms are those of the spec's question."""
        mechanism, question = self.terms.mechanism, spec.make_question(self.seed)
        is_grouped = spec.groups_arms and self.terms.batch_size > 0
        if self.has_fresh_coins != spec.privacy.has_arm_in_key or isinstance(mechanism, GroupedBit) != is_grouped:
            return False
        layout = getattr(mechanism, "layout", None)
        if not isinstance(layout, Layout):
            return False
        return layout.seed == question.layout.seed and np.array_equal(layout.thresholds, question.layout.thresholds)

    def decide(self, _contexts: Array, coins: Coins) -> Points:
        """Choose points by coins alone: arm 2 i + 1 is the positive direction of axis i, and 2 i the negative one."""
        arms = self._choose_arms(coins)
        offsets = self.axes[arms >> 1] * (2 * (arms & 1) - 1)[:, None]
        directions = (offsets, -offsets)[: self.points]
        return Points(arms, np.stack([self.centre + offset for offset in directions], axis=1))

    def _choose_arms(self, coins: Coins) -> Ints:
        """Return the arms (n,) of coins: twice the index of the axis, plus 1 in its positive direction."""
        if isinstance(self.terms.mechanism, GroupedBit):
            return self.terms.mechanism.coin_groups(coins)
        choice, key = uniform_layout(self.seed, len(self.axes)), np.zeros(1, np.int64)
        hashes = choice.hashes(coins, key)
        side = (hashes >> _SIDE_BIT & np.uint64(1)).astype(np.int64)
        return 2 * choice.find_groups(hashes, key) + side

    def contribute(self, _contexts: Any, coins: Coins, decisions: Arms, rewards: Array) -> KeyedValues:
        """Return each participant's score along their axis, scaled to [0, 1].

        rewards: in [0, 1], of shape (n,) with one point, or (n, 2) with two.
        """
        axis, values = decisions.arms >> 1, (self.compute_scores(decisions, rewards) + 1) / 2
        zeros = np.zeros_like(axis)
        if isinstance(self.terms.mechanism, GroupedBit):
            return KeyedValues(coins, zeros, decisions.arms, values)
        return (
            KeyedValues(coins, axis, zeros, values) if self.has_fresh_coins else KeyedValues(coins, zeros, axis, values)
        )

    def compute_scores(self, decisions: Arms, rewards: Array) -> Array:
        """Return each participant's score along their axis, in [-1, 1], shape (n,).

        With one point it is the scaled reward, times the sign of the direction. With two points it is the slope between
        them, clipped to the Lipschitz constant and divided by it.
        """
        sign = 2.0 * (decisions.arms & 1) - 1
        return np.asarray(sign * (self._compute_slopes(decisions, rewards) if self.points == 2 else 2 * rewards - 1))

    def _compute_slopes(self, decisions: Arms, rewards: Array) -> Array:
        """Return slopes between two points, in Lipschitz constants; an earlier policy may have chosen the points."""
        if isinstance(decisions, Points):
            lengths = np.linalg.norm(decisions.points[:, 0] - decisions.points[:, 1], axis=1)
        else:
            lengths = 2 * np.linalg.norm(self.axes, axis=1)[decisions.arms >> 1]
        max_differences = np.maximum(lengths, 1e-300) * self.lipschitz
        differences = self.span * (rewards[:, 0] - rewards[:, 1])
        return np.where(np.abs(differences) < max_differences, differences / max_differences, np.sign(differences))

    @override
    def present_decision(self, spec: ConvexSpec, decisions: Points) -> Any:
        return decisions.first_points

    @override
    def read(self, spec: ConvexSpec, reward: Any) -> tuple[Array, bool]:
        """Parse one or two rewards, shape (1,) or (1, 2), scaled to [0, 1]; also return whether any was clipped."""
        names = Points.NAMES[: self.points]
        reported = read_numbers(reward if self.points == 2 else {names[0]: reward}, names, "reward", f"report {names}")
        values, clipped = zip(*(spec.reward.scale_and_clip(number) for number in reported.tolist()), strict=True)
        return np.array([values] if self.points == 2 else values), any(clipped)

    def view(self, spec: ConvexSpec) -> PolicyView:
        """Return the centre, and the range of distances of points from it."""
        lengths = np.linalg.norm(self.axes, axis=1)
        centre = dict(zip(spec.options, self.centre.tolist(), strict=True))
        point = Point(centre, nearest=float(lengths.min()), farthest=float(lengths.max()))
        return PolicyView(spec.algorithm.name, self.version, point)
