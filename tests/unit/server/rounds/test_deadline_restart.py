"""A deadline that passes while the server is away, and a shuffler that holds the batch meanwhile."""

import asyncio
import random
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER
from privateer_core.wire.publication import decode_publication
from tests.support.clocks import Hands
from tests.support.phased import tables
from tests.support.sealing import body_of, permuted, sealed_reports
from tests.support.servers import ADMIN, Api
from tests.unit.server.rounds.conftest import Serving

SHORT = {
    "experiment.horizon": 600,
    "algorithm.alpha": 0.2,
    "algorithm.participants_factor": 20,
    "recruitment.timeout_seconds": 60,
    "recruitment.extensions": 0,
    "recruitment.min_response_rate": 0.5,
    "privacy.min_batch": 12,
}


async def open_phase(api: Api) -> bytes:
    await api.client.post("/experiments", json=tables(SHORT, "shuffle"), headers=ADMIN)
    return await api.publication()


async def wait_for_checks(api: Api) -> dict[str, Any]:
    """The experiment's facts after some looks at its deadline."""
    await asyncio.sleep(0.2)
    return await api.facts()


async def test_a_batch_that_could_not_be_delivered_still_counts(
    serve: Serving, clock: Hands, shuffler_key: Ed25519PrivateKey
) -> None:
    async with serve() as api:
        publication = await open_phase(api)
    min_reports = decode_publication(publication).round.least
    body = body_of(publication, permuted(publication, sealed_reports(publication, min_reports), random.Random(0)))
    clock.time += 1000
    async with serve() as api:
        assert (await wait_for_checks(api))["version"] == 1
        headers = {SIGNATURE_HEADER: BATCH.sign(body, shuffler_key)}
        answer = await api.client.post("/batches", content=body, headers=headers)
        assert (answer.status_code, answer.json()["accepted"]) == (202, min_reports)
        assert (await wait_for_checks(api))["status"] == "open"


@pytest.mark.usefixtures("shuffler_key")
async def test_a_round_without_a_delivery_is_given_up(serve: Serving, clock: Hands) -> None:
    async with serve() as api:
        await open_phase(api)
    clock.time += 1000
    async with serve() as api:
        assert (await wait_for_checks(api))["status"] == "open"
        clock.time += 60
        async with asyncio.timeout(20):
            while (await api.facts())["status"] != "failed":
                await asyncio.sleep(0.01)
