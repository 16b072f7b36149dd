"""The policy of a round that measures the gain of choosing by context, for all algorithms.

Public coins of a choice assign every participant to a group, which gets the arm of the algorithm's policy, the best
single option, or a random option. These coins are not sent. A report is about one key, which the mechanism randomizes
with the reward: with a public group, a seen arm would reveal the contexts for which the policy chooses it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

import msgspec
import numpy as np
from typing_extensions import override

from privateer_core.arrays import Array, Bools, Coins, Ints
from privateer_core.codec import decode
from privateer_core.errors import Malformed
from privateer_core.policies.policy import Arms, ArmsPolicy, Policy
from privateer_core.prepared_types import cache_decoder
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import UNIT, coin_classes
from privateer_core.primitives.questions import KeyedHits, Question
from privateer_core.privacy.terms import Terms

if TYPE_CHECKING:
    from privateer_core.answer.policy_view import PolicyView

P = TypeVar("P", bound=Policy)
BY_CONTEXT, SINGLE, EITHER, ANY = range(4)
"""Keys of reports: participants with the policy's arm where it differs from the single option, with the single option
where it differs, with the arm on which both agree, and with a random option."""
N_KEYS: Final = 4
COMPARED_COINS: Final = 7 * UNIT // 16
"""Number of coins, of 65,536, for the policy's arm; as many are for the single option, the rest for a random one."""
NO_OPTION: Final = -1
"""The single option if the best one is unknown: its participants get a random option."""
_SEED_COUNT: Final = 1 << 64
_GROUP_SALT, _OPTION_SALT, _KEY_SALT = 0x67726F757073, 0x6F7074696F6E73, 0x6B657973
"""Salts of coins for the group, for a random option, and for the key of a report."""


@dataclass(frozen=True)
class GainPolicy(ArmsPolicy, Generic[P]):
    """A policy and the best single option, for equally many participants each, by public coins.

    The key of a participant is drawn for the report from the groups that give the participant this arm, with their
    probabilities. So a report needs no coins of the choice, and key, context, arm and reward have the same
    distribution as if the key were the group of the choice.
    """

    version: int
    single: int  # the arm that is estimated to be the best single option, or `NO_OPTION`
    seed: int  # the seed of the choice's coins
    playable: Bools  # shape (arms,): which arms are not retired
    by_context: P  # the best policy so far, without reports
    terms: Terms

    @override
    def accepts_decisions_of(self, decided: int) -> bool:
        return decided == self.version

    @override
    def question_type(self, spec: Any) -> type[Question]:
        return KeyedHits

    @override
    def is_compatible(self, spec: Any) -> bool:
        """Check the policy by context, and whether seed, arms, size and mechanism are the spec's."""
        policy, terms = self.by_context, self.terms
        policy.check(spec.learning)
        is_valid = (
            spec.gain_people > 0 and policy.version == self.version and not (policy.terms.batch_size or policy.cohort)
        )
        is_valid = is_valid and policy.draw is None and 0 < terms.batch_size <= spec.gain_people
        is_valid = is_valid and self.playable.tolist() == list(spec.playable) and 0 <= self.seed < 1 << 63
        has_option = self.single == NO_OPTION or self.single in np.flatnonzero(self.playable)
        return is_valid and has_option and self._can_answer_question(spec)

    def _can_answer_question(self, spec: Any) -> bool:
        mechanism: Any = self.terms.mechanism
        can_answer = getattr(mechanism, "can_answer", None)
        return can_answer is not None and self.has_layout_of(N_KEYS) and bool(can_answer(spec.gain_question(N_KEYS, 0)))

    @property
    def shares(self) -> Array:
        """Probabilities of the groups `BY_CONTEXT`, `SINGLE` and `ANY`; (3,)."""
        return np.array([COMPARED_COINS, self._single_coins, UNIT - COMPARED_COINS - self._single_coins]) / UNIT

    @property
    def _single_coins(self) -> int:
        return 0 if self.single == NO_OPTION else COMPARED_COINS

    @override
    def decide(self, contexts: Array, coins: Coins) -> Arms:
        """Return the arms of n participants by their coins' group: the policy's, the single one, or a random one."""
        active_arms = np.flatnonzero(self.playable)
        group = self._hash_coins(coins, _GROUP_SALT, UNIT)
        policy_arms = self._choose_by_context(contexts, coins)
        random_arms = active_arms[self._hash_coins(coins, _OPTION_SALT, len(active_arms))]
        others = np.where(group < COMPARED_COINS + self._single_coins, self.single, random_arms)
        return Arms(np.where(group < COMPARED_COINS, policy_arms, others))

    def _choose_by_context(self, contexts: Array, coins: Coins) -> Ints:
        """Return the arms (n,) of the policy, which needs no coins since it has no reports."""
        arms: Ints = self.by_context.decide(contexts, np.zeros_like(coins)).arms
        return arms

    def _hash_coins(self, coins: Coins, salt: int, n_classes: int) -> Ints:
        return coin_classes(coins, (self.seed ^ salt) % _SEED_COUNT, n_classes)

    @override
    def contribute(self, contexts: Array, coins: Coins, decisions: Arms, rewards: Array) -> KeyedValues:
        """Return each participant's key and reward; fresh coins draw the key, which the mechanism randomizes."""
        return KeyedValues.ungrouped(coins, self.draw_keys(contexts, coins, decisions.arms), rewards)

    def draw_keys(self, contexts: Array, coins: Coins, arms: Ints) -> Ints:
        """Return the secret keys (n,) of participants with these contexts and arms, drawn by coins of their reports."""
        policy_arms, n_active = self._choose_by_context(contexts, coins), int(self.playable.sum())
        # Integer weights of the groups that give this arm, so that all devices draw equal keys.
        by_context = np.where(arms == policy_arms, COMPARED_COINS * n_active, 0)
        single = np.where(arms == self.single, self._single_coins * n_active, 0)
        any_weight = UNIT - COMPARED_COINS - self._single_coins
        position = self._hash_coins(coins, _KEY_SALT, UNIT) * (by_context + single + any_weight)
        others = np.where(position < UNIT * (by_context + single), SINGLE, ANY)
        keys = np.where(position < UNIT * by_context, BY_CONTEXT, others)
        return np.where((policy_arms == self.single) & (keys != ANY), EITHER, keys).astype(np.int64)

    @override
    def view(self, spec: Any) -> "PolicyView":
        return self.by_context.view(spec)


class _PolicyKind(msgspec.Struct):
    """The field that distinguishes a policy of this module from an algorithm's policy."""

    by_context: msgspec.Raw = msgspec.Raw(b"")


def decode_policy(body: bytes, kind: type[Any]) -> Policy:
    """Parse a policy of an algorithm whose policies have the type ``kind``; `SpecError` for an impossible mechanism."""
    try:
        measures = len(memoryview(msgspec.msgpack.decode(body, type=cache_decoder(_PolicyKind)).by_context)) > 0
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"this is not a serialized {kind.__name__}", remedy="fetch it again") from error
    policy: Any = decode(body, cast(Any, GainPolicy)[kind] if measures else kind)
    return cast(Policy, policy)


def check_policy(policy: Policy, spec: Any) -> None:
    """Refuse a policy that is impossible under the spec; see `Policy.check`."""
    policy.check(spec if isinstance(policy, GainPolicy) else spec.learning)
