"""Phased experiments that could not ask anybody are refused when they are created."""

import re
import tomllib
from pathlib import Path

from tests.support.phased import tables
from tests.support.servers import ADMIN, Api, assert_problem


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
