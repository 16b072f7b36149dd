"""The spec of bandits on a convex set, with all refusals: the set of decisions, and coins that choose a direction."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from typing_extensions import override

from privateer_core.errors import SpecError
from privateer_core.primitives.public_coins import UNIT, Layout
from privateer_core.primitives.questions import KeyedMeans, Question
from privateer_core.spec.capabilities import Capabilities
from privateer_core.spec.experiment import ExperimentTable
from privateer_core.spec.reward import Reward
from privateer_core.spec.round_sizes import RoundSizes
from privateer_core.spec.sections import Section, parse_section
from privateer_core.spec.spec import Spec, example_promises

Array = NDArray[np.float64]
DIMENSION_MAX: Final = 64
UNIT_MAX: Final = 1e6
"""Lengths and rewards may have any unit whose squares, and theirs, are numbers."""
_ROUNDING: Final = 1e-9


class Domain(Section):
    """The set of decisions: a ball, or a box, around 0."""

    # shape, dimension, radius: ``ball`` of that radius, or ``box`` of so much to each side; 1 to 64 dimensions
    shape: Literal["ball", "box"] = "ball"
    dimension: int = Field(ge=1, le=DIMENSION_MAX)
    radius: float = Field(default=1.0, ge=1 / UNIT_MAX, le=UNIT_MAX, allow_inf_nan=False)

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

    def farthest(self, direction: Array) -> Array:
        """Return the point of the set that is farthest in a direction; shape (d,)."""
        if self.shape == "box":
            return self.radius * np.sign(direction)
        return np.asarray(direction * (self.radius / max(float(np.linalg.norm(direction)), 1e-300)))


def even(seed: int, groups: int) -> Layout:
    """Return the layout whose coins choose one of so many groups, all alike."""
    return Layout(seed, np.rint(UNIT * np.arange(1, groups) / groups).astype(np.uint32)[None, :])


class ConvexTable(ExperimentTable):
    """The ``[experiment]``; its horizon is the number of people."""

    round_size: int = Field(default=1000, ge=1, le=1_000_000)  # people of the first round
    # a later round has at least this share of the people seen so far; for strongly convex losses alone, whose steps
    # grow shorter
    round_growth: float = Field(default=0.0, ge=0, le=1, allow_inf_nan=False)


class ConvexSection(Section):
    """The ``[algorithm]``."""

    name: Literal["convex"]
    # ``one-point``: a person reports the reward of one point; ``two-point``: the rewards of two, of which the
    # difference counts
    feedback: Literal["one-point", "two-point"]
    # of ``one-point``. ``sphere``: points are at one distance from the centre (Flaxman, Kalai and McMahan 2005).
    # ``ellipsoid``: on an ellipsoid that fits the set, for smooth losses; where they are strongly convex it shrinks
    # (Hazan and Levy 2014), else it is as small as the horizon allows (Saha and Tewari 2011).
    estimator: Literal["sphere", "ellipsoid"] = "sphere"
    # the most that a person's reward changes per unit of distance, which ``ellipsoid`` does not need. A device clips to
    # it where feedback is ``two-point``.
    lipschitz: float | None = Field(default=None, ge=1 / UNIT_MAX, le=UNIT_MAX, allow_inf_nan=False)
    # losses have at least this curvature; 0: they are convex
    strong_convexity: float = Field(default=0.0, ge=0, le=UNIT_MAX, allow_inf_nan=False)
    # slopes of losses change by at most this per unit of distance: of ``ellipsoid`` without strong convexity, and of
    # ``two-point`` where ``deviation`` is above 0, whose points may then be farther apart
    smoothness: float = Field(default=0.0, ge=0, le=UNIT_MAX, allow_inf_nan=False)
    # of ``two-point``: standard deviation of what a person measures at one point, beyond their loss
    deviation: float = Field(default=0.0, ge=0, le=UNIT_MAX, allow_inf_nan=False)

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.feedback == "two-point" and self.estimator != "sphere":
            _refuse("algorithm.estimator", "must be 'sphere' where feedback is 'two-point'", "remove it")
        if self.estimator == "ellipsoid" and not (self.strong_convexity or self.smoothness):
            detail = "'ellipsoid' needs algorithm.strong_convexity or algorithm.smoothness above 0"
            _refuse("algorithm.estimator", detail, "set one of them, or use 'sphere'")
        shrinks = self.estimator == "ellipsoid" and bool(self.strong_convexity)
        if self.smoothness and (shrinks or (self.estimator == "sphere" and not self.deviation)):
            detail = "does nothing but for an 'ellipsoid' without strong convexity, or 'two-point' with a deviation"
            _refuse("algorithm.smoothness", detail, "remove it")
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
    capabilities: ClassVar[Capabilities] = Capabilities(coins_decide=True, reports_one_option=True)

    experiment: ConvexTable
    domain: Domain
    reward: Reward = Reward()
    algorithm: ConvexSection  # type: ignore[assignment] # a section of its own, with the base's key

    @model_validator(mode="after")
    def _possible(self) -> Self:
        experiment, privacy = self.experiment, self.privacy
        if experiment.conversion_window and privacy.trust.batched and not privacy.arm_in_key:
            detail = "needs privacy.arms = 'seen': other reports of a batch would say when they were decided"
            _refuse("experiment.conversion_window", detail, "set it so, or remove the window")
        if experiment.round_size > experiment.horizon:
            _refuse("experiment.round_size", "must be at most experiment.horizon", "lower it")
        if experiment.round_growth and not self.algorithm.strong_convexity:
            _refuse("experiment.round_growth", "needs algorithm.strong_convexity above 0", "set that, or remove this")
        if privacy.trust.batched and privacy.min_batch > experiment.round_size:
            _refuse("privacy.min_batch", "must be at most experiment.round_size", "lower it, or raise that")
        if self.algorithm.deviation > self.reward.span:
            detail = (
                f"must be at most {self.reward.span:g}, the range of rewards: what is measured is cut to that range"
            )
            _refuse("algorithm.deviation", detail, "lower it, or widen reward.low and reward.high")
        return self

    @property
    def rewards(self) -> int:
        """Rewards that a person reports: one at each of their points."""
        return self.algorithm.points

    @property
    def options(self) -> tuple[str, ...]:
        """Names of a point's coordinates."""
        return tuple(f"x{i}" for i in range(1, self.domain.dimension + 1))

    def batch(self, reported: int) -> int:
        """Return the people of the round after ``reported`` have reported; 0: there is none."""
        return self._sizes.batch(reported, self.experiment.horizon)

    @property
    def _sizes(self) -> RoundSizes:
        return RoundSizes(self.experiment.round_size, self.experiment.round_growth, self.smallest_batch)

    @override
    def out_of_reach(self, cohort: str, seen: int) -> int:
        return self._sizes.out_of_reach(seen, self.experiment.horizon)

    def largest_batch(self) -> int:
        """Return the most people of any round."""
        return self._sizes.largest(self.experiment.horizon)

    def first_batch(self, cohort: str) -> int:
        """Return the people of the first round; there are no cohorts but the experiment's own people."""
        return 0 if cohort else self.batch(0)

    @override
    def usual_question(self) -> Question:
        return self.asked(0)

    def asked(self, seed: int) -> KeyedMeans:
        """Return what a round asks: the mean score of every direction, of which a person contributes to one.

        The direction is where arms are: in the key if others see what people get and a report must not tell, else in
        the coins: together with its side, where those who see both are reckoned with.
        """
        if self.groups_arms:
            return KeyedMeans(even(seed, 2 * self.domain.dimension), seen=True)
        if self.privacy.arm_in_key:
            keys = self.domain.dimension
            return KeyedMeans(Layout.ungrouped(keys, seed), 1.0, 1 / keys)
        return KeyedMeans(even(seed, self.domain.dimension))

    def concerns(self) -> list[str]:
        """Say where a round is so large that its step is longer than the set."""
        found = super().concerns()
        long = self.experiment.round_size > max(1.0, self.experiment.horizon / 100)
        if not long or self.algorithm.strong_convexity:
            return found
        return [*found, "experiment.round_size is above 1 % of the horizon: steps are few and long; lower it"]

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        promises = {str(promise["model"]): promise for promise in example_promises()}
        two = {"feedback": "two-point", "lipschitz": 2.0, "strong_convexity": 1.0}
        one = {"feedback": "one-point", "strong_convexity": 1.0}
        made = {name: cls._instance(promise, two) for name, promise in promises.items()}
        made["local-ellipsoid"] = cls._instance(promises["local"], one | {"estimator": "ellipsoid"}, "box")
        smooth = {"feedback": "one-point", "estimator": "ellipsoid", "smoothness": 1.0}
        made["local-smooth"] = cls._instance(promises["local"], smooth)
        made["shuffle-grouped"] = cls._instance(promises["shuffle"] | {"arms": "grouped"}, two)
        made["shuffle-hidden"] = cls._instance(promises["shuffle"] | {"arms": "hidden"}, one | {"lipschitz": 2.0})
        return made

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
