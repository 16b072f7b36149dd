"""The policy of bandits on a convex set: what a device does."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, cast

import numpy as np
from numpy.typing import NDArray

from privateer_core.ages import age_of
from privateer_core.algorithms.convex.domain import even
from privateer_core.algorithms.convex.earlier import ByDirections
from privateer_core.algorithms.convex.spec import ConvexSpec
from privateer_core.coins import EarlierChoices, Layout
from privateer_core.contributions import KeyedValues
from privateer_core.decisions import Arms, Points
from privateer_core.draw import Draw
from privateer_core.errors import InputError, Malformed
from privateer_core.numbers import is_number
from privateer_core.policy import Counted
from privateer_core.terms import Terms

Array = NDArray[np.float64]
_SHORTEST: Final = 1e-9
"""The shortest way from the centre to a point, in radii: differences of rewards are divided by it."""
_SIDE: Final = np.uint64(20)
"""The bit of a hash that chooses a side: neither groups nor signs nor buckets use it."""


@dataclass(frozen=True)
class ConvexPolicy:
    """Points around a centre: coins choose everybody's direction and, of ``one-point``, its side.

    Attributes
    ----------
    centre
        Shape (d,).
    axes
        Shape (d, d), float64: rows are ways from the centre to a point, to both sides; 0 in a round that asks nobody.
    points
        How many a person gets: 1, or the 2 at both sides.
    span, lipschitz
        From the lowest reward to the highest, and the most that rewards change per unit of distance (0: not used).
    seed
        What the coins of a choice mean.
    fresh_coins
        Whether the direction is in a report's key, so that its coins are its own.
    """

    version: int
    centre: Array
    axes: Array
    points: int
    span: float
    lipschitz: float
    seed: int
    fresh_coins: bool
    terms: Terms

    cohort: ClassVar[str] = ""
    draw: ClassVar[Draw | None] = None
    mixes: ClassVar[bool] = True

    @property
    def tells_age(self) -> bool:
        """Whether a report says how many versions ago its decision was made: where its coins chose the direction.

        Those of a batch never do: their ages would tell them apart.
        """
        return not (self.fresh_coins or self.terms.trust.batched)

    def takes(self, decided: int) -> bool:
        """Whether the round takes reports on what the policy of version ``decided`` decided."""
        if self.tells_age:
            return age_of(self.version, decided) is not None
        return decided <= self.version if self.fresh_coins else decided == self.version

    def analyzer(self, earlier: "ConvexPolicy") -> Counted | ByDirections:
        """Return what counts reports on decisions of an ``earlier`` policy, or of this one."""
        if earlier.version == self.version or not self.tells_age:
            return Counted()
        now, then = (cast(Any, one.terms.mechanism).layout for one in (self, earlier))
        return ByDirections(EarlierChoices(now.seed, then.thresholds, then, np.zeros(1, np.int64)))

    @property
    def measured(self) -> Array:
        """What scores measure of a gradient, direction by direction: it times these rows, shape (d, d).

        Of two points that is the slope between them, so that their distance does not matter.
        """
        return self.axes / np.linalg.norm(self.axes, axis=1, keepdims=True) if self.points == 2 else self.axes

    @property
    def lag(self) -> float:
        """How many rounds before this one people chose, on average."""
        return 0.0

    @property
    def asked_at(self) -> Array:
        """Shape (d,): the point at which the round's scores measure a gradient."""
        return self.centre

    def followed(self, decided: Sequence[tuple["ConvexPolicy", float]]) -> "ConvexPolicy":
        """Return the policy as a learner must see it when reports were on decisions of several policies.

        All policies have the same frame of directions. The mean score of a direction is that of several gradients, each
        measured around its own centre; with the mean of what they `measured` it is one gradient, at a mean of the
        centres. That is exact where losses are quadratic.
        """
        if all(policy.version == self.version for policy, _ in decided):
            return self
        policies, shares = [policy for policy, _ in decided], np.array([share for _, share in decided])
        shares /= shares.sum()
        measured = np.einsum("p,pij->ij", shares, [one.measured for one in policies])
        around = np.einsum("p,pij,pj->i", shares, [one.measured for one in policies], [one.centre for one in policies])
        lag = float(shares @ [age_of(self.version, one.version) or 0 for one in policies])
        centre = np.asarray(np.linalg.solve(measured, around), np.float64)
        return FollowedPolicy(**vars(self), mean_measured=measured, mean_centre=centre, mean_lag=lag)

    def check(self, spec: ConvexSpec) -> None:
        """Refuse a policy that no learner makes.

        Raises
        ------
        Malformed
            If an array has the wrong shape, a point is off the set, or anything is not the spec's.
        """
        if not (self._well_typed(spec.domain.dimension) and self._agrees(spec) and self._asks(spec)):
            raise Malformed("not a policy on this set", remedy="fetch the policy again")

    def _well_typed(self, dimension: int) -> bool:
        shapes = self.centre.shape == (dimension,) and self.axes.shape == (dimension, dimension)
        return shapes and self.centre.dtype == self.axes.dtype == np.float64 and 0 <= self.seed < 1 << 63

    def _agrees(self, spec: ConvexSpec) -> bool:
        reach = np.concatenate([self.centre[None], self.centre + self.axes, self.centre - self.axes])
        ways, least = np.abs(self.axes).sum(axis=1), _SHORTEST * spec.domain.radius
        away = bool((ways >= least).all()) if self.terms.batch else not self.axes.any()
        told = (self.points, self.lipschitz) == (spec.algorithm.points, spec.algorithm.slope)
        return spec.domain.holds(reach) and away and told and self.span == 2 * spec.reward.half_range

    def _asks(self, spec: ConvexSpec) -> bool:
        mechanism, asked = self.terms.mechanism, spec.asked(self.seed)
        if self.fresh_coins != spec.privacy.arm_in_key:
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
        choice, key = even(self.seed, len(self.axes)), np.zeros(1, np.int64)
        hashes = choice.hashes(coins, key)
        side = (hashes >> _SIDE & np.uint64(1)).astype(np.int64)
        return 2 * choice.group(hashes, key) + side

    def contribute(self, _contexts: Any, coins: NDArray[np.uint32], decisions: Arms, rewards: Array) -> KeyedValues:
        """Return everybody's score along their axis, as a value in [0, 1].

        Parameters
        ----------
        rewards
            In [0, 1]: shape (n,) of one point, (n, 2) of two.
        """
        axis, values = decisions.arms >> 1, (self.scores(decisions, rewards) + 1) / 2
        none = np.zeros_like(axis)
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

    def shown(self, _spec: ConvexSpec, decisions: Points) -> Any:
        """Return the first person's point, a list of coordinates; or two, a mapping of names to such lists."""
        return decisions.shown

    def read(self, spec: ConvexSpec, reward: Any) -> tuple[Array, bool]:
        """Read one person's reward, or a mapping of the two names to rewards; scaled to [0, 1].

        Raises
        ------
        InputError
            If it is not that, or a number is not finite.
        """
        names = Points.NAMES[: self.points]
        if self.points == 1:
            reward = {names[0]: reward}
        elif not isinstance(reward, Mapping) or set(reward) != set(names):
            raise InputError("must be the rewards of both points", field="reward", remedy=f"report {names}")
        told = [reward[name] for name in names]
        if not all(is_number(one) and math.isfinite(one) for one in told):
            raise InputError("must be a finite number", field="reward", remedy="report what was observed")
        values, clipped = zip(*(spec.reward.scaled(one) for one in told), strict=True)
        return np.array([values] if self.points == 2 else values), any(clipped)

    def describe(self, _spec: ConvexSpec) -> dict[str, Any]:
        """Describe the policy: the centre, and how far from it people's points are."""
        lengths = np.linalg.norm(self.axes, axis=1)
        return {
            "algorithm": "convex",
            "version": self.version,
            "centre": self.centre.tolist(),
            "nearest": float(lengths.min()),
            "farthest": float(lengths.max()),
        }


@dataclass(frozen=True)
class FollowedPolicy(ConvexPolicy):
    """A policy to whose round people report what several policies decided.

    Attributes
    ----------
    mean_measured, mean_centre, mean_lag
        What the round's scores measure, the point at which they do, and how many rounds before people chose.
    """

    mean_measured: Array = field(kw_only=True)
    mean_centre: Array = field(kw_only=True)
    mean_lag: float = field(kw_only=True)

    @property
    def measured(self) -> Array:
        """What scores measure of a gradient."""
        return self.mean_measured

    @property
    def asked_at(self) -> Array:
        """The point at which the round's scores measure a gradient."""
        return self.mean_centre

    @property
    def lag(self) -> float:
        """How many rounds before this one people chose, on average."""
        return self.mean_lag
