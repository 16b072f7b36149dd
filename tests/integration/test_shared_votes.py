"""Devices, shuffler and server count votes in shares end to end, in one process over HTTP."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_client import AsyncClient, Ledger
from privateer_client.states import ReportStatus
from privateer_core.errors import KeyChanged, TermsRefused, Unavailable
from privateer_core.privacy.certificate import recompute
from privateer_core.privacy.record_verification import read_certificates
from privateer_core.privacy.terms_verification import Limits
from privateer_core.wire.problem import read_slug
from privateer_core.wire.publication import decode_publication
from tests.integration.test_changes import Routed
from tests.support.server_and_shuffler import Losing, Pair, pair
from tests.support.servers import ADMIN
from tests.support.shares import SHARED, serve_split, shared_reports
from tests.support.specs import tables

ROUNDS = {**SHARED, "experiment.round_size": 4, "experiment.horizon": 40}
TRIAL = {"algorithm": {"name": "trial"}, "experiment.round_size": 60, "experiment.horizon": 600}
BANDIT = {"algorithm": {"name": "bandit"}}
LIMITS = Limits(epsilon=1.0, delta=1e-6)


async def shuffler_key(services: Pair) -> bytes:
    return bytes.fromhex((await services.shuffler.get("/keys")).json()["public_key"])


def device(services: Pair, folder: Path, number: int, transport: Any = None, **options: Any) -> AsyncClient:
    urls = {"shuffler": "http://shuffler"} | options
    ledger = Ledger(folder / f"{number}.db")
    return AsyncClient("http://server", **urls, limits=LIMITS, ledger=ledger, transport=transport or Routed(services))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    serve_split(monkeypatch)
    (tmp_path / "trusted").mkdir()
    return tmp_path


@pytest.mark.parametrize("changes", [{}, TRIAL, BANDIT], ids=["partition", "trial", "bandit"])
async def test_devices_report_in_shares_and_every_report_is_counted_once(folder: Path, changes: Any) -> None:
    async with pair(folder) as services:
        spec = tables(ROUNDS | changes)
        if changes:  # both look at nobody
            del spec["context"]
        created = await services.api.client.post("/experiments", json=spec, headers=ADMIN)
        assert created.status_code == 201, created.text
        sizes = list[int]()
        for version in (1, 2):
            publication = await services.api.publication()
            size = decode_publication(publication).round.batch_size
            sizes.append(size)
            for number in (0, 1):
                session = await device(services, folder, 2 * version + number).join("test")
                await session.choose(dict.fromkeys(session.features, 0.3))
                assert await session.report(1.0) is ReportStatus.ACCEPTED
            others = shared_reports(publication, size - 2, await shuffler_key(services), version)
            assert await services.uploads(publication, others) == size - 2
            assert (await services.version(version + 1))["accepted"] == sum(sizes)
        record = (await services.api.client.get("/experiments/test/privacy")).json()
        assert [(row["received"], row["released"]) for row in record["rounds"][:2]] == [(size, True) for size in sizes]
        assert all(verdict.holds for each in read_certificates(record).values() for verdict in recompute(each))


async def test_invalid_reports_are_counted_by_reason_and_others_all_the_same(folder: Path) -> None:
    async with pair(folder) as services:
        await services.api.create(SHARED)
        publication = await services.api.publication()
        reports = shared_reports(publication, 20, await shuffler_key(services))
        reports[2] = reports[2][:-1] + bytes([reports[2][-1] ^ 1])  # the leader's share does not open
        reports[5] = reports[5][:90] + bytes([reports[5][90] ^ 1]) + reports[5][91:]  # the helper's
        duplicate = reports[7][:-1] + bytes([reports[7][-1] ^ 1])  # of a nonce that is held
        assert await services.uploads(publication, reports[:19]) == 19
        answer = await services.upload(publication, duplicate)
        assert (answer.status_code, read_slug(answer.content)) == (409, "duplicate-report")
        assert await services.uploads(publication, reports[19:]) == 1
        facts = await services.version(2)
        assert (facts["accepted"], facts["refused"]) == (18, {"decryption-failed": 2})


async def test_lost_answers_change_no_closing_and_count_nothing_twice(folder: Path) -> None:
    """The server takes three closings whose answers are lost: all are the same bytes, with the same noise."""
    way = LosingShares(3)
    async with pair(folder, way) as services:
        await services.api.create(SHARED)
        publication = await services.api.publication()
        await services.uploads(publication, shared_reports(publication, 20, await shuffler_key(services)))
        facts = await services.version(2)
        assert facts["accepted"] == 20
        async with asyncio.timeout(20):
            while len(way.batches) < 4:
                await asyncio.sleep(0.005)
        assert len(set(way.batches)) == 1


class LosingShares(Losing):
    """A way on which answers to closings are lost, and openings are noted."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert self.inner is not None
        is_closing = request.url.path == "/closings"
        if is_closing:
            self.batches.append(await request.aread())
        answer = await self.inner.handle_async_request(request)
        if is_closing and self.n_lost:
            self.n_lost -= 1
            raise httpx.ReadTimeout("the answer is lost")
        return answer


async def test_a_slow_server_gets_its_batch_when_it_is_back(folder: Path) -> None:
    way = Down()
    async with pair(folder, way) as services:
        await services.api.create(SHARED)
        publication = await services.api.publication()
        reports = shared_reports(publication, 20, await shuffler_key(services))
        assert await services.uploads(publication, reports[:10]) == 10
        way.is_down = True
        assert await services.uploads(publication, reports[10:]) == 10
        assert (await services.shuffler.get("/healthz")).status_code == 200
        assert (await services.api.facts())["version"] == 1
        way.is_down = False
        assert (await services.version(2))["accepted"] == 20


class Down(Losing):
    """A way to the server that is interrupted at times."""

    def __init__(self) -> None:
        super().__init__(0)
        self.is_down = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert self.inner is not None
        if self.is_down:
            raise httpx.ConnectError("down")
        return await self.inner.handle_async_request(request)


class Forging(Routed):
    """A way of a device on which somebody shows it another shuffler's key."""

    def __init__(self, services: Pair, body: bytes) -> None:
        super().__init__(services)
        self._body = body

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.host == "shuffler" and request.url.path == "/keys":
            return httpx.Response(200, content=self._body)
        return await super().handle_async_request(request)


async def report(client: AsyncClient) -> ReportStatus:
    session = await client.join("test")
    await session.choose({"x1": 0.3, "x2": 0.9})
    return await session.report(1.0)


async def test_a_device_keeps_the_shufflers_first_key(folder: Path) -> None:
    async with pair(folder) as services:
        await services.api.create(SHARED)
        client = device(services, folder, 0)
        assert await report(client) is ReportStatus.ACCEPTED
        ledger = Ledger(folder / "0.db")
        known = ledger.servers.get("http://shuffler")
        assert known is not None
        assert known.key == await shuffler_key(services)
        for name in ("test-2", "test"):
            await services.api.create({**SHARED, "experiment.name": name})
        session = await device(services, folder, 0, Forging(services, b'{"public_key": "%s"}' % (b"11" * 32))).join(
            "test-2"
        )
        await session.choose({"x1": 0.3, "x2": 0.9})
        with pytest.raises(KeyChanged, match="another key"):
            await session.report(1.0)


async def test_a_device_refuses_a_shuffler_that_is_the_server(folder: Path) -> None:
    """One party with both shares would have the vote: neither the same address nor the same key is taken."""
    async with pair(folder) as services:
        await services.api.create(SHARED)
        with pytest.raises(TermsRefused, match="one party"):
            await device(services, folder, 1, shuffler="http://server").join("test")
        with pytest.raises(TermsRefused, match="needs a shuffler"):
            await device(services, folder, 3, shuffler=None).join("test")
        identity = (await services.api.client.get("/log/key")).json()["key"]
        with pytest.raises(TermsRefused, match="one party"):
            await report(device(services, folder, 2, Forging(services, b'{"public_key": "%s"}' % identity.encode())))


@pytest.mark.parametrize("body", [b"", b"{}", b'{"public_key": "zz"}', b'{"public_key": "01%s"}' % (b"00" * 31)])
async def test_people_get_an_arm_while_the_shuffler_shows_no_key_and_report_later(folder: Path, body: bytes) -> None:
    async with pair(folder) as services:
        await services.api.create(SHARED)
        session = await device(services, folder, 1, Forging(services, body)).join("test")
        assert await session.choose({"x1": 0.3, "x2": 0.9}) in ("a", "b", "c")
        with suppress(Unavailable):
            assert await session.report(1.0) is not ReportStatus.ACCEPTED
        assert await (await device(services, folder, 1).resume("test")).report(1.0) is ReportStatus.ACCEPTED
