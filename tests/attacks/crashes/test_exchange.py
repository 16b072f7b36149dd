"""Two servers die at a step of their exchange of a batch: nothing is lost or doubled, and noise is drawn once.

The services die together: what both have on disk at that moment is copied, and nothing that they do afterwards reaches
the other. Then they start on the copies.
"""

from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_server.intake.leader import Leader
from privateer_server.store.journal import Journal
from privateer_server.store.openings import Openings
from privateer_shuffler.helper.helper import Helper
from privateer_shuffler.pool.placed_round import PlacedRound
from tests.support.crashes import snapshot_at
from tests.support.server_and_shuffler import Losing, pair
from tests.support.shares import SHARED, serve_split, shared_reports

STEPS = [
    (PlacedRound, "find_closing"),
    (Helper, "open_batch"),
    (Openings, "record"),
    (Leader, "_open"),
    (Helper, "close_batch"),
    (PlacedRound, "store_closing"),
    (Leader, "_join"),
    (Journal, "record_publication"),
    (PlacedRound, "erase"),
]
"""What is done for a batch, in order."""


class Dying(Losing):
    """A way to the server on which nothing passes any more once a copy of both services was made."""

    def __init__(self, copy: Path) -> None:
        super().__init__(0)
        self._copy, self.closings = copy, list[bytes]()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert self.inner is not None
        if self._copy.exists():
            raise httpx.ConnectError("dead")
        if request.url.path == "/closings":
            self.closings.append(await request.aread())
        answer = await self.inner.handle_async_request(request)
        if self._copy.exists():
            raise httpx.ReadError("dead")
        return answer


@pytest.mark.parametrize("after", [pytest.param(False, marks=pytest.mark.nightly), True], ids=["before", "after"])
@pytest.mark.parametrize(("owner", "method"), STEPS, ids=[method for _, method in STEPS])
async def test_a_death_at_a_step_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, method: str, after: bool
) -> None:
    serve_split(monkeypatch)
    first, copy = tmp_path / "first", tmp_path / "copy"
    (first / "trusted").mkdir(parents=True)
    way = Dying(copy)
    async with pair(first, way) as services:
        await services.api.create(SHARED)
        publication = await services.api.publication()
        key = bytes.fromhex((await services.shuffler.get("/keys")).json()["public_key"])
        reports = shared_reports(publication, 20, key)
        assert await services.uploads(publication, reports[:19]) == 19
        is_copied = snapshot_at(monkeypatch, owner, method, first, copy, after=after)
        assert await services.uploads(publication, reports[19:]) == 1
        await wait_for(is_copied)
    monkeypatch.undo()
    serve_split(monkeypatch)
    first_closings = list(way.closings)
    way = Dying(tmp_path / "never")
    async with pair(copy, way) as services:
        facts = await services.version(2)
        assert facts["accepted"] == 20
        assert facts["refused"] == {}
        record = (await services.api.client.get("/experiments/test/privacy")).json()
        assert [row["received"] for row in record["rounds"]][:1] == [20]
    closings = {*first_closings, *way.closings}
    assert len(closings) <= 1, "a batch has one closing, with one noise, whoever died"


async def wait_for(is_copied: Any) -> None:
    import asyncio

    async with asyncio.timeout(20):
        while not is_copied():
            await asyncio.sleep(0.005)


async def test_a_batch_is_decided_once_whatever_the_server_says_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second answer to a repeated opening would give the server a sum of different people with fresh noise."""
    serve_split(monkeypatch)
    (tmp_path / "trusted").mkdir()
    way = Unfair()
    async with pair(tmp_path, way) as services:
        await services.api.create(SHARED)
        publication = await services.api.publication()
        key = bytes.fromhex((await services.shuffler.get("/keys")).json()["public_key"])
        await services.uploads(publication, shared_reports(publication, 20, key))
        await services.version(2)
    assert len(way.batches) == 3
    assert len(set(way.batches)) == 1
    assert way.n_openings == 1


class Unfair(Losing):
    """A server that pretends not to have had the first two closings."""

    def __init__(self) -> None:
        super().__init__(2)
        self.n_openings = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert self.inner is not None
        self.n_openings += request.url.path == "/openings"
        if request.url.path == "/closings":
            self.batches.append(await request.aread())
            if self.n_lost:
                self.n_lost -= 1
                return httpx.Response(503, json={"type": "x#unavailable"})
        return await self.inner.handle_async_request(request)
