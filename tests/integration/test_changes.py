"""Changes to running experiments, with devices in flight, through the SDK, the server and a shuffler."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_client import AsyncClient, Ledger, Outcome
from privateer_client.session import Session
from privateer_core.errors import Deleted
from privateer_core.privacy.record_verification import read_certificates
from tests.support.changes import change, changed, lines
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
        patience=0.0 if clock else 1.0,
        clock=clock,
    )


async def joined(services: Pair, ledger: Path, clock: Hands | None = None) -> Session[Any]:
    """A session of a device that has chosen."""
    session = await device(services, ledger, clock).join("test")
    await session.choose(CONTEXT)
    return session


@pytest.mark.parametrize(("action", "body"), CHANGES)
async def test_who_reports_at_that_moment_is_late_and_the_next_follows_the_change(
    folder: Path, action: str, body: Any
) -> None:
    async with pair(folder) as services:
        await services.api.create(SMALL)
        session = await joined(services, folder / "first.db", Hands())
        await changed(services.api, action, body)
        assert await session.report(1.0) is Outcome.LATE
        assert session.refusal == "round-closed"
        assert await session.report(1.0) is Outcome.ALREADY_REPORTED
        again = await joined(services, folder / "first.db")
        assert not again.asked  # one report a person, whatever changes
        other = await joined(services, folder / "second.db")
        asked = action not in ("pause", "stop")
        assert await other.report(1.0) is (Outcome.ACCEPTED if asked else Outcome.NOT_ASKED)
        assert bool(Ledger(folder / "second.db").payments()) == asked


@pytest.mark.parametrize(("action", "body"), CHANGES)
async def test_a_device_in_flight_reports_to_the_round_after_the_change(folder: Path, action: str, body: Any) -> None:
    """And pays nothing where there is none."""
    async with pair(folder) as services:
        await services.api.create(SMALL)
        clock = Hands()
        session = await joined(services, folder / "first.db", clock)
        await changed(services.api, action, body)
        clock.time += 60
        asks = action not in ("pause", "stop")
        assert await session.report(1.0) is (Outcome.ACCEPTED if asks else Outcome.NOT_ASKED)
        assert [paid.version for paid in Ledger(folder / "first.db").payments()] == ([2] if asks else [])


@pytest.mark.parametrize(
    ("action", "body"),
    [(action, {key: value for key, value in (body or {}).items() if key != "seconds"}) for action, body in CHANGES[2:]],
)
async def test_a_change_that_waits_costs_nobody_in_flight_anything(folder: Path, action: str, body: Any) -> None:
    async with pair(folder) as services:
        await services.api.create(SMALL)
        session = await joined(services, folder / "first.db")
        await changed(services.api, action, body)
        assert await session.report(1.0) is Outcome.ACCEPTED


async def test_who_comes_in_a_pause_pays_nothing_and_who_chose_before_is_counted(folder: Path) -> None:
    async with pair(folder) as services:
        await services.api.create(SMALL)
        session = await joined(services, folder / "first.db")
        await changed(services.api, "pause")
        comes = await device(services, folder / "second.db").join("test")
        assert await comes.choose(CONTEXT) in ("a", "b", "c")
        assert not comes.asked
        assert await comes.report(1.0) is Outcome.NOT_ASKED
        assert not Ledger(folder / "second.db").payments()
        assert await session.report(1.0) is Outcome.ACCEPTED
        await changed(services.api, "resume")
        back = await joined(services, folder / "second.db")
        assert await back.report(1.0) is Outcome.ACCEPTED


async def test_a_device_of_a_deleted_experiment_gets_a_clear_answer(folder: Path) -> None:
    async with pair(folder) as services:
        await services.api.create(SMALL)
        clock = Hands()
        session = await joined(services, folder / "first.db", clock)
        later = await joined(services, folder / "second.db", clock)
        await services.api.client.delete("/experiments/test", headers=ADMIN)
        assert await session.report(1.0) is Outcome.REFUSED
        assert session.refusal == "deleted"
        assert not Ledger(folder / "first.db").waiting()
        clock.time += 60
        assert await later.report(1.0) is Outcome.NOT_ASKED
        assert not Ledger(folder / "second.db").payments()
        with pytest.raises(Deleted, match="was deleted"):
            await device(services, folder / "second.db").join("test")


async def shuffled(services: Pair) -> bytes:
    """A shuffled experiment, claimed by its shuffler."""
    assert (await services.api.create(SHUFFLED)).status_code == 201
    return await services.api.publication()


async def test_a_shuffled_round_stays_open_in_a_pause(folder: Path) -> None:
    async with pair(folder) as services:
        first = await shuffled(services)
        assert await services.uploads(first, sealed_reports(first, 60)) == 60
        await changed(services.api, "pause")
        session = await device(services, folder / "first.db").join("test")
        assert not session.asked
        assert await services.uploads(first, sealed_reports(first, 40, seed=1)) == 40
        facts = await services.version(2)
        assert facts | {"status": "paused", "batch": 0, "accepted": 100} == facts
        await changed(services.api, "resume")
        third = await services.api.publication()
        assert await services.uploads(third, sealed_reports(third, 100, seed=2)) == 100
        facts = await services.version(4)
        assert facts | {"status": "open", "accepted": 200} == facts
        read_certificates((await services.api.client.get("/experiments/test/privacy")).json())


async def test_a_shuffled_round_that_is_ended_is_given_up_and_the_shuffler_follows(folder: Path) -> None:
    async with pair(folder) as services:
        first = await shuffled(services)
        assert await services.uploads(first, sealed_reports(first, 60)) == 60
        await changed(services.api, "retire-arm", {"arm": "b", "seconds": 0})
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


def held(folder: Path) -> list[Path]:
    """The databases of the rounds that a shuffler holds."""
    return [path for path in (folder / "shuffler").glob("*.db") if len(path.stem) == 64]


async def test_a_shuffler_erases_what_it_held_for_a_deleted_experiment(folder: Path) -> None:
    async with pair(folder) as services:
        first = await shuffled(services)
        assert await services.uploads(first, sealed_reports(first, 60)) == 60
        assert held(folder)
        await services.api.client.delete("/experiments/test", headers=ADMIN)
        async with asyncio.timeout(20):
            while held(folder):
                await asyncio.sleep(0.01)
        answer = await services.upload(first, sealed_reports(first, 1)[0])
        assert_problem(answer, 410, "deleted")
    async with pair(folder) as services:
        answer = await services.upload(first, sealed_reports(first, 1)[0])
        assert_problem(answer, 410, "deleted")


async def test_a_shuffler_gives_up_a_full_batch_of_a_deleted_experiment(folder: Path) -> None:
    way = Losing(lost=10**6)
    async with pair(folder, way) as services:
        first = await shuffled(services)
        assert await services.uploads(first, sealed_reports(first, 100)) == 100
        async with asyncio.timeout(20):
            while way.lost == 10**6:
                await asyncio.sleep(0.01)
        await services.api.client.delete("/experiments/test", headers=ADMIN)
        way.lost = 0
        async with asyncio.timeout(20):
            while held(folder):
                await asyncio.sleep(0.01)


async def test_what_is_learned_moves_on_with_a_clone(folder: Path) -> None:
    async with pair(folder) as services:
        await services.api.create(SMALL)
        await joined(services, folder / "first.db")
        assert (await change(services.api, "clone", {"name": "other"})).status_code == 201
        one = device(services, folder / "first.db")
        for name in ("test", "other"):  # two experiments: each is paid for
            session = await one.join(name)
            await session.choose(CONTEXT)
            assert await session.report(1.0) is Outcome.ACCEPTED
        assert len(Ledger(folder / "first.db").payments()) == 2
