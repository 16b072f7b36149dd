"""Phased experiments and algorithms that a server lacks."""

import logging
import re
import tomllib
from pathlib import Path

import pytest

from privateer_core.wire.publication import decode_publication
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from privateer_server.store.schema import STORE_FILE
from tests.support.asgi import serving
from tests.support.changes import asks, change, make_change, record_holds, report, wait_for_version
from tests.support.clocks import Hands
from tests.support.doctor import edit, run_checks
from tests.support.phased import tables
from tests.support.phased import tables as phased_tables
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import ADMIN, PHASED, SMALL, Api, assert_problem

RENAMED = (
    "UPDATE experiments SET spec = CAST(replace(CAST(spec AS TEXT), '\"{}\"', '\"{}\"') AS BLOB) WHERE name = 'test'"
)
GONE, BACK = RENAMED.format("partition", "gone"), RENAMED.format("gone", "partition")


async def test_other_experiments_continue(settings: ServerSettings, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(create_app(settings)) as client:
        api = Api(client)
        await api.create(SMALL)
        await api.create(SMALL | {"experiment.name": "other"})
        publication, policy = await api.publication(), await api.publication("other")
    edit(settings.data / STORE_FILE, GONE)
    caplog.set_level(logging.ERROR)
    async with serving(create_app(settings)) as client:
        api = Api(client)
        (line,) = [record.getMessage() for record in caplog.records]
        assert line.startswith("experiment test stands still: algorithm.name: must be one of additive, bandit, ")
        assert line.endswith("(choose one, or install the distribution that brings it)")
        problem = assert_problem(await client.get("/experiments/test"), 503, "unavailable")
        assert problem["remedy"] == "choose one, or install the distribution that brings it"
        assert_problem(await api.create(SMALL), 503, "unavailable")
        response = await client.post("/reports", content=body_of(publication, sealed_reports(publication, 2)))
        assert_problem(response, 503, "unavailable")
        response = await client.post("/reports", content=body_of(policy, sealed_reports(policy, 20)))
        assert response.json()["accepted"] == 20
        assert (await api.facts("other"))["version"] == 2
        assert [row["name"] for row in (await client.get("/experiments")).json()["experiments"]] == ["other"]
    edit(settings.data / STORE_FILE, BACK)
    async with serving(create_app(settings)) as client:  # it is installed again, and the key of its round is kept
        response = await client.post("/reports", content=body_of(publication, sealed_reports(publication, 20)))
        assert response.json()["accepted"] == 20


async def test_the_doctor_names_the_algorithm(settings: ServerSettings, capsys: pytest.CaptureFixture[str]) -> None:
    async with serving(create_app(settings)) as client:
        await Api(client).create(SMALL)
    edit(settings.data / STORE_FILE, GONE)
    code, findings = run_checks(capsys, settings.data, "server")
    (problem,) = findings["server algorithms"]
    assert code == 1
    assert problem["detail"].startswith("test stands still: algorithm.name: must be one of")
    assert "install the distribution" in problem["remedy"]


async def test_a_horizon_below_the_rounded_first_phase_is_refused(api: Api) -> None:
    changes = {"actions.dimension": 5, "experiment.horizon": 26}
    answer = await api.client.post("/experiments", json=tables(changes, "central"), headers=ADMIN)
    problem = assert_problem(answer, 422, "spec-invalid")
    assert problem["field"] == "experiment.horizon"
    min_horizon = int(re.findall(r"\d+", problem["remedy"])[0])
    for horizon, status in ((min_horizon - 1, 422), (min_horizon, 201)):
        changes["experiment.horizon"] = horizon
        answer = await api.client.post("/experiments", json=tables(changes, "central"), headers=ADMIN)
        assert answer.status_code == status
    assert (await api.facts())["batch_size"] > 0
    assert (await api.client.get("/experiments/test/privacy")).status_code == 200


async def test_the_history_has_the_number_of_invitations_of_a_phase(api: Api) -> None:
    spec = tables({"recruitment.timeout_seconds": 60, "recruitment.over_selection_factor": 2.0}, "central")
    assert (await api.client.post("/experiments", json=spec, headers=ADMIN)).status_code == 201
    (row,) = (await api.client.get("/experiments/test/history")).json()["rounds"]
    assert row["figures"]["asked"] == 2 * row["batch_size"]
    assert row["figures"]["active"] == 30


async def test_phases_too_large_for_a_batch_are_refused_with_a_remedy(api: Api) -> None:
    spec = tomllib.loads((Path(__file__).parents[4] / "examples" / "dpe.toml").read_text())
    problem = assert_problem(await api.client.post("/experiments", json=spec, headers=ADMIN), 422, "spec-invalid")
    assert problem["field"] == "algorithm.alpha"
    assert "experiment.horizon" in problem["remedy"]
    for section, key, lower in (("algorithm", "alpha", 0.6), ("experiment", "horizon", 200_000)):
        changed = spec | {"experiment": spec["experiment"] | {"name": key}}
        changed[section] = changed[section] | {key: lower}
        assert (await api.client.post("/experiments", json=changed, headers=ADMIN)).status_code == 201


async def test_a_phase_does_not_fail_at_its_deadline_during_a_pause(settings, monkeypatch):
    monkeypatch.setattr("privateer_server.rounds.background_checks._CHECK_INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr("privateer_server.rounds.background_checks._MIN_LATE_SECONDS", 0)
    monkeypatch.setattr("privateer_server.rounds.background_checks._MIN_LATE_CHECKS", 1)
    clock = Hands()
    timed_phases = phased_tables({**PHASED, "recruitment.timeout_seconds": 60, "recruitment.extensions": 0}, "local")
    async with serving(create_app(settings, clock)) as client:
        api = Api(client)
        await client.post("/experiments", json=timed_phases, headers=ADMIN)
        await report(api, 3)
        await make_change(api, "pause")
        clock.time += 61
        await wait_for_version(api, 2)
        facts = await api.facts()
        assert facts | {"status": "paused", "batch_size": 0} == facts
        await make_change(api, "resume")
        facts = await api.facts()
        assert (facts["status"], facts["version"], facts["batch_size"] > 0) == ("open", 3, True)
        # A pause within the deadline: others are asked anew, with all of the time.
        clock.time += 30
        await make_change(api, "pause")
        await make_change(api, "resume")
        round_ = decode_publication(await api.publication()).round
        assert (round_.version, round_.deadline) == (4, int(clock.now()) + 60)


async def test_phases_can_be_paused_stopped_and_cloned_but_not_respecified(api: Api) -> None:
    await api.client.post("/experiments", json=phased_tables(PHASED, "local"), headers=ADMIN)
    first = await api.publication()
    people = decode_publication(first).round.batch_size
    for action, body in (("extend", {"horizon": 6000}), ("retire-arm", {"arm": "1"}), ("add-arm", {"arm": "x"})):
        problem = assert_problem(await change(api, action, body), 422, "spec-invalid")
        assert "create another experiment" in problem["remedy"]
    await report(api, 3)
    answer = await make_change(api, "pause", {"seconds": 0})
    assert (answer["status"], answer["version"]) == ("paused", 2)
    assert not await asks(api)
    await make_change(api, "resume")
    # Other people are asked the same: a few reports are no phase.
    draw = (await api.client.get("/experiments/test/policy")).json()["policy"]["shows"]["draw"]
    assert draw["start"] == people
    assert (await report(api, decode_publication(await api.publication()).round.batch_size)).is_success
    assert (await change(api, "clone", {"name": "other"})).status_code == 201
    state, other = [(await api.client.get(f"/experiments/{name}/state")).json()["answer"] for name in ("test", "other")]
    assert state == other
    await make_change(api, "stop")
    assert (await api.facts())["status"] == "stopped"
    await record_holds(api)
