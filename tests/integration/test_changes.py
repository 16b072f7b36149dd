"""Changes to running experiments, with devices in flight, through the SDK, the server and a shuffler."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_client import AsyncClient, Ledger, ReportStatus
from privateer_client.session import Session
from privateer_core.errors import Deleted
from privateer_core.privacy.record_verification import read_certificates
from tests.support.changes import change, lines, make_change
from tests.support.clocks import Hands
from tests.support.devices import EVERYTHING
from tests.support.sealing import sealed_reports
from tests.support.server_and_shuffler import Losing, Pair, pair
from tests.support.servers import ADMIN, SHUFFLED, SMALL, assert_problem

CONTEXT = {"x1": 0.3, "x2": 0.7}
CHANGES: list[tuple[str, dict[str, Any] | None]] = [
    ("pause", {"seconds": 0}),
    ("stop", None),
    ("extend", {"horizon": 5000, "seconds": 0}),
    ("retire-arm", {"arm": "b", "seconds": 0}),
    ("add-arm", {"arm": "d", "seconds": 0}),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "trusted").mkdir()
    return tmp_path


class Routed(httpx.AsyncBaseTransport):
    """What a device reaches: the server and the shuffler, by their names."""

    def __init__(self, services: Pair) -> None:
        self._ways = {"server": services.api.client, "shuffler": services.shuffler}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on, without the test's signature."""
        way = self._ways[request.url.host]
        answer = await way.request(
            request.method,
            request.url.raw_path.decode(),
            content=await request.aread(),
            headers={key: value for key, value in request.headers.items() if key != "host"},
            auth=lambda plain: plain,
        )
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


def device(services: Pair, ledger: Path, clock: Hands | None = None) -> AsyncClient:
    """A device with a ledger of its own. While its clock stands still, it takes no second look at the round."""
    return AsyncClient(
        "http://server",
        shuffler="http://shuffler",
        limits=EVERYTHING,
        ledger=Ledger(ledger),
        transport=Routed(services),
        retry_timeout=0.0 if clock else 1.0,
        clock=clock,
    )


async def join_and_choose(services: Pair, ledger: Path, clock: Hands | None = None) -> Session[Any]:
    """A session of a device that has chosen."""
    session = await device(services, ledger, clock).join("test")
    await session.choose(CONTEXT)
    return session


@pytest.mark.parametrize(("action", "body"), CHANGES)
async def test_a_report_at_the_moment_of_a_change_is_late_and_the_next_device_follows_the_change(folder, action, body):
    async with pair(folder) as services:
        await services.api.create(SMALL)
        session = await join_and_choose(services, folder / "first.db", Hands())
        await make_change(services.api, action, body)
        assert await session.report(1.0) is ReportStatus.LATE
        assert session.refusal == "round-closed"
        assert await session.report(1.0) is ReportStatus.ALREADY_REPORTED
        resumed = await join_and_choose(services, folder / "first.db")
        assert not resumed.report_requested  # one report a person, whatever changes
        other = await join_and_choose(services, folder / "second.db")
        is_invited = action not in ("pause", "stop")
        assert await other.report(1.0) is (ReportStatus.ACCEPTED if is_invited else ReportStatus.NOT_REQUESTED)
        assert bool(Ledger(folder / "second.db").payments()) == is_invited


@pytest.mark.parametrize(("action", "body"), CHANGES)
async def test_a_device_in_flight_reports_to_the_round_after_the_change(folder: Path, action: str, body: Any) -> None:
    """And pays nothing if there is no such round."""
    async with pair(folder) as services:
        await services.api.create(SMALL)
        clock = Hands()
        session = await join_and_choose(services, folder / "first.db", clock)
        await make_change(services.api, action, body)
        clock.time += 60
        asks = action not in ("pause", "stop")
        assert await session.report(1.0) is (ReportStatus.ACCEPTED if asks else ReportStatus.NOT_REQUESTED)
        assert [payment.version for payment in Ledger(folder / "first.db").payments()] == ([2] if asks else [])


@pytest.mark.parametrize(
    ("action", "body"),
    [(action, {key: value for key, value in (body or {}).items() if key != "seconds"}) for action, body in CHANGES[2:]],
)
async def test_a_change_that_waits_costs_devices_in_flight_nothing(folder: Path, action: str, body: Any) -> None:
    async with pair(folder) as services:
        await services.api.create(SMALL)
        session = await join_and_choose(services, folder / "first.db")
        await make_change(services.api, action, body)
        assert await session.report(1.0) is ReportStatus.ACCEPTED


async def test_devices_that_come_in_a_pause_pay_nothing_and_earlier_choices_are_counted(folder: Path) -> None:
    async with pair(folder) as services:
        await services.api.create(SMALL)
        session = await join_and_choose(services, folder / "first.db")
        await make_change(services.api, "pause")
        comes = await device(services, folder / "second.db").join("test")
        assert await comes.choose(CONTEXT) in ("a", "b", "c")
        assert not comes.report_requested
        assert await comes.report(1.0) is ReportStatus.NOT_REQUESTED
        assert not Ledger(folder / "second.db").payments()
        assert await session.report(1.0) is ReportStatus.ACCEPTED
        await make_change(services.api, "resume")
        back = await join_and_choose(services, folder / "second.db")
        assert await back.report(1.0) is ReportStatus.ACCEPTED


async def test_a_device_of_a_deleted_experiment_gets_a_clear_answer(folder: Path) -> None:
    async with pair(folder) as services:
        await services.api.create(SMALL)
        clock = Hands()
        session = await join_and_choose(services, folder / "first.db", clock)
        later = await join_and_choose(services, folder / "second.db", clock)
        await services.api.client.delete("/experiments/test", headers=ADMIN)
        assert await session.report(1.0) is ReportStatus.REFUSED
        assert session.refusal == "deleted"
        assert not Ledger(folder / "first.db").pending_reports()
        clock.time += 60
        assert await later.report(1.0) is ReportStatus.NOT_REQUESTED
        assert not Ledger(folder / "second.db").payments()
        with pytest.raises(Deleted, match="was deleted"):
            await device(services, folder / "second.db").join("test")


async def create_shuffled(services: Pair) -> bytes:
    """A shuffled experiment, claimed by its shuffler."""
    assert (await services.api.create(SHUFFLED)).status_code == 201
    return await services.api.publication()


async def test_a_shuffled_round_stays_open_in_a_pause(folder: Path) -> None:
    async with pair(folder) as services:
        first = await create_shuffled(services)
        assert await services.uploads(first, sealed_reports(first, 60)) == 60
        await make_change(services.api, "pause")
        session = await device(services, folder / "first.db").join("test")
        assert not session.report_requested
        assert await services.uploads(first, sealed_reports(first, 40, seed=1)) == 40
        facts = await services.version(2)
        assert facts | {"status": "paused", "batch_size": 0, "accepted": 100} == facts
        await make_change(services.api, "resume")
        third = await services.api.publication()
        assert await services.uploads(third, sealed_reports(third, 100, seed=2)) == 100
        facts = await services.version(4)
        assert facts | {"status": "open", "accepted": 200} == facts
        read_certificates((await services.api.client.get("/experiments/test/privacy")).json())


async def test_a_shuffled_round_that_is_ended_is_given_up_and_the_shuffler_follows(folder: Path) -> None:
    async with pair(folder) as services:
        first = await create_shuffled(services)
        assert await services.uploads(first, sealed_reports(first, 60)) == 60
        await make_change(services.api, "retire-arm", {"arm": "b", "seconds": 0})
        second = await services.api.publication()
        assert await services.uploads(second, sealed_reports(second, 100, seed=2)) == 100
        facts = await services.version(3)
        assert facts["accepted"] == 100
        late = await services.upload(first, sealed_reports(first, 1)[0])
        assert_problem(late, 409, "round-closed")
        rows = (await services.api.client.get("/experiments/test/privacy")).json()["rounds"]
        assert [(row["version"], row["received"], row["released"]) for row in rows] == [
            (1, 0, False),
            (2, 100, True),
            (3, 0, False),
        ]
        assert await lines(services.api) == [("create", 1, 1), ("retire-arm", 1, 2)]


def held_rounds(folder: Path) -> list[Path]:
    """The databases of the rounds that a shuffler holds."""
    return [path for path in (folder / "shuffler").glob("*.db") if len(path.stem) == 64]


async def test_a_shuffler_erases_the_reports_of_a_deleted_experiment(folder: Path) -> None:
    async with pair(folder) as services:
        first = await create_shuffled(services)
        assert await services.uploads(first, sealed_reports(first, 60)) == 60
        assert held_rounds(folder)
        await services.api.client.delete("/experiments/test", headers=ADMIN)
        async with asyncio.timeout(20):
            while held_rounds(folder):
                await asyncio.sleep(0.01)
        answer = await services.upload(first, sealed_reports(first, 1)[0])
        assert_problem(answer, 410, "deleted")
    async with pair(folder) as services:
        answer = await services.upload(first, sealed_reports(first, 1)[0])
        assert_problem(answer, 410, "deleted")


async def test_a_shuffler_gives_up_a_full_batch_of_a_deleted_experiment(folder: Path) -> None:
    way = Losing(n_lost=10**6)
    async with pair(folder, way) as services:
        first = await create_shuffled(services)
        assert await services.uploads(first, sealed_reports(first, 100)) == 100
        async with asyncio.timeout(20):
            while way.n_lost == 10**6:
                await asyncio.sleep(0.01)
        await services.api.client.delete("/experiments/test", headers=ADMIN)
        way.n_lost = 0
        async with asyncio.timeout(20):
            while held_rounds(folder):
                await asyncio.sleep(0.01)


async def test_a_clone_of_an_experiment_costs_a_second_payment(folder: Path) -> None:
    async with pair(folder) as services:
        await services.api.create(SMALL)
        await join_and_choose(services, folder / "first.db")
        assert (await change(services.api, "clone", {"name": "other"})).status_code == 201
        client = device(services, folder / "first.db")
        for name in ("test", "other"):  # two experiments: each is paid for
            session = await client.join(name)
            await session.choose(CONTEXT)
            assert await session.report(1.0) is ReportStatus.ACCEPTED
        assert len(Ledger(folder / "first.db").payments()) == 2
