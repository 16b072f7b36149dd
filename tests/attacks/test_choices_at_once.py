"""While a server takes its time an application goes on: it reports again, erases, and chooses anew, in any session."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_client import ChoiceState, Outcome, Session
from tests.support.experiments import CONTEXT, OTHER, Device, Server, waiting_spec
from tests.support.notary import Notary
from tests.support.publications import published
from tests.support.specs import make_spec

IDENTITY = "http://s/test"
MEANWHILE: dict[str, Callable[[Session[Outcome], Device], Any]] = {
    "choose": lambda session, _: session.choose(CONTEXT),
    "choose anew": lambda session, _: session.choose(OTHER, fresh=True),
    "choose, not sticky": lambda session, _: session.choose(CONTEXT, sticky=False),
    "report": lambda session, _: session.report(0.0),
    "resend": lambda _, device: device.start().resend(),
    "join": lambda _, device: device.start().join("test").choose(OTHER),
    "forget": lambda session, _: session.forget(),
    "forget elsewhere": lambda _, device: device.start().resume("test").forget(),
    "erase from the ledger": lambda _, device: device.ledger().forget(IDENTITY),
    "forget, and choose": lambda session, _: (session.forget(), session.choose(OTHER)),
}
ERASE = {"forget", "forget elsewhere", "erase from the ledger", "forget, and choose"}


class Slow:
    """A server that leaves time before it answers the question which round is open, and then answers in one way."""

    def __init__(self, folder: Path, end: str) -> None:
        self.server, self.end = Server(published(make_spec())), end
        self.act: Callable[[Session[Outcome], Device], Any] | None = None
        notary = Notary()
        self.device = Device(folder, self.server, transport=notary.transport(self.server))
        self.session = self.device.start(transport=notary.transport(self)).join("test")
        self.session.choose(CONTEXT)
        if end == "expired":
            self.server.moves_on(make_spec(), 1_000_001)
        self.device.clock.time += 60.0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET" and self.act is not None:
            act, self.act = self.act, None
            act(self.session, self.device)
            if self.end == "declined":
                raise httpx.ConnectError("away")
            if self.end == "deleted":
                return httpx.Response(410)
        return self.server(request)


@pytest.mark.parametrize("end", ["taken", "declined", "expired", "deleted"])
@pytest.mark.parametrize("act", MEANWHILE)
def test_while_a_report_is_on_its_way_everything_may_be_done(tmp_path: Path, act: str, end: str) -> None:
    slow = Slow(tmp_path, end)
    slow.act = MEANWHILE[act]
    outcome = slow.session.report(1.0)
    assert slow.act is None  # it was done
    assert len(set(slow.server.sent)) == len(slow.device.ledger().payments()) <= 1
    is_paid = bool(slow.device.ledger().payments())
    assert not (outcome is Outcome.NOT_ASKED and is_paid and end != "deleted")
    assert (slow.session.state is ChoiceState.DELIVERED) is (is_paid and end != "deleted")
    assert slow.session.choose(CONTEXT)


@pytest.mark.parametrize("end", ["taken", "declined", "expired", "deleted"])
@pytest.mark.parametrize("act", sorted(ERASE))
def test_what_is_erased_while_a_report_is_on_its_way_is_not_reported(tmp_path: Path, act: str, end: str) -> None:
    slow = Slow(tmp_path, end)
    erased = slow.device.ledger().choice(IDENTITY)
    slow.act = MEANWHILE[act]
    assert slow.session.report(1.0) is Outcome.NOT_ASKED
    kept = slow.device.ledger().choice(IDENTITY)
    assert (kept is not None) is (act == "forget, and choose" and end != "deleted")
    assert kept is None or not kept.is_same(erased)
    slow.end = "taken"
    assert slow.device.start().resend() == {}
    assert (slow.server.sent, slow.device.ledger().payments()) == ([], [])


@pytest.mark.parametrize("spec", [make_spec(), waiting_spec()], ids=["at once", "after a window"])
@pytest.mark.parametrize("act", ["forget elsewhere", "erase from the ledger"])
def test_what_is_erased_elsewhere_no_session_reports(tmp_path: Path, spec: Any, act: str) -> None:
    device = Device(tmp_path, Server(published(spec)))
    session = device.start().join("test")
    session.choose(CONTEXT)
    MEANWHILE[act](session, device)
    assert session.report(1.0) is Outcome.NOT_ASKED
    assert session.state is ChoiceState.OFFERED
    assert device.ledger().choices() == []
    assert (device.server.sent, device.ledger().payments()) == ([], [])
    assert session.choose(CONTEXT)
    assert session.report(1.0) in {Outcome.ACCEPTED, Outcome.PENDING}


def test_what_is_erased_is_not_reported_once_another_session_has_chosen(tmp_path: Path) -> None:
    device = Device(tmp_path, Server(published(make_spec())))
    session, other = device.start().join("test"), device.start().join("test")
    session.choose(CONTEXT)
    device.ledger().forget(IDENTITY)
    other.choose(OTHER)
    kept = device.ledger().choice(IDENTITY)
    assert session.report(1.0) is Outcome.NOT_ASKED
    after = device.ledger().choice(IDENTITY)
    assert after is not None
    assert after.is_same(kept)
    assert other.report(1.0) is Outcome.ACCEPTED
