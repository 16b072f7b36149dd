"""A server that uses the end of an experiment to get more than late reports."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from privateer_client import ReportStatus
from privateer_core.errors import Malformed, TermsRefused
from privateer_core.wire.publication import Drain, decode_publication
from tests.support.experiments import CONTEXT, OTHER, WEEK, Device, Server, waiting_spec
from tests.support.publications import OVER, draining, published
from tests.support.specs import make_spec

# A server that uses the end of an experiment, when late reports alone are taken, to get more than late reports.


LOCAL = {"experiment.conversion_window_seconds": WEEK}


def waiting(folder: Path) -> Device:
    """A device that chose, and whose server then takes late reports alone."""
    device = Device(folder, Server(published(waiting_spec())))
    device.start().join("test").choose(CONTEXT)
    drains(device, 2)
    return device


def drains(device: Device, version: int) -> None:
    device.server.moves_on(waiting_spec(), version, drain=draining(waiting_spec(), version))


def test_an_earlier_choice_is_reported_once_in_many_rounds(tmp_path: Path) -> None:
    device = waiting(tmp_path)
    session = device.start().join("test")
    assert session.report_requested
    session.report(0.5)
    assert device.server.posts == []
    device.clock.time += 1.1 * WEEK
    assert device.start().flush() == {"test": ReportStatus.ACCEPTED}
    assert device.server.reward() == 0.5
    for version in (3, 4):
        drains(device, version)
        later_session = device.start().join("test")
        later_session.choose(OTHER)
        assert later_session.report(1.0) is ReportStatus.ALREADY_REPORTED
        device.clock.time += 1.1 * WEEK
        assert device.start().flush() == {}
    assert (len(device.server.posts), len(device.ledger().payments())) == (1, 1)


def test_a_new_visitor_gets_the_best_arm_and_is_not_stored(tmp_path: Path) -> None:
    server = Server(published(waiting_spec(), version=2, drain=draining(waiting_spec(), 2)))
    device = Device(tmp_path, server)
    session = device.start().join("test")
    arms = {session.choose({"x1": x1, "x2": 0.5}) for x1 in (0.1, 0.5, 0.9) for _ in range(10)}
    assert (len(arms), session.report_requested, session.report(1.0)) == (1, False, ReportStatus.NOT_REQUESTED)
    session.save()
    # Neither this round nor a later one gets a report on what the final policy decided.
    server.moves_on(waiting_spec(), 3)
    device.clock.time += 1.1 * WEEK
    assert device.start().flush() == {}
    assert (server.posts, device.ledger().experiments_with_choice(), device.ledger().payments()) == ([], [], [])


def test_a_choice_after_forgetting_is_not_reported(tmp_path: Path) -> None:
    device = waiting(tmp_path)
    session = device.start().join("test")
    session.forget()
    session.choose(OTHER)
    assert (session.report_requested, session.report(1.0), device.ledger().experiments_with_choice()) == (
        False,
        ReportStatus.NOT_REQUESTED,
        [],
    )


def test_a_choice_after_the_due_time_is_not_reported(tmp_path: Path) -> None:
    """A session that is open from before its choice was due decides by the final policy when it chooses again."""
    device = waiting(tmp_path)
    session = device.start().join("test")
    device.clock.time += 1.1 * WEEK
    session.choose(OTHER)
    assert (session.state, session.report(1.0), device.server.posts) == ("due", ReportStatus.PENDING, [])
    # The choice before, of which no outcome is known, is reported as ever.
    drains(device, 3)
    assert device.start().flush() == {"test": ReportStatus.ACCEPTED}
    assert (len(device.server.posts), device.server.reward(), device.ledger().experiments_with_choice()) == (1, 0.0, [])


def test_a_choice_that_no_round_takes_is_deleted(tmp_path: Path) -> None:
    """A draining round with the version of the choice's round gets no report of that choice."""
    device = Device(tmp_path, Server(published(waiting_spec())))
    device.start().join("test").choose(CONTEXT)
    drains(device, 1)
    device.clock.time += 1.1 * WEEK
    assert device.start().flush() == {"test": ReportStatus.PENDING}
    device.clock.time += WEEK
    assert device.start().flush() == {"test": ReportStatus.NOT_REQUESTED}
    assert (device.server.posts, device.ledger().experiments_with_choice(), device.ledger().payments()) == ([], [], [])


@pytest.mark.parametrize("lies", [{"mechanism": {"epsilon": 3.0}}, {"terms": {"delta": 1e-3}}])
def test_terms_of_a_draining_round_are_verified(tmp_path: Path, lies: dict[str, Any]) -> None:
    spec = make_spec(LOCAL)
    device = Device(tmp_path, Server(published(spec)))
    device.start().join("test").choose(CONTEXT)
    device.server.moves_on(spec, 2, drain=draining(spec, 2), **lies)
    with pytest.raises(TermsRefused):
        device.start().join("test")
    device.clock.time += 1.1 * WEEK
    assert device.start().flush() == {"test": ReportStatus.PENDING}
    assert (device.server.posts, device.ledger().payments()) == ([], [])


def test_a_publication_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    spec, drain = waiting_spec(), draining(waiting_spec(), 2)
    bodies = [
        (published(spec, version=2, drain=draining(spec, 3)), TermsRefused),
        (published(make_spec(), version=2, drain=draining(make_spec(), 2)), TermsRefused),
        (published(spec, version=2, drain=Drain(drain.until, b"")), Malformed),
    ]
    for body, refusal in bodies:
        with pytest.raises(refusal):
            Device(tmp_path, Server(body)).start().join("test")
    body = msgspec.msgpack.encode([decode_publication(published(spec, **OVER)).round, b"", b"", b"", drain])
    with pytest.raises(Malformed):
        decode_publication(body)
