"""An experiment whose algorithm is gone stands still, says why, and keeps no other from going on."""

import logging

import pytest

from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from privateer_server.store.schema import FILE
from tests.support.asgi import serving
from tests.support.doctor import edit, examined
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import SMALL, Api, assert_problem

RENAMED = (
    "UPDATE experiments SET spec = CAST(replace(CAST(spec AS TEXT), '\"{}\"', '\"{}\"') AS BLOB) WHERE name = 'test'"
)
GONE, BACK = RENAMED.format("partition", "gone"), RENAMED.format("gone", "partition")


async def test_the_others_go_on(settings: ServerSettings, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(create_app(settings)) as client:
        api = Api(client)
        await api.create(SMALL)
        await api.create(SMALL | {"experiment.name": "other"})
        lost, policy = await api.publication(), await api.publication("other")
    edit(settings.data / FILE, GONE)
    caplog.set_level(logging.ERROR)
    async with serving(create_app(settings)) as client:
        api = Api(client)
        (line,) = [one.getMessage() for one in caplog.records]
        assert line.startswith("experiment test stands still: algorithm.name: must be one of additive, bandit, ")
        assert line.endswith("(choose one, or install the distribution that brings it)")
        problem = assert_problem(await client.get("/experiments/test"), 503, "unavailable")
        assert problem["remedy"] == "choose one, or install the distribution that brings it"
        assert_problem(await api.create(SMALL), 503, "unavailable")
        sent = await client.post("/reports", content=body_of(lost, sealed_reports(lost, 2)))
        assert_problem(sent, 503, "unavailable")
        sent = await client.post("/reports", content=body_of(policy, sealed_reports(policy, 20)))
        assert sent.json()["accepted"] == 20
        assert (await api.facts("other"))["version"] == 2
        assert [one["name"] for one in (await client.get("/experiments")).json()["experiments"]] == ["other"]
    edit(settings.data / FILE, BACK)
    async with serving(create_app(settings)) as client:  # it is installed again, and the key of its round is kept
        sent = await client.post("/reports", content=body_of(lost, sealed_reports(lost, 20)))
        assert sent.json()["accepted"] == 20


async def test_the_doctor_says_so(settings: ServerSettings, capsys: pytest.CaptureFixture[str]) -> None:
    async with serving(create_app(settings)) as client:
        await Api(client).create(SMALL)
    edit(settings.data / FILE, GONE)
    code, found = examined(capsys, settings.data, "server")
    (problem,) = found["server algorithms"]
    assert code == 1
    assert problem["detail"].startswith("test stands still: algorithm.name: must be one of")
    assert "install the distribution" in problem["remedy"]
