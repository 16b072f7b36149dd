"""Compare the bound for a batch whose arms are public with exact enumeration."""

import math
from collections import defaultdict
from functools import cache
from itertools import product

import pytest

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import GroupedResponse, read_event
from privateer_core.accounting.grouped_bits import grouped_delta, grouped_local_epsilon

COINS = {3: (0, 1, 1), 5: (0, 1, 1, 1, 1)}
"""The arm of each value of the coins: arm 0 has a third of them, or a fifth."""
LOCAL = ((1.0, 1.0), (2.0, 1.5), (3.0, 4.0))
"""Local epsilons of both arms: they may differ, since arms are public."""


@cache
def views(coins, local, records):
    """Return the probability of each view: all arms, and the permuted messages (coins, symbol).

    ``records`` are everybody's rewards under each arm; coins choose the arm, and do not depend on records.
    """
    arms, probabilities = COINS[coins], defaultdict(float)
    for messages in product(product(range(coins), (0, 1)), repeat=len(records)):
        chance = 1.0
        for (coin, symbol), rewards in zip(messages, records, strict=True):
            arm = arms[coin]
            e = math.exp(local[arm])
            chance *= (e if symbol == rewards[arm] else 1.0) / (e + 1) / coins
        shown_arms = tuple(arms[coin] for coin, _ in messages)
        probabilities[shown_arms, tuple(sorted(messages))] += chance
    return probabilities


def exact_delta(epsilon, local, coins, batch, arm):
    """Return the largest delta of a participant of an arm, over all records of the batch."""
    share, worst = COINS[coins].count(arm) / coins, 0.0
    for others in product(product((0, 1), repeat=2), repeat=batch - 1):
        left, right = (views(coins, local, ((record, record), *others)) for record in (0, 1))
        own_arm = [(view, p) for view, p in left.items() if view[0][0] == arm]
        gap = sum(max(0.0, p - math.exp(epsilon) * right[view]) for view, p in own_arm)
        worst = max(worst, gap / share)
    return worst


@pytest.mark.parametrize("arm", [0, 1])
@pytest.mark.parametrize(("coins", "batch"), [(3, 1), (3, 2), (3, 3), (5, 2), (5, 3)])
@pytest.mark.parametrize("local", LOCAL)
@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_the_bound_covers_batches_whose_arms_are_seen(epsilon, local, coins, batch, arm):
    exact = exact_delta(epsilon, local, coins, batch, arm)
    share = COINS[coins].count(arm) / coins
    assert exact <= grouped_delta(epsilon, local[arm], batch, share) * (1 + 1e-9) + 1e-15
    assert exact > 1e-6 or local[arm] <= epsilon


def test_a_forgotten_share_is_caught():
    """Planted: the bound of the whole batch, which holds only where arms are hidden."""
    exact = exact_delta(0.3, (1.0, 1.0), 5, 3, 0)
    assert grouped_delta(0.3, 1.0, 3) < exact <= grouped_delta(0.3, 1.0, 3, 0.2)


@pytest.mark.parametrize(
    ("epsilon", "batch", "expected"),
    [(1.0, 900, (3.35, 2.719, 1.484)), (1.0, 9000, (5.583, 4.899, 3.339)), (2.0, 900, (4.032, 3.343, 2.033))],
)
def test_smaller_shares_allow_less(epsilon, batch, expected):
    epsilons = [grouped_local_epsilon(epsilon, 1e-6, batch, 16.0, share) for share in (1.0, 0.5, 0.1)]
    assert epsilons == pytest.approx(expected, abs=2e-3)


def test_a_group_never_says_less_than_a_report_alone():
    for share in (1e-4, 1e-3, 0.01, 1.0):
        assert grouped_local_epsilon(1.0, 1e-6, 900, 4.0, share) >= 1.0
        assert grouped_local_epsilon(4.0, 1e-6, 900, 4.0, share) == 4.0


def test_a_group_costs_more_than_a_batch():
    whole, part = GroupedResponse(3.0, 900, 1.0), GroupedResponse(3.0, 900, 0.1)
    assert account(part).delta(1.0) > 100 * account(whole).delta(1.0)
    assert "arm group" in account(part).proof
    record = {"event": "grouped-response", "local_epsilon": 3.0, "honest": 900, "share": 0.1}
    assert read_event(record) == part
