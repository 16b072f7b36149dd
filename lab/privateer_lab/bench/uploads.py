"""Reports that are sealed ahead and sent over many connections: a benchmark measures those who take them alone."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Sequence
from functools import partial
from itertools import cycle
from typing import Final, NamedTuple, cast
from urllib.parse import urlsplit

import numpy as np
import uvloop
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_client.participation import Participation
from privateer_core.privacy.trust import TRUST
from privateer_core.spec.spec import Spec
from privateer_core.wire.batch import UPLOAD
from privateer_core.wire.envelope import MEDIA_TYPE, Envelope, encode_envelope
from privateer_lab.load.driver import LIMITS
from privateer_lab.services.demo import demo_spec

_CONNECTIONS: Final = 256
_END_OF_HEADERS: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length:"
_STATUS: Final = slice(9, 12)
"""Where the status stands in ``HTTP/1.1 200 OK``."""


class Sealed(NamedTuple):
    """Sealed reports of one round's people."""

    bodies: list[bytes]  # the bodies of their uploads
    requests: list[bytes]  # whole HTTP requests with these bodies
    seconds: float  # processor time that it took to decide, randomize and seal, of all people


def bench_spec(name: str, endpoint: str, people: int, rounds: int = 2) -> Spec:
    """Return the spec of an experiment with rounds of so many people, whose devices randomize and report there."""
    spec = demo_spec(rounds * people, name=name, round_size=people, round_growth=0.0)
    trust = next(one for one in TRUST.values() if one.endpoint == endpoint and not one.curated)
    changes = {"model": trust.name, "delta": spec.privacy.delta if trust.batched else 0.0}
    return spec.model_copy(update={"privacy": spec.privacy.model_copy(update=changes)})


def seal_round(publication: bytes, name: str, people: int, batch: int, key: Ed25519PrivateKey) -> Sealed:
    """Make the uploads of people who answer the round of a publication, ``batch`` people's reports in each."""
    part = Participation(publication, name, LIMITS)
    started = time.process_time()
    reports = _reports(part, people)
    seconds = time.process_time() - started
    path = "/reports" if part.round.endpoint == "server" else f"/experiments/{name}/reports"
    bodies = [
        encode_envelope(Envelope(part.header, b"".join(reports[start : start + batch])))
        for start in range(0, people, batch)
    ]
    requests = [_request(path, one, key if batch > 1 else None) for one in bodies]
    return Sealed(bodies, requests, seconds)


def _reports(part: Participation, people: int) -> list[bytes]:
    rng = np.random.default_rng(1)
    contexts, coins = rng.random((people, len(part.spec.features))), part.coins(people)
    decisions = part.decide(contexts, coins)
    return part.reports(contexts, coins, decisions, rng.random(people))


def _request(path: str, body: bytes, key: Ed25519PrivateKey | None) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: bench", f"Content-Type: {MEDIA_TYPE}", f"Content-Length: {len(body)}"]
    if key is not None:
        lines.append(f"{UPLOAD.header}: {UPLOAD.sign(body, key)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


class _Connection(asyncio.Protocol):
    """Sends one request after the other; each waits for the answer to the one before."""

    def __init__(self, requests: deque[bytes], statuses: Counter[int], ended: asyncio.Future[None]) -> None:
        self._requests, self._statuses, self._ended = requests, statuses, ended
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, found, body = self._answer.partition(_END_OF_HEADERS)
        if not found or len(body) < _content_length(head):
            return
        self._statuses[int(head[_STATUS])] += 1
        self._answer = b""
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_exception(error or ConnectionResetError())

    def _send(self) -> None:
        if self._requests:
            self._transport.write(self._requests.popleft())
        else:
            self._ended.set_result(None)
            self._transport.close()


def _content_length(head: bytes) -> int:
    """Return the length of an answer's body; answers without a body may leave it out."""
    for line in head.lower().split(b"\r\n"):
        if line.startswith(_LENGTH):
            return int(line[len(_LENGTH) :])
    return 0


def send_all(url: str | Sequence[str], requests: list[bytes], connections: int = _CONNECTIONS) -> Counter[int]:
    """Send whole HTTP requests to a service, or to several; return how many answers of each status came.

    Of several each has as many connections, and whoever answers sooner is sent more.
    """
    urls = [url] if isinstance(url, str) else url
    return uvloop.run(_sent(urls, deque(requests), min(connections, len(requests))))


async def _sent(urls: Sequence[str], requests: deque[bytes], connections: int) -> Counter[int]:
    loop, statuses = asyncio.get_running_loop(), Counter[int]()
    places = [(urlsplit(url).hostname or "", urlsplit(url).port or 80) for url in urls]
    ends: list[asyncio.Future[None]] = [loop.create_future() for _ in range(connections)]
    for place, ended in zip(cycle(places), ends):
        await loop.create_connection(partial(_Connection, requests, statuses, ended), *place)
    await asyncio.gather(*ends)
    return statuses
