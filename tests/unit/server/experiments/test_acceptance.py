"""What an experiment says that it accepts, it accepts; what it leaves out, it refuses."""

from typing import Any

import pytest

from privateer_core.algorithms import algorithm
from privateer_core.spec.spec import Spec
from tests.support.algorithms import RUN
from tests.support.changes import change, changed
from tests.support.servers import ADMIN, SMALL, Api

TRIED = ("extend", "retire-arm", "add-arm", "clone")


def spec_of(name: str) -> Spec:
    """A small spec of an algorithm whose reports come one by one."""
    instances = algorithm(name).spec.instances()
    return next(
        one for one in instances.values() if not one.privacy.trust.shuffled and one.privacy.trust.calibration == "tight"
    )


def wish(spec: Spec, action: str) -> dict[str, Any]:
    arms = [
        arm for arm in getattr(spec.experiment, "arms", ["x"]) if arm not in getattr(spec.experiment, "retired", ())
    ]
    figures = {"extend": {"horizon": 2 * spec.experiment.horizon}, "retire-arm": {"arm": arms[0]}}
    return figures.get(action) or {"add-arm": {"arm": "another"}, "clone": {"name": "another"}}[action]


@pytest.mark.parametrize("action", TRIED)
@pytest.mark.parametrize("name", RUN)
@pytest.mark.battery
async def test_what_is_offered_is_what_the_algorithm_takes(api: Api, name: str, action: str) -> None:
    spec = spec_of(name)
    made = await api.client.post("/experiments", json=spec.model_dump(mode="json", exclude_none=True), headers=ADMIN)
    assert made.status_code == 201, made.text
    offered = made.json()["accepts"]
    assert {"pause", "stop", "delete"} <= set(offered)
    assert "resume" not in offered
    answer = await change(api, action, wish(spec, action), name=spec.name)
    assert (answer.status_code < 300) == (action in offered), answer.text


async def test_what_is_offered_follows_the_status(api: Api) -> None:
    await api.create(SMALL)
    everything = ["pause", "extend", "stop", "retire-arm", "add-arm", "clone", "delete"]
    assert (await api.facts())["accepts"] == everything
    await changed(api, "pause")
    assert (await api.facts())["accepts"] == ["resume", *everything[1:]]
    await changed(api, "stop")
    assert (await api.facts())["accepts"] == ["clone", "delete"]


async def test_a_server_says_that_an_algorithm_never_publishes_a_result(api: Api) -> None:
    await api.create(SMALL)
    assert (await api.facts())["publishes_result"] is False


async def test_what_is_offered_follows_a_change_that_waits(api: Api) -> None:
    await api.create(SMALL)
    facts = await api.facts()
    assert "retire-arm" in facts["accepts"]
    await changed(api, "retire-arm", {"arm": facts["spec"]["experiment"]["arms"][0]})
    assert "retire-arm" not in (await api.facts())["accepts"]  # of the two that are left
