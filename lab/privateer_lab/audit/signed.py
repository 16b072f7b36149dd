"""A server of one publication, which it signs and proves to be in its log, as devices demand."""

import httpx
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.wire.identity import SIGNED_HEADER, Identity
from privateer_core.wire.merkle import MerkleTree
from privateer_core.wire.publication import decode_publication, digest
from privateer_core.wire.transparency_log import Entry, Head, prove

_ORIGIN = f"privateer/log/{0:016x}"


class SignedPublication:
    """Answers devices that ask for a publication, or for its place in the log."""

    def __init__(self, publication: bytes) -> None:
        self._publication, identity, tree = publication, Identity(Ed25519PrivateKey.generate()), MerkleTree()
        facts, name = decode_publication(publication).round, digest(publication)
        tree.append(Entry(facts.experiment, facts.version, name).leaf)
        head = Head.sign(_ORIGIN, 1, tree.root(1), identity.key)
        self._proof, self._signed = msgspec.json.encode(prove(tree, head, 0, None)), identity.signed(name)

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Answer a GET."""
        if request.url.path.endswith("/log/proof"):
            return httpx.Response(200, content=self._proof)
        return httpx.Response(200, content=self._publication, headers={SIGNED_HEADER: self._signed})
