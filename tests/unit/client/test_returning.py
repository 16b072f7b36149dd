"""Returning participants send a report a period, up to the promised number, each in another round."""

import math
from pathlib import Path
from typing import Any

import pytest

from privateer_client import ReportStatus
from privateer_client.ledger.account_protocol import Payment
from privateer_client.ledger.ledger import Ledger
from privateer_core.errors import AlreadyReported, BudgetExceeded, TermsRefused
from privateer_core.privacy.terms_verification import Limits
from privateer_core.wire.publication import decode_envelope
from tests.support.devices import pay
from tests.support.experiments import CONTEXT, WEEK, Device, Server
from tests.support.publications import published
from tests.support.specs import SHUFFLE, make_spec

DAY = 86_400.0
CENTRAL = {"privacy.model": "central", "privacy.delta": 1e-6, "experiment.reports_per_person": 3}
LOCAL = {"experiment.reports_per_person": 4, "experiment.report_period_seconds": DAY}


def set_up(tmp_path: Path, changes: dict[str, Any]) -> tuple[Device, Server]:
    server = Server(published(make_spec(changes)))
    return Device(tmp_path, server), server


def take_part(device: Device) -> ReportStatus:
    session = device.start().join("test")
    session.choose(CONTEXT)
    return session.report(1.0)


def test_a_report_a_period_until_all_are_made(tmp_path: Path) -> None:
    device, server = set_up(tmp_path, CENTRAL)
    for version in (1, 2, 3):
        server.moves_on(make_spec(CENTRAL), version)
        assert take_part(device) is ReportStatus.ACCEPTED
        session = device.start().join("test")
        assert not session.report_requested
        session.choose(CONTEXT)
        assert session.report(1.0) is ReportStatus.ALREADY_REPORTED
        device.clock.time += DAY
    server.moves_on(make_spec(CENTRAL), 4)
    assert not device.start().join("test").report_requested
    with pytest.raises(AlreadyReported):
        device.start().resume("test")
    (payment,) = device.ledger().payments()
    assert (payment.epsilon, payment.delta, payment.reports, payment.made, payment.version) == (1.0, 1e-6, 3, 3, 3)
    headers = [decode_envelope(body).header for body in server.posts]
    assert [header.version for header in headers] == [1, 2, 3]
    assert len({body[-60:] for body in server.posts}) == 3  # sealed anew, with ids of their own


def test_a_round_takes_one_report_of_a_person(tmp_path: Path) -> None:
    device, server = set_up(tmp_path, CENTRAL)
    take_part(device)
    device.clock.time += DAY
    session = device.start().join("test")
    assert not session.report_requested
    session.choose(CONTEXT)
    assert session.report(1.0) is ReportStatus.NOT_REQUESTED
    assert len(server.posts) == 1
    server.moves_on(make_spec(CENTRAL), 2)
    assert take_part(device) is ReportStatus.ACCEPTED


def test_choices_of_returning_participants_wait_for_outcomes(tmp_path: Path) -> None:
    """A window as long as the period: the report on last week's choice does not use up this week's."""
    weekly = CENTRAL | {"experiment.conversion_window_seconds": WEEK, "experiment.report_period_seconds": WEEK}
    device, server = set_up(tmp_path, weekly)
    for version in (1, 2, 3):
        session = device.start().join("test")
        assert session.report_requested
        session.choose(CONTEXT)
        assert device.start().resume("test").report(0.5) is ReportStatus.PENDING
        device.clock.time += 1.01 * WEEK
        server.moves_on(make_spec(weekly), version + 1)
    device.start().flush()
    assert [payment.made for payment in device.ledger().payments()] == [3]
    assert device.ledger().experiments_with_choice() == []


def test_reports_of_several_periods_may_wait_together(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    payments = [Payment("http://s/a", version, "shuffle", 1.0, 1e-6, 8.0, 0, 3, 1, version) for version in (1, 2)]
    for payment in payments:
        pay(ledger, payment, str(payment.version).encode())
    first, second = ledger.pending_reports()
    ledger.erase_report(first)
    assert ledger.pending_reports() == [second]
    ledger.discard("http://s/a")
    assert ledger.pending_reports() == []


def test_the_promise_is_paid_for_once_and_for_as_long_as_reports_are_made(tmp_path: Path) -> None:
    device, server = set_up(tmp_path, CENTRAL)
    limited = {"total_epsilon": 1.5, "per_server_epsilon": 1.5, "window_days": 30}
    for version in (1, 2):
        server.moves_on(make_spec(CENTRAL), version)
        session = device.start(ledger=device.ledger(**limited)).join("test")
        session.choose(CONTEXT)
        assert session.report(1.0) is ReportStatus.ACCEPTED
        device.clock.time += 29 * DAY
    other = Payment("http://s/other", 1, "central", 1.0, 0.0, math.inf)
    with pytest.raises(BudgetExceeded):
        pay(device.ledger(**limited), other)
    device.clock.time += 2 * DAY
    pay(device.ledger(**limited), other)
    server.moves_on(make_spec(CENTRAL), 3)
    session = device.start(ledger=device.ledger(**limited)).join("test")
    session.choose(CONTEXT)
    with pytest.raises(BudgetExceeded):
        session.report(1.0)


def test_the_cost_of_all_reports_is_compared_with_the_limits(tmp_path: Path) -> None:
    small = {"privacy.min_batch": 100, "experiment.round_size": 100, "experiment.reports_per_person": 5}
    device, server = set_up(tmp_path, SHUFFLE | small)
    client = device.start(shuffler="http://m", limits=Limits(min_batch=100))
    with pytest.raises(TermsRefused, match=r"local_epsilon: 5 reports together cost 4\.[0-9]*, .* allows 4") as refused:
        client.join("test")
    assert "Limits(local_epsilon=...)" in str(refused.value)
    assert (server.posts, device.ledger().payments()) == ([], [])
    client = device.start(shuffler="http://m", limits=Limits(min_batch=100, local_epsilon=10.0))
    assert client.join("test").report_requested


@pytest.mark.parametrize("number", range(2))
def test_a_device_reports_one_time_of_several_under_local(tmp_path: Path, number: int) -> None:
    device, server = set_up(tmp_path, LOCAL)
    for _ in range(6):
        session = device.start().join("test")
        rejoined = device.start().join("test")
        assert rejoined.report_requested == session.report_requested  # joining twice in a period changes nothing
        before = server.exchanges
        session.choose(CONTEXT)
        if session.report_requested:
            assert session.report(1.0) is ReportStatus.ACCEPTED
        elif not device.ledger().payments():
            assert session.report(1.0) is ReportStatus.NOT_REQUESTED
            assert server.exchanges == before  # nothing tells that it was not the time
        device.clock.time += DAY
    (payment,) = device.ledger().payments()
    assert (payment.reports, payment.made, len(server.posts)) == (1, 1, 1)


def test_the_time_of_the_report_is_drawn_and_kept(tmp_path: Path) -> None:
    """One time is never drawn of four, in 60 draws, with chance 1e-7."""
    path, times = tmp_path / "ledger.db", []
    for number in range(60):
        is_due = [Ledger(path).count_visit(f"http://s/{number}", 4, DAY, period) for period in (3, 3, 5, 6, 9, 10)]
        assert is_due[0] == is_due[1]
        assert sum(is_due[1:]) == 1
        assert not is_due[5]  # a fifth time
        times.append(is_due[1:].index(True))
    assert set(times) == {0, 1, 2, 3}
    for times_, seconds in ((8, DAY), (4, DAY / 2)):
        with pytest.raises(TermsRefused):
            Ledger(path).count_visit("http://s/0", times_, seconds, 20)
