"""Devices that report long after they chose, through the SDK, the server and a shuffler."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from privateer.wire.publication import decode_publication
from privateer_client import AsyncClient, Ledger, Outcome
from tests.integration.test_changes import CONTEXT, Routed
from tests.support.changes import change
from tests.support.clocks import Hands
from tests.support.devices import EVERYTHING
from tests.support.pair import Pair, pair
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import SHUFFLED, SMALL

HOUR = 3600.0
CENTRAL = {**SMALL, "privacy.model": "central", "privacy.delta": 1e-6}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "trusted").mkdir()
    return tmp_path


def device(services: Pair, folder: Path, clock: Hands) -> AsyncClient:
    """The application, started anew."""
    return AsyncClient(
        "http://server",
        shuffler="http://shuffler",
        limits=EVERYTHING,
        ledger=Ledger(folder / "device.db", clock=clock),
        transport=Routed(services),
        clock=clock,
    )


async def closes(services: Pair, people: int) -> None:
    """Others fill the round."""
    publication = await services.api.publication()
    if decode_publication(publication).round.endpoint == "server":
        for sealed in sealed_reports(publication, people):
            body = body_of(publication, [sealed])
            answer = await services.api.client.post("/reports", content=body, auth=lambda unsigned: unsigned)
            assert answer.status_code == 202
        async with asyncio.timeout(20):
            while (await services.api.facts())["version"] == 1:
                await asyncio.sleep(0.005)
    else:
        await services.uploads(publication, sealed_reports(publication, people))
        await services.version(2)


@pytest.mark.parametrize("window", [0.0, HOUR])
@pytest.mark.parametrize(("changes", "people"), [(SMALL, 20), (SHUFFLED, 100), (CENTRAL, 20)])
async def test_a_choice_of_an_earlier_round_is_counted_in_the_open_one(
    folder: Path, changes: dict[str, Any], people: int, window: float
) -> None:
    async with pair(folder) as services:
        await services.api.create({**changes, "experiment.conversion_window": window})
        clock = Hands()
        session = await device(services, folder, clock).join("test")
        session.choose(CONTEXT)
        session.save()
        await closes(services, people)
        clock.time += 2 * HOUR
        if window:
            assert await device(services, folder, clock).resend() == {"test": Outcome.ACCEPTED}
        else:
            assert await (await device(services, folder, clock).resume("test")).report(1.0) is Outcome.ACCEPTED
        (paid,) = Ledger(folder / "device.db").payments()
        assert paid.version == 2


async def test_a_stopped_experiment_gets_nothing_that_was_due(folder: Path) -> None:
    async with pair(folder) as services:
        await services.api.create({**SMALL, "experiment.conversion_window": HOUR})
        clock = Hands()
        (await device(services, folder, clock).join("test")).choose(CONTEXT)
        await change(services.api, "stop")
        clock.time += 2 * HOUR
        assert await device(services, folder, clock).resend() == {"test": Outcome.PENDING}
        clock.time += 24 * HOUR
        assert await device(services, folder, clock).resend() == {"test": Outcome.NOT_ASKED}
        assert Ledger(folder / "device.db").payments() == []
