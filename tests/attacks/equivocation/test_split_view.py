"""A server shows a device another policy or log than it shows the rest."""

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from privateer_client import AsyncClient, Client, Ledger, Limits, ReportStatus
from privateer_core.errors import LogForked, LogRollback, PrivateerError, ProofInvalid, Untrusted
from privateer_core.wire.identity import Identity
from privateer_core.wire.merkle import MerkleTree
from privateer_core.wire.publication import digest
from privateer_core.wire.transparency_log import BLOCK, Entry, Head, Proof
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from privateer_shuffler.app import create_app as create_shuffler
from privateer_shuffler.resources import PIN_FILE
from privateer_shuffler.settings import ShufflerSettings
from tests.support.asgi import serving
from tests.support.clocks import Hands
from tests.support.experiments import CONTEXT, OPEN, WEEK, Server, waiting_spec
from tests.support.notary import Notary
from tests.support.publications import published, shuffle_spec
from tests.support.servers import SMALL, TOKEN, Api, assert_problem
from tests.support.specs import make_spec

# A server that has contradicted itself: the device that knows goes on with nothing there.


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
        self.n_requests = 0
        self.enter(5)

    def enter(self, count: int, notary: Notary | None = None, mark: bytes = b"") -> None:
        notary = notary or self.notary
        for number in range(count):
            notary.enter(Entry("other", len(notary.entries) + 1, digest(mark + bytes([number]))))

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.n_requests += 1
        if request.method == "POST":
            return self.servers["joined"](request)
        return self.notary.transport(lambda req: self.servers[req.url.path.split("/")[2]](req)).handle_request(request)

    def device(self) -> Client:
        ledger = Ledger(self.folder / "ledger.db", clock=self.clock)
        transport = httpx.MockTransport(self.handle)
        return Client("http://s", ledger=ledger, limits=OPEN, retry_timeout=0.0, clock=self.clock, transport=transport)

    def show_contradicting_log(self, kind: str) -> type[PrivateerError]:
        """Show the device a log that is no continuation of the one of before, signed by the same key."""
        self.notary = Notary(SEED)
        self.enter(20 if kind == "fork" else 1, mark=b"another")
        error = LogForked if kind == "fork" else LogRollback
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
    "flush": lambda client, _, __: client.flush(),
    "fetch tokens": lambda client, _, __: client.fetch_tokens("joined"),
    "choose": lambda _, session, __: session.choose(CONTEXT),
    "choose anew": lambda _, session, __: session.choose(CONTEXT, fresh=True),
    "report": lambda _, session, __: session.report(1.0),
    "tell an outcome that waits": lambda _, __, waiting: waiting.report(1.0),
}


@pytest.mark.parametrize("kind", ["fork", "rollback"])
def test_a_device_that_holds_evidence_stops(world: World, kind: str) -> None:
    """Also with experiments that it joined earlier, in sessions that are open, and after a restart.

    After a rollback `join` alone asks whether the log goes on, and is refused as long as it does not.
    """
    session, waiting = world.device().join("joined"), world.device().join("waiting")
    session.choose(CONTEXT)
    waiting.choose(CONTEXT)
    error = world.show_contradicting_log(kind)
    for name, act in ACTS.items():
        n_requests = world.n_requests
        with pytest.raises(error, match=r"holds evidence .* ledger\.servers\.forget\('http://s'\)") as refusal:
            act(world.device(), session, waiting)
        assert refusal.value.field == "evidence"
        assert world.n_requests == n_requests or (kind == "rollback" and name.startswith("join"))
    assert (world.servers["joined"].posts, Ledger(world.folder / "ledger.db").payments()) == ([], [])
    evidence = json.loads(world.device().evidence or "")
    assert evidence["problem"] == error.slug
    session.forget()  # what is the person's own they may erase
    assert Ledger(world.folder / "ledger.db").experiments_with_choice() == ["http://s/waiting"]


def test_what_is_due_is_not_sent_to_a_server_that_has_forked(world: World) -> None:
    """The pending report and the due report both fail at the fork, and nothing else is sent."""
    waiting = world.device().join("waiting")
    waiting.choose(CONTEXT)
    session = world.device().join("joined")
    session.choose(CONTEXT)
    world.servers["joined"].answer = httpx.ReadError("broken off")
    assert session.report(1.0) is ReportStatus.PENDING
    n_sent = len(world.servers["joined"].posts)
    world.clock.time += 1.1 * WEEK
    world.servers["waiting"].moves_on(waiting_spec(**{"experiment.name": "waiting"}), 2)
    world.notary = Notary(SEED)
    world.enter(20, mark=b"another")
    for act in (world.device().flush, lambda: world.device().join("joined")):
        with pytest.raises(LogForked):
            act()
    assert len(world.servers["joined"].posts) == n_sent
    assert world.device().evidence


def test_the_application_may_trust_a_server_anew(world: World) -> None:
    session = world.device().join("joined")
    session.choose(CONTEXT)
    world.show_contradicting_log("fork")
    evidence = world.device().evidence
    assert Ledger(world.folder / "ledger.db").servers.forget("http://s") == evidence
    assert world.device().evidence is None
    assert session.report(1.0) is ReportStatus.ACCEPTED
    assert world.device().join("test").report_requested


def test_other_servers_go_on(world: World) -> None:
    world.device().join("joined").choose(CONTEXT)
    world.show_contradicting_log("rollback")
    ledger = Ledger(world.folder / "ledger.db", clock=world.clock)
    transport = Notary(b"o" * 32).transport(world.servers["test"])
    other = Client("http://other", ledger=ledger, limits=OPEN, clock=world.clock, transport=transport)
    session = other.join("test")
    session.choose(CONTEXT)
    assert session.report(1.0) is ReportStatus.ACCEPTED


def test_what_somebody_in_between_can_do_does_not_stop_a_device(world: World) -> None:
    """A proof that leads nowhere has no signature: it is refused, and the next good answer is taken."""
    session = world.device().join("joined")
    session.choose(CONTEXT)
    good = world.handle

    def broken(request: httpx.Request) -> httpx.Response:
        answer = good(request)
        if request.url.path != "/log/proof":
            return answer
        document = json.loads(answer.content)
        return httpx.Response(200, json=document | {"inclusion": ""})

    world.handle = broken  # type: ignore[method-assign]
    with pytest.raises(ProofInvalid):
        world.device().join("test")
    world.handle = good  # type: ignore[method-assign]
    assert json.loads(world.device().evidence or "")["problem"] == "proof-invalid"
    assert world.device().join("test").report_requested
    assert session.report(1.0) is ReportStatus.ACCEPTED


def test_an_old_head_that_somebody_in_between_repeats_stops_a_device_until_the_log_goes_on(world: World) -> None:
    """A true, signed proof of before, kept and sent again: the next `join` that gets a newer one goes on."""
    session = world.device().join("joined")
    session.choose(CONTEXT)
    notary = world.notary
    world.notary = Notary(SEED)
    with pytest.raises(LogRollback):
        world.device().join("test")
    for act in (world.device().flush, lambda: session.report(1.0), lambda: world.device().join("test")):
        with pytest.raises(LogRollback, match="holds evidence"):
            act()
    world.notary = notary
    world.enter(1)
    with pytest.raises(LogRollback, match="holds evidence"):
        session.report(1.0)  # who has not joined again has not asked
    assert world.device().join("test").report_requested
    assert json.loads(world.device().evidence or "")["answered"]  # and it may still be published
    assert session.report(1.0) is ReportStatus.ACCEPTED


def test_another_log_does_not_answer_for_one_that_went_back(world: World) -> None:
    """Where the application names two keys, a new log signed by the second would else end a rollback."""
    other = Notary(b"o" * 32, "privateer/log/" + 16 * "f")
    keys = ",".join(notary.key for notary in (world.notary, other))

    def device() -> Client:
        ledger, transport = Ledger(world.folder / "ledger.db", clock=world.clock), httpx.MockTransport(world.handle)
        return Client("http://s", ledger=ledger, limits=OPEN, clock=world.clock, transport=transport, server_key=keys)

    device().join("joined")
    good = world.notary
    world.notary = Notary(SEED)
    world.enter(1, mark=b"another")
    with pytest.raises(LogRollback):
        device().join("test")
    world.notary = other
    for _ in range(2):
        with pytest.raises(LogRollback, match="holds evidence"):
            device().join("test")
    world.notary = good
    assert device().join("test").report_requested


def test_a_fork_outweighs_a_rollback(world: World) -> None:
    """Else a server that was caught at a fork after a rollback would be trusted again once it shows the true log."""
    world.device().join("joined")
    good = world.notary
    world.show_contradicting_log("rollback")
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
    world.show_contradicting_log("fork")
    servers = Ledger(world.folder / "ledger.db").servers
    servers.store_evidence("http://s", json.dumps({"problem": "proof-invalid"}))
    with pytest.raises(Untrusted, match="holds evidence"):
        world.device().join("joined")


# A server that shows one device another policy: two copies of it, with one key, that go different ways.


def device(folder: Path, server: httpx.AsyncBaseTransport) -> AsyncClient:
    limits = Limits(epsilon=100.0, local_epsilon=100.0)
    return AsyncClient("http://s", ledger=Ledger(folder / "ledger.db"), limits=limits, transport=server)


async def test_two_copies_of_a_server_leave_evidence(tmp_path: Path) -> None:
    """One person is shown the second copy once; the next honest answer, or any comparison, tells."""
    honest = ServerSettings(data=tmp_path / "honest", admin_token=TOKEN)
    async with serving(create_app(honest)) as client:
        await Api(client).create(SMALL)
    shutil.copytree(tmp_path / "honest", tmp_path / "split")
    split = honest.model_copy(update={"data": tmp_path / "split"})
    (tmp_path / "singled-out").mkdir()
    (tmp_path / "other").mkdir()
    async with serving(create_app(split)) as client:
        for name in ("two", "three"):
            assert (await Api(client).create(SMALL | {"experiment.name": name})).status_code == 201
        transport = client._transport
        await device(tmp_path / "singled-out", transport).join("two")
    async with serving(create_app(honest)) as client:
        for name in ("four", "five"):
            assert (await Api(client).create(SMALL | {"experiment.name": name})).status_code == 201
        transport = client._transport
        await device(tmp_path / "other", transport).join("four")
        with pytest.raises(LogForked):
            await device(tmp_path / "singled-out", transport).join("four")
    evidence = json.loads(device(tmp_path / "singled-out", transport).evidence or "")
    key = bytes.fromhex(evidence["known"]["key"])
    signed = (
        evidence["known"]["head"],
        json.loads(evidence["proof"])["head"],
        device(tmp_path / "other", transport).head or "",
    )
    heads = [Head.verify(text, key) for text in signed]
    assert len({head.origin for head in heads}) == 1
    assert (heads[0].size, heads[0].root != heads[1].root, heads[1]) == (3, True, heads[2])


async def test_a_shuffler_follows_the_server_that_it_knows(tmp_path: Path) -> None:
    """After a restart, too, it refuses a round of another server, and a round without a signature."""
    settings = ShufflerSettings(
        server_url="http://server", data=tmp_path / "data", public_key_file=tmp_path / "one.pub", min_batch=2
    )
    body = published(shuffle_spec())
    notary, other = Notary(), Notary(b"o" * 32)

    def transport(identity: Identity | None) -> httpx.MockTransport:
        def answer(request: httpx.Request) -> httpx.Response:
            if request.method == "POST":
                return httpx.Response(200, json={})
            signed = {"privateer-signed": identity.signature_header(digest(body))} if identity else {}
            return httpx.Response(200, content=body, headers=signed)

        return httpx.MockTransport(answer)

    async def fetch(identity: Identity | None, **changes: frozenset[bytes]) -> httpx.Response:
        async with serving(create_shuffler(settings.model_copy(update=changes), transport(identity))) as client:
            return await client.get("/experiments/test")

    assert_problem(await fetch(None), 502, "signature-invalid")
    assert not (tmp_path / "data" / PIN_FILE).exists()
    assert (await fetch(notary.identity)).status_code == 200
    assert (tmp_path / "data" / PIN_FILE).read_text().strip() == notary.key
    for path in (tmp_path / "data").glob("*.db*"):
        path.unlink()  # a round that is held needs no server
    assert_problem(await fetch(other.identity), 502, "key-changed")
    assert_problem(await fetch(notary.identity, server_key=frozenset({other.identity.public})), 502, "key-changed")
    assert (await fetch(notary.identity, server_key=frozenset({notary.identity.public}))).status_code == 200


# A server says of the log less than it should, so that devices must name the block in which they came last.


SPEC = make_spec({})


class CuriousServer:
    """A server whose proofs for devices begin at the last block, which an honest server's never do."""

    def __init__(self) -> None:
        self.notary, self.version, self.paths = Notary(seed=b"c" * 32), 1, list[str]()
        self.is_curious = False

    def publish(self, name: str, version: int) -> None:
        self.notary.enter(Entry(name, version, digest(name.encode())))

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.paths.append(str(request.url.raw_path, "ascii"))
        transport = self.notary.transport(lambda _: httpx.Response(200, content=published(SPEC, version=self.version)))
        response: Any = transport.handle_request(request)
        response.read()
        if not (self.is_curious and "/log/proof" in self.paths[-1] and "block" not in self.paths[-1]):
            return response
        tree = MerkleTree(entry.leaf for entry in self.notary.entries)
        size = len(tree)
        start = (size - 1) // BLOCK * BLOCK
        proof = msgspec.json.decode(response.content, type=Proof)
        shortened = msgspec.structs.replace(
            proof, start=start, peaks=_packed(tree.peaks(start).hashes), leaves=_packed([tree.leaves(start, size)])
        )
        return httpx.Response(200, content=msgspec.json.encode(shortened))

    def device(self, folder: Path) -> Client:
        ledger = Ledger(folder / "ledger.db")
        return Client("http://s", ledger=ledger, transport=httpx.MockTransport(self.handle))


def _packed(hashes: list[bytes]) -> str:
    return base64.b64encode(b"".join(hashes)).decode()


@pytest.mark.parametrize("is_new", [True, False])
def test_a_proof_that_says_too_little_is_refused_by_those_who_come_back_and_by_new_people(tmp_path, is_new):
    """Else the server learned who has been there before, and in which block: of people who missed one publication."""
    server = CuriousServer()
    for place in range(2 * BLOCK - 2):
        server.publish("other", place + 1)
    if not is_new:
        server.device(tmp_path).join("test")  # the last entry of a block but one
    server.version = 2
    server.is_curious = True
    server.publish("other", 2 * BLOCK - 1)
    with pytest.raises(ProofInvalid):
        server.device(tmp_path).join("test")
    assert server.paths[-1] == "/log/proof?experiment=test&version=2"
