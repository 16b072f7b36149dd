"""Publications of scripted servers, signed by a key and proved by a log."""

import base64
from collections.abc import Callable

import httpx
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.errors import Malformed
from privateer_core.wire.identity import SIGNED_HEADER, Identity
from privateer_core.wire.merkle import MerkleTree
from privateer_core.wire.publication import decode_publication, digest
from privateer_core.wire.transparency_log import Entry, Head, Proof, make_proof

Handler = Callable[[httpx.Request], httpx.Response]
ORIGIN = "privateer/log/00112233445566ff"


class Notary:
    """A server's key and log.

    Attributes
    ----------
    entries
        The log.
    proofs
        How many were asked for.
    """

    def __init__(self, seed: bytes = bytes(32), origin: str = ORIGIN) -> None:
        self.identity, self.origin = Identity(Ed25519PrivateKey.from_private_bytes(seed)), origin
        self.entries: list[Entry] = []
        self.proofs = 0
        self._tree = MerkleTree()
        self._places: dict[tuple[str, int], int] = {}

    @property
    def key(self) -> str:
        return self.identity.public.hex()

    def enter(self, entry: Entry) -> None:
        """Add to the log what is not its last word on a version."""
        place = self._places.get((entry.experiment, entry.version))
        if place is None or self.entries[place] != entry:
            self._places[entry.experiment, entry.version] = len(self.entries)
            self.entries.append(entry)
            self._tree.append(entry.leaf)

    def sign(self, body: bytes) -> str:
        """Enter a publication, and return the header that signs it."""
        facts = decode_publication(body).round
        self.enter(Entry(facts.experiment, facts.version, digest(body)))
        return self.identity.signature_header(digest(body))

    def head(self, size: int | None = None) -> Head:
        size = len(self.entries) if size is None else size
        return Head.sign(self.origin, size, self._tree.root(size), self.identity.key)

    def proof(self, experiment: str, version: int, block: int | None = None) -> Proof:
        """The proof of what was entered last of a version."""
        return make_proof(self._tree, self.head(), self._places[experiment, version], block)

    def consistency(self, first: int, second: int) -> list[str]:
        return [base64.b64encode(node).decode() for node in self._tree.consistency_proof(first, second)]

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Answer a question for a proof."""
        self.proofs += 1
        params = request.url.params
        block = int(params["block"]) if "block" in params else None
        proof = self.proof(params["experiment"], int(params["version"]), block)
        return httpx.Response(200, content=msgspec.json.encode(proof))

    def transport(self, handler: Handler) -> httpx.MockTransport:
        """A way to a scripted server that signs what is a publication, and proves it."""

        def handle(request: httpx.Request) -> httpx.Response:
            if request.url.path.endswith("/log/proof"):
                return self.answer(request)
            response = handler(request)
            if request.method == "GET" and response.status_code == httpx.codes.OK:
                try:
                    response.headers[SIGNED_HEADER] = self.sign(response.content)
                except Malformed:
                    response.headers[SIGNED_HEADER] = self.identity.signature_header(digest(response.content))
            return response

        return httpx.MockTransport(handle)


NOTARY = Notary()
"""For tests that have no interest in it."""


def notarized(handler: Handler) -> httpx.MockTransport:
    """A way to a scripted server that `NOTARY` vouches for."""
    return NOTARY.transport(handler)
