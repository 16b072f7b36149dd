"""The learning server answers without end, or with a few bytes that become very many."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from privateer_core.errors import Unavailable
from privateer_shuffler import delivery
from privateer_shuffler.delivery import Upstream

MIB = 1 << 20
ENDLESS = 400
"""Pieces of 1 MiB that a server would send, if somebody took them."""


class Pieces(httpx.AsyncByteStream):
    """A body that counts what was taken of it."""

    def __init__(self, piece: Callable[[], bytes], pieces: int, pause: float = 0.0) -> None:
        self._piece, self._pieces, self._pause = piece, pieces, pause
        self.taken = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(self._pieces):
            self.taken += 1
            await asyncio.sleep(self._pause)
            yield self._piece()


def asked(status: int, body: Pieces, headers: dict[str, str] | None = None) -> Upstream:
    return Upstream(
        "http://server", httpx.MockTransport(lambda _: httpx.Response(status, headers=headers, stream=body))
    )


CALLS: dict[str, Callable[[Upstream], object]] = {
    "key": lambda server: server.check(),
    "publication": lambda server: server.publication("spring"),
    "delivery": lambda server: server.deliver("test", b"batch", "0" * 128),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(("status", "most"), [(200, 65), (409, 1), (500, 1)])
async def test_a_body_without_end_is_cut_off(call: str, status: int, most: int) -> None:
    """A publication has 64 MiB at most, whatever else a server says 64 KiB."""
    body = Pieces(lambda: bytes(MIB), ENDLESS)
    with pytest.raises(Unavailable):
        await CALLS[call](asked(status, body))  # type: ignore[misc]
    assert body.taken <= most


@pytest.mark.parametrize("call", CALLS)
async def test_a_compressed_body_is_not_unpacked(call: str) -> None:
    packed = gzip.compress(bytes(64 * MIB))
    body = Pieces(lambda: packed, 1)
    with pytest.raises(Unavailable, match="compressed"):
        await CALLS[call](asked(200, body, {"content-encoding": "gzip"}))  # type: ignore[misc]
    assert body.taken == 0


async def test_a_body_that_trickles_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then keeps any time limit for a single read from running out."""
    monkeypatch.setattr(delivery, "_ANSWER_SECONDS", 0.2)
    body = Pieces(lambda: b"x", 10**6, pause=0.02)
    async with asyncio.timeout(20):
        with pytest.raises(Unavailable):
            await asked(200, body).publication("spring")


async def test_the_shuffler_asks_for_no_compression() -> None:
    asked_for: list[str] = []

    def note(request: httpx.Request) -> httpx.Response:
        asked_for.append(request.headers["accept-encoding"])
        return httpx.Response(404)

    with pytest.raises(Unavailable, match="answered 404"):
        await Upstream("http://server", httpx.MockTransport(note)).check()
    assert asked_for == ["identity"]
