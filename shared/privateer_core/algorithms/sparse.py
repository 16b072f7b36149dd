"""High-dimensional bandits (Shukla 2024, PrivateLASSO): rewards are linear in few of an arm's many features.

Here are the spec, with all refusals, and the policy of one round: coefficients of few features, and what a device does
with them.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator
from typing_extensions import override

from privateer_core.algorithms import Algorithm
from privateer_core.answer.facts import Fact
from privateer_core.answer.policy_view import INTERCEPT, Coefficients, PolicyView
from privateer_core.errors import InputError, SpecError
from privateer_core.mechanisms import ScreenedMoments, VectorMechanism
from privateer_core.policies.decisions import Arms
from privateer_core.policies.policy import ArmsPolicy
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.public_coins import classes_of
from privateer_core.primitives.questions import Question, SecondMoments
from privateer_core.privacy.terms import Terms
from privateer_core.spec.arms import ARMS_FEW, ArmsSpec
from privateer_core.spec.capabilities import Capabilities
from privateer_core.spec.columns import MISSING_PLACE
from privateer_core.spec.features import Feature, Numeric, Range
from privateer_core.spec.sections import Finite, Section, parse_section
from privateer_core.spec.spec import example_promises

Array = NDArray[np.float64]
FEATURES_MAX: Final = 1 << 14
_Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=128)]
HELD_MAX: Final = 256 << 20
"""Bytes that a server holds for an open round, at most."""
CLASSES_MAX: Final = 64
"""Features of which one report each can be told apart, where every report is private by itself."""
Coins = NDArray[np.uint32]
Places = NDArray[np.int64]
_UNIT: Final = "what half a range of a feature adds to the mean reward, in its units"
_BALL: Final = 1 + 1e-9
"""What is expected of an arm is within the range of rewards, but for last digits."""


class ArmContext(Range):
    """The ``[context]``: numbers of an arm for a person, such as how well a text fits what they read before."""

    # their names, or how many there are: those are called x1, x2 and so on
    features: Annotated[int, Field(ge=1, le=FEATURES_MAX)] | tuple[_Name, ...]
    # low, high: bounds of all of them, to which devices clip
    low: Finite = -1.0
    high: Finite = 1.0

    @field_validator("features")
    @classmethod
    def _distinct(cls, features: Any) -> Any:
        if isinstance(features, tuple) and not all(name.isprintable() for name in features):
            raise ValueError("names must have printable characters alone: rename the column")
        if isinstance(features, tuple) and not 0 < len(set(features)) == len(features) <= FEATURES_MAX:
            raise ValueError(f"must be 1 to {FEATURES_MAX} distinct names")
        return features

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features of an arm."""
        return self.features if isinstance(self.features, tuple) else numbered(self.features)

    def of_arms(self, arms: tuple[str, ...]) -> "OfArms":
        """Return all numbers that an application gives, arm by arm."""
        return _of_arms(self.names, arms, self.low, self.high)


class OfArms(Mapping[str, Numeric]):
    """The features of a context, "x1 of a" and so on, all of them alike: they are encoded at once.

    names, arms: names of features and of arms.
    number: what each of them is.
    """

    def __init__(self, names: tuple[str, ...], arms: tuple[str, ...], number: Numeric) -> None:
        self._number = number
        self._keys = dict.fromkeys(f"{name} of {arm}" for arm in arms for name in names)

    def __getitem__(self, key: str) -> Numeric:
        if key not in self._keys:
            raise KeyError(key)
        return self._number

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def encoded(self, numbers: Array) -> Array:
        """Return the columns of n people, (n, columns) in [0, 1]; NaN is in the middle."""
        numbers = numbers[:, : len(self._keys)]
        return np.asarray(np.where(np.isnan(numbers), MISSING_PLACE, self._number.places(numbers)))


@lru_cache(maxsize=64)
def numbered(count: int) -> tuple[str, ...]:
    """Return the names of so many features that have none."""
    return tuple(f"x{place}" for place in range(1, count + 1))


@lru_cache(maxsize=64)
def _of_arms(names: tuple[str, ...], arms: tuple[str, ...], low: float, high: float) -> OfArms:
    return OfArms(names, arms, Numeric(low=low, high=high))


class SparseTable(Section):
    """The ``[algorithm]`` of high-dimensional bandits."""

    name: Literal["sparse"]
    sparsity: int = Field(ge=1, le=CLASSES_MAX)  # how many features matter, at most: so many are kept


class SparseSpec(ArmsSpec):
    """An experiment with rewards that are linear in few of an arm's many features."""

    question: ClassVar[type[Question]] = SecondMoments
    capabilities: ClassVar[Capabilities] = replace(
        ArmsSpec.capabilities, reports_one_option=False, arms_max=ARMS_FEW, has_many_features=True
    )

    context: ArmContext  # type: ignore[assignment] # numbers of every arm, in the place of a person's features
    algorithm: SparseTable  # type: ignore[assignment] # a section of its own, with the base's key

    @property
    def arm_features(self) -> int:
        """Number of features of an arm, d."""
        return len(self.context.names)

    @property
    def features(self) -> Mapping[str, Feature]:
        """The numbers of all arms, in order."""
        return self.context.of_arms(self.options)

    @property
    def dimension(self) -> int:
        """Number of columns of an encoded context."""
        return self.arm_count * self.arm_features

    @property
    def kept_most(self) -> int:
        """How many features a block has at most."""
        return min(self.algorithm.sparsity, self.arm_features)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.algorithm.sparsity > self.arm_features:
            detail = f"must be at most {self.arm_features}, the features of an arm"
            raise SpecError(detail, field="algorithm.sparsity", remedy="lower it")
        self._check_memory()
        if self.is_alone and self.arm_features > CLASSES_MAX:
            detail = f"{self.arm_features} features are too many where every report is private by itself"
            remedy = f"name at most {CLASSES_MAX}, or use a curator or a shuffler"
            raise SpecError(detail, field="context.features", remedy=remedy)
        return self

    def _check_memory(self) -> None:
        held = self._held(self.arm_features)
        if held > HELD_MAX:
            detail = f"make a server hold {held / 2**20:,.0f} MiB for a round; at most {HELD_MAX >> 20}"
            raise SpecError(detail, field="context.features", remedy=f"leave features out: {_most_features()} fit")

    def _held(self, features: int) -> int:
        """Return the bytes that a server holds for a round about so many features."""
        size = self.ball(features).coordinates
        return 4 * size * (size + 1) if self.privacy.trust.curated else 8 * size

    def takes(self, features: int) -> bool:
        """Whether a spec may have so many features."""
        return self._held(features) <= HELD_MAX and not (self.is_alone and features > CLASSES_MAX)

    @property
    def is_alone(self) -> bool:
        """Whether every report is private by itself."""
        return not (self.privacy.trust.curated or self.privacy.trust.batched)

    @property
    @override
    def telling(self) -> float:
        return 1 / self.arm_features if self.is_alone else 1.0

    def ball(self, features: int) -> Ball:
        """Return where reports about so many features lie."""
        if self.privacy.trust.curated:
            return Ball("max", 1.0, self.arm_count + features + 1)
        return Ball("max", 1.0, features) if self.privacy.trust.batched else Ball("l2", 1.0, 1)

    def question_about(self, features: int, seed: int) -> SecondMoments:
        """Return what a round asks about so many features where there is no curator; else, where records lie."""
        return SecondMoments(self.ball(features), seed, features if self.is_alone else 1, arms=self.arm_count)

    @override
    def usual_question(self) -> SecondMoments:
        return replace(self.question_about(self.arm_features, 0), screened=self.kept_most)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        return {str(one["model"]): cls._instance(one) for one in example_promises()}

    @classmethod
    def _instance(cls, privacy: Mapping[str, Any]) -> Self:
        data = {
            "experiment": {
                "name": "test",
                "arms": ["a", "b", "c"],
                "horizon": 1500,
                "round_size": 500,
                "round_growth": 1.0,
            },
            "context": {"features": 3},
            "privacy": {**privacy, "min_batch": 100},
            "algorithm": {"name": "sparse", "sparsity": 1},
        }
        return parse_section(cls, data)


def _most_features() -> int:
    """Return how many features fit, about."""
    return int(math.sqrt(HELD_MAX / 4)) - ARMS_FEW - 2


@dataclass(frozen=True)
class SparsePolicy(ArmsPolicy):
    """The arm with the largest intercept and sum of coefficients times features; or any arm, by public coins.

    Features and rewards are scaled to [-1, 1].
    """

    version: int
    asked: Places  # shape (m,), int64: the features that reports tell of, in order
    # places, coefficients: shapes (k,): features in order, int64, and their coefficients
    places: Places
    coefficients: Array
    intercepts: Array  # shape (arms,)
    playable: NDArray[np.bool_]  # shape (arms,): which arms are not retired
    explores: bool  # whether everybody gets any arm with the same probability
    seed: int  # what the coins of a choice mean
    terms: Terms

    mixes = True

    @property
    def mechanism(self) -> ScreenedMoments | VectorMechanism:
        """What randomizes, adds up and releases the round's reports."""
        return cast(ScreenedMoments | VectorMechanism, self.terms.mechanism)

    @override
    def fits(self, spec: SparseSpec) -> bool:
        return self._is_shaped(spec) and self._is_in_the_ball() and self._asks_no_more(spec)

    def _is_shaped(self, spec: SparseSpec) -> bool:
        shaped = all(_are_places(one, spec.arm_features) for one in (self.asked, self.places)) and len(self.asked) > 0
        shaped = shaped and self.coefficients.shape == self.places.shape and len(self.places) <= 2 * spec.kept_most
        shaped = shaped and self.intercepts.shape == (spec.arm_count,)
        shaped = shaped and self.coefficients.dtype == self.intercepts.dtype == np.float64
        return shaped and self.playable.tolist() == list(spec.playable) and 0 <= self.seed < 1 << 63

    def _is_in_the_ball(self) -> bool:
        """Whether no prediction leaves the range of rewards."""
        return bool(np.abs(self.intercepts).max() + np.abs(self.coefficients).sum() <= _BALL)

    def _asks_no_more(self, spec: SparseSpec) -> bool:
        """Whether the mechanism is of this many features, and tells no other classes than those asked about."""
        mechanism, question = self.mechanism, spec.question_about(len(self.asked), self.seed)
        if isinstance(mechanism, ScreenedMoments) and mechanism.arms != spec.arm_count:
            return False
        classes = getattr(mechanism, "classes", 1)
        known = classes == 1 or (classes == question.classes and getattr(mechanism, "seed", -1) == self.seed)
        return mechanism.ball == question.ball and known

    @override
    def decide(self, contexts: Array, coins: Coins) -> Arms:
        played = np.flatnonzero(self.playable)
        if self.explores:
            return Arms(played[classes_of(coins, self.seed, len(played))])
        features = 2 * self._numbers(contexts)[:, :, self.places] - 1
        scores = _finite(self.intercepts + features @ self.coefficients)
        return Arms(np.where(self.playable, scores, -np.inf).argmax(axis=1))

    def _numbers(self, contexts: Array) -> Array:
        """Return features by arm, (n, arms, features), in [0, 1]."""
        arms = len(self.playable)
        return contexts.reshape(len(contexts), arms, contexts.shape[1] // arms)

    @override
    def contribute(self, contexts: Array, coins: Coins, decisions: Arms, rewards: Array) -> BoundedVectors:
        """Return everybody's record, or products of features and the reward: of one feature by class, or of all."""
        people = np.arange(len(contexts))
        features = 2 * _finite(self._numbers(contexts)[people, decisions.arms])[:, self.asked] - 1
        values = 2 * rewards[:, None] - 1
        if isinstance(self.mechanism, ScreenedMoments):
            arms = decisions.arms[:, None] == np.arange(len(self.playable))
            return BoundedVectors(coins, np.concatenate([arms, features, values], axis=1))
        if self.mechanism.ball.coordinates < len(self.asked):
            own = classes_of(coins, self.seed, len(self.asked))
            return BoundedVectors(coins, values * features[people, own][:, None])
        return BoundedVectors(coins, values * features)

    @override
    def view(self, spec: SparseSpec) -> PolicyView:
        names, unit = spec.context.names, spec.reward.half_range
        pairs = zip(self.places.tolist(), self.coefficients.tolist(), strict=True)
        shared = {names[place]: round(unit * value, 4) for place, value in pairs}
        arms = {
            arm: {INTERCEPT: round(spec.reward.middle + unit * float(value), 4)}
            for arm, value in zip(spec.options, self.intercepts, strict=True)
        }
        facts = Fact("explores", self.explores, "yes or no"), Fact("features asked about", len(self.asked), "count")
        return PolicyView(spec.algorithm.name, self.version, Coefficients("identity", _UNIT, shared, arms), facts)


def _are_places(places: Places, features: int) -> bool:
    """Whether these are features of an arm, in order, each once."""
    whole = places.ndim == 1 and places.dtype == np.int64
    return whole and bool((np.diff(places) > 0).all() and ((places >= 0) & (places < features)).all())


def _finite(values: Array) -> Array:
    """Return values."""
    if not np.isfinite(values).all():
        raise InputError("must be finite numbers", field="context", remedy="give the device finite values")
    return values


ALGORITHM: Final = Algorithm(SparseSpec, SparsePolicy)
