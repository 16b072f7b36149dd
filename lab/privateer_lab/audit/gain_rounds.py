"""Attacks by somebody who sees which arm a person got in a round that measures the gain, and the person's report.

The arm alone says which groups the person may be in, for each context. A report that named the group, or had the coins
of the choice, would say the rest: the audit attacks that the key does not.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.answer.policy_view import PolicyView
from privateer_core.policies.decisions import Arms
from privateer_core.policies.gain_policy import KEYS, GainPolicy
from privateer_core.policies.policy import ArmsPolicy
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.questions import KeyedHits
from privateer_core.privacy.terms import Terms, calibrate
from privateer_core.spec.privacy import Privacy
from privateer_lab.audit.case import Case
from privateer_lab.audit.views import Coins, Maker, Target, batches, mechanism_case, model_of, releases, reports

_ARMS, _SEEN, _SINGLE, _SEED = 3, 0, 1, 0x5EED
_BATCH: Final = 100
_HERE, _ELSEWHERE = 0.1, 0.9
"""Contexts: where the policy gives the arm that is seen, and where it gives the single option."""


@dataclass(frozen=True)
class Halves(ArmsPolicy):
    """A policy that gives everybody in one half of a feature an arm, and others another."""

    version: int
    terms: Terms

    @override
    def decide(self, contexts: NDArray[np.float64], coins: Coins) -> Arms:
        return Arms(np.where(contexts[:, 0] < (_HERE + _ELSEWHERE) / 2, _SEEN, _SINGLE))

    @override
    def contribute(
        self, contexts: NDArray[np.float64], coins: Coins, decisions: Any, rewards: NDArray[np.float64]
    ) -> KeyedValues:
        raise NotImplementedError("it asks nobody")

    @override
    def view(self, spec: Any) -> PolicyView:
        raise NotImplementedError("nobody reads it")


def policy_of(privacy: Privacy) -> GainPolicy[Halves]:
    """Return the policy of a round, as a learner makes it, of a few people."""
    terms = calibrate(privacy, _BATCH, KeyedHits.of_keys(KEYS, _SEED, 0.5 if privacy.trust.curated else None))
    return GainPolicy(1, _SINGLE, _SEED, np.ones(_ARMS, np.bool_), Halves(1, terms), terms)


def person(policy: GainPolicy[Halves], context: float, reward: float, arm: int = _SEEN) -> Maker:
    """Return what somebody contributes who was seen with an arm."""

    def made(coins: Coins) -> KeyedValues:
        people = len(coins)
        contexts, rewards = np.full((people, 1), context), np.full(people, reward)
        return policy.contribute(contexts, coins, Arms(np.full(people, arm)), rewards)

    return made


def gain_cases(samples: int, factor: float = 1.0) -> list[Case]:
    """Return the attacks: two people with the same seen arm, of opposite rewards, or of other contexts as well.

    factor: divides the noise: a planted defect.
    """
    batched: Any = {"delta": 0.1, "min_batch": _BATCH, "honest_fraction": 1.0, "local_epsilon_max": 12.0}
    promises = {
        reports: ({"delta": 0.0}, samples),
        batches: (batched, max(2000, samples // 4)),
        releases: ({"delta": 0.0}, samples),
    }
    made = []
    for attack, (promise, count) in promises.items():
        privacy = Privacy.model_validate({"model": model_of(attack), "epsilon": 1.0, **promise})
        policy = policy_of(privacy)
        mechanism = policy.terms.mechanism if factor == 1.0 else policy.terms.mechanism.weaker(factor)
        others = person(policy, _ELSEWHERE, 0.0, _SINGLE)
        for what, where in (("opposite rewards", _HERE), ("another context, too", _ELSEWHERE)):
            pair = person(policy, _HERE, 1.0), person(policy, where, 0.0)
            target = Target(mechanism, pair, others, _BATCH)
            claim = (privacy.bound, privacy.delta)
            made.append(mechanism_case(f"gain, seen arm, {what}", attack, target, claim, count))
    return made
