"""Reports in shares for tests, and a helper's bodies about them."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_client.share_sealer import ShareSealer
from privateer_core import codec
from privateer_core.mechanisms.shared_votes import SharedVotes
from privateer_core.privacy.trust import TRUST
from privateer_core.wire.batch import CLOSING, OPENING, SIGNATURE_HEADER, Purpose
from privateer_core.wire.publication import decode_publication
from privateer_core.wire.share_keys import sealing_public_key
from privateer_core.wire.shares import decode_closing
from privateer_shuffler.helper.helper import Helper, OpenedBatch, _Policy
from tests.support.sealing import body_of, header_for, plain_reports
from tests.support.servers import Api

SHARED = {
    "privacy.model": "split",
    "privacy.delta": 1e-6,
    "experiment.round_size": 20,
    "experiment.horizon": 200,
}
"""Changes to a spec: ten rounds of 20 people, under two servers."""


def serve_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the services of this process run `split`."""
    monkeypatch.setitem(TRUST, "split", msgspec.structs.replace(TRUST["split"], is_served=True))


def mechanism_of(publication: bytes) -> SharedVotes:
    """The mechanism of a published round of votes in shares."""
    return codec.decode(decode_publication(publication).policy, _Policy).terms.mechanism


def signing_public_key(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def sealer_of(publication: bytes, signing_key: bytes) -> ShareSealer:
    """Return the sealer of a device's votes to a server, and to the shuffler with this public key."""
    facts = decode_publication(publication).round
    return ShareSealer(facts, header_for(publication), mechanism_of(publication), sealing_public_key(signing_key))


def votes_of(publication: bytes, count: int, seed: int = 0) -> Any:
    """Votes of ``count`` people with uniform contexts and rewards."""
    return np.frombuffer(b"".join(plain_reports(publication, count, seed)), dtype=mechanism_of(publication).message)


def shared_reports(publication: bytes, count: int, signing_key: bytes, seed: int = 0) -> list[bytes]:
    """Reports in shares of ``count`` people."""
    sealer, votes = sealer_of(publication, signing_key), votes_of(publication, count, seed)
    return [sealer.seal(votes[index : index + 1]) for index in range(count)]


@dataclass
class Shuffler:
    """A shuffler without a pool, which does with a batch whatever a test wants.

    Attributes
    ----------
    opened
        The last batch that it has opened.
    """

    api: Api
    key: Ed25519PrivateKey
    opened: OpenedBatch | None = field(default=None, init=False)

    @property
    def helper(self) -> Helper:
        return Helper(self.key)

    async def post(self, path: str, body: bytes, purpose: Purpose) -> httpx.Response:
        headers = {SIGNATURE_HEADER: purpose.sign(body, self.key)}
        return await self.api.client.post(path, content=body, headers=headers)

    async def send_opening(self, body: bytes) -> httpx.Response:
        return await self.post("/openings", body, OPENING)

    async def send_closing(self, body: bytes) -> httpx.Response:
        return await self.post("/closings", body, CLOSING)

    async def open(self, publication: bytes, reports: list[bytes]) -> httpx.Response:
        """Open a batch, and send its opening."""
        self.opened = self.helper.open_batch(publication, body_of(publication, reports))
        return await self.send_opening(self.opened.opening)

    def close(self, answer: bytes, **changes: Any) -> bytes:
        """Return the closing of the last batch, with changes."""
        assert self.opened is not None
        body = self.helper.close_batch(self.opened, answer, hashlib.sha256(self.opened.opening).digest())
        return msgspec.msgpack.encode(msgspec.structs.replace(decode_closing(body), **changes)) if changes else body
