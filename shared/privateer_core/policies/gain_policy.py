"""The policy of a round that measures what choosing by context gains, whatever the algorithm: three groups of people.

Public coins of a choice give every person a group. Some get what the algorithm's policy says, as many the best single
option, and a few any option. Nobody sends these coins. A report is about one key, which the mechanism randomizes with
the reward: beside a group named in the clear, a seen arm would tell for which contexts the policy has it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

import msgspec
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.codec import decode
from privateer_core.errors import Malformed
from privateer_core.policies.decisions import Arms
from privateer_core.policies.policy import ArmsPolicy, Policy
from privateer_core.prepared_types import prepared
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import UNIT, classes_of
from privateer_core.primitives.questions import KeyedHits, Question
from privateer_core.privacy.terms import Terms

if TYPE_CHECKING:
    from privateer_core.answer.policy_view import PolicyView

Array = NDArray[np.float64]
Coins = NDArray[np.uint32]
Ints = NDArray[np.int64]
P = TypeVar("P", bound=Policy)
BY_CONTEXT, SINGLE, EITHER, ANY = range(4)
"""Keys of reports: people who followed the policy where it differs from the single option, those who got the single
option there, those whom both give the same, and those who got any option."""
KEYS: Final = 4
COMPARED: Final = 7 * UNIT // 16
"""Parts of 65,536 of the coins that follow the policy; as many give the single option, and the rest any."""
NO_OPTION: Final = -1
"""The single option where nobody knows which is best: its people get any."""
_SEEDS: Final = 1 << 64
_GROUPS, _OPTIONS, _KEYS = 0x67726F757073, 0x6F7074696F6E73, 0x6B657973
"""What the same coins mean for the group, for any option, and for the key of a report."""


@dataclass(frozen=True)
class GainPolicy(ArmsPolicy, Generic[P]):
    """A policy and the best single option, each for as many people, by public coins.

    Attributes
    ----------
    single
        The arm that is best if everybody gets the same, as far as is known, or `NO_OPTION`.
    seed
        What the coins of a choice mean.
    playable
        Shape (arms,): which arms are not retired.
    by_context
        The best policy so far, which asks nobody.

    Notes
    -----
    Which key a person has is drawn anew for the report, given context and arm: of the groups that give this person this
    arm, each with its probability. So a report needs no coins of the choice, and key, context, arm and reward have the
    same law as if the key were the group of the choice.
    """

    version: int
    single: int
    seed: int
    playable: NDArray[np.bool_]
    by_context: P
    terms: Terms

    @override
    def takes(self, decided: int) -> bool:
        return decided == self.version

    @override
    def question(self, spec: Any) -> type[Question]:
        return KeyedHits

    @override
    def fits(self, spec: Any) -> bool:
        policy, terms = self.by_context, self.terms
        self.by_context.check(spec.learning)
        known = spec.gain_people > 0 and policy.version == self.version and not (policy.terms.batch or policy.cohort)
        known = known and policy.draw is None and 0 < terms.batch <= spec.gain_people
        known = known and self.playable.tolist() == list(spec.playable) and 0 <= self.seed < 1 << 63
        return known and self._names_an_option and self._asks_no_more(spec)

    @property
    def _names_an_option(self) -> bool:
        place = self.single
        return place == NO_OPTION or (0 <= place < len(self.playable) and bool(self.playable[place]))

    def _asks_no_more(self, spec: Any) -> bool:
        mechanism: Any = self.terms.mechanism
        fits = getattr(mechanism, "fits", None)
        return fits is not None and self.asks_about(KEYS) and bool(fits(spec.gain_question(KEYS, 0)))

    @property
    def shares(self) -> Array:
        """Probability of the groups `BY_CONTEXT`, `SINGLE` and, in the third place, any option; (3,)."""
        return np.array([COMPARED, self._single_parts, UNIT - COMPARED - self._single_parts]) / UNIT

    @property
    def _single_parts(self) -> int:
        return 0 if self.single == NO_OPTION else COMPARED

    @override
    def decide(self, contexts: Array, coins: Coins) -> Arms:
        played = np.flatnonzero(self.playable)
        group = self._drawn(coins, _GROUPS, UNIT)
        given = self._by_context(contexts, coins)
        some = played[self._drawn(coins, _OPTIONS, len(played))]
        others = np.where(group < COMPARED + self._single_parts, self.single, some)
        return Arms(np.where(group < COMPARED, given, others))

    def _by_context(self, contexts: Array, coins: Coins) -> Ints:
        """Return what the policy gives people, (n,): one that asks nobody has no use for coins."""
        arms: Ints = self.by_context.decide(contexts, np.zeros_like(coins)).arms
        return arms

    def _drawn(self, coins: Coins, what: int, classes: int) -> Ints:
        return classes_of(coins, (self.seed ^ what) % _SEEDS, classes)

    @override
    def contribute(self, contexts: Array, coins: Coins, decisions: Arms, rewards: Array) -> KeyedValues:
        """Return everybody's key and reward; fresh coins draw the key, which the mechanism hides with the reward."""
        return KeyedValues.ungrouped(coins, self.keys(contexts, coins, decisions.arms), rewards)

    def keys(self, contexts: Array, coins: Coins, arms: Ints) -> Ints:
        """Return the keys (n,) of people with these contexts who got these arms, by coins of their reports. Secret."""
        given, played = self._by_context(contexts, coins), int(self.playable.sum())
        # Whole numbers, so that all devices draw alike: what each group has of the chance to give this arm.
        by_context = np.where(arms == given, COMPARED * played, 0)
        single = np.where(arms == self.single, self._single_parts * played, 0)
        any_ = UNIT - COMPARED - self._single_parts
        place = self._drawn(coins, _KEYS, UNIT) * (by_context + single + any_)
        others = np.where(place < UNIT * (by_context + single), SINGLE, ANY)
        keys = np.where(place < UNIT * by_context, BY_CONTEXT, others)
        return np.where((given == self.single) & (keys != ANY), EITHER, keys).astype(np.int64)

    @override
    def view(self, spec: Any) -> "PolicyView":
        return self.by_context.view(spec)


class _Known(msgspec.Struct):
    """What tells a policy of this module from an algorithm's own."""

    by_context: msgspec.Raw = msgspec.Raw(b"")


def decode_policy(body: bytes, kind: type[Any]) -> Policy:
    """Parse a policy of an algorithm, whose own policies are of this kind.

    Raises
    ------
    Malformed
        If ``body`` is not one.
    SpecError
        If it holds a mechanism that cannot be.
    """
    try:
        measures = len(memoryview(msgspec.msgpack.decode(body, type=prepared(_Known)).by_context)) > 0
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"this is not a serialized {kind.__name__}", remedy="fetch it again") from error
    policy: Any = decode(body, cast(Any, GainPolicy)[kind] if measures else kind)
    return cast(Policy, policy)


def check_policy(policy: Policy, spec: Any) -> None:
    """Refuse a policy that no learner of the spec makes; see `Policy.check`."""
    policy.check(spec if isinstance(policy, GainPolicy) else spec.learning)
