"""Phased experiments that could not ask anybody are refused when they are created."""

import re

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
