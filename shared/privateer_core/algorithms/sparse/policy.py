"""The policy of one round: coefficients of few features, and what a device does with them."""

from dataclasses import dataclass
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.algorithms.sparse.spec import SparseSpec
from privateer_core.answer.facts import Fact
from privateer_core.answer.policy_view import INTERCEPT, Coefficients, PolicyView
from privateer_core.errors import InputError
from privateer_core.mechanisms import ScreenedMoments, VectorMechanism
from privateer_core.policies.decisions import Arms
from privateer_core.policies.policy import ArmsPolicy
from privateer_core.primitives.contributions import BoundedVectors
from privateer_core.primitives.public_coins import classes_of
from privateer_core.privacy.terms import Terms

Array = NDArray[np.float64]
Coins = NDArray[np.uint32]
Places = NDArray[np.int64]
_UNIT: Final = "what half a range of a feature adds to the mean reward, in its units"
_BALL: Final = 1 + 1e-9
"""What is expected of an arm is within the range of rewards, but for last digits."""


@dataclass(frozen=True)
class SparsePolicy(ArmsPolicy):
    """The arm with the largest intercept and sum of coefficients times features; or any arm, by public coins.

    Features and rewards are scaled to [-1, 1].

    Attributes
    ----------
    asked
        Shape (m,), int64: the features that reports tell of, in order.
    places, coefficients
        Shapes (k,): features in order, int64, and their coefficients.
    intercepts
        Shape (arms,).
    playable
        Shape (arms,): which arms are not retired.
    explores
        Whether everybody gets any arm with the same probability.
    seed
        What the coins of a choice mean.
    """

    version: int
    asked: Places
    places: Places
    coefficients: Array
    intercepts: Array
    playable: NDArray[np.bool_]
    explores: bool
    seed: int
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
    """Return values.

    Raises
    ------
    InputError
        If one is not a finite number.
    """
    if not np.isfinite(values).all():
        raise InputError("must be finite numbers", field="context", remedy="give the device finite values")
    return values
