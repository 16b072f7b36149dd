"""Rounds with deadlines over HTTP: filled, short of people, and given up; the record says what is true."""

import asyncio
import random
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privateer_core.answer.people import GIVEN_UP
from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER
from privateer_core.wire.publication import Round, decode_publication
from privateer_server.intake.accumulator import Accumulator
from privateer_server.intake.decryption import Decryptor
from privateer_server.rounds import open_round
from privateer_server.rounds.background_checks import Deadlines
from privateer_server.rounds.open_round import open_first_round, open_round_after_miss
from privateer_server.rounds.states import RoundState
from privateer_server.store.rounds import RoundWriter
from privateer_server.store.store import Store
from tests.support.answers import fact
from tests.support.changes import record_holds
from tests.support.clocks import Hands
from tests.support.phased import phased_spec, tables
from tests.support.sealing import body_of, permuted, sealed_reports
from tests.support.servers import ADMIN, PHASED, Api, assert_problem
from tests.unit.server.rounds.conftest import Serving
from tests.unit.shuffler.helpers import until


async def create(api: Api, trust: str, changes: dict[str, Any] | None = None) -> httpx.Response:
    return await api.client.post("/experiments", json=tables({**PHASED, **(changes or {})}, trust), headers=ADMIN)


async def read_round(api: Api) -> tuple[bytes, Round]:
    publication = await api.publication()
    return publication, decode_publication(publication).round


async def report(api: Api, people: int, seed: int = 0) -> httpx.Response:
    publication = await api.publication()
    return await api.client.post("/reports", content=body_of(publication, sealed_reports(publication, people, seed)))


async def wait_for_version(api: Api, number: int) -> dict[str, Any]:
    """The experiment's facts once it has reached a version."""
    async with asyncio.timeout(20):
        while (facts := await api.facts())["version"] != number:
            await asyncio.sleep(0.01)
    return facts


async def close_by_deadline(api: Api, clock: Hands, number: int) -> dict[str, Any]:
    """As `wait_for_version`, while time passes: a round is given up when it was late for a while."""
    for _ in range(1000):
        if (facts := await api.facts())["version"] == number:
            return facts
        clock.time += 1
        await asyncio.sleep(0.01)
    raise AssertionError("the round is not given up")


@pytest.mark.parametrize("trust", ["none", "central", "local"])
async def test_phases_follow_each_other_to_the_end(serve: Serving, trust: str) -> None:
    async with serve() as api:
        assert (await create(api, trust)).status_code == 201
        n_invited = 0
        for phase in range(1, 6):
            publication, facts = await read_round(api)
            if facts.batch_size == 0:
                break
            policy = (await api.client.get("/experiments/test/policy")).json()["policy"]
            assert (facts.version, policy["shows"]["draw"]["start"]) == (phase, n_invited)
            n_invited += policy["shows"]["draw"]["places"]
            assert (await report(api, facts.batch_size, phase)).status_code == 202
        assert (await api.facts())["status"] == "finished"
        assert (await api.facts())["accepted"] == n_invited
        answer = (await api.client.get("/experiments/test/state")).json()["answer"]
        assert fact(answer, "people asked") == n_invited
        assert len(answer["estimates"]) == fact(answer, "actions left") > 0
        record = await record_holds(api)
        assert [row["released"] for row in record["rounds"]] == [True] * len(record["rounds"])
        late = await api.client.post("/reports", content=body_of(publication, sealed_reports(publication, 1)))
        assert_problem(late, 409, "round-closed")


async def test_refusals_after_the_end_are_counted_in_participants(serve: Serving) -> None:
    async with serve() as api:
        await create(api, "none")
        first, facts = await read_round(api)
        while (await read_round(api))[1].batch_size:
            await report(api, (await read_round(api))[1].batch_size)
        assert (await read_round(api))[1].report_size < facts.report_size
        late = body_of(first, sealed_reports(first, 40))
        problem = assert_problem(await api.client.post("/reports", content=late), 409, "round-closed")
        assert problem["refused"] == {"round-closed": 40}
        body = body_of(first, sealed_reports(first, 1))
        answer = await api.client.post("/reports", content=body, auth=lambda request: request)
        assert_problem(answer, 409, "round-closed")


async def test_late_reports_do_not_have_old_publications_read_again(serve, monkeypatch):
    """A stranger's reports for a round that is long over would cost the single writer more than honest ones."""
    async with serve() as api:
        await create(api, "none")
        first, facts = await read_round(api)
        await report(api, facts.batch_size)
        late = body_of(first, sealed_reports(first, 1))
        read: list[int] = []
        honest = Store.publication
        monkeypatch.setattr(Store, "publication", lambda *arguments: (read.append(arguments[2]), honest(*arguments))[1])
        for _ in range(5):
            assert_problem(await api.client.post("/reports", content=late), 409, "round-closed")
        assert read == [1]


async def test_the_draw_is_the_same_for_all_phases_and_after_a_restart(serve: Serving) -> None:
    async with serve() as api:
        await create(api, "none")
        _, first = await read_round(api)
        draw = (await api.client.get("/experiments/test/policy")).json()["policy"]["shows"]["draw"]
        await report(api, first.batch_size)
    async with serve() as api:
        next_draw = (await api.client.get("/experiments/test/policy")).json()["policy"]["shows"]["draw"]
        assert next_draw == {"seed": draw["seed"], "start": draw["places"], "places": next_draw["places"]}
        assert (await api.client.get("/experiments/test/policy/1")).json()["policy"]["shows"]["draw"] == draw


async def test_without_a_deadline_a_phase_waits(serve: Serving, clock: Hands) -> None:
    async with serve() as api:
        await create(api, "local")
        await report(api, 3)
        clock.time += 1e9
        assert (await api.facts())["status"] == "open"
        assert (await read_round(api))[1].deadline == 0


@pytest.mark.parametrize("trust", ["local", "central"])
async def test_a_reduced_phase_closes_with_those_who_reported(serve: Serving, clock: Hands, trust: str) -> None:
    short = {"recruitment.timeout_seconds": 60, "recruitment.extensions": 0, "recruitment.min_response_rate": 0.5}
    async with serve() as api:
        await create(api, trust, short)
        _, facts = await read_round(api)
        assert (facts.deadline, facts.least) == (1_000_060, -(-facts.batch_size // 2))
        await report(api, facts.least)
        assert (await api.facts())["version"] == 1
        clock.time += 60
        assert (await wait_for_version(api, 2))["status"] == "open"
        row = (await record_holds(api))["rounds"][0]
        assert (row["received"], row["released"]) == (facts.least, True)
        assert (await api.client.get("/experiments/test/state")).json()["answer"]["rounds"] == 1


@pytest.mark.parametrize("least_share", [0.5, 1.0])
async def test_a_phase_of_too_few_participants_fails(serve: Serving, clock: Hands, least_share: float) -> None:
    async with serve() as api:
        await create(
            api,
            "local",
            {
                "recruitment.timeout_seconds": 60,
                "recruitment.extensions": 0,
                "recruitment.min_response_rate": least_share,
            },
        )
        publication, facts = await read_round(api)
        await report(api, facts.fewest - 1)
        clock.time += 60
        failed_round = await close_by_deadline(api, clock, 2)
        assert (failed_round["status"], failed_round["batch_size"]) == ("failed", 0)
        state = (await api.client.get("/experiments/test/state")).json()
        answer = state["answer"]
        assert (state["status"], answer["stage"], answer["rounds"]) == ("failed", "failed", 0)
        record = await record_holds(api)
        assert (record["rounds"][0]["received"], record["rounds"][0]["released"]) == (facts.fewest - 1, False)
        people = failed_round["people"]
        assert (people["counted"], people["refused"], people["replaced"]) == (0, {GIVEN_UP: facts.fewest - 1}, 0)
        # Those who reported have told something all the same: the record goes on counting them.
        assert record["certificate"]["claims"][0]["epsilon"] == 4.0
        late = await api.client.post("/reports", content=body_of(publication, sealed_reports(publication, 1)))
        assert_problem(late, 409, "round-closed")


async def test_a_phase_is_extended_once_and_then_fails(serve: Serving, clock: Hands) -> None:
    async with serve() as api:
        await create(api, "local", {"recruitment.timeout_seconds": 60, "recruitment.extensions": 2})
        _, facts = await read_round(api)
        assert facts.fewest == facts.batch_size
        await report(api, facts.batch_size - 1)
        clock.time += 179
        assert (await api.facts())["status"] == "open"
        await report(api, 1, 7)
        assert (await wait_for_version(api, 2))["status"] == "open"
        assert (await read_round(api))[1].deadline == 1_000_179 + 60
        clock.time += 180
        assert (await close_by_deadline(api, clock, 3))["status"] == "failed"


async def test_a_deadline_that_passes_while_the_server_is_away(serve: Serving, clock: Hands) -> None:
    async with serve() as api:
        await create(
            api,
            "local",
            {"recruitment.timeout_seconds": 60, "recruitment.extensions": 0, "recruitment.min_response_rate": 0.5},
        )
        _, facts = await read_round(api)
        await report(api, facts.least)
    clock.time += 1000
    async with serve() as api:
        await wait_for_version(api, 2)
        assert (await record_holds(api))["rounds"][0]["released"]


async def test_a_failed_experiment_stays_failed_after_a_restart(serve: Serving, clock: Hands) -> None:
    async with serve() as api:
        await create(api, "local", {"recruitment.timeout_seconds": 60, "recruitment.extensions": 0})
        clock.time += 60
        await close_by_deadline(api, clock, 2)
    async with serve() as api:
        assert (await api.facts())["status"] == "failed"


REDUCED = {
    "recruitment.timeout_seconds": 60,
    "recruitment.extensions": 0,
    "recruitment.min_response_rate": 0.5,
    "privacy.min_batch": 12,
}


async def deliver(api: Api, key: Ed25519PrivateKey, people: int, seed: int = 0) -> httpx.Response:
    publication = await api.publication()
    batch = body_of(publication, permuted(publication, sealed_reports(publication, people, seed), random.Random(seed)))
    return await api.client.post("/batches", content=batch, headers={SIGNATURE_HEADER: BATCH.sign(batch, key)})


async def test_a_shuffled_phase_closes_with_its_batch(serve: Serving, shuffler_key: Ed25519PrivateKey) -> None:
    async with serve() as api:
        await create(api, "shuffle")
        _, facts = await read_round(api)
        assert facts.messages > 1
        assert_problem(await deliver(api, shuffler_key, facts.batch_size - 1), 403, "batch-refused")
        assert (await deliver(api, shuffler_key, facts.batch_size)).json() == {
            "accepted": facts.batch_size,
            "refused": {},
            "closed": True,
        }
        assert (await api.facts())["accepted"] == facts.batch_size
        assert (await record_holds(api))["rounds"][0]["released"]


async def test_a_short_batch_is_taken_at_the_deadline_alone(serve, clock, shuffler_key):
    async with serve() as api:
        await create(api, "shuffle", REDUCED)
        _, facts = await read_round(api)
        clock.time -= 60  # more than clocks may be apart
        assert_problem(await deliver(api, shuffler_key, facts.least), 403, "batch-refused")
        clock.time += 120
        assert_problem(await deliver(api, shuffler_key, facts.least - 1), 403, "batch-refused")
        assert (await deliver(api, shuffler_key, facts.least)).status_code == 202
        assert (await api.facts())["version"] == 2
        row = (await record_holds(api))["rounds"][0]
        assert (row["batch_size"], row["received"], row["released"]) == (facts.batch_size, facts.least, True)
        assert row["honest"] <= facts.least


async def test_the_shuffler_has_time_to_deliver_before_a_phase_fails(serve, clock, shuffler_key):
    async with serve() as api:
        await create(api, "shuffle", REDUCED)
        clock.time += 60 + open_round.GRACE_SECONDS - 1
        assert (await api.facts())["status"] == "open"
        _, facts = await read_round(api)
        assert (await deliver(api, shuffler_key, facts.batch_size)).status_code == 202
        clock.time += 60 + open_round.GRACE_SECONDS
        assert (await close_by_deadline(api, clock, 3))["status"] == "failed"
        assert [row["released"] for row in (await record_holds(api))["rounds"]] == [True, False]


async def test_bad_reports_of_one_device_do_not_fail_the_round(serve: Serving, shuffler_key: Ed25519PrivateKey) -> None:
    async with serve() as api:
        await create(api, "shuffle")
        publication, facts = await read_round(api)
        reports = sealed_reports(publication, facts.batch_size)
        reports[3] = bytes(facts.sealed_size) + reports[3][facts.sealed_size :]
        batch = body_of(publication, permuted(publication, reports, random.Random(0)))
        answer = await api.client.post(
            "/batches", content=batch, headers={SIGNATURE_HEADER: BATCH.sign(batch, shuffler_key)}
        )
        assert answer.json() == {"accepted": facts.batch_size, "refused": {"decryption-failed": 1}, "closed": True}
        assert (await api.facts())["version"] == 2


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"recruitment.timeout_seconds": 0}, "recruitment.timeout_seconds"),
        ({"recruitment.when_short": "extend"}, "recruitment.when_short"),
        ({"recruitment.extensions": 0}, "recruitment.extensions"),
        ({"recruitment.min_response_rate": 0.7}, "recruitment.min_response_rate"),
        ({"recruitment.over_selection_factor": 0.5}, "recruitment.over_selection_factor"),
        ({"recruitment.over_selection_factor": 100.0}, "experiment.participants"),
        (
            {"recruitment.timeout_seconds": 5, "recruitment.min_response_rate": 0.5, "privacy.min_batch": 20},
            "privacy.min_batch",
        ),
        ({"algorithm.participants_factor": 1.0, "privacy.epsilon": 0.01}, "privacy.epsilon"),
    ],
)
async def test_phases_that_cannot_work_are_refused_at_creation(serve, changes, field):
    async with serve() as api:
        problem = assert_problem(await create(api, "shuffle", changes), 422, "spec-invalid")
        assert problem["field"] == field
        assert problem["remedy"]


async def test_published_calibrations_are_for_the_lab(serve: Serving) -> None:
    async with serve() as api:
        problem = assert_problem(await create(api, "central-published"), 422, "spec-invalid")
        assert problem["field"] == "algorithm.name"


def test_a_closed_round_is_not_closed_again(clock: Hands) -> None:
    """A look at a round may come to the next one, if reports fill the first meanwhile; it may be the last."""
    opener = Decryptor(X25519PrivateKey.generate())
    open_ = open_first_round(
        phased_spec(PHASED | {"recruitment.timeout_seconds": 60}, "local"), opener.public_key, clock.now()
    )
    for current in (open_, open_round_after_miss(open_, lambda: opener.public_key, clock.now())):
        accumulator = Accumulator(current, set(), opener, clock)
        accumulator.end_round_if_due()
        after, change = accumulator.build_update()
        assert (after, change.following, change.state) == (current, None, RoundState.OPEN)
        assert not accumulator.should_close_round


async def test_a_database_that_cannot_write_leaves_the_phase_open(serve, clock, monkeypatch):
    async with serve() as api:
        await create(api, "local", {"recruitment.timeout_seconds": 60, "recruitment.extensions": 0})
        looked: list[int] = []
        look = Deadlines.check_rounds

        def count_check(self: Deadlines) -> None:
            look(self)
            looked.append(1)

        monkeypatch.setattr(Deadlines, "check_rounds", count_check)

        def fail_to_write(*_: object) -> None:
            raise OSError

        with monkeypatch.context() as broken:
            broken.setattr(RoundWriter, "apply", fail_to_write)
            for _ in range(5):
                clock.time += 60
                n_checks = len(looked)
                await until(lambda: len(looked) > n_checks + 1)  # noqa: B023 - awaited at once
            assert (await api.facts())["status"] == "open"
        assert (await close_by_deadline(api, clock, 2))["status"] == "failed"
