"""Reports on decisions from before an arm was added: nobody played it then."""

from typing import Any

import numpy as np

from privateer_core.algorithms.partition import PartitionPolicy
from privateer_core.algorithms.partition.policy import translate_choices
from privateer_server.rounds.loop import Schedule
from tests.support.specs import SHUFFLE, make_spec


def policy(changes: dict[str, Any], arms: int, version: int) -> PartitionPolicy:
    step = Schedule(make_spec(changes, arms=arms)).open(7, version)
    assert isinstance(step.policy, PartitionPolicy)
    return step.policy


def test_the_share_of_an_added_arm_counts_from_its_first_policy() -> None:
    before, after = policy(SHUFFLE, 3, 1), policy(SHUFFLE, 4, 2)
    shares = after.with_deciders([(before, 0.5), (after, 0.5)]).layout.shares
    np.testing.assert_allclose(shares, [[0.5 / 3 + 0.125] * 3 + [0.125]] * len(shares), atol=1e-4)


def test_coins_of_before_chose_among_the_arms_of_before() -> None:
    before, after = policy({}, 3, 1), policy({}, 4, 2)
    layout = translate_choices(before, after)
    coins, keys = np.arange(20_000, dtype=np.uint32), np.zeros(20_000, np.int64)
    chosen = layout.group(layout.hashes(coins, keys), keys)
    np.testing.assert_array_equal(chosen, before.decide(np.full((20_000, 2), 0.5), coins).arms)
