"""An experiment whose algorithm is not installed stands still, with the reason, while the rest continue."""

import logging

import pytest

from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from privateer_server.store.schema import STORE_FILE
from tests.support.asgi import serving
from tests.support.doctor import edit, run_checks
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import SMALL, Api, assert_problem

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
