"""Phased experiments that could not ask anybody are refused when they are created."""

import re
import tomllib
from pathlib import Path

from tests.support.phased import tables
from tests.support.servers import ADMIN, Api, assert_problem


async def test_a_horizon_that_rounding_up_leaves_no_first_phase(api: Api) -> None:
    changes = {"actions.dimension": 5, "experiment.horizon": 26}
    answer = await api.client.post("/experiments", json=tables(changes, "central"), headers=ADMIN)
    problem = assert_problem(answer, 422, "spec-invalid")
    assert problem["field"] == "experiment.horizon"
    least = int(re.findall(r"\d+", problem["remedy"])[0])
    for horizon, status in ((least - 1, 422), (least, 201)):
        changes["experiment.horizon"] = horizon
        answer = await api.client.post("/experiments", json=tables(changes, "central"), headers=ADMIN)
        assert answer.status_code == status
    assert (await api.facts())["batch"] > 0
    assert (await api.client.get("/experiments/test/privacy")).status_code == 200


async def test_the_history_says_how_many_people_a_phase_asks(api: Api) -> None:
    spec = tables({"asking.seconds": 60, "asking.reserve": 2.0}, "central")
    assert (await api.client.post("/experiments", json=spec, headers=ADMIN)).status_code == 201
    (row,) = (await api.client.get("/experiments/test/history")).json()["rounds"]
    assert row["figures"]["asked"] == 2 * row["batch"]
    assert row["figures"]["active"] == 30


async def test_phases_too_large_for_a_batch_are_told_with_a_remedy_that_works(api: Api) -> None:
    spec = tomllib.loads((Path(__file__).parents[4] / "examples" / "dpe.toml").read_text())
    problem = assert_problem(await api.client.post("/experiments", json=spec, headers=ADMIN), 422, "spec-invalid")
    assert problem["field"] == "algorithm.alpha"
    assert "experiment.horizon" in problem["remedy"]
    for section, key, lower in (("algorithm", "alpha", 0.6), ("experiment", "horizon", 200_000)):
        changed = spec | {"experiment": spec["experiment"] | {"name": key}}
        changed[section] = changed[section] | {key: lower}
        assert (await api.client.post("/experiments", json=changed, headers=ADMIN)).status_code == 201
