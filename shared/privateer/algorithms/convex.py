"""Bandits on a convex set (paper 2, Algorithms 1 and 2): people get points near a public centre, and report one number.

Here are its spec and its policy. Rewards are concave: a reward is what is left after a convex loss.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from privateer.algorithms import Algorithm
from privateer.coins import UNIT, Layout
from privateer.contributions import BoundedVectors, KeyedValues
from privateer.decisions import Arms, Points
from privateer.draw import Draw
from privateer.errors import InputError, Malformed, SpecError
from privateer.numbers import is_number, scaled_reward
from privateer.policy import OfItsRound
from privateer.questions import KeyedMeans, Question, VectorSum
from privateer.sections import Section, parse_section
from privateer.spec import ExperimentTable, Reward, Spec, example_promises
from privateer.terms import Terms
from privateer.trust import check_promise
from privateer.vectors import Ball

Array = NDArray[np.float64]
DIMENSION_MAX: Final = 64
_UNIT_MAX: Final = 1e6
"""Lengths and rewards may have any unit whose squares, and theirs, are numbers."""
_ROUNDING: Final = 1e-9
_SHORTEST: Final = 1e-9
"""The shortest way from the centre to a point, in radii: differences of rewards are divided by it."""
_SIDE: Final = np.uint64(20)
"""The bit of a hash that chooses a side: neither groups nor signs nor buckets use it."""


class ConvexTable(ExperimentTable):
    """The ``[experiment]``; its horizon is the number of people.

    Attributes
    ----------
    round_size
        People of the first round.
    round_growth
        A later round has at least this share of the people seen so far; for strongly convex losses alone, whose steps
        grow shorter.
    """

    round_size: int = Field(default=1000, ge=1, le=1_000_000)
    round_growth: float = Field(default=0.0, ge=0, le=1, allow_inf_nan=False)


class Domain(Section):
    """The set of decisions: a ball, or a box, around 0.

    Attributes
    ----------
    shape, dimension, radius
        ``ball`` of that radius, or ``box`` of so much to each side; 1 to 64 dimensions.
    """

    shape: Literal["ball", "box"] = "ball"
    dimension: int = Field(ge=1, le=DIMENSION_MAX)
    radius: float = Field(default=1.0, ge=1 / _UNIT_MAX, le=_UNIT_MAX, allow_inf_nan=False)

    @property
    def reach(self) -> float:
        """Largest distance from the middle."""
        return self.radius * (math.sqrt(self.dimension) if self.shape == "box" else 1.0)

    def sizes(self, points: Array) -> Array:
        """Return the size of points (..., d) by which the set is those of at most ``radius``; shape (...)."""
        return np.asarray(np.linalg.norm(points, axis=-1) if self.shape == "ball" else np.abs(points).max(axis=-1))

    def holds(self, points: Array) -> bool:
        """Whether all points (..., d) are of the set."""
        return bool(np.isfinite(points).all() and (self.sizes(points) <= self.radius * (1 + _ROUNDING)).all())

    def projected(self, point: Array, margin: float = 0.0) -> Array:
        """Return the nearest point that is ``margin`` or more within the set; shape (d,)."""
        most = self.radius - margin
        if self.shape == "box":
            return np.clip(point, -most, most)
        return np.asarray(point * min(1.0, most / max(float(np.linalg.norm(point)), 1e-300)))


class ConvexSection(Section):
    """The ``[algorithm]``.

    Attributes
    ----------
    feedback
        ``one-point``: a person reports the reward of one point; ``two-point``: the rewards of two, of which the
        difference counts.
    estimator
        Of ``one-point``. ``sphere``: points are at one distance from the centre (Flaxman, Kalai and McMahan 2005).
        ``ellipsoid``: on an ellipsoid that fits the set and shrinks (Hazan and Levy 2014), for strongly convex losses.
    lipschitz
        The most that a person's reward changes per unit of distance, which ``ellipsoid`` does not need. A device clips
        to it where feedback is ``two-point``.
    strong_convexity
        Losses have at least this curvature; 0: they are convex.
    deviation
        Of ``two-point``: standard deviation of what a person measures at one point, beyond their loss.
    """

    name: Literal["convex"]
    feedback: Literal["one-point", "two-point"]
    estimator: Literal["sphere", "ellipsoid"] = "sphere"
    lipschitz: float | None = Field(default=None, ge=1 / _UNIT_MAX, le=_UNIT_MAX, allow_inf_nan=False)
    strong_convexity: float = Field(default=0.0, ge=0, le=_UNIT_MAX, allow_inf_nan=False)
    deviation: float = Field(default=0.0, ge=0, le=_UNIT_MAX, allow_inf_nan=False)

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.feedback == "two-point" and self.estimator != "sphere":
            _refuse("algorithm.estimator", "must be 'sphere' where feedback is 'two-point'", "remove it")
        if self.estimator == "ellipsoid" and not self.strong_convexity:
            detail = "'ellipsoid' needs algorithm.strong_convexity above 0"
            _refuse("algorithm.estimator", detail, "set that, or use 'sphere'")
        if (self.lipschitz is None) != (self.estimator == "ellipsoid"):
            detail = "does nothing where estimator is 'ellipsoid'" if self.lipschitz else "missing"
            _refuse("algorithm.lipschitz", detail, "remove it" if self.lipschitz else "add it")
        if self.feedback == "one-point" and self.deviation:
            _refuse("algorithm.deviation", "does nothing where feedback is 'one-point'", "remove it")
        return self

    @property
    def slope(self) -> float:
        """The Lipschitz constant; 0 where none is given."""
        return self.lipschitz or 0.0

    @property
    def points(self) -> int:
        """Points that a person gets."""
        return 2 if self.feedback == "two-point" else 1


class ConvexSpec(Spec):
    """An experiment on a convex set."""

    question: ClassVar[type[Question]] = KeyedMeans

    experiment: ConvexTable
    domain: Domain
    reward: Reward = Reward()
    algorithm: ConvexSection  # type: ignore[assignment] # a section of its own, with the base's key

    @model_validator(mode="after")
    def _can_be_promised(self) -> Self:
        """Check the promise, in the base's place: published reports, in simulation alone, are of another kind."""
        check_promise(self.privacy, VectorSum if self.privacy.calibration == "published" else KeyedMeans)
        return self

    @model_validator(mode="after")
    def _possible(self) -> Self:
        experiment, privacy = self.experiment, self.privacy
        if privacy.calibration == "published" and (privacy.trust.batched or privacy.trust.curated):
            detail = f"there is no 'published' form under the model '{privacy.model}'"
            _refuse("privacy.calibration", detail, "use 'tight'")
        if experiment.conversion_window:
            _refuse("experiment.conversion_window", "a round takes reports on its own points alone", "remove it")
        if experiment.round_size > experiment.horizon:
            _refuse("experiment.round_size", "must be at most experiment.horizon", "lower it")
        if experiment.round_growth and not self.algorithm.strong_convexity:
            _refuse("experiment.round_growth", "needs algorithm.strong_convexity above 0", "set that, or remove this")
        if privacy.trust.batched and privacy.min_batch > experiment.round_size:
            _refuse("privacy.min_batch", "must be at most experiment.round_size", "lower it, or raise that")
        if self.algorithm.deviation > self.algorithm.slope * self.domain.radius / 4:
            _refuse("algorithm.deviation", "hides every difference within the set", "lower it, or use 'one-point'")
        return self

    @property
    def rewards(self) -> int:
        """Rewards that a person reports: one at each of their points."""
        return self.algorithm.points

    @property
    def options(self) -> tuple[str, ...]:
        """Names of a point's coordinates."""
        return tuple(f"x{i}" for i in range(1, self.domain.dimension + 1))

    def batch(self, heard: int) -> int:
        """Return the people of the round after ``heard`` have reported; 0: there is none."""
        table = self.experiment
        wanted = max(table.round_size, math.floor(table.round_growth * heard))
        batch = max(0, min(wanted, table.horizon - heard))
        # A last round too small for the promise is left out.
        return 0 if self.privacy.trust.batched and batch < self.privacy.min_batch else batch

    def largest_batch(self) -> int:
        """Return the most people of any round."""
        growth = self.experiment.round_growth
        return max(self.experiment.round_size, math.floor(growth / (1 + growth) * self.experiment.horizon))

    def first_batch(self, cohort: str) -> int:
        """Return the people of the first round; there are no cohorts but the experiment's own people."""
        return 0 if cohort else self.batch(0)

    def usual_question(self) -> Question:
        """Return a question as the first round asks it, without its public coins."""
        return self.asked(0)

    def asked(self, seed: int) -> Question:
        """Return what a round asks: the mean score of every direction, of which a person contributes to one.

        The direction is where arms are: in the key if others see what people get and a report must not tell, else in
        the coins. As published everybody has the direction of the round, and reports the score itself.
        """
        if self.privacy.calibration == "published":
            return VectorSum(Ball("max", 1.0, 1), seed)
        if self.privacy.arm_in_key:
            keys = self.domain.dimension
            return KeyedMeans(Layout(seed, np.zeros((keys, 0), np.uint32)), 1.0, 1 / keys)
        return KeyedMeans(even(seed, self.domain.dimension))

    def concerns(self) -> list[str]:
        """Say where a round is so large that its step is longer than the set."""
        long = self.experiment.round_size > max(1.0, self.experiment.horizon / 100)
        if not long or self.algorithm.strong_convexity:
            return []
        return ["experiment.round_size is above 1 % of the horizon: steps are few and long; lower it"]

    @classmethod
    def instances(cls) -> dict[str, Self]:
        """Return small instances by name, under every trust model and calibration."""
        promises = {str(promise["model"]): promise for promise in example_promises()}
        two = {"feedback": "two-point", "lipschitz": 2.0, "strong_convexity": 1.0}
        one = {"feedback": "one-point", "strong_convexity": 1.0}
        made = {name: cls._instance(promise, two) for name, promise in promises.items()}
        made["local-ellipsoid"] = cls._instance(promises["local"], one | {"estimator": "ellipsoid"}, "box")
        made["shuffle-hidden"] = cls._instance(promises["shuffle"] | {"arms": "hidden"}, one | {"lipschitz": 2.0})
        published = promises["local"] | {"delta": 1e-5, "calibration": "published"}
        return made | {"published": cls._instance(published, two)}

    @classmethod
    def _instance(cls, privacy: Mapping[str, Any], algorithm: Mapping[str, Any], shape: str = "ball") -> Self:
        data = {
            "experiment": {"name": "test", "horizon": 4000, "round_size": 1000},
            "domain": {"shape": shape, "dimension": 2},
            "privacy": dict(privacy),
            "algorithm": {"name": "convex", **algorithm},
        }
        return parse_section(cls, data)


def _refuse(field: str, detail: str, remedy: str) -> None:
    raise SpecError(detail, field=field, remedy=remedy)


def even(seed: int, groups: int) -> Layout:
    """Return the layout whose coins choose one of so many groups, all alike."""
    return Layout(seed, np.rint(UNIT * np.arange(1, groups) / groups).astype(np.uint32)[None, :])


@dataclass(frozen=True)
class ConvexPolicy(OfItsRound):
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
        if isinstance(asked, VectorSum):
            return getattr(mechanism, "ball", None) == asked.ball
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
        if self.terms.calibration == "published":
            return np.ones(len(coins), np.int64)
        choice, key = even(self.seed, len(self.axes)), np.zeros(1, np.int64)
        hashes = choice.hashes(coins, key)
        side = (hashes >> _SIDE & np.uint64(1)).astype(np.int64)
        return 2 * choice.group(hashes, key) + side

    def contribute(
        self, _contexts: Any, coins: NDArray[np.uint32], decisions: Arms, rewards: Array
    ) -> KeyedValues | BoundedVectors:
        """Return everybody's score along their axis, between -1 and 1; unless published, as a value in [0, 1].

        Of one point it is the reward from the middle of its range, with the sign of its side; of two the slope between
        them, clipped to the Lipschitz constant and divided by it.

        Parameters
        ----------
        rewards
            In [0, 1]: shape (n,) of one point, (n, 2) of two.
        """
        axis, sign = decisions.arms >> 1, 2.0 * (decisions.arms & 1) - 1
        scores = sign * (self._slopes(axis, rewards) if self.points == 2 else 2 * rewards - 1)
        if self.terms.calibration == "published":
            return BoundedVectors(coins, scores[:, None])
        values, none = (scores + 1) / 2, np.zeros_like(axis)
        return KeyedValues(coins, axis, none, values) if self.fresh_coins else KeyedValues(coins, none, axis, values)

    def _slopes(self, axis: NDArray[np.int64], rewards: Array) -> Array:
        apart = 2 * np.maximum(np.linalg.norm(self.axes, axis=1), 1e-300)[axis] * self.lipschitz
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
        values, clipped = zip(*(scaled_reward(one, spec.reward) for one in told), strict=True)
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


ALGORITHM: Final = Algorithm(ConvexSpec, ConvexPolicy)
