"""A device verifies its server's key and log, and keeps evidence if either contradicts itself."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_client import AsyncClient, Client, Ledger
from privateer_core.errors import KeyChanged, LogForked, LogRollback, ProofInvalid, SignatureInvalid, Unavailable
from privateer_core.wire.identity import SIGNED_HEADER
from privateer_core.wire.publication import digest
from privateer_core.wire.transparency_log import BLOCK, Entry, Head
from tests.support.notary import Notary
from tests.support.publications import published
from tests.support.specs import make_spec

SPEC = make_spec({})


class World:
    """A server with a log of its own, and a device."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.notary, self.version = folder, Notary(seed=b"w" * 32), 1
        self.requests: list[str] = []
        self.change: Any = None

    def serve(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=published(SPEC, version=self.version))

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(str(request.url.raw_path, "ascii"))
        response = self.notary.transport(self.serve).handle_request(request)
        response.read()
        return self.change(request, response) if self.change else response

    def device(self, **options: Any) -> Client:
        ledger = Ledger(self.folder / "ledger.db")
        return Client("http://s", ledger=ledger, transport=httpx.MockTransport(self.handle), **options)

    def enter_others(self, count: int) -> None:
        for index in range(count):
            self.notary.enter(Entry("other", len(self.notary.entries) + 1, digest(bytes([index]))))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_each_publication_has_a_single_proof_request(world: World) -> None:
    device = world.device()
    assert device.head is None
    device.join("test")
    assert [path.partition("?")[0] for path in world.requests] == ["/experiments/test/policy", "/log/proof"]
    assert device.head == world.notary.head().signed
    world.device().join("test")
    assert len(world.requests) == 3  # it is the publication that the device has
    world.version = 2
    world.device().join("test")
    assert len(world.requests) == 5
    assert world.requests[-1] == "/log/proof?experiment=test&version=2"
    assert Head.verify(world.device().head or "", world.notary.identity.public).size == 2
    assert world.device().evidence is None


async def test_an_async_client_verifies_proofs_too(world: World) -> None:
    async def handle(request: httpx.Request) -> httpx.Response:
        return world.handle(request)

    device = AsyncClient("http://s", ledger=Ledger(world.folder / "l.db"), transport=httpx.MockTransport(handle))
    await device.join("test")
    assert device.head == world.notary.head().signed


def test_a_device_that_was_away_asks_for_its_block(world: World) -> None:
    world.device().join("test")
    world.enter_others(3 * BLOCK)
    world.version = 2
    world.device().join("test")
    assert world.requests[-2:] == [f"/log/proof?experiment=test&version=2{block}" for block in ("", "&block=0")]
    assert world.device().head == world.notary.head().signed


def test_the_first_key_is_the_servers(world: World) -> None:
    world.device().join("test")
    before = world.device().head
    world.notary, world.version = Notary(seed=b"v" * 32, origin="privateer/log/0000000000000001"), 2
    with pytest.raises(KeyChanged, match="server_key"):
        world.device().join("test")
    assert world.device().head == before
    world.device(server_key=world.notary.key).join("test")  # the application names the new key, and a new log with it
    assert world.device().head == world.notary.head().signed
    world.version = 3
    world.device().join("test")


def test_a_new_key_goes_on_with_the_log(world: World) -> None:
    """Where the log stays the same, a key that the application names does not make the device forget its head."""
    world.device().join("test")
    old, world.notary, world.version = world.notary, Notary(seed=b"v" * 32), 2
    for entry in old.entries:
        world.notary.enter(entry)
    keys = f"{old.key},{world.notary.key}"
    world.device(server_key=keys).join("test")
    assert world.device().head == world.notary.head().signed
    world.notary, world.version = Notary(seed=b"u" * 32), 3
    world.enter_others(3)
    with pytest.raises(LogForked):
        world.device(server_key=f"{keys},{world.notary.key}").join("test")


def test_a_pinned_key_counts_from_the_start(world: World) -> None:
    with pytest.raises(KeyChanged):
        world.device(server_key="ab" * 32).join("test")
    assert world.device().head is None
    world.device(server_key=world.notary.key).join("test")


def test_an_unsigned_publication_is_refused(world: World) -> None:
    def remove_signature(_: httpx.Request, response: httpx.Response) -> httpx.Response:
        response.headers.pop(SIGNED_HEADER, None)
        return response

    world.change = remove_signature
    with pytest.raises(SignatureInvalid, match="not signed"):
        world.device().join("test")
    world.change = lambda request, response: response
    world.device().join("test")
    world.change = remove_signature
    world.version = 2
    with pytest.raises(SignatureInvalid):
        world.device().join("test")


def test_a_signed_publication_that_is_not_in_the_log_is_evidence(world: World) -> None:
    """The server shows this device another publication than it shows all other devices."""
    world.device().join("test")
    honest = world.notary
    world.version = 2

    def split(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        if request.url.path != "/log/proof":
            return response
        honest.enter(Entry("test", 2, digest(b"what the others get")))
        return httpx.Response(200, content=honest.answer(request).content)

    world.change = split
    with pytest.raises(ProofInvalid, match="not in the server's log"):
        world.device().join("test")
    evidence = json.loads(world.device().evidence or "")
    publication = published(SPEC, version=2)
    assert (evidence["problem"], evidence["publication"]["digest"]) == ("proof-invalid", digest(publication).hex())
    assert evidence["signed"] == honest.identity.signature_header(digest(publication))
    world.change = None
    assert world.device().join("test").offline is False  # it was the wrong publication, and is not kept


def test_two_logs_of_one_server_are_evidence(world: World) -> None:
    """The server keeps a log for this device alone, until the device comes by another way."""
    world.enter_others(5)
    world.device().join("test")
    before = world.device().head
    world.notary, world.version = Notary(seed=b"w" * 32), 2
    world.enter_others(9)
    with pytest.raises(LogForked):
        world.device().join("test")
    evidence = json.loads(world.device().evidence or "")
    key = bytes.fromhex(evidence["known"]["key"])
    heads = evidence["known"]["head"], json.loads(evidence["proof"])["head"]
    local, other = (Head.verify(head, key) for head in heads)
    assert (local.origin, local.size, other.size) == (other.origin, 6, 10)
    assert world.device().head == before


def test_an_older_head_is_a_rollback(world: World) -> None:
    world.enter_others(5)
    world.device().join("test")
    world.notary, world.version = Notary(seed=b"w" * 32), 2
    with pytest.raises(LogRollback):
        world.device().join("test")
    assert len(world.requests) == 2 + 4  # it asks again, since another process may have been faster
    assert json.loads(world.device().evidence or "")["problem"] == "log-rollback"


def test_a_process_overtaken_by_another_requests_a_new_proof(world: World) -> None:
    world.device().join("test")
    world.version, late = 2, [True]

    def overtake(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        if request.url.path == "/log/proof" and late.pop():
            late.append(False)
            world.enter_others(1)
            world.change = None
            world.device().join("test")  # keeps a head that is larger than that of the answer on its way
        return response

    world.change = overtake
    assert world.device().join("test").offline is False
    assert world.device().head == world.notary.head().signed


@pytest.mark.parametrize("status", [404, 500, 503])
def test_a_missing_proof_makes_the_server_unavailable(world: World, status: int) -> None:
    def silent(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        return httpx.Response(status) if request.url.path == "/log/proof" else response

    world.change = silent
    with pytest.raises(Unavailable, match="did not prove"):
        world.device().join("test")
    world.change = None
    world.device().join("test")
    world.version, world.change = 2, silent
    assert world.device().join("test").offline  # the last publication that was in the log


def test_the_application_may_forget_a_server(world: World) -> None:
    world.device().join("test")
    world.notary, world.version = Notary(seed=b"v" * 32, origin="privateer/log/0000000000000001"), 2
    Ledger(world.folder / "ledger.db").servers.forget("http://s")
    world.device().join("test")
    assert world.device().head == world.notary.head().signed
