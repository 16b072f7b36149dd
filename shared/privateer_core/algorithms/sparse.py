"""Spec and policy of high-dimensional bandits (Shukla 2024, PrivateLASSO).

Rewards are linear in few of an arm's many features. The policy of a round has the coefficients of these features, and
what a device does with them.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias, cast

import msgspec
import numpy as np
from pydantic import Field, field_validator, model_validator
from typing_extensions import override

from privateer_core.algorithms import Algorithm
from privateer_core.answer.facts import Fact
from privateer_core.answer.policy_view import INTERCEPT, Coefficients, PolicyView
from privateer_core.arrays import Array, Bools, Coins, Ints
from privateer_core.errors import InputError, SpecError
from privateer_core.mechanisms import ScreenedMoments, VectorMechanism
from privateer_core.policies.policy import Arms, ArmsPolicy
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.public_coins import coin_classes
from privateer_core.primitives.questions import Question, SecondMoments
from privateer_core.privacy.terms import Terms
from privateer_core.privacy.trust import Crowd, Curator
from privateer_core.spec.arms import ARMS_MAX_COMPARED, ArmsSpec
from privateer_core.spec.columns import MISSING_PLACE
from privateer_core.spec.features import Feature, Numeric, Range
from privateer_core.spec.sections import Finite, Section, parse_section
from privateer_core.spec.spec import Capabilities, example_promises

FEATURES_MAX: Final = 1 << 14
_Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=128)]
ROUND_BYTES_MAX: Final = 256 << 20  # maximum number of bytes that a server holds for an open round
CLASSES_MAX: Final = 64  # maximum number of features about which reports that are each private by themselves can be
_TERM_UNIT: Final = "what half a range of a feature adds to the mean reward, in its units"
_MAX_ABSOLUTE_PREDICTION: Final = 1 + 1e-9  # bound of a scaled expected reward, with room for rounding errors


class ArmContext(Range):
    """The ``[context]``: numbers of an arm for a participant, such as the similarity of a text to earlier reading."""

    # the names of the features, or their number: then they are called x1, x2 and so on
    features: Annotated[int, Field(ge=1, le=FEATURES_MAX)] | tuple[_Name, ...]
    # low, high: bounds of all features, to which devices clip
    low: Finite = -1.0
    high: Finite = 1.0

    @field_validator("features")
    @classmethod
    def _check_names(cls, features: Any) -> Any:
        """Refuse names of features that are unprintable, repeated, or too many."""
        if isinstance(features, tuple) and not all(name.isprintable() for name in features):
            raise ValueError("names must have printable characters alone: rename the column")
        if isinstance(features, tuple) and not 0 < len(set(features)) == len(features) <= FEATURES_MAX:
            raise ValueError(f"must be 1 to {FEATURES_MAX} distinct names")
        return features

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the features of an arm."""
        if isinstance(self.features, tuple):
            return self.features
        return tuple(f"x{index}" for index in range(1, self.features + 1))


class ArmFeatures(Mapping[str, Numeric]):
    """The features of a context, "x1 of a" and so on, which are equal numbers and are encoded at once."""

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

    def encode(self, numbers: Array) -> Array:
        """Return the columns of n participants, (n, columns) in [0, 1]; NaN is encoded as the middle."""
        numbers = numbers[:, : len(self._keys)]
        return np.asarray(np.where(np.isnan(numbers), MISSING_PLACE, self._number.positions(numbers)))


@lru_cache(maxsize=64)
def _make_arm_features(names: tuple[str, ...], arms: tuple[str, ...], low: float, high: float) -> ArmFeatures:
    return ArmFeatures(names, arms, Numeric(low=low, high=high))


class SparseTable(Section):
    """The ``[algorithm]`` of high-dimensional bandits."""

    name: Literal["sparse"]
    sparsity: int = Field(ge=1, le=CLASSES_MAX)  # maximum number of features with an effect, which are kept


class SparseSpec(ArmsSpec):
    """A spec of an experiment with rewards that are linear in few of an arm's many features."""

    question: ClassVar[type[Question]] = SecondMoments
    capabilities: ClassVar[Capabilities] = msgspec.structs.replace(
        ArmsSpec.capabilities, reports_one_option=False, arms_max=ARMS_MAX_COMPARED, has_many_features=True
    )

    context: ArmContext  # type: ignore[assignment] # numbers of every arm, instead of a participant's features
    algorithm: SparseTable  # type: ignore[assignment] # a section of its own, with the base's key

    @property
    def arm_features(self) -> int:
        """Number of features of an arm, d."""
        return len(self.context.names)

    @property
    def features(self) -> Mapping[str, Feature]:
        """The numbers of all arms, arm by arm, as an application gives them."""
        return _make_arm_features(self.context.names, self.options, self.context.low, self.context.high)

    @property
    def dimension(self) -> int:
        """Number of columns of an encoded context."""
        return self.arm_count * self.arm_features

    @property
    def max_kept(self) -> int:
        """Maximum number of features with a coefficient."""
        return min(self.algorithm.sparsity, self.arm_features)

    @model_validator(mode="after")
    def _check_spec(self) -> Self:
        """Refuse more kept features than an arm has, rounds beyond a server's memory, and too many local features."""
        if self.algorithm.sparsity > self.arm_features:
            detail = f"must be at most {self.arm_features}, the features of an arm"
            raise SpecError(detail, field="algorithm.sparsity", remedy="lower it")
        n_bytes = self._round_bytes(self.arm_features)
        if n_bytes > ROUND_BYTES_MAX:
            detail = f"make a server hold {n_bytes / 2**20:,.0f} MiB for a round; at most {ROUND_BYTES_MAX >> 20}"
            max_features = int(math.sqrt(ROUND_BYTES_MAX / 4)) - ARMS_MAX_COMPARED - 2  # about as many fit
            raise SpecError(detail, field="context.features", remedy=f"leave features out: {max_features} fit")
        if self.is_local and self.arm_features > CLASSES_MAX:
            detail = f"{self.arm_features} features are too many where every report is private by itself"
            remedy = f"name at most {CLASSES_MAX}, or use a curator or a shuffler"
            raise SpecError(detail, field="context.features", remedy=remedy)
        return self

    def _round_bytes(self, n_features: int) -> int:
        """Return the number of bytes that a server holds for a round about ``n_features``."""
        n_coordinates = self.make_ball(n_features).coordinates
        return 4 * n_coordinates * (n_coordinates + 1) if self.has_curator else 8 * n_coordinates

    def can_hold(self, n_features: int) -> bool:
        """Whether a server can hold rounds about ``n_features``."""
        return self._round_bytes(n_features) <= ROUND_BYTES_MAX and not (self.is_local and n_features > CLASSES_MAX)

    @property
    def has_curator(self) -> bool:
        """Whether the server sees records, and makes their second moments."""
        return self.privacy.trust.curator is Curator.SERVER

    @property
    def is_local(self) -> bool:
        """Whether every report is private by itself."""
        return self.privacy.trust.crowd is Crowd.NOBODY

    @property
    @override
    def informative_share(self) -> float:
        return 1 / self.arm_features if self.is_local else 1.0

    def make_ball(self, n_features: int) -> Ball:
        """Return the ball of reports about ``n_features``."""
        if self.has_curator:
            return Ball("max", 1.0, self.arm_count + n_features + 1)
        return Ball("l2", 1.0, 1) if self.is_local else Ball("max", 1.0, n_features)

    def make_question(self, n_features: int, seed: int) -> SecondMoments:
        """Return the question of a round about ``n_features``; with a curator it has the ball of the records."""
        return SecondMoments(self.make_ball(n_features), seed, n_features if self.is_local else 1, arms=self.arm_count)

    @override
    def typical_question(self) -> SecondMoments:
        return msgspec.structs.replace(self.make_question(self.arm_features, 0), screened=self.max_kept)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        return {name: cls._example(promise) for name, promise in example_promises(cls.question).items()}

    @classmethod
    def _example(cls, privacy: Mapping[str, Any]) -> Self:
        sizes = {"horizon": 1500, "round_size": 500, "min_round_fraction": 1.0}
        tables = {
            "experiment": {"name": "test", "arms": ["a", "b", "c"], **sizes},
            "context": {"features": 3},
            "privacy": {**privacy, "min_batch": 100},
            "algorithm": {"name": "sparse", "sparsity": 1},
        }
        return parse_section(cls, tables)


@dataclass(frozen=True)
class SparsePolicy(ArmsPolicy):
    """A policy that gives the arm with the largest linear prediction, or a uniform arm by public coins.

    Features and rewards are scaled to [-1, 1].
    """

    version: int
    asked: Ints  # shape (m,), int64: the features that reports are about, in order
    # places, coefficients: shapes (k,): indices of features in order, int64, and their coefficients
    places: Ints
    coefficients: Array
    intercepts: Array  # shape (arms,)
    playable: Bools  # shape (arms,): which arms are not retired
    explores: bool  # whether all participants get a uniform arm
    seed: int  # the seed of the choices' coins
    terms: Terms

    is_mixture = True

    @property
    def mechanism(self) -> ScreenedMoments | VectorMechanism:
        """The mechanism that randomizes, sums and releases the round's reports."""
        return cast(ScreenedMoments | VectorMechanism, self.terms.mechanism)

    @override
    def is_compatible(self, spec: SparseSpec) -> bool:
        """Whether arrays are the spec's, no prediction is beyond the bounds, and the mechanism is allowed."""
        if not self._is_shaped(spec):
            return False
        max_prediction = np.abs(self.intercepts).max() + np.abs(self.coefficients).sum()
        return bool(max_prediction <= _MAX_ABSOLUTE_PREDICTION) and self._has_allowed_mechanism(spec)

    def _is_shaped(self, spec: SparseSpec) -> bool:
        """Whether indices, coefficients and arms have valid types, and the shapes of the spec."""
        valid = all(_are_indices(ids, spec.arm_features) for ids in (self.asked, self.places)) and len(self.asked) > 0
        valid = valid and self.coefficients.shape == self.places.shape and len(self.places) <= 2 * spec.max_kept
        valid = valid and self.intercepts.shape == (spec.arm_count,)
        valid = valid and self.coefficients.dtype == self.intercepts.dtype == np.float64
        return valid and self.playable.tolist() == list(spec.playable) and 0 <= self.seed < 1 << 63

    def _has_allowed_mechanism(self, spec: SparseSpec) -> bool:
        """Whether the mechanism has the question's ball, and reports no classes but those of the question."""
        mechanism, question = self.mechanism, spec.make_question(len(self.asked), self.seed)
        if isinstance(mechanism, ScreenedMoments) and mechanism.arms != spec.arm_count:
            return False
        classes = getattr(mechanism, "classes", 1)
        is_known = classes == 1 or (classes == question.classes and getattr(mechanism, "seed", -1) == self.seed)
        return mechanism.ball == question.ball and is_known

    @override
    def decide(self, contexts: Array, coins: Coins) -> Arms:
        """Return the arms with the largest predictions, or uniform arms by coins; refuse infinite features."""
        active_arms = np.flatnonzero(self.playable)
        if self.explores:
            return Arms(active_arms[coin_classes(coins, self.seed, len(active_arms))])
        features = 2 * self._features_by_arm(contexts)[:, :, self.places] - 1
        scores = _require_finite(self.intercepts + features @ self.coefficients)
        return Arms(np.where(self.playable, scores, -np.inf).argmax(axis=1))

    def _features_by_arm(self, contexts: Array) -> Array:
        """Return contexts as features by arm, (n, arms, features), in [0, 1]."""
        n_arms = len(self.playable)
        return contexts.reshape(len(contexts), n_arms, contexts.shape[1] // n_arms)

    @override
    def contribute(self, contexts: Array, coins: Coins, decisions: Arms, rewards: Array) -> BoundedVectors:
        """Return each participant's record, or products of features and reward: of all features, or of the class's."""
        rows = np.arange(len(contexts))
        features = 2 * _require_finite(self._features_by_arm(contexts)[rows, decisions.arms])[:, self.asked] - 1
        values = 2 * rewards[:, None] - 1
        if isinstance(self.mechanism, ScreenedMoments):
            arms = decisions.arms[:, None] == np.arange(len(self.playable))
            return BoundedVectors(coins, np.concatenate([arms, features, values], axis=1))
        if self.mechanism.ball.coordinates < len(self.asked):
            classes = coin_classes(coins, self.seed, len(self.asked))
            return BoundedVectors(coins, values * features[rows, classes][:, None])
        return BoundedVectors(coins, values * features)

    @override
    def view(self, spec: SparseSpec) -> PolicyView:
        """Return the view with the shared coefficients and each arm's constant, in the unit of rewards."""
        names, unit = spec.context.names, spec.reward.half_range
        pairs = zip(self.places.tolist(), self.coefficients.tolist(), strict=True)
        shared = {names[index]: round(unit * coefficient, 4) for index, coefficient in pairs}
        constants = (spec.reward.middle + unit * self.intercepts).tolist()
        arms = {arm: {INTERCEPT: round(value, 4)} for arm, value in zip(spec.options, constants, strict=True)}
        facts = Fact("explores", self.explores, "yes or no"), Fact("features asked about", len(self.asked), "count")
        return PolicyView(spec.algorithm.name, self.version, Coefficients("identity", _TERM_UNIT, shared, arms), facts)


def _are_indices(indices: Ints, n_features: int) -> bool:
    """Whether these are distinct indices of an arm's features, in order."""
    are_integers = indices.ndim == 1 and indices.dtype == np.int64
    return are_integers and bool((np.diff(indices) > 0).all() and ((indices >= 0) & (indices < n_features)).all())


def _require_finite(values: Array) -> Array:
    if not np.isfinite(values).all():
        raise InputError("must be finite numbers", field="context", remedy="give the device finite values")
    return values


ALGORITHM: Final = Algorithm(SparseSpec, SparsePolicy)
