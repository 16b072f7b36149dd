"""Changes to a running experiment in phases."""

import pytest

from privateer_core.wire.publication import decode_publication
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.changes import asks, change, make_change, record_holds, report, wait_for_version
from tests.support.clocks import Hands
from tests.support.phased import tables as phased_tables
from tests.support.servers import ADMIN, PHASED, Api, assert_problem


async def test_a_phase_does_not_fail_at_its_deadline_during_a_pause(
    settings: ServerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
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
