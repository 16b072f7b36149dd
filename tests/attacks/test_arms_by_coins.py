"""Somebody who sees coins, symbol and arm of a person where no crowd hides a report: what each group of coins tells.

Coins divide people into groups. Some get an arm by them and say a reward or a residual; others get the best one and say
a residual with their arm; others only say which cell of a feature they are in.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from privateer_core.accounting.events import Pure
from privateer_core.algorithms.additive.coin_arms import LEVEL, CoinArms
from privateer_core.algorithms.additive.policy import STEP, AdditivePolicy
from privateer_core.policies.decisions import Arms
from privateer_core.spec.context import encoded
from privateer_lab.audit.lower_bounds import LowerBounds, Scores, attack
from privateer_lab.audit.views import log_likelihood
from privateer_lab.simulation.devices import SeededNoise
from tests.unit.algorithms.test_coin_arms import policy_of

EPSILON = 1.0
ALARM = 1e-6
"""Chance that one true claim is called broken."""
COINS = np.random.default_rng(11).integers(0, 2**32, 800_000, dtype=np.uint32)
COUNT = 40_000
HALF = round(0.5 / STEP)
CERTAIN = 50.0
"""Score of an arm that only one of the neighbours can have."""


class Person(NamedTuple):
    """One neighbour: an age, a job, a size, a membership, and a reward."""

    values: tuple[float, float, float, float]
    reward: float


HERE, THERE = (5.0, 0.0, 0.0, 0.0), (75.0, 2.0, 2.0, 1.0)
PAIRS = {
    "opposite rewards": (Person(HERE, 1.0), Person(HERE, 0.0)),
    "another context": (Person(HERE, 1.0), Person(THERE, 1.0)),
    "all different": (Person(HERE, 1.0), Person(THERE, 0.0)),
}
GROUPS: dict[str, Callable[[Any], Any]] = {
    "the reward of an arm by coins": lambda groups: (groups.arms >= 0) & (groups.asked == LEVEL),
    "a residual under an arm by coins": lambda groups: (groups.arms >= 0) & (groups.asked != LEVEL),
    "the best arm and its residual": lambda groups: (groups.arms < 0) & ~groups.counted & (groups.asked == LEVEL),
    "the best arm, a cell and a residual": lambda groups: (groups.arms < 0) & ~groups.counted & (groups.asked != LEVEL),
    "a cell alone": lambda groups: groups.counted,
}
SAYS_NOTHING = {
    ("the reward of an arm by coins", "another context"),
    ("the best arm and its residual", "another context"),
    ("a cell alone", "opposite rewards"),
}
"""What a group asks nobody about: both neighbours send the same."""


def scene(moved: int = 0) -> tuple[Any, AdditivePolicy]:
    """A policy that expects half a reward of everybody, so that residuals are -1 and 1: they cannot tell more.

    The second arm is best by one step; ``moved``: steps of drivers' third arm.
    """
    spec, policy = policy_of()
    means = np.zeros_like(policy.means)
    means[:, 0] = HALF
    means[1, 0] += 1
    means[2, spec.questions.cells.of_feature(1)] += np.array([0, 0, moved, 0], np.int16)
    return spec, replace(policy, means=means, draws=means[None])


def seen(policy: AdditivePolicy, spec: Any, group: str, pair: str, factor: float = 1.0) -> LowerBounds:
    """What observations of coins, symbols and arms prove, of people whose coins put them into a group."""
    people, (plan, mechanism) = PAIRS[pair], (policy.plan, policy.terms.mechanism)
    assert plan is not None
    layout: Any = mechanism.layout  # type: ignore[union-attr]
    nothing = np.zeros(len(COINS), np.int64)
    chosen = np.isin(layout.group(layout.hashes(COINS, nothing), nothing), np.flatnonzero(GROUPS[group](plan.groups)))
    coins = COINS[chosen][:COUNT]
    assert len(coins) > COUNT / 2
    noisy: Any = mechanism.weaker(factor)
    contexts = [encoded(spec.features, np.array([one.values])).repeat(len(coins), axis=0) for one in people]
    arms = [policy.decide(own, coins).arms for own in contexts]

    def told(who: int, had: Any) -> Any:
        return policy.contribute(contexts[who], coins, Arms(had), np.full(len(coins), people[who].reward))

    def scores(who: int) -> Scores:
        reports = noisy.randomize(told(who, arms[who]), SeededNoise(17 + who))
        left, right = (log_likelihood(noisy, told(one, arms[who]), reports) for one in (0, 1))
        could = [CERTAIN * (arms[who] == arms[one]) for one in (0, 1)]
        return np.asarray(left - right + could[0] - could[1])

    return attack(scores(0), scores(1), Pure(EPSILON), EPSILON, 0.0, ALARM)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("group", GROUPS)
def test_whatever_coins_ask_coins_symbol_and_arm_keep_epsilon(group: str, pair: str) -> None:
    """The best arm is the same for both neighbours here. Planted: half of the noise."""
    spec, policy = scene()
    found = seen(policy, spec, group, pair)
    assert found.stands(EPSILON)
    if (group, pair) in SAYS_NOTHING:
        assert found.lower_bound < 0.1
        return
    assert found.lower_bound > 0.5 * EPSILON, "the attack sees what there is to see"
    assert not seen(policy, spec, group, pair, 2.0).stands(EPSILON)


def test_planted_arms_by_coins_that_suit_the_context_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server whose plan gives the arm that a context makes best to those who seem to have it by coins."""
    spec, suited = scene(3000)
    group = "the reward of an arm by coins"
    assert seen(suited, spec, group, "another context").stands(EPSILON)
    monkeypatch.setattr(CoinArms, "arms", lambda _self, _layout, _coins, best: best)
    assert not seen(suited, spec, group, "another context").stands(EPSILON)


def test_a_best_arm_that_differs_tells_whoever_sees_it_which_context_it_was() -> None:
    """No promise covers that, and `privateer account` says so. Coins that give an arm hide it."""
    spec, suited = scene(3000)
    assert not seen(suited, spec, "the best arm, a cell and a residual", "another context").stands(EPSILON)
    assert seen(suited, spec, "a residual under an arm by coins", "another context").stands(EPSILON)
