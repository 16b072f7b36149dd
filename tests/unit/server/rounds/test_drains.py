"""After the horizon, late reports are accepted for one window, and then the experiment is finished."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_client.participation import Participation
from privateer_core.clock import SystemClock
from privateer_core.policies.gain_policy import GainPolicy
from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER
from privateer_core.wire.publication import decode_publication
from privateer_server.app import create_app
from privateer_server.rounds.schedule import Schedule
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.changes import arms_played, change, make_change, record_holds, report
from tests.support.clocks import Hands
from tests.support.devices import EVERYTHING
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import SHUFFLED, SMALL, Api, assert_problem

WINDOW = 1000.0
OVER = WINDOW * 1.01 + 1
WAITING = {"experiment.horizon": 40, "experiment.conversion_window_seconds": WINDOW}
LOCAL = SMALL | WAITING
CENTRAL = LOCAL | {"privacy.model": "central", "privacy.delta": 1e-6}
SHUFFLE = SHUFFLED | WAITING | {"experiment.horizon": 250}


@pytest.fixture(autouse=True)
def check_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privateer_server.rounds.background_checks._CHECK_INTERVAL_SECONDS", 0.01)


@pytest.fixture
def clock() -> Hands:
    hands = Hands()
    hands.time = SystemClock().now()
    return hands


@asynccontextmanager
async def run_server(settings: ServerSettings, clock: Hands) -> AsyncIterator[Api]:
    async with serving(create_app(settings, clock)) as client:
        yield Api(client)


async def fill_to_horizon(api: Api, version: int) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while (facts := await api.facts())["version"] < version:
            await asyncio.sleep(0.01)
    return facts


async def deliver(api: Api, key: Ed25519PrivateKey, people: int) -> httpx.Response:
    publication = await api.publication()
    batch = body_of(publication, sealed_reports(publication, people))
    headers = {SIGNATURE_HEADER: BATCH.sign(batch, key, SystemClock().now())}
    return await api.client.post("/batches", content=batch, headers=headers)


async def drain_unshuffled(api: Api, changes: dict[str, Any]) -> dict[str, Any]:
    """Create an experiment without a shuffler, fill it to its horizon, and return its facts."""
    await api.create(changes)
    for _ in range(2):
        await report(api, 20)
    return await api.facts()


@pytest.mark.parametrize("changes", [LOCAL, CENTRAL])
async def test_reports_are_taken_for_one_more_window(settings, clock, changes):
    async with run_server(settings, clock) as api:
        facts = await drain_unshuffled(api, changes)
        assert facts | {"status": "draining", "version": 3, "batch_size": 20, "accepted": 40} == facts
        drain = decode_publication(await api.publication()).drain
        assert WINDOW <= drain.until - clock.now() <= OVER + 1
        # Who comes now gets the best arm and is not asked.
        followed = Participation(await api.publication(), "test", EVERYTHING)
        assert (followed.is_report_requested, followed.accepts_version(2), followed.accepts_version(3)) == (
            False,
            True,
            False,
        )
        assert len(await arms_played(api)) == 1
        # A round that is full is followed by one more, and by the end of the window all that came is learned from.
        await report(api, 20)
        facts = await api.facts()
        assert facts | {"status": "draining", "version": 4, "draining_until": facts["draining_until"]} == facts
        await report(api, 7)
        clock.time += OVER
        facts = await fill_to_horizon(api, 5)
        assert facts | {"status": "finished", "batch_size": 0, "accepted": 67, "draining_until": None} == facts
        assert (await api.client.get("/experiments/test/state")).json()["answer"]["people"] == 67


async def test_without_a_conversion_window_there_is_no_drain(api: Api) -> None:
    assert (await drain_unshuffled(api, SMALL | {"experiment.horizon": 40}))["status"] == "finished"


async def test_a_drain_without_reports_has_no_release(settings: ServerSettings, clock: Hands) -> None:
    async with run_server(settings, clock) as api:
        await drain_unshuffled(api, CENTRAL)
        clock.time += OVER
        facts = await fill_to_horizon(api, 4)
        assert facts | {"status": "finished", "accepted": 40} == facts
        record = (await api.client.get("/experiments/test/privacy")).json()
        assert [row["released"] for row in record["rounds"]] == [True, True, False]


async def test_a_drain_accepts_only_full_batches_from_a_shuffler(settings, clock, shuffler_key):
    async with run_server(settings, clock) as api:
        await api.create(SHUFFLE)
        for _ in range(2):
            clock.time += 10
            assert (await deliver(api, shuffler_key, 100)).json()["closed"]
        facts = await api.facts()
        assert facts | {"status": "draining", "version": 3, "batch_size": 100} == facts
        clock.time += OVER / 2
        assert_problem(await deliver(api, shuffler_key, 99), 403, "batch-refused")
        assert (await deliver(api, shuffler_key, 100)).json()["closed"]
        assert (await api.facts())["status"] == "draining"
        clock.time += OVER / 2
        facts = await fill_to_horizon(api, 5)
        assert facts | {"status": "finished", "accepted": 300} == facts
        record = (await api.client.get("/experiments/test/privacy")).json()
        assert [(row["batch_size"], row["released"]) for row in record["rounds"]] == [(100, True)] * 3 + [(100, False)]


async def test_late_reports_belong_to_earlier_policies(settings, clock, shuffler_key, monkeypatch):
    """Rounds open at 0 and 900; from 1,800 to 2,300 nobody is asked; reports until 3,300 are on choices of before."""
    mixes, learned = [], Schedule.learn

    def noting(self, step, release, decided=()):
        mixes.append({policy.version: round(share, 1) for policy, share in decided})
        return learned(self, step, release, decided)

    monkeypatch.setattr(Schedule, "learn", noting)
    async with run_server(settings, clock) as api:
        await api.create(SHUFFLE)
        for _ in range(2):
            clock.time += 900
            await deliver(api, shuffler_key, 100)
        clock.time += 500
        await make_change(api, "extend", {"horizon": 500, "seconds": 0})
        await fill_to_horizon(api, 4)
        clock.time += 1000
        await deliver(api, shuffler_key, 100)
    assert mixes == [{1: 1.0}, {1: 1.0}, {2: 1.0}]


async def test_a_drain_continues_after_a_restart(settings: ServerSettings, clock: Hands) -> None:
    async with run_server(settings, clock) as api:
        before = await drain_unshuffled(api, CENTRAL)
        await report(api, 7)
    clock.time += OVER / 2
    async with run_server(settings, clock) as api:
        facts = await api.facts()
        assert facts == before | {"received": 7, "accepted": 47, "people": facts["people"]}
        assert (facts["people"]["counted"], facts["people"]["held"]["in_open_round"]) == (40, 7)
        clock.time += OVER / 2
        facts = await fill_to_horizon(api, 4)
        assert facts | {"status": "finished", "accepted": 47} == facts


async def test_stopping_ends_a_drain_at_once(settings: ServerSettings, clock: Hands) -> None:
    async with run_server(settings, clock) as api:
        await drain_unshuffled(api, LOCAL)
        await report(api, 7)
        await make_change(api, "stop")
        facts = await fill_to_horizon(api, 4)
        assert facts | {"status": "stopped", "batch_size": 0, "accepted": 47} == facts
        assert (await api.client.get("/experiments/test/state")).json()["answer"]["people"] == 47


async def test_extending_ends_the_drain_with_a_new_round(settings: ServerSettings, clock: Hands) -> None:
    async with run_server(settings, clock) as api:
        await drain_unshuffled(api, LOCAL)
        await report(api, 7)
        answer = await make_change(api, "extend", {"horizon": 100, "seconds": 0})
        assert answer["changed"]
        facts = await fill_to_horizon(api, 4)
        assert facts | {"status": "open", "accepted": 47, "draining_until": None} == facts
        assert Participation(await api.publication(), "test", EVERYTHING).is_report_requested
        for _ in range(3):
            await report(api, 20)
        assert (await api.facts())["status"] == "draining"


async def test_extending_must_hold_a_round(settings: ServerSettings, clock: Hands) -> None:
    async with run_server(settings, clock) as api:
        await drain_unshuffled(api, LOCAL)
        for _ in range(2):
            await report(api, 20)
        problem = assert_problem(await change(api, "extend", {"horizon": 60}), 422, "spec-invalid")
        assert problem["field"] == "experiment.horizon"


async def test_a_drain_refuses_added_arms_and_accepts_retiring(settings: ServerSettings, clock: Hands) -> None:
    async with run_server(settings, clock) as api:
        await drain_unshuffled(api, LOCAL)
        assert_problem(await change(api, "add-arm", {"arm": "more"}), 409, "conflict")
        (best,) = await arms_played(api)
        draining_until = (await api.facts())["draining_until"]
        await make_change(api, "retire-arm", {"arm": best, "seconds": 0})
        facts = await fill_to_horizon(api, 4)
        assert facts | {"status": "draining", "draining_until": draining_until} == facts
        assert best not in await arms_played(api)


async def test_a_drain_follows_a_pause_at_the_horizon(settings: ServerSettings, clock: Hands) -> None:
    async with run_server(settings, clock) as api:
        await api.create(LOCAL)
        await report(api, 20)
        await make_change(api, "pause")
        await report(api, 20)
        facts = await api.facts()
        assert facts | {"status": "paused", "version": 3, "batch_size": 20} == facts
        assert (await report(api, 7)).json()["accepted"] == 7
        clock.time += OVER
        facts = await fill_to_horizon(api, 4)
        assert facts | {"status": "paused", "batch_size": 0, "accepted": 47} == facts
        assert (await make_change(api, "resume"))["status"] == "finished"


async def test_the_gain_round_follows_all_late_reports(settings: ServerSettings, clock: Hands) -> None:
    """Learner's reports come first, late ones follow, and the gain round is last."""
    changes = {"experiment.round_size": 150, "experiment.horizon": 400, "experiment.evaluation_fraction": 0.25}
    async with run_server(settings, clock) as api:
        await api.create(CENTRAL | changes)
        for _ in range(2):
            await report(api, 150)
        facts = await api.facts()
        assert facts | {"status": "draining", "version": 3, "batch_size": 150, "accepted": 300} == facts
        followed = Participation(await api.publication(), "test", EVERYTHING)
        assert (followed.is_report_requested, followed.accepts_version(2), followed.accepts_version(3)) == (
            False,
            True,
            False,
        )
        assert len(await arms_played(api)) == 1
        await report(api, 30)
        clock.time += OVER
        facts = await fill_to_horizon(api, 4)
        assert facts | {"status": "open", "batch_size": 100, "draining_until": None, "accepted": 330} == facts
        followed = Participation(await api.publication(), "test", EVERYTHING)
        assert isinstance(followed.policy, GainPolicy)
        assert (followed.is_report_requested, followed.accepts_version(3), followed.accepts_version(4)) == (
            True,
            False,
            True,
        )
        await report(api, 100)
        facts = await api.facts()
        assert facts | {"status": "finished", "batch_size": 0, "accepted": 430} == facts
        answer = (await api.client.get("/experiments/test/state")).json()["answer"]
        assert (answer["people"], answer["gain"]["people"]) == (430, 100)
        await record_holds(api)


async def test_late_reports_are_awaited_as_well_before_a_gain_is_measured_again(settings, clock):
    """Who measured before counts among those who reported, and makes no round larger."""
    changes = {"experiment.round_size": 150, "experiment.horizon": 400, "experiment.evaluation_fraction": 0.25}
    async with run_server(settings, clock) as api:
        await api.create(CENTRAL | changes)
        for _ in range(2):
            await report(api, 150)
        clock.time += OVER
        await fill_to_horizon(api, 4)
        await report(api, 100)
        await make_change(api, "extend", {"horizon": 800, "seconds": 0})
        for version in (6, 7):
            assert (await fill_to_horizon(api, version))["status"] == "open"
            await report(api, 150)
        facts = await fill_to_horizon(api, 8)
        assert facts | {"status": "draining", "batch_size": 150, "accepted": 700} == facts
        clock.time += OVER
        facts = await fill_to_horizon(api, 9)
        assert facts | {"status": "open", "batch_size": 100, "accepted": 700} == facts
        assert isinstance(Participation(await api.publication(), "test", EVERYTHING).policy, GainPolicy)
        await report(api, 100)
        answer = (await api.client.get("/experiments/test/state")).json()["answer"]
        assert (answer["people"], answer["gain"]["people"], answer["warnings"]) == (800, 100, [])
        await record_holds(api)
