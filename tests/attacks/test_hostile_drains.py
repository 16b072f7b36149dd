"""A server that uses the end of an experiment, when late reports alone are taken, to get more than late reports."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from privateer_client import Outcome
from privateer_core.errors import Malformed, TermsRefused
from privateer_core.wire.publication import Drain, decode_publication
from tests.support.experiments import CONTEXT, OTHER, WEEK, Device, Server, waiting_spec
from tests.support.publications import OVER, draining, published
from tests.support.specs import make_spec

LOCAL = {"experiment.conversion_window": WEEK}


def waiting(folder: Path) -> Device:
    """A device that chose, and whose server then takes late reports alone."""
    device = Device(folder, Server(published(waiting_spec())))
    device.start().join("test").choose(CONTEXT)
    drains(device, 2)
    return device


def drains(device: Device, version: int) -> None:
    device.server.moves_on(waiting_spec(), version, drain=draining(waiting_spec(), version))


def test_who_chose_before_reports_once_however_many_rounds_there_are(tmp_path: Path) -> None:
    device = waiting(tmp_path)
    session = device.start().join("test")
    assert session.asked
    session.report(0.5)
    assert device.server.sent == []
    device.clock.time += 1.1 * WEEK
    assert device.start().resend() == {"test": Outcome.ACCEPTED}
    assert device.server.reward() == 0.5
    for version in (3, 4):
        drains(device, version)
        again = device.start().join("test")
        again.choose(OTHER)
        assert again.report(1.0) is Outcome.ALREADY_REPORTED
        device.clock.time += 1.1 * WEEK
        assert device.start().resend() == {}
    assert (len(device.server.sent), len(device.ledger().payments())) == (1, 1)


def test_who_comes_now_gets_the_best_arm_and_leaves_no_trace(tmp_path: Path) -> None:
    server = Server(published(waiting_spec(), version=2, drain=draining(waiting_spec(), 2)))
    device = Device(tmp_path, server)
    session = device.start().join("test")
    arms = {session.choose({"x1": x1, "x2": 0.5}) for x1 in (0.1, 0.5, 0.9) for _ in range(10)}
    assert (len(arms), session.asked, session.report(1.0)) == (1, False, Outcome.NOT_ASKED)
    session.save()
    # Neither this round nor a later one gets a report on what the final policy decided.
    server.moves_on(waiting_spec(), 3)
    device.clock.time += 1.1 * WEEK
    assert device.start().resend() == {}
    assert (server.sent, device.ledger().choices(), device.ledger().payments()) == ([], [], [])


def test_what_is_chosen_after_forgetting_is_not_reported(tmp_path: Path) -> None:
    device = waiting(tmp_path)
    session = device.start().join("test")
    session.forget()
    session.choose(OTHER)
    assert (session.asked, session.report(1.0), device.ledger().choices()) == (False, Outcome.NOT_ASKED, [])


def test_what_is_chosen_after_the_kept_choice_is_due_is_not_reported(tmp_path: Path) -> None:
    """A session that is open from before its choice was due decides by the final policy when it chooses again."""
    device = waiting(tmp_path)
    session = device.start().join("test")
    device.clock.time += 1.1 * WEEK
    session.choose(OTHER)
    assert (session.state, session.report(1.0), device.server.sent) == ("due", Outcome.PENDING, [])
    # The choice before, of which no outcome is known, is reported as ever.
    drains(device, 3)
    assert device.start().resend() == {"test": Outcome.ACCEPTED}
    assert (len(device.server.sent), device.server.reward(), device.ledger().choices()) == (1, 0.0, [])


def test_a_round_that_never_takes_a_choice_does_not_keep_it_for_ever(tmp_path: Path) -> None:
    """The same version again, as one that drains: who chose by the other one does not report to it."""
    device = Device(tmp_path, Server(published(waiting_spec())))
    device.start().join("test").choose(CONTEXT)
    drains(device, 1)
    device.clock.time += 1.1 * WEEK
    assert device.start().resend() == {"test": Outcome.PENDING}
    device.clock.time += WEEK
    assert device.start().resend() == {"test": Outcome.NOT_ASKED}
    assert (device.server.sent, device.ledger().choices(), device.ledger().payments()) == ([], [], [])


@pytest.mark.parametrize("lies", [{"mechanism": {"epsilon": 3.0}}, {"terms": {"delta": 1e-3}}])
def test_terms_are_verified_as_ever(tmp_path: Path, lies: dict[str, Any]) -> None:
    spec = make_spec(LOCAL)
    device = Device(tmp_path, Server(published(spec)))
    device.start().join("test").choose(CONTEXT)
    device.server.moves_on(spec, 2, drain=draining(spec, 2), **lies)
    with pytest.raises(TermsRefused):
        device.start().join("test")
    device.clock.time += 1.1 * WEEK
    assert device.start().resend() == {"test": Outcome.PENDING}
    assert (device.server.sent, device.ledger().payments()) == ([], [])


def test_a_publication_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    spec, own = waiting_spec(), draining(waiting_spec(), 2)
    bodies = [
        (published(spec, version=2, drain=draining(spec, 3)), TermsRefused),
        (published(make_spec(), version=2, drain=draining(make_spec(), 2)), TermsRefused),
        (published(spec, version=2, drain=Drain(own.until, b"")), Malformed),
    ]
    for body, refusal in bodies:
        with pytest.raises(refusal):
            Device(tmp_path, Server(body)).start().join("test")
    body = msgspec.msgpack.encode([decode_publication(published(spec, **OVER)).round, b"", b"", b"", own])
    with pytest.raises(Malformed):
        decode_publication(body)
