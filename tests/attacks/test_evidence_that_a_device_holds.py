"""A server that has contradicted itself: the device that knows goes on with nothing there."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_client import Client, Ledger, Outcome
from privateer_core.errors import HeadWentBack, LogForked, PrivateerError, ProofInvalid, Untrusted
from privateer_core.wire.publication import digest
from privateer_core.wire.transparency_log import Entry
from tests.support.clocks import Hands
from tests.support.experiments import CONTEXT, OPEN, WEEK, Server, waiting_spec
from tests.support.notary import Notary
from tests.support.publications import published
from tests.support.specs import make_spec

SEED = b"k" * 32


class World:
    """A server of several experiments that may show another log, and a device that is started again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock, self.notary = folder, Hands(), Notary(SEED)
        self.servers = {
            "joined": Server(published(make_spec({"experiment.name": "joined"}))),
            "waiting": Server(published(waiting_spec(**{"experiment.name": "waiting"}))),
            "test": Server(published(make_spec())),
        }
        self.asked = 0
        self.enter(5)

    def enter(self, count: int, notary: Notary | None = None, mark: bytes = b"") -> None:
        notary = notary or self.notary
        for number in range(count):
            notary.enter(Entry("other", len(notary.entries) + 1, digest(mark + bytes([number]))))

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        if request.method == "POST":
            return self.servers["joined"](request)
        return self.notary.transport(lambda one: self.servers[one.url.path.split("/")[2]](one)).handle_request(request)

    def device(self) -> Client:
        ledger = Ledger(self.folder / "ledger.db", clock=self.clock)
        way = httpx.MockTransport(self.handle)
        return Client("http://s", ledger=ledger, limits=OPEN, patience=0.0, clock=self.clock, transport=way)

    def contradicts(self, how: str) -> type[PrivateerError]:
        """Show the device a log that is no continuation of the one of before, signed by the same key."""
        self.notary = Notary(SEED)
        self.enter(20 if how == "fork" else 1, mark=b"another")
        error = LogForked if how == "fork" else HeadWentBack
        with pytest.raises(error):
            self.device().join("test")
        return error


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


ACTS: dict[str, Callable[[Client, Any, Any], Any]] = {
    "join": lambda client, _, __: client.join("joined"),
    "join another": lambda client, _, __: client.join("test"),
    "resume": lambda client, _, __: client.resume("joined"),
    "resend": lambda client, _, __: client.resend(),
    "fetch tokens": lambda client, _, __: client.fetch_tokens("joined"),
    "choose": lambda _, session, __: session.choose(CONTEXT),
    "choose anew": lambda _, session, __: session.choose(CONTEXT, fresh=True),
    "report": lambda _, session, __: session.report(1.0),
    "tell an outcome that waits": lambda _, __, waiting: waiting.report(1.0),
}


@pytest.mark.parametrize("how", ["fork", "rollback"])
def test_a_device_that_holds_evidence_stops(world: World, how: str) -> None:
    """Also with experiments that it joined earlier, in sessions that are open, and after a restart.

    After a rollback `join` alone asks whether the log goes on, and is refused as long as it does not.
    """
    session, waiting = world.device().join("joined"), world.device().join("waiting")
    session.choose(CONTEXT)
    waiting.choose(CONTEXT)
    error = world.contradicts(how)
    for name, act in ACTS.items():
        asked = world.asked
        with pytest.raises(error, match=r"holds evidence .* ledger\.servers\.forget\('http://s'\)") as refusal:
            act(world.device(), session, waiting)
        assert refusal.value.field == "evidence"
        assert world.asked == asked or (how == "rollback" and name.startswith("join"))
    assert (world.servers["joined"].sent, Ledger(world.folder / "ledger.db").payments()) == ([], [])
    evidence = json.loads(world.device().evidence or "")
    assert evidence["problem"] == error.slug
    session.forget()  # what is the person's own they may erase
    assert Ledger(world.folder / "ledger.db").choices() == ["http://s/waiting"]


def test_what_is_due_is_not_sent_to_a_server_that_has_forked(world: World) -> None:
    """The report that waits, and the one that is due, meet the fork themselves: nothing is sent beside."""
    waiting = world.device().join("waiting")
    waiting.choose(CONTEXT)
    session = world.device().join("joined")
    session.choose(CONTEXT)
    world.servers["joined"].answer = httpx.ReadError("broken off")
    assert session.report(1.0) is Outcome.PENDING
    sent = len(world.servers["joined"].sent)
    world.clock.time += 1.1 * WEEK
    world.servers["waiting"].moves_on(waiting_spec(**{"experiment.name": "waiting"}), 2)
    world.notary = Notary(SEED)
    world.enter(20, mark=b"another")
    for act in (world.device().resend, lambda: world.device().join("joined")):
        with pytest.raises(LogForked):
            act()
    assert len(world.servers["joined"].sent) == sent
    assert world.device().evidence


def test_the_application_may_trust_a_server_anew(world: World) -> None:
    session = world.device().join("joined")
    session.choose(CONTEXT)
    world.contradicts("fork")
    evidence = world.device().evidence
    assert Ledger(world.folder / "ledger.db").servers.forget("http://s") == evidence
    assert world.device().evidence is None
    assert session.report(1.0) is Outcome.ACCEPTED
    assert world.device().join("test").asked


def test_other_servers_go_on(world: World) -> None:
    world.device().join("joined").choose(CONTEXT)
    world.contradicts("rollback")
    ledger = Ledger(world.folder / "ledger.db", clock=world.clock)
    way = Notary(b"o" * 32).transport(world.servers["test"])
    other = Client("http://other", ledger=ledger, limits=OPEN, clock=world.clock, transport=way)
    session = other.join("test")
    session.choose(CONTEXT)
    assert session.report(1.0) is Outcome.ACCEPTED


def test_what_somebody_in_between_can_do_does_not_stop_a_device(world: World) -> None:
    """A proof that leads nowhere has no signature: it is refused, and the next good answer is taken."""
    session = world.device().join("joined")
    session.choose(CONTEXT)
    good = world.handle

    def broken(request: httpx.Request) -> httpx.Response:
        answer = good(request)
        if request.url.path != "/log/proof":
            return answer
        told = json.loads(answer.content)
        return httpx.Response(200, json=told | {"inclusion": ""})

    world.handle = broken  # type: ignore[method-assign]
    with pytest.raises(ProofInvalid):
        world.device().join("test")
    world.handle = good  # type: ignore[method-assign]
    assert json.loads(world.device().evidence or "")["problem"] == "proof-invalid"
    assert world.device().join("test").asked
    assert session.report(1.0) is Outcome.ACCEPTED


def test_an_old_head_that_somebody_in_between_repeats_stops_a_device_until_the_log_goes_on(world: World) -> None:
    """A true, signed proof of before, kept and sent again: the next `join` that gets a newer one goes on."""
    session = world.device().join("joined")
    session.choose(CONTEXT)
    kept = world.notary
    world.notary = Notary(SEED)
    with pytest.raises(HeadWentBack):
        world.device().join("test")
    for act in (world.device().resend, lambda: session.report(1.0), lambda: world.device().join("test")):
        with pytest.raises(HeadWentBack, match="holds evidence"):
            act()
    world.notary = kept
    world.enter(1)
    with pytest.raises(HeadWentBack, match="holds evidence"):
        session.report(1.0)  # who has not joined again has not asked
    assert world.device().join("test").asked
    assert json.loads(world.device().evidence or "")["answered"]  # and it may still be published
    assert session.report(1.0) is Outcome.ACCEPTED


def test_another_log_does_not_answer_for_one_that_went_back(world: World) -> None:
    """Where the application names two keys, a new log signed by the second would else end a rollback."""
    other = Notary(b"o" * 32, "privateer/log/" + 16 * "f")
    keys = ",".join(one.key for one in (world.notary, other))

    def device() -> Client:
        ledger, way = Ledger(world.folder / "ledger.db", clock=world.clock), httpx.MockTransport(world.handle)
        return Client("http://s", ledger=ledger, limits=OPEN, clock=world.clock, transport=way, server_key=keys)

    device().join("joined")
    good = world.notary
    world.notary = Notary(SEED)
    world.enter(1, mark=b"another")
    with pytest.raises(HeadWentBack):
        device().join("test")
    world.notary = other
    for _ in range(2):
        with pytest.raises(HeadWentBack, match="holds evidence"):
            device().join("test")
    world.notary = good
    assert device().join("test").asked


def test_a_fork_outweighs_a_rollback(world: World) -> None:
    """Else a server that was caught at a fork after a rollback would be trusted again once it shows the true log."""
    world.device().join("joined")
    good = world.notary
    world.contradicts("rollback")
    world.notary = Notary(SEED)
    world.enter(20, mark=b"another")
    with pytest.raises(LogForked, match="holds evidence"):
        world.device().join("test")
    world.notary = good
    with pytest.raises(LogForked, match="holds evidence"):
        world.device().join("joined")
    assert json.loads(world.device().evidence or "")["problem"] == LogForked.slug


def test_a_contradiction_is_not_covered_up_by_lesser_evidence(world: World) -> None:
    world.device().join("joined")
    world.contradicts("fork")
    servers = Ledger(world.folder / "ledger.db").servers
    servers.accuse("http://s", json.dumps({"problem": "proof-invalid"}))
    with pytest.raises(Untrusted, match="holds evidence"):
        world.device().join("joined")
