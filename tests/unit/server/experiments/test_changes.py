"""Changes to a running experiment: what devices in flight, the learner and the record see of each."""

from typing import Any

import httpx
import pytest

from privateer_client.participation import Participation
from privateer_core.privacy.terms_verification import Limits
from privateer_core.wire.publication import decode_publication
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.changes import arms_played, asks, change, lines, make_change, record_holds, report, wait_for_version
from tests.support.clocks import Hands
from tests.support.devices import EVERYTHING
from tests.support.servers import ADMIN, MSGPACK, SMALL, TOKEN, Api, assert_problem

DEVICE = Limits(epsilon=1.0)


async def test_a_pause_invites_no_participants_and_waits_for_reports_in_flight(api: Api) -> None:
    await api.create(SMALL)
    first = await api.publication()
    answer = await make_change(api, "pause")
    assert answer | {"status": "paused", "version": 1, "changed": True, "pending_changes": []} == answer
    assert not await asks(api)
    assert await api.publication() == first
    # Those who chose before report as ever, and the round is learned from.
    assert (await report(api, 20, first)).json()["accepted"] == 20
    facts = await api.facts()
    assert facts | {"status": "paused", "version": 2, "batch_size": 0, "accepted": 20} == facts
    assert not await asks(api)
    assert len(await arms_played(api)) == 1
    answer = await make_change(api, "resume")
    # The round that ended asked nobody: it was the pause's own.
    assert answer | {"status": "open", "version": 3, "round_given_up": False} == answer
    assert await asks(api)
    assert (await report(api, 20)).json()["accepted"] == 20
    assert (await api.client.get("/experiments/test/state")).json()["answer"]["people"] == 40
    record = await record_holds(api)
    assert ([row["version"] for row in record["rounds"]], record["silent"]) == ([1, 3, 4], [2])
    assert await lines(api) == [("create", 1, 1), ("pause", 1, 1), ("resume", 2, 3)]


async def test_a_round_goes_on_after_a_short_pause(api: Api) -> None:
    await api.create(SMALL)
    first = await api.publication()
    await report(api, 12)
    await make_change(api, "pause")
    await make_change(api, "resume")
    assert await asks(api)
    assert await api.publication() == first
    assert (await report(api, 8, seed=2)).json()["accepted"] == 8
    assert (await api.facts())["version"] == 2
    assert await lines(api) == [("create", 1, 1), ("pause", 1, 1), ("resume", 1, 1)]


async def test_an_immediate_pause_learns_from_the_reports_so_far(api: Api) -> None:
    await api.create(SMALL)
    first = await api.publication()
    await report(api, 12)
    answer = await make_change(api, "pause", {"seconds": 0})
    assert answer | {"status": "paused", "version": 2} == answer
    assert_problem(await report(api, 1, first, seed=3), 409, "round-closed")
    assert (await api.client.get("/experiments/test/state")).json()["answer"]["people"] == 12
    assert await lines(api) == [("create", 1, 1), ("pause", 1, 2)]
    rows = (await record_holds(api))["rounds"]
    assert [(row["received"], row["released"]) for row in rows] == [(12, True)]


async def test_a_pause_has_a_deadline_which_a_restart_keeps(settings, monkeypatch):
    monkeypatch.setattr("privateer_server.rounds.background_checks._CHECK_INTERVAL_SECONDS", 0.01)
    clock = Hands()
    async with serving(create_app(settings, clock)) as client:
        await Api(client).create(SMALL)
        await make_change(Api(client), "pause", {"seconds": 100})
        await report(Api(client), 5)
    async with serving(create_app(settings, clock)) as client:
        api = Api(client)
        assert (await api.facts())["status"] == "paused"
        assert not await asks(api)
        clock.time += 99
        assert (await api.facts())["version"] == 1
        clock.time += 1
        await wait_for_version(api, 2)
        assert (await api.client.get("/experiments/test/state")).json()["answer"]["people"] == 5


async def test_a_stop_publishes_the_best_policy_for_good(api: Api) -> None:
    await api.create(SMALL)
    await report(api, 20)
    second = await api.publication()
    answer = await make_change(api, "stop")
    assert answer | {"status": "stopped", "version": 3} == answer
    assert len(await arms_played(api)) == 1
    assert_problem(await report(api, 1, second), 409, "round-closed")
    assert not await asks(api)
    assert not (await make_change(api, "stop"))["changed"]
    for action in ("pause", "resume"):
        assert_problem(await change(api, action), 409, "conflict")
    for action, body in (("extend", {"horizon": 5000}), ("add-arm", {"arm": "d"})):
        assert_problem(await change(api, action, body), 409, "conflict")
    await record_holds(api)


@pytest.mark.parametrize("ended", ["stopped", "finished"])
async def test_an_arm_that_is_still_given_can_be_retired_after_the_end(api: Api, ended: str) -> None:
    await api.create(SMALL | {"experiment.round_size": 20, "experiment.horizon": 40})
    await report(api, 20)
    if ended == "stopped":
        await make_change(api, "stop")
    else:
        await report(api, 20)
    before, (arm,) = await api.facts(), await arms_played(api)
    assert before["status"] == ended
    answer = await make_change(api, "retire-arm", {"arm": arm})
    assert answer | {"status": ended, "version": before["version"] + 1, "pending_changes": []} == answer
    assert arm not in await arms_played(api)
    assert not await asks(api)
    facts = await api.facts()
    assert (facts["accepted"], facts["batch_size"]) == (before["accepted"], 0)
    await record_holds(api)


async def test_a_stop_may_wait_for_reports_in_flight(api: Api) -> None:
    await api.create(SMALL)
    first = await api.publication()
    answer = await make_change(api, "stop", {"seconds": 1000})
    assert answer | {"status": "stopped", "version": 1} == answer
    assert not await asks(api)
    assert_problem(await change(api, "pause"), 409, "conflict")
    assert (await report(api, 20, first)).json()["accepted"] == 20
    facts = await api.facts()
    assert facts | {"status": "stopped", "version": 2, "batch_size": 0} == facts


async def test_a_longer_horizon_is_in_the_next_publication(api: Api) -> None:
    await api.create({"experiment.round_size": 20, "experiment.horizon": 40})
    answer = await make_change(api, "extend", {"horizon": 60})
    assert [row["action"] for row in answer["pending_changes"]] == ["extend"]
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
    answer = await make_change(api, "extend", {"horizon": 80})
    assert answer | {"status": "open", "version": 5} == answer
    await report(api, 20)
    facts = await api.facts()
    assert facts | {"status": "finished", "accepted": 80, "version": 6} == facts
    assert (await record_holds(api))["silent"] == [4, 6]
    assert await lines(api) == [("create", 1, 1), ("extend", 1, 2), ("extend", 4, 5)]


async def test_a_horizon_cannot_shrink_and_must_hold_a_round(api: Api) -> None:
    await api.create({**SMALL, "experiment.horizon": 40})
    problem = assert_problem(await change(api, "extend", {"horizon": 39}), 422, "spec-invalid")
    assert problem["field"] == "experiment.horizon"
    assert_problem(await change(api, "extend", {"horizon": 10**11}), 422, "spec-invalid")
    assert not (await make_change(api, "extend", {"horizon": 40}))["changed"]
    assert_problem(await change(api, "extend", {"horizon": 0}), 422, "parameter-invalid")
    assert len(await lines(api)) == 1


async def test_rounds_that_no_request_may_carry_are_refused_when_the_horizon_grows(settings: ServerSettings) -> None:
    small = ServerSettings(data=settings.data, admin_token=TOKEN, batch_bytes_max=100_000, report_bytes_max=10_000)
    shuffled = {
        "privacy.model": "shuffle",
        "privacy.delta": 1e-6,
        "privacy.min_batch": 100,
        "experiment.round_size": 100,
    }
    async with serving(create_app(small)) as client:
        api = Api(client)
        assert (
            await api.create({**shuffled, "experiment.horizon": 1000, "experiment.min_round_fraction": 0.5})
        ).is_success
        problem = assert_problem(await change(api, "extend", {"horizon": 1_000_000}), 422, "spec-invalid")
        assert problem["field"] == "experiment.min_round_fraction"


async def test_a_retired_arm_has_no_share_from_the_next_policy_on(api: Api) -> None:
    await api.create(SMALL)
    first = await api.publication()
    await make_change(api, "retire-arm", {"arm": "b"})
    assert await arms_played(api) == {"a", "b", "c"}
    # Reports in flight, also those about the arm, count for their keys.
    assert (await report(api, 20, first)).json()["accepted"] == 20
    assert await arms_played(api) == {"a", "c"}
    Participation(await api.publication(), "test", DEVICE)
    spec = (await api.facts())["spec"]["experiment"]
    assert (spec["arms"], spec["retired_arms"]) == (["a", "b", "c"], ["b"])
    for _ in range(5):
        await report(api, 20)
        assert "b" not in await arms_played(api)
    assert (await api.client.get("/experiments/test/state")).json()["answer"]["people"] == 120
    await record_holds(api)


async def test_retiring_an_arm_at_once_closes_the_round(api: Api) -> None:
    await api.create(SMALL)
    first = await api.publication()
    await report(api, 7)
    answer = await make_change(api, "retire-arm", {"arm": "a", "seconds": 0})
    assert (answer["version"], answer["pending_changes"], answer["round_given_up"]) == (2, [], False)
    assert await arms_played(api) == {"b", "c"}
    assert_problem(await report(api, 1, first, seed=3), 409, "round-closed")
    assert (await api.facts())["accepted"] == 7


async def test_the_name_of_a_retired_arm_is_never_used_again(api: Api) -> None:
    await api.create(SMALL)
    await make_change(api, "retire-arm", {"arm": "b"})
    problem = assert_problem(await change(api, "add-arm", {"arm": "b"}), 422, "spec-invalid")
    assert (problem["field"], problem["remedy"]) == ("arm", "choose another name")
    await report(api, 20)
    assert_problem(await change(api, "add-arm", {"arm": "b"}), 422, "spec-invalid")
    assert not (await make_change(api, "retire-arm", {"arm": "b"}))["changed"]
    problem = assert_problem(await change(api, "retire-arm", {"arm": "a"}), 422, "spec-invalid")
    assert "2 arms" in problem["detail"]
    assert_problem(await change(api, "retire-arm", {"arm": "z"}), 422, "spec-invalid")


async def test_an_added_arm_is_explored_without_evidence_from_old_reports(api: Api) -> None:
    await api.create(SMALL)
    await report(api, 20)
    second = await api.publication()
    await make_change(api, "add-arm", {"arm": "d"})
    assert "d" not in await arms_played(api)
    await report(api, 20, second)
    assert await arms_played(api) == {"a", "b", "c", "d"}
    third = await api.publication()
    Participation(third, "test", DEVICE)
    assert (await report(api, 20, third)).json()["accepted"] == 20
    assert not (await make_change(api, "add-arm", {"arm": "d"}))["changed"]
    assert_problem(await change(api, "add-arm", {"arm": "a/b"}), 422, "spec-invalid")
    await record_holds(api)


async def test_an_arm_without_reports_is_not_recommended(api: Api) -> None:
    await api.create(SMALL)
    for seed in range(5):
        await report(api, 20, seed=seed)
    await make_change(api, "add-arm", {"arm": "d", "seconds": 0})
    assert "d" in await arms_played(api)
    await make_change(api, "stop")
    assert "d" not in await arms_played(api)


async def test_pending_changes_are_combined(api: Api) -> None:
    await api.create(SMALL)
    await make_change(api, "retire-arm", {"arm": "c"})
    await make_change(api, "add-arm", {"arm": "d"})
    await make_change(api, "extend", {"horizon": 3000})
    answer = await make_change(api, "pause", {"seconds": 0})
    assert (answer["version"], answer["status"], answer["pending_changes"]) == (2, "paused", [])
    spec = (await api.facts())["spec"]["experiment"]
    assert (spec["arms"], spec["retired_arms"], spec["horizon"]) == (["a", "b", "c", "d"], ["c"], 3000)
    await make_change(api, "resume")
    assert await arms_played(api) == {"a", "b", "d"}
    assert [version for _, _, version in await lines(api)] == [1, 2, 2, 2, 2, 3]


async def test_a_pending_change_may_be_advanced_but_not_deferred(api: Api) -> None:
    await api.create(SMALL)
    await make_change(api, "retire-arm", {"arm": "b"})
    assert not (await make_change(api, "retire-arm", {"arm": "b"}))["changed"]
    assert (await make_change(api, "retire-arm", {"arm": "b", "seconds": 1000}))["changed"]
    # Neither a later end nor a pause without one moves what is planned.
    assert not (await make_change(api, "retire-arm", {"arm": "b", "seconds": 2000}))["changed"]
    await make_change(api, "pause")
    await make_change(api, "resume")
    await make_change(api, "extend", {"horizon": 2000, "seconds": 5000})
    assert (await api.facts())["version"] == 1
    answer = await make_change(api, "retire-arm", {"arm": "b", "seconds": 0})
    assert (answer["version"], answer["pending_changes"]) == (2, [])
    assert await arms_played(api) == {"a", "c"}
    assert (await api.facts())["spec"]["experiment"]["horizon"] == 2000


async def test_the_deadline_of_a_change_continues_through_a_pause(settings, monkeypatch):
    monkeypatch.setattr("privateer_server.rounds.background_checks._CHECK_INTERVAL_SECONDS", 0.01)
    clock = Hands()
    async with serving(create_app(settings, clock)) as client:
        api = Api(client)
        await api.create(SMALL)
        await make_change(api, "retire-arm", {"arm": "b", "seconds": 100})
        await make_change(api, "pause")
        await make_change(api, "resume")
        clock.time += 100
        await wait_for_version(api, 2)
        assert await arms_played(api) == {"a", "c"}


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
        assert (await make_change(api, action, body))["changed"]
        before = (await api.facts(), await lines(api))
        assert not (await make_change(api, action, body))["changed"]
        assert (await api.facts(), await lines(api)) == before


async def test_the_same_spec_again_is_the_same_experiment_after_changes(api: Api) -> None:
    await api.create(SMALL)
    await make_change(api, "add-arm", {"arm": "d", "seconds": 0})
    assert (await api.create(SMALL)).status_code == 200
    assert (await api.create({**SMALL, "experiment.horizon": 77})).status_code == 409


@pytest.mark.parametrize("model", ["none", "central", "local"])
async def test_every_change_under_every_model_keeps_the_promise(api: Api, model: str) -> None:
    promise = {"none": {}, "central": {"privacy.delta": 1e-6}, "local": {}}[model]
    privacy = {"privacy": {"model": model} | ({} if model == "none" else {"epsilon": 1.0})}
    await api.create({**SMALL, **privacy, **promise})
    for action, body in (("add-arm", {"arm": "d"}), ("retire-arm", {"arm": "a"}), ("extend", {"horizon": 2000})):
        await report(api, 20)
        await make_change(api, action, {**body, "seconds": 0})
        Participation(await api.publication(), "test", EVERYTHING)
        await record_holds(api)
    await report(api, 20)
    assert await arms_played(api) <= {"b", "c", "d"}


async def test_changes_and_their_log_need_the_admin_token(settings: ServerSettings) -> None:
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
