"""Sends requests that are ready, over many connections, with next to no work of its own."""

import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from functools import partial
from itertools import cycle
from typing import Final, cast
from urllib.parse import urlsplit

import uvloop

_CONNECTIONS: Final = 256
_END_OF_HEADERS: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length:"
_STATUS: Final = slice(9, 12)
"""Where the status stands in ``HTTP/1.1 200 OK``."""


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

    Raises
    ------
    OSError
        If a service is not there or closes a connection.
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
