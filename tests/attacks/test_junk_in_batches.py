"""Somebody without a name sends random bytes of the right size: the experiment must not pay for it."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from privateer_core.wire.publication import Round, decode_publication
from privateer_shuffler.delivery import Forwarding
from tests.support.answers import fact
from tests.support.phased import tables
from tests.support.sealing import sealed_reports
from tests.support.server_and_shuffler import Losing, Pair, pair
from tests.support.servers import ADMIN, PHASED, SHUFFLED

SHORT = {**SHUFFLED, "experiment.horizon": 300}


def facts_of(publication: bytes) -> Round:
    return decode_publication(publication).round


def junk(round_: Round, people: int) -> list[bytes]:
    return [os.urandom(round_.report_size) for _ in range(people)]


async def flood(services: Pair, publication: bytes, batches: int) -> None:
    """Fill whole batches with random bytes."""
    round_ = facts_of(publication)
    for _ in range(batches):
        await services.uploads(publication, junk(round_, round_.batch))


async def settled(services: Pair, refused: int) -> dict[str, Any]:
    """The experiment once so many reports of batches did not open."""
    async with asyncio.timeout(20):
        while (facts := await services.api.facts())["refused"].get("unopenable", 0) < refused:
            await asyncio.sleep(0.005)
    return facts


async def forwarded(answers: list[bool], batches: int) -> None:
    """The shuffler has ended its work on so many batches: the server may have learned from one before."""
    async with asyncio.timeout(20):
        while len(answers) < batches:
            await asyncio.sleep(0.005)


async def test_random_bytes_do_not_use_up_an_experiment(tmp_path: Path) -> None:
    """600 of them against an experiment for 300 people: all 300 are learned from afterwards."""
    async with pair(tmp_path) as services:
        await services.api.create(SHORT)
        first = await services.api.publication()
        await flood(services, first, 6)
        facts = await settled(services, 600)
        assert (facts["version"], facts["status"], facts["accepted"]) == (1, "open", 0)
        for version in (1, 2, 3):
            publication = await services.api.publication()
            assert await services.uploads(publication, sealed_reports(publication, 100, seed=version)) == 100
            await services.version(version + 1)
        facts = await services.api.facts()
        assert (facts["status"], facts["accepted"]) == ("finished", 300)
        state = (await services.api.client.get("/experiments/test/state")).json()["answer"]
        assert (state["rounds"], state["people"]) == (3, 300)


async def test_reports_beside_junk_are_not_thrown_away(tmp_path: Path) -> None:
    """30 of a batch's 100 are junk: it waits for another batch, and both are learned from together."""
    async with pair(tmp_path) as services:
        await services.api.create(SHUFFLED)
        publication = await services.api.publication()
        people = sealed_reports(publication, 170)
        await services.uploads(publication, junk(facts_of(publication), 30))
        assert await services.uploads(publication, people) == 170
        facts = await services.version(2)
        assert (facts["accepted"], facts["refused"]) == (170, {"unopenable": 30})
        state = (await services.api.client.get("/experiments/test/state")).json()["answer"]
        assert (state["rounds"], state["people"]) == (1, 170)


async def phased(services: Pair, people: int) -> bytes:
    body = tables({**PHASED, "experiment.people": people}, "shuffle")
    assert (await services.api.client.post("/experiments", json=body, headers=ADMIN)).status_code == 201
    return await services.api.publication()


async def draw(services: Pair) -> dict[str, Any]:
    return dict((await services.api.client.get("/experiments/test/policy")).json()["policy"]["shows"]["draw"])


async def test_random_bytes_do_not_fail_a_phased_experiment(tmp_path: Path) -> None:
    """A phase that they filled asks other people, and is learned from."""
    async with pair(tmp_path) as services:
        first = await phased(services, 1000)
        before = await draw(services)
        await flood(services, first, 1)
        facts = await services.version(2)
        assert (facts["status"], facts["batch"]) == ("open", facts_of(first).batch)
        after = await draw(services)
        assert after == {**before, "start": before["places"]}  # the next people of the same order
        second = await services.api.publication()
        assert await services.uploads(second, sealed_reports(second, facts_of(second).batch)) == facts_of(second).batch
        await services.version(3)
        state = (await services.api.client.get("/experiments/test/state")).json()["answer"]
        assert (state["rounds"], state["status"], fact(state, "people asked")) == (1, "learning", 2 * before["places"])
        rows = (await services.api.client.get("/experiments/test/privacy")).json()["rounds"]
        assert [row["released"] for row in rows[:2]] == [False, True]


async def test_a_phased_experiment_fails_when_nobody_is_left_to_ask(tmp_path: Path) -> None:
    async with pair(tmp_path) as services:
        publication = await phased(services, 200)
        version, asked = 1, 0
        while (round_ := facts_of(publication)).batch:
            asked += (await draw(services))["places"]
            await flood(services, publication, 1)
            version += 1
            await services.version(version)
            publication = await services.api.publication()
        facts = await services.api.facts()
        assert (facts["status"], facts["accepted"]) == ("failed", 0)
        assert asked <= 200 < asked + facts_of(await first_publication(services)).batch
        del round_


async def first_publication(services: Pair) -> bytes:
    accept = {"accept": "application/msgpack"}
    return (await services.api.client.get("/experiments/test/policy/1", headers=accept)).content


@pytest.mark.parametrize("restart", [False, True])
async def test_a_batch_whose_answer_was_lost_counts_once(
    tmp_path: Path, restart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has it, the shuffler does not know: the same bytes again, and the same answer, even after restarts."""
    monkeypatch.setattr("privateer_shuffler.delivery._FIRST_PAUSE", 0.01)
    answers: list[bool] = []
    run = Forwarding.run

    async def noted(self: Forwarding, *pool: Any) -> bool:
        answers.append(await run(self, *pool))
        return answers[-1]

    monkeypatch.setattr(Forwarding, "run", noted)
    way = Losing(10_000 if restart else 3)
    async with pair(tmp_path, way) as services:
        await services.api.create(SHUFFLED)
        publication = await services.api.publication()
        people = sealed_reports(publication, 160)
        await services.uploads(publication, junk(facts_of(publication), 40) + people[:60])
        await settled(services, 40)
        if not restart:
            assert await services.uploads(publication, people[60:]) == 100
            facts = await services.version(2)
            await forwarded(answers, 2)
    if restart:
        assert way.batches
        way.lost = 0
        async with pair(tmp_path, way) as services:
            assert await services.uploads(publication, people[60:]) == 100
            facts = await services.version(2)
            await forwarded(answers, 2)
    assert (facts["accepted"], facts["refused"]) == (160, {"unopenable": 40})
    assert answers == [False, True]
    assert len(set(way.batches)) == 2
