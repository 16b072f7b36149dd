"""Policies of phased elimination that no learner makes, and contributions of another size, are refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms.phased import PhasedSpec
from privateer_core.errors import InputError, Malformed
from privateer_server.rounds.loop import Schedule

SPEC = PhasedSpec.instances()["none"]
POLICY: Any = Schedule(SPEC).open(9).policy
OVERFLOWING = np.array([0, 1 << 62, (1 << 63) - 1, -(1 << 62), 5][: len(POLICY.support)])
"""Rows whose differences are positive, since one of them overflows."""


@pytest.mark.parametrize(
    "wrong",
    [
        {"active": np.array([0, 30])},
        {"active": np.array([-1, 3])},
        {"active": np.array([3, 3])},
        {"active": OVERFLOWING, "support": OVERFLOWING},
        {"active": np.zeros(0, np.int64)},
        {"active": np.arange(30.0)},
        {"support": np.array([[0, 1]])},
        {"plays": np.zeros(5, np.int64)},
        {"plays": np.array([1])},
        {"draw": replace(POLICY.draw, start=-1)},
        {"draw": replace(POLICY.draw, people=POLICY.draw.people + 1)},
        {"draw": replace(POLICY.draw, places=POLICY.draw.places + 1)},
        {"middle": 0.5},
    ],
    ids=str,
)
def test_policies_that_no_learner_makes_are_refused(wrong):
    POLICY.check(SPEC)
    with pytest.raises(Malformed):
        replace(POLICY, **wrong).check(SPEC)


def test_phases_invite_the_participants_of_the_schedule():
    following = Schedule(SPEC).learner.open_next_round(Schedule(SPEC).open(9).state, 3, 9).policy
    assert following.terms.batch_size == len(following.draw.select_participants()) == SPEC.phase_size(1)


def test_contributions_of_another_size_are_refused_without_an_echo():
    coins = np.zeros(1, np.uint32)
    decisions = POLICY.decide(np.zeros((1, 0)), coins)
    with pytest.raises(InputError) as refused:
        POLICY.contribute(np.zeros((1, 0)), coins, decisions, np.full((1, len(POLICY.support) + 1), 0.123456))
    assert "0.123" not in str(refused.value)
