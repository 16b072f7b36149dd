"""A server says of the log less than it should, so that devices must name the block in which they came last."""

import base64
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from privateer_client import Client, Ledger
from privateer_core.errors import ProofInvalid
from privateer_core.wire.merkle import MerkleTree
from privateer_core.wire.publication import digest
from privateer_core.wire.transparency_log import BLOCK, Entry, Proof
from tests.support.notary import Notary
from tests.support.publications import published
from tests.support.specs import make_spec

SPEC = make_spec({})


class Curious:
    """A server whose proofs for devices begin at the last block, as an honest server's do for nobody."""

    def __init__(self) -> None:
        self.notary, self.version, self.asked = Notary(seed=b"c" * 32), 1, list[str]()
        self.is_curious = False

    def publish(self, name: str, version: int) -> None:
        self.notary.enter(Entry(name, version, digest(name.encode())))

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(str(request.url.raw_path, "ascii"))
        way = self.notary.transport(lambda _: httpx.Response(200, content=published(SPEC, version=self.version)))
        response: Any = way.handle_request(request)
        response.read()
        if not (self.is_curious and "/log/proof" in self.asked[-1] and "block" not in self.asked[-1]):
            return response
        tree = MerkleTree(entry.leaf for entry in self.notary.entries)
        size = len(tree)
        start = (size - 1) // BLOCK * BLOCK
        proof = msgspec.json.decode(response.content, type=Proof)
        less = msgspec.structs.replace(
            proof, start=start, peaks=_packed(tree.peaks(start).hashes), leaves=_packed([tree.leaves(start, size)])
        )
        return httpx.Response(200, content=msgspec.json.encode(less))

    def device(self, folder: Path) -> Client:
        ledger = Ledger(folder / "ledger.db")
        return Client("http://s", ledger=ledger, transport=httpx.MockTransport(self.handle))


def _packed(hashes: list[bytes]) -> str:
    return base64.b64encode(b"".join(hashes)).decode()


@pytest.mark.parametrize("is_new", [True, False])
def test_a_proof_that_says_too_little_is_refused_by_those_who_come_back_and_by_new_people(
    tmp_path: Path, is_new: bool
) -> None:
    """Else the server learned who has been there before, and in which block: of people who missed one publication."""
    server = Curious()
    for place in range(2 * BLOCK - 2):
        server.publish("other", place + 1)
    if not is_new:
        server.device(tmp_path).join("test")  # the last entry of a block but one
    server.version = 2
    server.is_curious = True
    server.publish("other", 2 * BLOCK - 1)
    with pytest.raises(ProofInvalid):
        server.device(tmp_path).join("test")
    assert server.asked[-1] == "/log/proof?experiment=test&version=2"
