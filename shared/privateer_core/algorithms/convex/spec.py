"""The spec of bandits on a convex set, with all checks: the set of points, and coins that choose a direction."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import override

from privateer_core.arrays import Array
from privateer_core.errors import SpecError
from privateer_core.primitives.public_coins import UNIT, Layout
from privateer_core.primitives.questions import KeyedMeans, Question
from privateer_core.privacy.trust import Crowd
from privateer_core.spec.arms import RoundSizes
from privateer_core.spec.experiment import ExperimentTable
from privateer_core.spec.reward import Reward
from privateer_core.spec.sections import Section, parse_section
from privateer_core.spec.spec import Capabilities, Spec, example_promises

DIMENSION_MAX: Final = 64
UNIT_MAX: Final = 1e6  # bound of lengths and rewards, so that their squares and fourth powers are finite
_ROUNDING_TOLERANCE: Final = 1e-9


class Domain(Section):
    """The set of points: a ball, or a box, around 0."""

    # shape, dimension, radius: a ``ball`` of that radius, or a ``box`` with that half side; 1 to 64 dimensions
    shape: Literal["ball", "box"] = "ball"
    dimension: int = Field(ge=1, le=DIMENSION_MAX)
    radius: float = Field(default=1.0, ge=1 / UNIT_MAX, le=UNIT_MAX, allow_inf_nan=False)

    @property
    def max_norm(self) -> float:
        """The maximum Euclidean norm of a point of the set."""
        return self.radius * (math.sqrt(self.dimension) if self.shape == "box" else 1.0)

    def gauge(self, points: Array) -> Array:
        """Return the norm (...) of points (..., d) for which the set is the ball of ``radius``."""
        return np.asarray(np.linalg.norm(points, axis=-1) if self.shape == "ball" else np.abs(points).max(axis=-1))

    def contains(self, points: Array) -> bool:
        """Whether the set contains all points (..., d)."""
        return bool(np.isfinite(points).all() and (self.gauge(points) <= self.radius * (1 + _ROUNDING_TOLERANCE)).all())

    def project(self, point: Array, margin: float = 0.0) -> Array:
        """Return the projection of a point on the set shrunk by ``margin``; shape (d,)."""
        max_size = self.radius - margin
        if self.shape == "box":
            return np.clip(point, -max_size, max_size)
        return np.asarray(point * min(1.0, max_size / max(float(np.linalg.norm(point)), 1e-300)))

    def farthest_point(self, direction: Array) -> Array:
        """Return the support point of the set in a direction; shape (d,)."""
        if self.shape == "box":
            return self.radius * np.sign(direction)
        return np.asarray(direction * (self.radius / max(float(np.linalg.norm(direction)), 1e-300)))


def uniform_layout(seed: int, n_groups: int) -> Layout:
    """Return the layout whose coins choose groups uniformly."""
    return Layout(seed, np.rint(UNIT * np.arange(1, n_groups) / n_groups).astype(np.uint32)[None, :])


class ConvexTable(ExperimentTable):
    """The ``[experiment]``; its horizon is the number of participants."""

    round_size: int = Field(default=1000, ge=1, le=1_000_000)  # participants of the first round
    # a later round has at least this share of the participants so far; for strongly convex losses alone, whose steps
    # get shorter
    min_round_fraction: float = Field(default=0.0, ge=0, le=1, allow_inf_nan=False)


class ConvexSection(Section):
    """The ``[algorithm]``."""

    name: Literal["convex"]
    # ``one-point``: a participant reports the reward of one point; ``two-point``: the rewards of two points, whose
    # difference is used
    feedback: Literal["one-point", "two-point"]
    # the maximum change of a participant's reward per unit of distance. A device clips to it if feedback is
    # ``two-point``. With it, points of ``one-point`` are at one distance from the centre (Flaxman, Kalai and McMahan
    # 2005). Without, they are on an ellipsoid that fits the set: where losses are strongly convex it shrinks (Hazan and
    # Levy 2014), else it is as small as the horizon allows for smooth ones (Saha and Tewari 2011).
    lipschitz: float | None = Field(default=None, ge=1 / UNIT_MAX, le=UNIT_MAX, allow_inf_nan=False)
    # losses have at least this curvature; 0: they are convex
    strong_convexity: float = Field(default=0.0, ge=0, le=UNIT_MAX, allow_inf_nan=False)
    # gradients of losses change by at most this per unit of distance: without ``lipschitz`` or strong convexity, and
    # for ``two-point`` if ``deviation`` is above 0, whose points may then be farther apart
    smoothness: float = Field(default=0.0, ge=0, le=UNIT_MAX, allow_inf_nan=False)
    # for ``two-point``: standard deviation of a participant's measurement error at a point
    standard_deviation: float = Field(default=0.0, ge=0, le=UNIT_MAX, allow_inf_nan=False)

    @model_validator(mode="after")
    def _check_feedback(self) -> Self:
        """Refuse keys that the kind of feedback needs and lacks, or has and does not use."""
        if self.has_ellipsoid and (self.feedback == "two-point" or not (self.strong_convexity or self.smoothness)):
            remedy = "add it, or algorithm.strong_convexity or algorithm.smoothness where feedback is 'one-point'"
            _refuse("algorithm.lipschitz", "missing", remedy)
        is_idle = bool(self.strong_convexity) if self.has_ellipsoid else not self.standard_deviation
        if self.smoothness and is_idle:
            detail = "does nothing but without lipschitz and strong_convexity, or for 'two-point' with a deviation"
            _refuse("algorithm.smoothness", detail, "remove it")
        if self.feedback == "one-point" and self.standard_deviation:
            _refuse("algorithm.standard_deviation", "does nothing where feedback is 'one-point'", "remove it")
        return self

    @property
    def has_ellipsoid(self) -> bool:
        """Whether points are on an ellipsoid that fits the set, and not at one distance from the centre."""
        return self.lipschitz is None

    @property
    def slope(self) -> float:
        """The Lipschitz constant; 0 if none is given."""
        return self.lipschitz or 0.0

    @property
    def points(self) -> int:
        """Number of points of a participant."""
        return 2 if self.feedback == "two-point" else 1


class ConvexSpec(Spec):
    """A spec of an experiment on a convex set."""

    question: ClassVar[type[Question]] = KeyedMeans
    capabilities: ClassVar[Capabilities] = Capabilities(coins_decide=True, reports_one_option=True)

    experiment: ConvexTable
    domain: Domain
    reward: Reward = Reward()
    algorithm: ConvexSection  # type: ignore[assignment] # a section of its own, with the base's key

    @model_validator(mode="after")
    def _check_spec(self) -> Self:
        """Refuse a window, sizes of rounds, or a standard deviation that contradict other keys."""
        experiment, privacy = self.experiment, self.privacy
        if experiment.conversion_window_seconds and privacy.trust.crowd is Crowd.BATCH and not privacy.has_arm_in_key:
            detail = (
                "needs privacy.arm_visibility = 'visible': other reports of a batch would say when they were decided"
            )
            _refuse("experiment.conversion_window_seconds", detail, "set it so, or remove the window")
        if experiment.round_size > experiment.horizon:
            _refuse("experiment.round_size", "must be at most experiment.horizon", "lower it")
        if experiment.min_round_fraction and not self.algorithm.strong_convexity:
            _refuse(
                "experiment.min_round_fraction", "needs algorithm.strong_convexity above 0", "set that, or remove this"
            )
        if privacy.trust.crowd is Crowd.BATCH and privacy.min_batch > experiment.round_size:
            _refuse("privacy.min_batch", "must be at most experiment.round_size", "lower it, or raise that")
        if self.algorithm.standard_deviation > self.reward.span:
            limit = f"{self.reward.span:g}, the range of rewards: what is measured is cut to that range"
            remedy = "lower it, or widen reward.low and reward.high"
            _refuse("algorithm.standard_deviation", f"must be at most {limit}", remedy)
        return self

    @property
    def rewards(self) -> int:
        """Number of rewards that a participant reports: one a point."""
        return self.algorithm.points

    @property
    def options(self) -> tuple[str, ...]:
        """Names of a point's coordinates."""
        return tuple(f"x{i}" for i in range(1, self.domain.dimension + 1))

    def batch_size(self, reported: int) -> int:
        """Return the batch size of the round after ``reported`` reports; 0: there is no such round."""
        return self._sizes.batch_size(reported, self.experiment.horizon)

    @property
    def _sizes(self) -> RoundSizes:
        return RoundSizes(self.experiment.round_size, self.experiment.min_round_fraction, self.smallest_batch)

    @override
    def count_unreachable(self, cohort: str, n_reported: int) -> int:
        return self._sizes.count_unreachable(n_reported, self.experiment.horizon)

    def largest_batch(self) -> int:
        """Return the maximum batch size."""
        return self._sizes.max_batch(self.experiment.horizon)

    def first_batch(self, cohort: str) -> int:
        """Return the batch size of the first round; there are no cohorts but the experiment's own participants."""
        return 0 if cohort else self.batch_size(0)

    @override
    def typical_question(self) -> Question:
        return self.make_question(0)

    def make_question(self, seed: int) -> KeyedMeans:
        """Return the question of a round: the mean score of every axis, of which a participant contributes to one.

        The axis is in the key of a report if ``privacy.arm_visibility`` is "visible", and in the coins otherwise; if it
        is "grouped", the coins have its sign, too.
        """
        if self.groups_arms:
            return KeyedMeans(uniform_layout(seed, 2 * self.domain.dimension), has_visible_groups=True)
        if self.privacy.has_arm_in_key:
            keys = self.domain.dimension
            return KeyedMeans(Layout.ungrouped(keys, seed), 1.0, 1 / keys)
        return KeyedMeans(uniform_layout(seed, self.domain.dimension))

    def concerns(self) -> list[str]:
        """Return warnings, among them of rounds so large that a step is longer than the set."""
        concerns, max_round_size = super().concerns(), max(1.0, self.experiment.horizon / 100)
        if self.experiment.round_size > max_round_size and not self.algorithm.strong_convexity:
            concerns.append("experiment.round_size is above 1 % of the horizon: steps are few and long; lower it")
        return concerns

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        """Return a small instance of every trust model, and further ones of shapes, losses and arms."""
        promises = example_promises(cls.question)
        two_point = {"feedback": "two-point", "lipschitz": 2.0, "strong_convexity": 1.0}
        one_point = {"feedback": "one-point", "strong_convexity": 1.0}
        specs = {name: cls._example(promise, two_point) for name, promise in promises.items()}
        local, shuffle = promises["local"], promises["shuffle"]
        specs["local-ellipsoid"] = cls._example(local, one_point, "box")
        specs["local-smooth"] = cls._example(local, {"feedback": "one-point", "smoothness": 1.0})
        specs["shuffle-grouped"] = cls._example(shuffle | {"arm_visibility": "grouped"}, two_point)
        specs["shuffle-hidden"] = cls._example(shuffle | {"arm_visibility": "hidden"}, one_point | {"lipschitz": 2.0})
        return specs

    @classmethod
    def _example(cls, privacy: Mapping[str, Any], algorithm: Mapping[str, Any], shape: str = "ball") -> Self:
        data = {
            "experiment": {"name": "test", "horizon": 4000, "round_size": 1000},
            "domain": {"shape": shape, "dimension": 2},
            "privacy": dict(privacy),
            "algorithm": {"name": "convex", **algorithm},
        }
        return parse_section(cls, data)


def _refuse(field: str, detail: str, remedy: str) -> None:
    raise SpecError(detail, field=field, remedy=remedy)
