"""The operations that an experiment lists as accepted are accepted, and all others are refused."""

from typing import Any

import pytest

from privateer_core.algorithms import algorithm
from privateer_core.privacy.trust import Recipient
from privateer_core.spec.spec import Spec
from tests.support.algorithms import RUN
from tests.support.changes import change, make_change
from tests.support.servers import ADMIN, SMALL, Api

TRIED = ("extend", "retire-arm", "add-arm", "clone")


def spec_of(name: str) -> Spec:
    """Return a small spec of an algorithm with unbatched reports."""
    instances = algorithm(name).spec.instances()
    return next(
        instance
        for instance in instances.values()
        if instance.privacy.trust.endpoint is not Recipient.SHUFFLER and instance.privacy.trust.calibration == "tight"
    )


def wish(spec: Spec, action: str) -> dict[str, Any]:
    arms = [
        arm
        for arm in getattr(spec.experiment, "arms", ["x"])
        if arm not in getattr(spec.experiment, "retired_arms", ())
    ]
    figures = {"extend": {"horizon": 2 * spec.experiment.horizon}, "retire-arm": {"arm": arms[0]}}
    return figures.get(action) or {"add-arm": {"arm": "another"}, "clone": {"name": "another"}}[action]


@pytest.mark.parametrize("action", TRIED)
@pytest.mark.parametrize("name", RUN)
@pytest.mark.battery
async def test_listed_operations_are_those_of_the_algorithm(api: Api, name: str, action: str) -> None:
    spec = spec_of(name)
    response = await api.client.post(
        "/experiments", json=spec.model_dump(mode="json", exclude_none=True), headers=ADMIN
    )
    assert response.status_code == 201, response.text
    offered = response.json()["allowed_changes"]
    assert {"pause", "stop", "delete"} <= set(offered)
    assert "resume" not in offered
    answer = await change(api, action, wish(spec, action), name=spec.name)
    assert (answer.status_code < 300) == (action in offered), answer.text


async def test_listed_operations_follow_the_status(api: Api) -> None:
    await api.create(SMALL)
    all_changes = ["pause", "extend", "stop", "retire-arm", "add-arm", "clone", "delete"]
    assert (await api.facts())["allowed_changes"] == all_changes
    await make_change(api, "pause")
    assert (await api.facts())["allowed_changes"] == ["resume", *all_changes[1:]]
    await make_change(api, "stop")
    assert (await api.facts())["allowed_changes"] == ["retire-arm", "clone", "delete"]


async def test_an_experiment_states_that_it_never_publishes_a_result(api: Api) -> None:
    await api.create(SMALL)
    assert (await api.facts())["publishes_result"] is False


async def test_listed_operations_follow_a_pending_change(api: Api) -> None:
    await api.create(SMALL)
    facts = await api.facts()
    assert "retire-arm" in facts["allowed_changes"]
    await make_change(api, "retire-arm", {"arm": facts["spec"]["experiment"]["arms"][0]})
    assert "retire-arm" not in (await api.facts())["allowed_changes"]  # of the two that are left
