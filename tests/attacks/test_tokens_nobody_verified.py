"""A disk that is full makes the shuffler forget a token that it has just spent: nobody gets in by its nonce alone.

A spent token's signature is not looked at again: whoever asks about a report whose answer was lost costs little so.
Its nonce admits nothing else, whatever has become of it when the body is there.
"""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from privateer_core.wire.token import Challenge, authorization
from privateer_shuffler.app import create_app
from privateer_shuffler.pool.round_file import RoundStore
from privateer_shuffler.settings import ShufflerSettings
from tests.attacks.test_tokens_at_the_shuffler import Gated, one
from tests.support.asgi import serving
from tests.support.issuing import ISSUER, ORIGIN, minted
from tests.support.issuing import settings as tokens
from tests.unit.shuffler.fake_server import FakeServer, body_of
from tests.unit.shuffler.helpers import assert_problem


def forged(token: bytes, name: str) -> bytes:
    """A token of an experiment with the nonce of another one's, which no issuer signed."""
    return token[:34] + Challenge(ISSUER, ORIGIN, name).digest + token[66:98] + bytes(256)


async def test_a_nonce_that_is_taken_back_admits_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, keys = FakeServer(), tokens(tmp_path / "tokens", "spring", "autumn")
    settings = ShufflerSettings(
        server_url="http://server",
        data=tmp_path / "data",
        public_key_file=tmp_path / "shuffler.pub",
        min_batch=2,
        tokens=keys,
    )
    asked, sends = asyncio.Event(), asyncio.Event()
    writing, fails = threading.Event(), threading.Event()

    def full(*_: object) -> None:
        writing.set()
        fails.wait(20)
        raise sqlite3.OperationalError("database or disk is full")

    async with serving(create_app(settings, httpx.ASGITransport(server.app))) as client:
        shuffler, token = Gated(client, server), minted("spring")
        spring, autumn = server.publish("spring", batch=50), server.publish("autumn", batch=50)
        for name in ("spring", "autumn"):
            await client.get(f"/experiments/{name}")
        sealed = one()

        async def slowly() -> AsyncIterator[bytes]:
            asked.set()
            await sends.wait()
            yield body_of(autumn, [one()])

        with monkeypatch.context() as broken:
            broken.setattr(RoundStore, "commit", full)
            own = asyncio.create_task(shuffler.report(spring, sealed, token))
            assert await asyncio.to_thread(writing.wait, 20)
            headers = {"authorization": authorization(forged(token, "autumn"))}
            page = "/experiments/autumn/reports"
            other = asyncio.create_task(client.post(page, content=slowly(), headers=headers, auth=httpx.Auth()))
            await asyncio.wait_for(asked.wait(), 20)
            fails.set()
            assert_problem(await own, 503, "unavailable")
        sends.set()
        # It may be a device that asks about its own report: the same bytes are looked at anew when they come again.
        assert_problem(await other, 503, "unavailable")
        answer = await client.post(page, content=body_of(autumn, [one()]), headers=headers, auth=httpx.Auth())
        assert_problem(answer, 401, "token-invalid")
        assert (await shuffler.report(spring, sealed, token)).status_code == 202
