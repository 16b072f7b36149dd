"""Devices get upload tokens ahead, spend each once, and are counted: at both endpoints, and under kills."""

import asyncio
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_client import AsyncClient
from privateer_client.ledger.ledger import Ledger
from privateer_client.states import ReportStatus
from privateer_core.privacy.terms_verification import Limits
from privateer_core.wire.attestation import HEADER
from privateer_core.wire.problem import read_slug
from privateer_core.wire.token import Challenge, PendingToken, read_authorization
from privateer_core.wire.token_keys import Directory
from privateer_lab.load.driver import LIMITS, run_load
from privateer_lab.services.processes import IssuerProcess, free_port, run_services
from tests.integration.test_kills import Killer, create
from tests.integration.test_pipeline import count_held
from tests.integration.test_pipeline import facts as facts_of
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import SHUFFLED, SMALL
from tests.support.specs import SHUFFLE, make_spec
from tests.support.tokens import Trio, trio

CONTEXT = {"x1": 0.5, "x2": 0.5}


def device(services: Trio, name: str = "one", limits: Limits = LIMITS) -> AsyncClient:
    """A device with a ledger of its own."""
    ledger = Ledger(services.folder / f"{name}.db")
    urls = {"shuffler": "http://shuffler", "issuer": "http://issuer"}
    return AsyncClient("http://server", **urls, limits=limits, ledger=ledger, transport=services.ways)


@pytest.mark.parametrize(("changes", "host"), [(SHUFFLED, "shuffler"), (SMALL, "server")])
async def test_four_lines_are_enough(tmp_path: Path, changes: dict[str, Any], host: str) -> None:
    async with trio(tmp_path) as services:
        await services.create(changes)
        async with device(services) as client:
            session = await client.join("test")
            await session.choose(CONTEXT)
            assert await session.report(1.0) is ReportStatus.ACCEPTED
        (upload,) = services.ways.to(host, "/reports")
        (request,) = services.ways.to("issuer", "/tokens")
        token = read_authorization(upload.headers["authorization"].encode())
        assert token.authenticator not in request.content
        assert services.ways.requests.index(request) < services.ways.requests.index(upload)


async def test_tokens_can_be_fetched_ahead(tmp_path: Path) -> None:
    async with trio(tmp_path) as services:
        await services.create(SHUFFLED)
        async with device(services) as client:
            assert await client.fetch_tokens("test") == 1
            assert await client.fetch_tokens("test") == 1
        n_requests = len(services.ways.requests)
        async with device(services) as client:
            session = await client.join("test")
            await session.choose(CONTEXT)
            assert await session.report(1.0) is ReportStatus.ACCEPTED
        assert {request.url.host for request in services.ways.requests[n_requests:]} == {"server", "shuffler"}
        assert len(services.ways.to("issuer", "/tokens")) == 1


async def test_a_whole_batch_is_learned_from(tmp_path: Path) -> None:
    async with trio(tmp_path) as services:
        publication = await services.create(SHUFFLED)
        for sealed in sealed_reports(publication, 100):
            answer = await services.upload(body_of(publication, [sealed]), await services.token())
            assert answer.status_code == 202
        async with asyncio.timeout(30):
            while (facts := (await services.http.get("http://server/experiments/test")).json())["version"] == 1:
                await asyncio.sleep(0.01)
        assert (facts["accepted"], facts["refused"]) == (100, {})


def rows(path: Path, select: str) -> int:
    """What a query on a stopped service's database counts."""
    with closing(sqlite3.connect(path)) as database:
        return int(database.execute(select).fetchone()[0])


@pytest.mark.nightly
@pytest.mark.parametrize(("victim", "people"), [("shuffler", 400), ("server", 400)])
def test_kills_lose_no_report_and_spend_no_token_twice(tmp_path: Path, victim: str, people: int) -> None:
    """Each participant has a token and reports to a round: all reports are there once after kills."""
    is_shuffled, issuing = victim == "shuffler", IssuerProcess("test", free_port())
    sizes = {"experiment.horizon": 10_000, "experiment.round_size": 2000}
    model = {**SHUFFLE, "privacy.min_batch": 1000} if is_shuffled else {}
    with run_services(tmp_path, free_port(), free_port(), quiet=True, issuing=issuing) as at:
        create(at, make_spec({**model, **sizes}))
        killer = Killer(at, [victim], random.Random(5))
        with killer.at_work():
            result = run_load("test", at.server, at.shuffler, users=people, batch=1, concurrency=8, issuer=at.issuer)
        accepted = facts_of(at)["accepted"]
    assert killer.kills > 0
    assert (result.accepted, dict(result.refused)) == (people, {})
    if is_shuffled:
        (store,) = (tmp_path / "shuffler").glob("*.db")
        assert count_held(tmp_path / "shuffler") == people
        assert rows(store, "SELECT count(DISTINCT token) FROM token WHERE taken") == people
    else:
        assert accepted == people
        assert rows(tmp_path / "server" / "server.db", "SELECT count(*) FROM spent_tokens") == people


SHOP = "https://shop.example"


def test_pages_of_a_named_origin_read_every_answer(tmp_path: Path) -> None:
    """A browser asks ahead about the token's headers, and hides an answer that names no origin: also a refusal."""
    (tmp_path / "secrets").write_text("ab" * 32)
    issuing = IssuerProcess("test", free_port(), "hmac", tmp_path / "secrets")
    with run_services(tmp_path, free_port(), free_port(), quiet=True, issuing=issuing, origins=SHOP) as at:
        pages = {
            f"{at.issuer}/experiments/test/tokens": (f"content-type,{HEADER}", "attestation-refused"),
            f"{at.shuffler}/experiments/test/reports": ("authorization,content-type", "token-missing"),
            f"{at.server}/reports": ("authorization,content-type", "token-missing"),
        }
        (key,) = Directory.decode(httpx.get(f"{at.issuer}/token-keys").content).keys("test")
        request = PendingToken.draw(Challenge("issuer", "shuffler", "test"), key).request
        for page, (headers, reason) in pages.items():
            preflight = {"access-control-request-method": "POST", "access-control-request-headers": headers}
            response = httpx.options(page, headers=preflight | {"origin": SHOP})
            assert (response.status_code, response.headers["access-control-allow-origin"]) == (200, SHOP)
            allowed = response.headers["access-control-allow-headers"].lower().split(", ")
            assert set(headers.split(",")) <= set(allowed)
            for origin, named in ((SHOP, SHOP), ("https://other.example", None)):
                refused = httpx.post(page, headers={"origin": origin}, content=request)
                assert (read_slug(refused.content), refused.headers.get("access-control-allow-origin")) == (
                    reason,
                    named,
                )
                assert refused.headers["vary"] == "Origin"
        keys = httpx.get(f"{at.shuffler}/experiments/test/token-keys", headers={"origin": SHOP})
        assert (keys.status_code, keys.headers["access-control-allow-origin"]) == (200, SHOP)
