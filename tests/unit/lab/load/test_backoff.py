"""A load run polls an unreachable server seldom, and sends again to a full round."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privateer_core.errors import RoundClosed, Unavailable
from privateer_core.wire.problem import problem_body
from privateer_core.wire.publication import report_header
from privateer_lab.load import driver
from privateer_lab.load.endpoints import Backoff
from privateer_lab.load.wire import Wire
from privateer_server.rounds.open_round import open_first_round
from tests.support.phased import phased_spec

KEY = X25519PrivateKey.generate().public_key().public_bytes_raw()


@dataclass
class Away:
    """Services that accept a phase and then do not respond."""

    questions: int = 0
    bytes_sent: int = 0
    name: str = "test"
    is_paused: bool = False
    backoff: Backoff = field(default_factory=Backoff)

    async def fetch(self, old: bytes | None) -> bytes | None:
        self.questions += 1
        await asyncio.sleep(0)
        return open_first_round(phased_spec(), KEY).publication if old is None else None

    async def counts(self) -> None:
        return None

    async def send(self, *report: Any) -> tuple[int, dict[str, int]]:
        return int(report[2]), {}


async def test_an_unreachable_server_is_requested_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_POLICY_TIMEOUT_SECONDS", 1.0)
    wire: Any = Away()
    result = await driver.Driver(wire, {"name": "linear"}, 0).run(None, 1, 10, lambda _: None)
    assert (result.over, result.accepted) == (False, 2)
    assert 2 <= wire.questions <= 7


async def test_reports_to_a_full_round_are_sent_again_until_accepted_or_closed() -> None:
    """Two responses to retry later, a partial acceptance, then the rest; then a round that has closed."""
    full = problem_body(Unavailable("the round is full", remedy="send the same bytes again later"))
    closed = problem_body(RoundClosed("closed"), refused={"round-closed": 5})
    answers = [
        (503, full),
        (429, b""),
        (202, b'{"accepted": 3, "refused": {"unavailable": 2}}'),
        (202, b'{"accepted": 2, "refused": {"duplicate-report": 3}}'),
        (503, full),
        (409, closed),
    ]
    bodies: list[bytes] = []

    async def endpoint(request: web.Request) -> web.Response:
        bodies.append(await request.read())
        status, body = answers.pop(0)
        return web.Response(status=status, body=body)

    async def facts(_: web.Request) -> web.Response:
        return web.json_response({"experiment": "test", "batch_size": 10})

    app = web.Application()
    app.router.add_get("/experiments/test", facts)
    app.router.add_post("/experiments/test/reports", endpoint)
    async with TestServer(app, host="127.0.0.1") as server:
        url = str(server.make_url(""))
        first = open_first_round(phased_spec(), KEY)
        header = report_header(first.round, first.digest)
        async with Wire.open("test", url, url, 1, None) as wire:
            assert await wire.send(header, b"sealed", 5, "shuffler") == (5, {})
            assert len(set(bodies)) == 1 < len(bodies)
            assert await wire.send(header, b"others", 5, "shuffler") == (0, {"round-closed": 5})
    assert answers == []


async def test_a_policy_fetched_in_a_pause_requests_no_report() -> None:
    wire: Any = Away(is_paused=True)
    result = await driver.Driver(wire, {"name": "linear"}, 0)._fetch_next(None)
    assert not result.is_report_requested
