"""Changes to a running experiment: what devices in flight, the learner and the record see of each."""

import asyncio
import base64
from typing import Any

import httpx
import pytest

from privateer.certificate import recompute
from privateer.record_verification import read_certificates
from privateer.verification import Limits
from privateer.wire.publication import decode_publication
from privateer_client.participation import Participation
from privateer_server.app import create_app
from privateer_server.settings import Settings
from tests.support.asgi import serving
from tests.support.changes import arms_played, change, changed, lines, report
from tests.support.clocks import Hands
from tests.support.devices import EVERYTHING
from tests.support.phased import tables as phased_tables
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import ADMIN, MSGPACK, PHASED, SMALL, TOKEN, Api, assert_problem
from tests.support.specs import tables

ARMS = ["retire-arm", "add-arm"]
DEVICE = Limits(epsilon=1.0)


async def record_holds(api: Api) -> dict[str, Any]:
    """The privacy record, every claim of which a verifier confirms."""
    record = dict((await api.client.get("/experiments/test/privacy")).json())
    assert all(verdict.holds for verdict in recompute(read_certificates(record)[""]))
    return record


async def asks(api: Api, name: str = "test") -> bool:
    """Whether a device that comes now is asked."""
    answer = await api.client.get(f"/experiments/{name}/policy", headers=MSGPACK)
    is_paused = {"nobody": True, "published": False}[answer.headers["privateer-asks"]]
    return Participation(answer.content, name, EVERYTHING, is_paused=is_paused).asks


async def test_a_pause_asks_nobody_and_waits_for_those_in_flight(api: Api) -> None:
    await api.create(SMALL)
    first = await api.publication()
    answer = await changed(api, "pause")
    assert answer | {"status": "paused", "version": 1, "changed": True, "waiting": []} == answer
    assert not await asks(api)
    assert await api.publication() == first
    # Those who chose before report as ever, and the round is learned from.
    assert (await report(api, 20, first)).json()["accepted"] == 20
    facts = await api.facts()
    assert facts | {"status": "paused", "version": 2, "batch": 0, "accepted": 20} == facts
    assert not await asks(api)
    assert len(await arms_played(api)) == 1
    answer = await changed(api, "resume")
    assert answer | {"status": "open", "version": 3} == answer
    assert await asks(api)
    assert (await report(api, 20)).json()["accepted"] == 20
    assert (await api.client.get("/experiments/test/state")).json()["state"]["seen"] == 40
    record = await record_holds(api)
    assert ([row["version"] for row in record["rounds"]], record["silent"]) == ([1, 3, 4], [2])
    assert await lines(api) == [("create", 1, 1), ("pause", 1, 1), ("resume", 2, 3)]


async def test_a_round_goes_on_after_a_short_pause(api: Api) -> None:
    await api.create(SMALL)
    first = await api.publication()
    await report(api, 12)
    await changed(api, "pause")
    await changed(api, "resume")
    assert await asks(api)
    assert await api.publication() == first
    assert (await report(api, 8, seed=2)).json()["accepted"] == 8
    assert (await api.facts())["version"] == 2
    assert await lines(api) == [("create", 1, 1), ("pause", 1, 1), ("resume", 1, 1)]


async def test_a_pause_at_once_learns_from_what_came_and_is_late_for_the_rest(api: Api) -> None:
    await api.create(SMALL)
    first = await api.publication()
    await report(api, 12)
    answer = await changed(api, "pause", {"seconds": 0})
    assert answer | {"status": "paused", "version": 2} == answer
    assert_problem(await report(api, 1, first, seed=3), 409, "round-closed")
    assert (await api.client.get("/experiments/test/state")).json()["state"]["seen"] == 12
    assert await lines(api) == [("create", 1, 1), ("pause", 1, 2)]
    rows = (await record_holds(api))["rounds"]
    assert [(row["received"], row["released"]) for row in rows] == [(12, True)]


async def test_a_pause_has_a_deadline_which_a_restart_keeps(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privateer_server.deadlines._LOOK_SECONDS", 0.01)
    clock = Hands()
    async with serving(create_app(settings, clock)) as client:
        await Api(client).create(SMALL)
        await changed(Api(client), "pause", {"seconds": 100})
        await report(Api(client), 5)
    async with serving(create_app(settings, clock)) as client:
        api = Api(client)
        assert (await api.facts())["status"] == "paused"
        assert not await asks(api)
        clock.time += 99
        assert (await api.facts())["version"] == 1
        clock.time += 1
        await _reached(api, 2)
        assert (await api.client.get("/experiments/test/state")).json()["state"]["seen"] == 5


async def _reached(api: Api, wanted: int) -> None:
    async with asyncio.timeout(20):
        while (await api.facts())["version"] < wanted:
            await asyncio.sleep(0.01)


async def test_a_stop_publishes_the_best_policy_for_good(api: Api) -> None:
    await api.create(SMALL)
    await report(api, 20)
    second = await api.publication()
    answer = await changed(api, "stop")
    assert answer | {"status": "stopped", "version": 3} == answer
    assert len(await arms_played(api)) == 1
    assert_problem(await report(api, 1, second), 409, "round-closed")
    assert not await asks(api)
    assert not (await changed(api, "stop"))["changed"]
    for action in ("pause", "resume"):
        assert_problem(await change(api, action), 409, "conflict")
    for action, body in (("extend", {"horizon": 5000}), ("add-arm", {"arm": "d"})):
        assert_problem(await change(api, action, body), 409, "conflict")
    await record_holds(api)


async def test_a_stop_may_wait_for_those_in_flight(api: Api) -> None:
    await api.create(SMALL)
    first = await api.publication()
    answer = await changed(api, "stop", {"seconds": 1000})
    assert answer | {"status": "stopped", "version": 1} == answer
    assert not await asks(api)
    assert_problem(await change(api, "pause"), 409, "conflict")
    assert (await report(api, 20, first)).json()["accepted"] == 20
    facts = await api.facts()
    assert facts | {"status": "stopped", "version": 2, "batch": 0} == facts


async def test_a_longer_horizon_is_the_next_publications(api: Api) -> None:
    await api.create({"experiment.round_size": 20, "experiment.horizon": 40})
    answer = await changed(api, "extend", {"horizon": 60})
    assert [row["action"] for row in answer["waiting"]] == ["extend"]
    first = await api.publication()
    assert b'"horizon":40' in decode_publication(first).spec
    await report(api, 20, first)
    assert b'"horizon":60' in decode_publication(await api.publication()).spec
    assert (await api.client.get("/experiments/test/policy/1", headers=MSGPACK)).content == first
    assert (await api.client.get("/experiments/test/policy/1")).status_code == 200
    for _ in range(2):
        await report(api, 20)
    facts = await api.facts()
    assert facts | {"status": "finished", "accepted": 60, "version": 4} == facts
    # What is finished goes on.
    answer = await changed(api, "extend", {"horizon": 80})
    assert answer | {"status": "open", "version": 5} == answer
    await report(api, 20)
    facts = await api.facts()
    assert facts | {"status": "finished", "accepted": 80, "version": 6} == facts
    assert (await record_holds(api))["silent"] == [4, 6]
    assert await lines(api) == [("create", 1, 1), ("extend", 1, 2), ("extend", 4, 5)]


async def test_a_horizon_never_shrinks_and_leaves_room_for_rounds(api: Api) -> None:
    await api.create({**SMALL, "experiment.horizon": 40})
    problem = assert_problem(await change(api, "extend", {"horizon": 39}), 422, "spec-invalid")
    assert problem["field"] == "experiment.horizon"
    assert_problem(await change(api, "extend", {"horizon": 10**11}), 422, "spec-invalid")
    assert not (await changed(api, "extend", {"horizon": 40}))["changed"]
    assert_problem(await change(api, "extend", {"horizon": 0}), 422, "spec-invalid")
    assert len(await lines(api)) == 1


async def test_rounds_that_no_request_may_carry_are_refused_when_the_horizon_grows(settings: Settings) -> None:
    small = Settings(settings.data, TOKEN, batch_bytes_max=100_000, report_bytes_max=10_000)
    shuffled = {
        "privacy.model": "shuffle",
        "privacy.delta": 1e-6,
        "privacy.min_batch": 100,
        "experiment.round_size": 100,
    }
    async with serving(create_app(small)) as client:
        api = Api(client)
        assert (await api.create({**shuffled, "experiment.horizon": 1000, "experiment.round_growth": 0.5})).is_success
        problem = assert_problem(await change(api, "extend", {"horizon": 1_000_000}), 422, "spec-invalid")
        assert problem["field"] == "experiment.round_growth"


async def test_a_retired_arm_is_nobodys_from_the_next_policy_on(api: Api) -> None:
    await api.create(SMALL)
    first = await api.publication()
    await changed(api, "retire-arm", {"arm": "b"})
    assert await arms_played(api) == {"a", "b", "c"}
    # Reports in flight, also those about the arm, count for their keys.
    assert (await report(api, 20, first)).json()["accepted"] == 20
    assert await arms_played(api) == {"a", "c"}
    Participation(await api.publication(), "test", DEVICE)
    spec = (await api.facts())["spec"]["experiment"]
    assert (spec["arms"], spec["retired"]) == (["a", "b", "c"], ["b"])
    for _ in range(5):
        await report(api, 20)
        assert "b" not in await arms_played(api)
    assert (await api.client.get("/experiments/test/state")).json()["state"]["seen"] == 120
    await record_holds(api)


async def test_a_retired_arm_at_once_closes_the_round(api: Api) -> None:
    await api.create(SMALL)
    first = await api.publication()
    await report(api, 7)
    answer = await changed(api, "retire-arm", {"arm": "a", "seconds": 0})
    assert (answer["version"], answer["waiting"]) == (2, [])
    assert await arms_played(api) == {"b", "c"}
    assert_problem(await report(api, 1, first, seed=3), 409, "round-closed")
    assert (await api.facts())["accepted"] == 7


async def test_the_name_of_a_retired_arm_is_never_used_again(api: Api) -> None:
    await api.create(SMALL)
    await changed(api, "retire-arm", {"arm": "b"})
    problem = assert_problem(await change(api, "add-arm", {"arm": "b"}), 422, "spec-invalid")
    assert (problem["field"], problem["remedy"]) == ("arm", "choose another name")
    await report(api, 20)
    assert_problem(await change(api, "add-arm", {"arm": "b"}), 422, "spec-invalid")
    assert not (await changed(api, "retire-arm", {"arm": "b"}))["changed"]
    problem = assert_problem(await change(api, "retire-arm", {"arm": "a"}), 422, "spec-invalid")
    assert "2 arms" in problem["detail"]
    assert_problem(await change(api, "retire-arm", {"arm": "z"}), 422, "spec-invalid")


async def test_an_added_arm_is_tried_and_old_reports_say_nothing_about_it(api: Api) -> None:
    await api.create(SMALL)
    await report(api, 20)
    second = await api.publication()
    await changed(api, "add-arm", {"arm": "d"})
    assert "d" not in await arms_played(api)
    await report(api, 20, second)
    assert await arms_played(api) == {"a", "b", "c", "d"}
    third = await api.publication()
    Participation(third, "test", DEVICE)
    assert (await report(api, 20, third)).json()["accepted"] == 20
    assert not (await changed(api, "add-arm", {"arm": "d"}))["changed"]
    assert_problem(await change(api, "add-arm", {"arm": "a/b"}), 422, "spec-invalid")
    await record_holds(api)


async def test_an_arm_that_nobody_has_tried_is_nobodys_best(api: Api) -> None:
    await api.create(SMALL)
    for seed in range(5):
        await report(api, 20, seed=seed)
    await changed(api, "add-arm", {"arm": "d", "seconds": 0})
    assert "d" in await arms_played(api)
    await changed(api, "stop")
    assert "d" not in await arms_played(api)


async def test_changes_add_up_and_wait_together(api: Api) -> None:
    await api.create(SMALL)
    await changed(api, "retire-arm", {"arm": "c"})
    await changed(api, "add-arm", {"arm": "d"})
    await changed(api, "extend", {"horizon": 3000})
    answer = await changed(api, "pause", {"seconds": 0})
    assert (answer["version"], answer["status"], answer["waiting"]) == (2, "paused", [])
    spec = (await api.facts())["spec"]["experiment"]
    assert (spec["arms"], spec["retired"], spec["horizon"]) == (["a", "b", "c", "d"], ["c"], 3000)
    await changed(api, "resume")
    assert await arms_played(api) == {"a", "b", "d"}
    assert [since for _, _, since in await lines(api)] == [1, 2, 2, 2, 2, 3]


async def test_what_waits_may_be_hurried_and_is_never_put_off(api: Api) -> None:
    await api.create(SMALL)
    await changed(api, "retire-arm", {"arm": "b"})
    assert not (await changed(api, "retire-arm", {"arm": "b"}))["changed"]
    assert (await changed(api, "retire-arm", {"arm": "b", "seconds": 1000}))["changed"]
    # Neither a later end nor a pause without one moves what is planned.
    assert not (await changed(api, "retire-arm", {"arm": "b", "seconds": 2000}))["changed"]
    await changed(api, "pause")
    await changed(api, "resume")
    await changed(api, "extend", {"horizon": 2000, "seconds": 5000})
    assert (await api.facts())["version"] == 1
    answer = await changed(api, "retire-arm", {"arm": "b", "seconds": 0})
    assert (answer["version"], answer["waiting"]) == (2, [])
    assert await arms_played(api) == {"a", "c"}
    assert (await api.facts())["spec"]["experiment"]["horizon"] == 2000


async def test_a_deadline_of_a_change_outlives_a_pause(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privateer_server.deadlines._LOOK_SECONDS", 0.01)
    clock = Hands()
    async with serving(create_app(settings, clock)) as client:
        api = Api(client)
        await api.create(SMALL)
        await changed(api, "retire-arm", {"arm": "b", "seconds": 100})
        await changed(api, "pause")
        await changed(api, "resume")
        clock.time += 100
        await _reached(api, 2)
        assert await arms_played(api) == {"a", "c"}


async def test_phases_with_deadlines_do_not_fail_in_a_pause(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privateer_server.deadlines._LOOK_SECONDS", 0.01)
    monkeypatch.setattr("privateer_server.deadlines._LATE_SECONDS", 0)
    monkeypatch.setattr("privateer_server.deadlines._LATE_LOOKS", 1)
    clock = Hands()
    timed_phases = phased_tables({**PHASED, "asking.seconds": 60, "asking.when_short": "fail"}, "local")
    async with serving(create_app(settings, clock)) as client:
        api = Api(client)
        await client.post("/experiments", json=timed_phases, headers=ADMIN)
        await report(api, 3)
        await changed(api, "pause")
        clock.time += 61
        await _reached(api, 2)
        facts = await api.facts()
        assert facts | {"status": "paused", "batch": 0} == facts
        await changed(api, "resume")
        facts = await api.facts()
        assert (facts["status"], facts["version"], facts["batch"] > 0) == ("open", 3, True)
        # A pause within the deadline: others are asked anew, with all of the time.
        clock.time += 30
        await changed(api, "pause")
        await changed(api, "resume")
        round_ = decode_publication(await api.publication()).round
        assert (round_.version, round_.deadline) == (4, int(clock.now()) + 60)


async def test_a_replayed_change_changes_nothing(api: Api) -> None:
    await api.create(SMALL)
    for action, body in (
        ("retire-arm", {"arm": "b", "seconds": 0}),
        ("add-arm", {"arm": "d", "seconds": 0}),
        ("extend", {"horizon": 2000, "seconds": 0}),
        ("pause", {"seconds": 0}),
        ("resume", None),
        ("stop", None),
    ):
        assert (await changed(api, action, body))["changed"]
        before = (await api.facts(), await lines(api))
        assert not (await changed(api, action, body))["changed"]
        assert (await api.facts(), await lines(api)) == before


async def test_the_same_spec_again_is_the_same_experiment_after_changes(api: Api) -> None:
    await api.create(SMALL)
    await changed(api, "add-arm", {"arm": "d", "seconds": 0})
    assert (await api.create(SMALL)).status_code == 200
    assert (await api.create({**SMALL, "experiment.horizon": 77})).status_code == 409


async def test_a_clone_begins_with_what_was_learned(api: Api) -> None:
    await api.create(SMALL)
    for seed in range(5):
        await report(api, 20, seed=seed)
    await report(api, 7, seed=9)  # nothing of the open round is in the clone
    response = await change(api, "clone", {"name": "other"})
    assert response.status_code == 201
    facts = await api.facts("other")
    assert facts | {"version": 1, "received": 0, "accepted": 0, "status": "open", "batch": 20} == facts
    states = [(await api.client.get(f"/experiments/{name}/state")).json()["state"] for name in ("test", "other")]
    assert (states[1]["seen"], states[1]["rounds"]) == (0, 0)
    assert [list(row["arms"]) for row in states[0]["bins"]] == [list(row["arms"]) for row in states[1]["bins"]]
    publication = await api.publication("other")
    Participation(publication, "other", DEVICE)
    body = body_of(publication, sealed_reports(publication, 20))
    assert (await api.client.post("/reports", content=body)).json()["accepted"] == 20
    assert (await api.facts("other"))["version"] == 2
    assert (await change(api, "clone", {"name": "other"})).status_code == 200
    assert await lines(api, "other") == [("clone", 1, 1)]
    assert (await api.create({**SMALL, "experiment.name": "third"})).status_code == 201
    assert_problem(await change(api, "clone", {"name": "third"}), 409, "conflict")
    assert_problem(await change(api, "clone", {"name": "No Name"}), 422, "spec-invalid")


async def test_a_deleted_experiment_is_gone_and_its_name_stays_taken(settings: Settings) -> None:
    async with serving(create_app(settings)) as client:
        api = Api(client)
        await api.create(SMALL)
        first = await api.publication()
        await report(api, 12)
        answer = await client.delete("/experiments/test", headers=ADMIN)
        assert answer.json() == {"experiment": "test", "changed": True}
        await _is_gone(api, first)
        assert not list((settings.data / "keys").iterdir())
    kept = b"".join(path.read_bytes() for path in settings.data.rglob("*") if path.is_file())
    assert first not in kept
    assert decode_publication(first).policy not in kept
    async with serving(create_app(settings)) as client:
        await _is_gone(Api(client), first)
        assert (await client.delete("/experiments/test", headers=ADMIN)).json()["changed"] is False
        assert await lines(Api(client)) == [("create", 1, 1), ("delete", 1, 1)]


async def _is_gone(api: Api, publication: bytes) -> None:
    assert (await api.client.get("/experiments")).json() == {"experiments": []}
    for page in ("", "/policy", "/policy/1", "/state", "/history", "/privacy"):
        assert_problem(await api.client.get(f"/experiments/test{page}"), 410, "deleted")
    assert_problem(await report(api, 1, publication), 410, "deleted")
    problem = assert_problem(await api.create(SMALL), 409, "conflict")
    assert problem["field"] == "experiment.name"
    assert "test" not in (await api.client.get("/metrics")).text.replace("token-of-the-tests", "")
    assert_problem(await change(api, "pause"), 410, "deleted")


async def test_what_is_exported_starts_another_experiment(api: Api, settings: Settings) -> None:
    await api.create(SMALL)
    for seed in range(5):
        await report(api, 20, seed=seed)
    document = (await api.client.get("/experiments/test/export", headers=ADMIN)).json()
    assert base64.b64decode(document["publication"]) == await api.publication()
    assert document["record"] == (await api.client.get("/experiments/test/privacy")).json()
    spec = tables({**SMALL, "experiment.name": "next", "privacy.epsilon": 2.0, "experiment.horizon": 500})
    started = await change(api, "warm-start", {"spec": spec, "start": document}, "next")
    assert started.status_code == 201, started.text
    assert (await change(api, "warm-start", {"spec": spec, "start": document}, "next")).status_code == 200
    states = [(await api.client.get(f"/experiments/{name}/state")).json()["state"] for name in ("test", "next")]
    assert states[1]["seen"] == 0
    assert [list(row["arms"]) for row in states[0]["bins"]] == [list(row["arms"]) for row in states[1]["bins"]]
    assert (await api.client.get("/experiments/next/log", headers=ADMIN)).json()["changes"][0]["detail"] == (
        "warm start from test at version 6"
    )


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("experiment.arms", {"experiment.arms": ["a", "b"]}),
        ("context.features", {"context.features": {"x1": {"low": 0.0, "high": 2.0}, "x2": {"low": 0.0, "high": 1.0}}}),
        ("context.features", {"context.features": {"x2": {"low": 0.0, "high": 1.0}, "x1": {"low": 0.0, "high": 1.0}}}),
        ("reward", {"reward.high": 2.0}),
        ("algorithm", {"algorithm.confidence": "proved"}),
    ],
)
async def test_another_kind_of_experiment_does_not_start_with_it(api: Api, field: str, changes: dict[str, Any]) -> None:
    await api.create(SMALL)
    await report(api, 20)
    document = (await api.client.get("/experiments/test/export", headers=ADMIN)).json()
    spec = tables({**SMALL, "experiment.name": "next", **changes})
    problem = assert_problem(
        await change(api, "warm-start", {"spec": spec, "start": document}, "next"), 422, "spec-invalid"
    )
    assert problem["field"] == field
    assert_problem(await api.client.get("/experiments/next"), 404, "not-found")


async def test_a_forged_export_is_refused(api: Api) -> None:
    await api.create(SMALL)
    document = (await api.client.get("/experiments/test/export", headers=ADMIN)).json()
    spec = tables({**SMALL, "experiment.name": "next"})
    phased = phased_tables(PHASED, "local")
    for forged in (
        {},
        {**document, "format": "privateer/export/9"},
        {**document, "state": "!"},
        {**document, "state": base64.b64encode(b"junk").decode()},
        {**document, "spec": tables({"experiment.arms": ["a", "b", "c", "d"]})},
        {**document, "spec": phased},
        {**document, "more": 1},
    ):
        body = {"spec": spec, "start": forged}
        assert_problem(await change(api, "warm-start", body, "next"), 422, "spec-invalid")
    assert_problem(await change(api, "warm-start", {"spec": spec}, "next"), 400, "bad-request")
    assert [one["name"] for one in (await api.client.get("/experiments")).json()["experiments"]] == ["test"]


async def test_phases_can_be_paused_stopped_and_cloned_but_not_respecified(api: Api) -> None:
    await api.client.post("/experiments", json=phased_tables(PHASED, "local"), headers=ADMIN)
    first = await api.publication()
    people = decode_publication(first).round.batch
    for action, body in (("extend", {"horizon": 6000}), ("retire-arm", {"arm": "1"}), ("add-arm", {"arm": "x"})):
        problem = assert_problem(await change(api, action, body), 422, "spec-invalid")
        assert "create another experiment" in problem["remedy"]
    await report(api, 3)
    answer = await changed(api, "pause", {"seconds": 0})
    assert (answer["status"], answer["version"]) == ("paused", 2)
    assert not await asks(api)
    await changed(api, "resume")
    # Other people are asked the same: a few reports are no phase.
    draw = (await api.client.get("/experiments/test/policy")).json()["policy"]["draw"]
    assert draw["start"] == people
    assert (await report(api, decode_publication(await api.publication()).round.batch)).is_success
    assert (await change(api, "clone", {"name": "other"})).status_code == 201
    state, other = [(await api.client.get(f"/experiments/{name}/state")).json()["state"] for name in ("test", "other")]
    assert state == other
    await changed(api, "stop")
    assert (await api.facts())["status"] == "stopped"
    await record_holds(api)


@pytest.mark.parametrize("model", ["none", "central", "local"])
async def test_every_change_under_every_model_keeps_the_promise(api: Api, model: str) -> None:
    promise = {"none": {}, "central": {"privacy.delta": 1e-6}, "local": {}}[model]
    privacy = {"privacy": {"model": model} | ({} if model == "none" else {"epsilon": 1.0})}
    await api.create({**SMALL, **privacy, **promise})
    for action, body in (("add-arm", {"arm": "d"}), ("retire-arm", {"arm": "a"}), ("extend", {"horizon": 2000})):
        await report(api, 20)
        await changed(api, action, {**body, "seconds": 0})
        Participation(await api.publication(), "test", EVERYTHING)
        await record_holds(api)
    await report(api, 20)
    assert await arms_played(api) <= {"b", "c", "d"}


async def test_strangers_change_nothing_and_read_no_log(settings: Settings) -> None:
    app = create_app(settings)
    async with serving(app) as client, serving_public(app) as strangers:
        api = Api(client)
        await api.create(SMALL)
        for action in ("pause", "resume", "stop", "extend", "retire-arm", "add-arm", "clone", "warm-start"):
            body = {"horizon": 5000, "arm": "b", "name": "other"}
            for token in ({}, {"authorization": "Bearer wrong-token-of-somebody"}):
                refused = await client.post(f"/experiments/test/{action}", json=body, headers=token)
                assert refused.status_code in (401, 422)
            stranger = await strangers.post(f"/experiments/test/{action}", json=body, headers=ADMIN)
            assert stranger.status_code == 404
        assert (await client.delete("/experiments/test")).status_code == 401
        assert (await strangers.delete("/experiments/test", headers=ADMIN)).status_code == 404
        for page in ("log", "export"):
            assert (await client.get(f"/experiments/test/{page}")).status_code == 401
            assert (await strangers.get(f"/experiments/test/{page}", headers=ADMIN)).status_code == 404
        assert await lines(api) == [("create", 1, 1)]
        facts = await api.facts()
        assert facts | {"status": "open", "version": 1} == facts


def serving_public(app: Any) -> Any:
    """A client of the listener that strangers reach, within the lifespan of the other."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app.public), base_url="http://server")
