"""Answers of services to good and bad uploads: recorded from both services, with known keys and seeds."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import msgspec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privateer_core.wire.publication import (
    Envelope,
    Header,
    decode_publication,
    digest,
    encode_envelope,
    hpke_info,
    report_header,
)
from privateer_server.intake import decryption
from privateer_server.rounds import open_round
from tests.documents.hpke import seal
from tests.support.server_and_shuffler import Pair, pair
from tests.support.servers import ADMIN, SHUFFLED, SMALL
from tests.support.specs import tables

_EXPERIMENTS: dict[str, dict[str, Any]] = {
    "open": SMALL,
    "shuffled": SHUFFLED,
    "over": {"experiment.round_size": 2, "experiment.horizon": 2},
    "gone": SMALL,
}


def files() -> dict[str, Any]:
    """Return the content of the file, by its name."""
    with tempfile.TemporaryDirectory() as folder, _known_randomness():
        return {"uploads": asyncio.run(_record_answers(Path(folder)))}


@contextmanager
def _known_randomness() -> Iterator[None]:
    keys = (X25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in range(1, 100))
    with (
        patch.object(decryption, "X25519PrivateKey", wraps=X25519PrivateKey) as key_class,
        patch.object(open_round.secrets, "randbits", lambda _: 7),
    ):
        key_class.generate = lambda: next(keys)
        yield


class _Round:
    """A published round, and what people make for it."""

    def __init__(self, publication: bytes) -> None:
        self.publication, self.facts = publication, decode_publication(publication).round
        self.header = report_header(self.facts, digest(publication))

    def sealed(self, number: int, message: bytes | None = None, **changes: Any) -> bytes:
        """A report of the person of this number; ``changes`` are to the header that it is bound to."""
        if message is None:
            message = bytes(self.facts.sealed_size - 64)
        info = hpke_info(_change_header(self.header, **changes), self.facts.model)
        ephemeral = X25519PrivateKey.from_private_bytes(bytes([number, 9]) * 16)
        return seal(bytes([number]) * 16 + message, self.facts.public_key, info, ephemeral)

    def body(self, sealed: bytes, **changes: Any) -> bytes:
        """The envelope of sealed reports."""
        return encode_envelope(Envelope(_change_header(self.header, **changes), sealed))


def _change_header(header: Header, **changes: Any) -> Header:
    """A header with other fields."""
    return msgspec.structs.replace(header, **changes)


async def _record_answers(folder: Path) -> dict[str, Any]:
    async with pair(folder) as services:
        rounds = {name: _Round(await _create_experiment(services, name)) for name in _EXPERIMENTS}
        await services.api.client.delete("/experiments/gone", headers=ADMIN)
        answers = [await _record_answer(services, *upload) for upload in _uploads(rounds)]
    return {"publications": {name: turn.publication.hex() for name, turn in rounds.items()}, "uploads": answers}


async def _create_experiment(services: Pair, name: str) -> bytes:
    changes = {**_EXPERIMENTS[name], "experiment.name": name}
    response = await services.api.client.post("/experiments", json=tables(changes), headers=ADMIN)
    assert response.status_code == 201, response.text
    return await services.api.publication(name)


def _uploads(rounds: dict[str, _Round]) -> Iterator[tuple[str, str, bytes]]:
    """Yield the uploads in order: a description, the path and the body."""
    local, shuffled, over = rounds["open"], rounds["shuffled"], rounds["over"]
    good, message, header = local.body(local.sealed(1)), local.facts.sealed_size - 64, local.header
    yield "a report", "/reports", good
    yield "the same bytes again", "/reports", good
    yield "another report with the same id", "/reports", local.body(local.sealed(1, bytes(message - 1) + b"\1"))
    yield "nothing", "/reports", b""
    yield "a truncated body", "/reports", good[:-1]
    yield "a byte too many", "/reports", good + b"\0"
    yield "a map in the place of the envelope", "/reports", msgspec.msgpack.encode({"header": 1})
    yield "a key id of 7 bytes", "/reports", msgspec.msgpack.encode([["open", 1, b"7" * 7, header.digest], b""])
    yield "a version of 0", "/reports", msgspec.msgpack.encode([["open", 0, header.key_id, header.digest], b""])
    yield "no report", "/reports", local.body(b"")
    yield "half a report", "/reports", local.body(local.sealed(2)[:-10])
    yield "two people's reports, unsigned", "/reports", local.body(local.sealed(2) + local.sealed(3))
    yield "another key", "/reports", local.body(local.sealed(2), key_id=b"k" * 8)
    yield "another publication", "/reports", local.body(local.sealed(2), digest=b"d" * 32)
    yield "a version to come", "/reports", local.body(local.sealed(2), version=2)
    yield "bound to another version", "/reports", local.body(local.sealed(2, version=2))
    yield "bound to another experiment", "/reports", local.body(local.sealed(2, experiment="over"))
    yield "a flipped bit", "/reports", local.body(local.sealed(2)[:-1] + bytes([local.sealed(2)[-1] ^ 1]))
    yield "no symbol of the round", "/reports", local.body(local.sealed(4, bytes(message - 2) + b"\xff\xff"))
    yield "an age that no version has", "/reports", local.body(local.sealed(5, b"\5\0" + bytes(message - 2)))
    yield "no such experiment", "/reports", local.body(local.sealed(2), experiment="nobody")
    yield "a deleted experiment", "/reports", rounds["gone"].body(rounds["gone"].sealed(1))
    yield "a report for the shuffler", "/reports", shuffled.body(shuffled.sealed(1))
    yield "the first of two people", "/reports", over.body(over.sealed(1))
    yield "the second of two people", "/reports", over.body(over.sealed(2))
    yield "a closed version", "/reports", over.body(over.sealed(3))
    yield "a shuffled report", "/experiments/shuffled/reports", shuffled.body(shuffled.sealed(1))
    yield "the same shuffled bytes again", "/experiments/shuffled/reports", shuffled.body(shuffled.sealed(1))
    yield "a report for the server", "/experiments/open/reports", good
    yield "another name than the address", "/experiments/shuffled/reports", good
    yield "no envelope for the shuffler", "/experiments/shuffled/reports", b"\xc1"


async def _record_answer(services: Pair, name: str, path: str, body: bytes) -> dict[str, Any]:
    client: httpx.AsyncClient = services.api.client if path == "/reports" else services.shuffler
    answer = await client.post(path, content=body, auth=_unsigned)
    fields = answer.json()
    entry = {"name": name, "path": path, "body": body.hex(), "status": answer.status_code}
    return entry | {key: fields[key] for key in ("type", "accepted", "refused") if key in fields}


def _unsigned(request: httpx.Request) -> httpx.Request:
    return request
