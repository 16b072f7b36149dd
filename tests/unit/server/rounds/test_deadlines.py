"""Rounds with deadlines over HTTP: filled, short of people, and given up; the record says what is true."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privateer_core.answer.people import GIVEN_UP
from privateer_core.privacy.certificate import recompute
from privateer_core.privacy.record_verification import read_certificates
from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER
from privateer_core.wire.publication import Round, decode_publication
from privateer_server.app import create_app
from privateer_server.intake.accumulator import Accumulator
from privateer_server.intake.opening import Opener
from privateer_server.rounds import open_round
from privateer_server.rounds.deadlines import Deadlines
from privateer_server.rounds.open_round import first_round, missed_round
from privateer_server.settings import ServerSettings
from privateer_server.store.rounds import RoundWriter
from privateer_server.store.store import Store
from tests.support.answers import fact
from tests.support.asgi import serving
from tests.support.clocks import Hands
from tests.support.phased import phased_spec, tables
from tests.support.sealing import body_of, permuted, sealed_reports
from tests.support.servers import ADMIN, PHASED, Api, assert_problem
from tests.unit.shuffler.helpers import until

Serving = Callable[[], AbstractAsyncContextManager[Api]]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Hands:
    monkeypatch.setattr("privateer_server.rounds.deadlines._LOOK_SECONDS", 0.01)
    return Hands()


@pytest.fixture
def serve(settings: ServerSettings, clock: Hands) -> Serving:
    """Serves the data folder, once or again."""

    @asynccontextmanager
    async def served() -> AsyncIterator[Api]:
        async with serving(create_app(settings, clock)) as client:
            yield Api(client)

    return served


async def create(api: Api, trust: str, changes: dict[str, Any] | None = None) -> httpx.Response:
    return await api.client.post("/experiments", json=tables({**PHASED, **(changes or {})}, trust), headers=ADMIN)


async def opened(api: Api) -> tuple[bytes, Round]:
    publication = await api.publication()
    return publication, decode_publication(publication).round


async def report(api: Api, people: int, seed: int = 0) -> httpx.Response:
    publication = await api.publication()
    return await api.client.post("/reports", content=body_of(publication, sealed_reports(publication, people, seed)))


async def version(api: Api, wanted: int) -> dict[str, Any]:
    """The experiment's facts once it has reached a version."""
    async with asyncio.timeout(20):
        while (facts := await api.facts())["version"] != wanted:
            await asyncio.sleep(0.01)
    return facts


async def given_up(api: Api, clock: Hands, wanted: int) -> dict[str, Any]:
    """As `version`, while time passes: a round is given up when it was late for a while."""
    for _ in range(1000):
        if (facts := await api.facts())["version"] == wanted:
            return facts
        clock.time += 1
        await asyncio.sleep(0.01)
    raise AssertionError("the round is not given up")


async def privacy(api: Api) -> dict[str, Any]:
    record = dict((await api.client.get("/experiments/test/privacy")).json())
    assert all(verdict.holds for verdict in recompute(read_certificates(record)[""]))
    return record


@pytest.mark.parametrize("trust", ["none", "central", "local"])
async def test_phases_follow_each_other_to_the_end(serve: Serving, trust: str) -> None:
    async with serve() as api:
        assert (await create(api, trust)).status_code == 201
        asked = 0
        for phase in range(1, 6):
            publication, facts = await opened(api)
            if facts.batch == 0:
                break
            policy = (await api.client.get("/experiments/test/policy")).json()["policy"]
            assert (facts.version, policy["shows"]["draw"]["start"]) == (phase, asked)
            asked += policy["shows"]["draw"]["places"]
            assert (await report(api, facts.batch, phase)).status_code == 202
        assert (await api.facts())["status"] == "finished"
        assert (await api.facts())["accepted"] == asked
        answer = (await api.client.get("/experiments/test/state")).json()["answer"]
        assert fact(answer, "people asked") == asked
        assert len(answer["estimates"]) == fact(answer, "actions left") > 0
        record = await privacy(api)
        assert [row["released"] for row in record["rounds"]] == [True] * len(record["rounds"])
        late = await api.client.post("/reports", content=body_of(publication, sealed_reports(publication, 1)))
        assert_problem(late, 409, "round-closed")


async def test_people_who_come_after_the_end_are_counted_by_the_size_of_their_own_round(serve: Serving) -> None:
    async with serve() as api:
        await create(api, "none")
        first, facts = await opened(api)
        while (await opened(api))[1].batch:
            await report(api, (await opened(api))[1].batch)
        assert (await opened(api))[1].report_size < facts.report_size
        late = body_of(first, sealed_reports(first, 40))
        problem = assert_problem(await api.client.post("/reports", content=late), 409, "round-closed")
        assert problem["refused"] == {"round-closed": 40}
        alone = body_of(first, sealed_reports(first, 1))
        answer = await api.client.post("/reports", content=alone, auth=lambda request: request)
        assert_problem(answer, 409, "round-closed")


async def test_late_reports_do_not_have_old_publications_read_again(
    serve: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger's reports for a round that is long over would cost the single writer more than honest ones."""
    async with serve() as api:
        await create(api, "none")
        first, facts = await opened(api)
        await report(api, facts.batch)
        late = body_of(first, sealed_reports(first, 1))
        read: list[int] = []
        honest = Store.publication
        monkeypatch.setattr(Store, "publication", lambda *asked: (read.append(asked[2]), honest(*asked))[1])
        for _ in range(5):
            assert_problem(await api.client.post("/reports", content=late), 409, "round-closed")
        assert read == [1]


async def test_the_draw_is_the_same_for_all_phases_and_after_a_restart(serve: Serving) -> None:
    async with serve() as api:
        await create(api, "none")
        _, first = await opened(api)
        draw = (await api.client.get("/experiments/test/policy")).json()["policy"]["shows"]["draw"]
        await report(api, first.batch)
    async with serve() as api:
        again = (await api.client.get("/experiments/test/policy")).json()["policy"]["shows"]["draw"]
        assert again == {"seed": draw["seed"], "start": draw["places"], "places": again["places"]}
        assert (await api.client.get("/experiments/test/policy/1")).json()["policy"]["shows"]["draw"] == draw


async def test_without_a_deadline_a_phase_waits(serve: Serving, clock: Hands) -> None:
    async with serve() as api:
        await create(api, "local")
        await report(api, 3)
        clock.time += 1e9
        assert (await api.facts())["status"] == "open"
        assert (await opened(api))[1].deadline == 0


@pytest.mark.parametrize("trust", ["local", "central"])
async def test_a_reduced_phase_closes_with_those_who_reported(serve: Serving, clock: Hands, trust: str) -> None:
    short = {"asking.seconds": 60, "asking.when_short": "reduce", "asking.least_share": 0.5}
    async with serve() as api:
        await create(api, trust, short)
        _, facts = await opened(api)
        assert (facts.deadline, facts.least) == (1_000_060, -(-facts.batch // 2))
        await report(api, facts.least)
        assert (await api.facts())["version"] == 1
        clock.time += 60
        assert (await version(api, 2))["status"] == "open"
        row = (await privacy(api))["rounds"][0]
        assert (row["received"], row["released"]) == (facts.least, True)
        assert (await api.client.get("/experiments/test/state")).json()["answer"]["rounds"] == 1


@pytest.mark.parametrize("when_short", ["reduce", "fail"])
async def test_a_phase_of_too_few_people_fails_and_tells_so(serve: Serving, clock: Hands, when_short: str) -> None:
    async with serve() as api:
        await create(api, "local", {"asking.seconds": 60, "asking.when_short": when_short})
        publication, facts = await opened(api)
        await report(api, facts.fewest - 1)
        clock.time += 60
        told = await given_up(api, clock, 2)
        assert (told["status"], told["batch"]) == ("failed", 0)
        state = (await api.client.get("/experiments/test/state")).json()
        answer = state["answer"]
        assert (state["status"], answer["status"], answer["rounds"]) == ("failed", "failed", 0)
        record = await privacy(api)
        assert (record["rounds"][0]["received"], record["rounds"][0]["released"]) == (facts.fewest - 1, False)
        people = told["people"]
        assert (people["counted"], people["refused"], people["replaced"]) == (0, {GIVEN_UP: facts.fewest - 1}, 0)
        # Those who reported have told something all the same: the record goes on counting them.
        assert record["certificate"]["claims"][0]["epsilon"] == 4.0
        late = await api.client.post("/reports", content=body_of(publication, sealed_reports(publication, 1)))
        assert_problem(late, 409, "round-closed")


async def test_an_extended_phase_is_put_off_and_then_fails(serve: Serving, clock: Hands) -> None:
    async with serve() as api:
        await create(api, "local", {"asking.seconds": 60, "asking.extensions": 2})
        _, facts = await opened(api)
        assert facts.fewest == facts.batch
        await report(api, facts.batch - 1)
        clock.time += 179
        assert (await api.facts())["status"] == "open"
        await report(api, 1, 7)
        assert (await version(api, 2))["status"] == "open"
        assert (await opened(api))[1].deadline == 1_000_179 + 60
        clock.time += 180
        assert (await given_up(api, clock, 3))["status"] == "failed"


async def test_a_deadline_that_passes_while_the_server_is_away(serve: Serving, clock: Hands) -> None:
    async with serve() as api:
        await create(api, "local", {"asking.seconds": 60, "asking.when_short": "reduce"})
        _, facts = await opened(api)
        await report(api, facts.least)
    clock.time += 1000
    async with serve() as api:
        await version(api, 2)
        assert (await privacy(api))["rounds"][0]["released"]


async def test_a_failed_experiment_stays_failed_after_a_restart(serve: Serving, clock: Hands) -> None:
    async with serve() as api:
        await create(api, "local", {"asking.seconds": 60, "asking.when_short": "fail"})
        clock.time += 60
        await given_up(api, clock, 2)
    async with serve() as api:
        assert (await api.facts())["status"] == "failed"


REDUCED = {"asking.seconds": 60, "asking.when_short": "reduce", "privacy.min_batch": 12}


async def deliver(api: Api, key: Ed25519PrivateKey, people: int, seed: int = 0) -> httpx.Response:
    publication = await api.publication()
    batch = body_of(publication, permuted(publication, sealed_reports(publication, people, seed), random.Random(seed)))
    return await api.client.post("/batches", content=batch, headers={SIGNATURE_HEADER: BATCH.sign(batch, key)})


async def test_a_shuffled_phase_closes_with_its_batch(serve: Serving, shuffler_key: Ed25519PrivateKey) -> None:
    async with serve() as api:
        await create(api, "shuffle")
        _, facts = await opened(api)
        assert facts.messages > 1
        assert_problem(await deliver(api, shuffler_key, facts.batch - 1), 403, "batch-refused")
        assert (await deliver(api, shuffler_key, facts.batch)).json() == {
            "accepted": facts.batch,
            "refused": {},
            "closed": True,
        }
        assert (await api.facts())["accepted"] == facts.batch
        assert (await privacy(api))["rounds"][0]["released"]


async def test_a_short_batch_is_taken_at_the_deadline_alone(
    serve: Serving, clock: Hands, shuffler_key: Ed25519PrivateKey
) -> None:
    async with serve() as api:
        await create(api, "shuffle", REDUCED)
        _, facts = await opened(api)
        clock.time -= 60  # more than clocks may be apart
        assert_problem(await deliver(api, shuffler_key, facts.least), 403, "batch-refused")
        clock.time += 120
        assert_problem(await deliver(api, shuffler_key, facts.least - 1), 403, "batch-refused")
        assert (await deliver(api, shuffler_key, facts.least)).status_code == 202
        assert (await api.facts())["version"] == 2
        row = (await privacy(api))["rounds"][0]
        assert (row["batch"], row["received"], row["released"]) == (facts.batch, facts.least, True)
        assert row["honest"] <= facts.least


async def test_the_shuffler_has_time_to_deliver_before_a_phase_fails(
    serve: Serving, clock: Hands, shuffler_key: Ed25519PrivateKey
) -> None:
    async with serve() as api:
        await create(api, "shuffle", REDUCED)
        clock.time += 60 + open_round.GRACE - 1
        assert (await api.facts())["status"] == "open"
        _, facts = await opened(api)
        assert (await deliver(api, shuffler_key, facts.batch)).status_code == 202
        clock.time += 60 + open_round.GRACE
        assert (await given_up(api, clock, 3))["status"] == "failed"
        assert [row["released"] for row in (await privacy(api))["rounds"]] == [True, False]


async def test_garbage_of_one_device_does_not_undo_the_round(serve: Serving, shuffler_key: Ed25519PrivateKey) -> None:
    async with serve() as api:
        await create(api, "shuffle")
        publication, facts = await opened(api)
        reports = sealed_reports(publication, facts.batch)
        reports[3] = bytes(facts.sealed_size) + reports[3][facts.sealed_size :]
        batch = body_of(publication, permuted(publication, reports, random.Random(0)))
        answer = await api.client.post(
            "/batches", content=batch, headers={SIGNATURE_HEADER: BATCH.sign(batch, shuffler_key)}
        )
        assert answer.json() == {"accepted": facts.batch, "refused": {"unopenable": 1}, "closed": True}
        assert (await api.facts())["version"] == 2


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"asking.seconds": 0}, "asking.seconds"),
        ({"asking.when_short": "later"}, "asking.when_short"),
        ({"asking.when_short": "fail"}, "asking.when_short"),
        ({"asking.least_share": 0.7}, "asking.least_share"),
        ({"asking.reserve": 0.5}, "asking.reserve"),
        ({"asking.reserve": 100.0}, "experiment.people"),
        ({"asking.seconds": 5, "asking.when_short": "reduce", "privacy.min_batch": 20}, "privacy.min_batch"),
        ({"algorithm.clients": 1.0, "privacy.epsilon": 0.01}, "privacy.epsilon"),
    ],
)
async def test_phases_that_cannot_work_are_refused_at_creation(
    serve: Serving, changes: dict[str, Any], field: str
) -> None:
    async with serve() as api:
        problem = assert_problem(await create(api, "shuffle", changes), 422, "spec-invalid")
        assert problem["field"] == field
        assert problem["remedy"]


async def test_published_calibrations_are_for_the_lab(serve: Serving) -> None:
    async with serve() as api:
        problem = assert_problem(await create(api, "central-published"), 422, "spec-invalid")
        assert problem["field"] == "algorithm.name"


def test_what_is_over_is_not_closed_again(clock: Hands) -> None:
    """A look at a round may come to the next one, if reports fill the first meanwhile; it may be the last."""
    opener = Opener(X25519PrivateKey.generate())
    open_ = first_round(phased_spec(PHASED | {"asking.seconds": 60}, "local"), opener.public_key, clock.now())
    for current in (open_, missed_round(open_, lambda: opener.public_key, clock.now())):
        accumulator = Accumulator(current, set(), opener, clock)
        accumulator.expire()
        after, change = accumulator.close()
        assert (after, change.following, change.taken) == (current, None, False)
        assert not accumulator.ends_round


async def test_a_database_that_cannot_write_leaves_the_phase_open(
    serve: Serving, clock: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve() as api:
        await create(api, "local", {"asking.seconds": 60, "asking.when_short": "fail"})
        looked: list[int] = []
        look = Deadlines.look

        def counted(self: Deadlines) -> None:
            look(self)
            looked.append(1)

        monkeypatch.setattr(Deadlines, "look", counted)

        def fails(*_: object) -> None:
            raise OSError

        with monkeypatch.context() as broken:
            broken.setattr(RoundWriter, "apply", fails)
            for _ in range(5):
                clock.time += 60
                seen = len(looked)
                await until(lambda: len(looked) > seen + 1)  # noqa: B023 - awaited at once
            assert (await api.facts())["status"] == "open"
        assert (await given_up(api, clock, 2))["status"] == "failed"
