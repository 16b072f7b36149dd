"""A participant sees the same arm in concurrent sessions, after the report, and without a request for reports."""

from pathlib import Path
from typing import Any

import pytest

from privateer_client import ReportStatus
from privateer_client.ledger.choice import StoredArm
from privateer_core.codec import encode
from privateer_core.wire.publication import ASKS_HEADER, ASKS_NOBODY
from tests.support.experiments import CONTEXT, OTHER, WEEK, Device, Server
from tests.support.publications import OVER, published
from tests.support.specs import make_spec

_ID = "http://s/test"


def set_up(folder: Path, **changes: Any) -> tuple[Device, Server]:
    server = Server(published(make_spec(changes)))
    folder.mkdir(exist_ok=True)
    return Device(folder, server), server


def stored_arm(device: Device) -> StoredArm:
    arm = device.ledger().change_arm(_ID, lambda arm: arm)
    assert arm is not None
    return arm


@pytest.mark.parametrize("asks", [True, False])
def test_sessions_that_join_at_once_show_one_arm(tmp_path: Path, asks: bool) -> None:
    """Three sessions of 12 people: were coins drawn when choosing, about two thirds would see several arms of three.

    That all of 12 people happen to see one has a chance of (1/9)^12.
    """
    arms = set()
    for person in range(12):
        device, server = set_up(tmp_path / str(person))
        server.headers = {} if asks else {ASKS_HEADER: ASKS_NOBODY}
        sessions = [device.start().join("test") for _ in range(3)]
        seen = {session.choose(CONTEXT) for session in sessions}
        assert len(seen) == 1
        assert {device.start().join("test").choose(OTHER)} == seen
        arms |= seen
    assert len(arms) > 1  # people differ


def test_an_arm_stays_after_its_report_and_its_coins_go_with_it(tmp_path: Path) -> None:
    device, server = set_up(tmp_path)
    session = device.start().join("test")
    arm = session.choose(CONTEXT)
    assert len(stored_arm(device).coins) == 0
    assert session.report(1.0) is ReportStatus.ACCEPTED
    for version in range(2, 12):
        server.moves_on(make_spec(), version)
        session = device.start().join("test")
        assert (session.choose(OTHER), session.choose(OTHER, fresh=version == 11) == arm or version == 11) == (
            arm,
            True,
        )
        assert len(stored_arm(device).coins) == 0
    assert len({session.choose(OTHER, sticky=False) for _ in range(40)}) > 1


def test_no_coins_are_used_for_two_choices(tmp_path: Path) -> None:
    device, _ = set_up(tmp_path)
    seen = set()
    for _ in range(10):
        session = device.start().join("test")
        for fresh in (True, True):
            session.choose(CONTEXT, fresh=fresh)
            choice = device.ledger().choice(_ID)
            seen.add(int(choice.coins[0]))
    assert len(seen) == 20


def test_a_choice_in_a_pause_is_replaced_when_reports_are_requested(tmp_path: Path) -> None:
    """The coins differ, so that the arm of the pause cannot be matched with those of a report."""
    device, server = set_up(tmp_path)
    server.headers = {ASKS_HEADER: ASKS_NOBODY}
    session = device.start().join("test")
    arm = session.choose(CONTEXT)
    before = int(session._shown_choice.coins[0])
    assert (device.start().join("test").choose(OTHER), session.report(1.0)) == (arm, ReportStatus.NOT_REQUESTED)
    server.headers = {}
    session = device.start().join("test")
    session.choose(OTHER)
    choice = device.ledger().choice(_ID)
    assert int(choice.coins[0]) != before
    assert session.report(1.0) is ReportStatus.ACCEPTED


def test_events_that_end_a_stored_arm(tmp_path: Path) -> None:
    device, server = set_up(tmp_path)
    session = device.start().join("test")
    arm = session.choose(CONTEXT)
    session.report(1.0)
    others = sorted({"arm-0", "arm-1", "arm-2"} - {arm})
    server.moves_on(make_spec({"experiment.retired_arms": others[:1]}), 2)
    assert device.start().join("test").choose(OTHER) == arm  # another arm is retired: no report can tell of it
    server.moves_on(make_spec({"experiment.retired_arms": [arm]}), 3)
    assert device.start().join("test").choose(OTHER) in others
    device.start().join("test").forget()
    assert device.ledger().change_arm(_ID, lambda arm: arm) is None


def test_once_an_experiment_is_over_people_get_what_its_final_policy_decides(tmp_path: Path) -> None:
    """By coins of their own, which stay: no report is made by them, not even if the experiment goes on after all."""
    device, server = set_up(tmp_path)
    session = device.start().join("test")
    session.choose(CONTEXT)
    session.report(1.0)
    over: dict[str, Any] = OVER
    server.moves_on(make_spec(), 2, **over)
    sessions = [device.start().join("test") for _ in range(2)]
    for context in (CONTEXT, OTHER):
        assert len({session.choose(context) for session in sessions for _ in range(5)}) == 1
    coins = stored_arm(device).coins.tolist()
    assert len(coins) == 1
    server.moves_on(make_spec(), 3)
    session = device.start().join("test")
    session.choose(CONTEXT, fresh=True)
    assert session._shown_choice.coins.tolist() != coins == stored_arm(device).coins.tolist()
    sessions[0].choose(CONTEXT, fresh=True)
    assert stored_arm(device).coins.tolist() != coins


def test_each_period_has_its_own_arm_until_its_end(tmp_path: Path) -> None:
    several: dict[str, Any] = {"privacy.model": "none", "privacy.epsilon": None, "experiment.reports_per_person": 3}
    several |= {"experiment.report_period_seconds": WEEK}
    changed = 0
    for person in range(12):
        device, server = set_up(tmp_path / str(person), **several)
        first = device.start().join("test").choose(CONTEXT)
        assert device.start().resume("test").report(1.0) is ReportStatus.ACCEPTED
        assert device.start().join("test").choose(OTHER) == first
        device.clock.time += WEEK
        server.moves_on(make_spec(several), 2)
        changed += device.start().join("test").choose(CONTEXT) != first
    assert changed > 0  # by chance (1/3)^12


def test_the_size_of_a_stored_arm_does_not_reveal_it(tmp_path: Path) -> None:
    sizes = {}
    for person in range(12):
        device, _ = set_up(tmp_path / str(person), **{"experiment.arms": ["a", "a much longer name", "b"]})
        arm = device.start().join("test").choose(CONTEXT)
        sizes[arm] = len(encode(stored_arm(device)))
    assert (len(sizes) > 1, len(set(sizes.values()))) == (True, 1)


def test_an_unreadable_stored_arm_is_ignored(tmp_path: Path) -> None:
    """No report depends on the arm, so the participant gets a new arm."""
    device, _ = set_up(tmp_path)
    session = device.start().join("test")
    session.choose(CONTEXT)
    session.report(1.0)
    (tmp_path / "ledger.db.key").write_bytes(bytes(32))
    assert device.start().join("test").choose(CONTEXT) in ("arm-0", "arm-1", "arm-2")
