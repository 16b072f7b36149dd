"""Ages of decisions: reported if coins chose the arm, and decoded."""

import numpy as np
import pytest

from privateer_core.errors import SpecError
from privateer_core.policies.policy import AGE_MAX, decision_age, group_by_age, prefix_ages
from privateer_core.privacy.terms import JUMP
from privateer_server.rounds.loop import Schedule
from tests.support.specs import SHUFFLE, make_spec


@pytest.mark.parametrize(
    ("version", "decided", "age"),
    [
        (5, 5, 0),
        (5, 2, 3),
        (5, 6, None),
        (AGE_MAX + 1, 1, AGE_MAX),
        (AGE_MAX + 2, 1, None),
        # A server that lost rounds goes on beyond the next multiple; the version before it belongs to the lost ones.
        (JUMP + 1, JUMP, None),
        (JUMP + 3, JUMP + 1, 2),
        (JUMP, JUMP - 1, 1),
    ],
)
def test_a_decision_has_its_age_in_rounds(version: int, decided: int, age: int | None) -> None:
    assert decision_age(version, decided) == age


def test_ages_travel_before_reports() -> None:
    reports, ages = [b"aaaaaa", b"bbbbbb", b"cccccc"], np.array([0, 300, 0])
    prefixed = prefix_ages(reports, ages)
    assert {len(message) for message in prefixed} == {8}
    assert group_by_age(prefixed) == {0: b"aaaaaacccccc", 300: b"bbbbbb"}


HIDDEN = {**SHUFFLE, "privacy.arm_visibility": "hidden"}
CENTRAL = {"privacy.model": "central", "privacy.delta": 1e-6}
NONE = {"privacy.model": "none", "privacy.epsilon": None}


@pytest.mark.parametrize(
    ("changes", "tells", "takes"),
    [
        ({}, True, True),
        (SHUFFLE, False, True),
        (CENTRAL, False, True),
        (NONE, True, True),
        (HIDDEN, False, False),
        ({**CENTRAL, "privacy.arm_visibility": "hidden"}, True, True),
        ({"algorithm.name": "paper-1-ldpmab", "privacy.epsilon": 16.0}, False, True),
    ],
)
def test_policies_report_ages_and_accept_earlier_choices(changes: dict[str, object], tells: bool, takes: bool) -> None:
    """A report of a batch never has its age, because the reports of an age would be a smaller batch."""
    policy = Schedule(make_spec(changes)).open(3, 7).policy
    assert policy.tells_age is tells
    assert policy.accepts_decisions_of(7)
    assert policy.accepts_decisions_of(6) is takes
    assert not policy.accepts_decisions_of(8)


def test_a_batch_whose_coins_chose_takes_no_window() -> None:
    with pytest.raises(
        SpecError, match=r"experiment.conversion_window_seconds: needs privacy.arm_visibility = 'visible'"
    ):
        make_spec({**HIDDEN, "experiment.conversion_window_seconds": 60})
    assert make_spec({**SHUFFLE, "experiment.conversion_window_seconds": 60}).experiment.conversion_window_seconds == 60


@pytest.mark.parametrize("window", [-1, float("inf"), float("nan"), 366 * 86_400])
def test_windows_out_of_range_are_refused(window: float) -> None:
    with pytest.raises(SpecError) as refused:
        make_spec({"experiment.conversion_window_seconds": window})
    assert refused.value.field == "experiment.conversion_window_seconds"


@pytest.mark.parametrize(
    ("reward", "without"),
    [({}, 0.0), ({"low": 1.0, "high": 5.0}, 1.0), ({"low": -5.0, "high": -1.0}, -1.0), ({"default": 0.5}, 0.5)],
)
def test_reward_without_an_outcome(reward: dict[str, float], without: float) -> None:
    assert make_spec({"reward": reward}).reward.without_outcome == without


def test_default_reward_within_bounds() -> None:
    with pytest.raises(SpecError, match=r"default: must be from low to high"):
        make_spec({"reward": {"default": 2.0}})
