"""Devices that report long after they chose, through the SDK, the server and a shuffler."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from privateer_client import AsyncClient, Ledger, ReportStatus
from privateer_core.wire.publication import decode_publication
from tests.integration.test_changes import CONTEXT, Routed
from tests.support.changes import change
from tests.support.clocks import Hands
from tests.support.devices import EVERYTHING
from tests.support.sealing import body_of, sealed_reports
from tests.support.server_and_shuffler import Pair, pair
from tests.support.servers import ADMIN, SHUFFLED, SMALL

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


async def close_round(services: Pair, people: int, version: int = 1) -> None:
    """Others fill the round of a version."""
    publication = await services.api.publication()
    if decode_publication(publication).round.endpoint == "server":
        for sealed in sealed_reports(publication, people):
            body = body_of(publication, [sealed])
            answer = await services.api.client.post("/reports", content=body, auth=lambda unsigned: unsigned)
            assert answer.status_code == 202
        async with asyncio.timeout(20):
            while (await services.api.facts())["version"] == version:
                await asyncio.sleep(0.005)
    else:
        await services.uploads(publication, sealed_reports(publication, people))
        await services.version(version + 1)


@pytest.mark.parametrize("window", [0.0, HOUR])
@pytest.mark.parametrize(("changes", "people"), [(SMALL, 20), (SHUFFLED, 100), (CENTRAL, 20)])
async def test_a_choice_of_an_earlier_round_is_counted_in_the_open_one(folder, changes, people, window):
    async with pair(folder) as services:
        await services.api.create({**changes, "experiment.conversion_window_seconds": window})
        clock = Hands()
        session = await device(services, folder, clock).join("test")
        await session.choose(CONTEXT)
        await session.save()
        await close_round(services, people)
        clock.time += 2 * HOUR
        if window:
            assert await device(services, folder, clock).flush() == {"test": ReportStatus.ACCEPTED}
        else:
            assert await (await device(services, folder, clock).resume("test")).report(1.0) is ReportStatus.ACCEPTED
        (payment,) = Ledger(folder / "device.db").payments()
        assert payment.version == 2


async def test_a_stopped_experiment_gets_no_report_that_was_due(folder: Path) -> None:
    async with pair(folder) as services:
        await services.api.create({**SMALL, "experiment.conversion_window_seconds": HOUR})
        clock = Hands()
        await (await device(services, folder, clock).join("test")).choose(CONTEXT)
        await change(services.api, "stop")
        clock.time += 2 * HOUR
        assert await device(services, folder, clock).flush() == {"test": ReportStatus.PENDING}
        clock.time += 24 * HOUR
        assert await device(services, folder, clock).flush() == {"test": ReportStatus.NOT_REQUESTED}
        assert Ledger(folder / "device.db").payments() == []


NUMBERS = {name: {"low": 0.0, "high": 1.0} for name in ("x1", "x2")}
ARMS = {"name": "test", "arms": ["a", "b"], "horizon": 1000, "round_size": 20, "conversion_window_seconds": HOUR}
MODELS = {
    "local": {"epsilon": 4.0},
    "shuffle": {"epsilon": 1.0, "delta": 1e-6, "min_batch": 100, "local_epsilon_max": 1.0},
    "central": {"epsilon": 1.0, "delta": 1e-6},
}
FAMILIES: dict[str, dict[str, Any]] = {
    "linear": {"context": {"features": NUMBERS}, "algorithm": {"name": "linear"}},
    "generalized-linear": {"context": {"features": NUMBERS}, "algorithm": {"name": "linear", "link": "logistic"}},
    "sparse": {"context": {"features": ["x1", "x2"]}, "algorithm": {"name": "sparse", "sparsity": 1}},
    "convex": {
        "domain": {"dimension": 2},
        "algorithm": {"name": "convex", "feedback": "two-point", "lipschitz": 2.0, "strong_convexity": 1.0},
    },
}
GIVEN: dict[str, dict[str, float]] = {"sparse": {f"{x} of {arm}": 0.3 for arm in "ab" for x in NUMBERS}, "convex": {}}


def tables_of(family: str, model: str) -> dict[str, Any]:
    """The tables of a spec whose devices wait for an hour."""
    size = 100 if model == "shuffle" else 600 if family == "sparse" else 20
    experiment = ARMS | {"horizon": 10 * size, "round_size": size}
    if family == "convex":
        del experiment["arms"]
    return {"experiment": experiment, "privacy": {"model": model, **MODELS[model]}, **FAMILIES[family]}


@pytest.mark.parametrize(
    ("family", "model"),
    [
        ("linear", "local"),
        ("linear", "shuffle"),
        ("linear", "central"),
        ("generalized-linear", "local"),
        ("sparse", "central"),
        ("convex", "local"),
        ("convex", "shuffle"),
    ],
)
@pytest.mark.battery
async def test_late_vectors_are_counted_once_and_none_is_lost(folder: Path, family: str, model: str) -> None:
    """Three people choose, two rounds of others close, and they report."""
    tables = tables_of(family, model)
    size, context = tables["experiment"]["round_size"], GIVEN.get(family, CONTEXT)
    async with pair(folder) as services:
        assert (await services.api.client.post("/experiments", json=tables, headers=ADMIN)).status_code == 201
        folders, clock = [folder / str(device_folder) for device_folder in range(3)], Hands()
        for device_folder in folders:
            device_folder.mkdir()
            session = await device(services, device_folder, clock).join("test")
            await session.choose(context)
            await session.report({"first": 0.5, "second": 0.4} if family == "convex" else 1.0)
        for version in (1, 2):
            await close_round(services, size, version)
        before = (await services.api.facts())["accepted"]
        clock.time += 2 * HOUR
        for device_folder in folders:
            assert await device(services, device_folder, clock).flush() == {"test": ReportStatus.ACCEPTED}
            assert await device(services, device_folder, clock).flush() == {}, "a report is made once"
            (payment,) = Ledger(device_folder / "device.db").payments()
            assert (payment.version, payment.epsilon) == (3, MODELS[model]["epsilon"])
        await close_round(services, size - 3, 3)
        facts = await services.api.facts()
        assert (before, facts["accepted"], facts["refused"]) == (2 * size, 3 * size, {})
        state = (await services.api.client.get("/experiments/test/state")).json()["answer"]
        assert state["people"] == 3 * size, "all of them were learned from"
