"""Clones, exports and deletions: the state that goes on elsewhere, and the data that is erased."""

import base64
import json
from typing import Any

import numpy as np
import pytest

from privateer_client import OfflinePolicy
from privateer_client.participation import Participation
from privateer_core.algorithms import algorithm
from privateer_core.answer.export import read_export
from privateer_core.codec import decode, encode
from privateer_core.privacy.terms_verification import Limits
from privateer_core.wire.publication import decode_publication
from privateer_server.algorithms.partition.state import PartitionState
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.documents.exports import redigest
from tests.support.algorithms import RUN
from tests.support.asgi import serving
from tests.support.changes import change, lines, report
from tests.support.partitions import with_parts
from tests.support.phased import tables as phased_tables
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import ADMIN, PHASED, SMALL, Api, assert_problem
from tests.support.specs import tables


async def test_a_clone_starts_from_the_learned_state(api: Api) -> None:
    await api.create(SMALL)
    for seed in range(5):
        await report(api, 20, seed=seed)
    await report(api, 7, seed=9)  # nothing of the open round is in the clone
    response = await change(api, "clone", {"name": "other"})
    assert response.status_code == 201
    facts = await api.facts("other")
    assert facts | {"version": 1, "received": 0, "accepted": 0, "status": "open", "batch_size": 20} == facts
    states = [(await api.client.get(f"/experiments/{name}/state")).json()["answer"] for name in ("test", "other")]
    assert (states[1]["people"], states[1]["rounds"]) == (0, 0)
    bins = [state["parts"][0]["bins"] for state in states]
    assert [[mean["name"] for mean in row["means"]] for row in bins[0]] == [
        [mean["name"] for mean in row["means"]] for row in bins[1]
    ]
    publication = await api.publication("other")
    Participation(publication, "other", Limits(epsilon=1.0))
    body = body_of(publication, sealed_reports(publication, 20))
    assert (await api.client.post("/reports", content=body)).json()["accepted"] == 20
    assert (await api.facts("other"))["version"] == 2
    assert (await change(api, "clone", {"name": "other"})).status_code == 200
    assert await lines(api, "other") == [("clone", 1, 1)]
    assert (await api.create({**SMALL, "experiment.name": "third"})).status_code == 201
    assert_problem(await change(api, "clone", {"name": "third"}), 409, "conflict")
    assert_problem(await change(api, "clone", {"name": "No Name"}), 422, "spec-invalid")


async def test_a_deleted_experiment_is_erased_and_its_name_stays_reserved(settings: ServerSettings) -> None:
    async with serving(create_app(settings)) as client:
        api = Api(client)
        await api.create(SMALL)
        first = await api.publication()
        await report(api, 12)
        answer = await client.delete("/experiments/test", headers=ADMIN)
        assert answer.json() == {"experiment": "test", "changed": True}
        await _assert_deleted(api, first)
        assert not list((settings.data / "keys").iterdir())
    content = b"".join(path.read_bytes() for path in settings.data.rglob("*") if path.is_file())
    assert first not in content
    assert decode_publication(first).policy not in content
    async with serving(create_app(settings)) as client:
        await _assert_deleted(Api(client), first)
        assert (await client.delete("/experiments/test", headers=ADMIN)).json()["changed"] is False
        assert await lines(Api(client)) == [("create", 1, 1), ("delete", 1, 1)]


async def _assert_deleted(api: Api, publication: bytes) -> None:
    assert (await api.client.get("/experiments")).json() == {"experiments": []}
    for page in ("", "/policy", "/policy/1", "/state", "/history", "/privacy"):
        assert_problem(await api.client.get(f"/experiments/test{page}"), 410, "deleted")
    assert_problem(await report(api, 1, publication), 410, "deleted")
    problem = assert_problem(await api.create(SMALL), 409, "conflict")
    assert problem["field"] == "experiment.name"
    assert "test" not in (await api.client.get("/metrics")).text.replace("token-of-the-tests", "")
    assert_problem(await change(api, "pause"), 410, "deleted")


async def test_an_export_starts_another_experiment(api: Api, settings: ServerSettings) -> None:
    await api.create(SMALL)
    for seed in range(5):
        await report(api, 20, seed=seed)
    document = (await api.client.get("/experiments/test/export", headers=ADMIN)).json()
    assert base64.b64decode(document["publication"]) == await api.publication()
    assert document["record"] == (await api.client.get("/experiments/test/privacy")).json()
    spec = tables({**SMALL, "experiment.name": "next", "privacy.epsilon": 2.0, "experiment.horizon": 500})
    started = await change(api, "warm-start", {"spec": spec, "start": document}, "next")
    assert started.status_code == 201, started.text
    assert (await change(api, "warm-start", {"spec": spec, "start": document}, "next")).status_code == 200
    states = [(await api.client.get(f"/experiments/{name}/state")).json()["answer"] for name in ("test", "next")]
    assert states[1]["people"] == 0
    bins = [state["parts"][0]["bins"] for state in states]
    assert [[mean["name"] for mean in row["means"]] for row in bins[0]] == [
        [mean["name"] for mean in row["means"]] for row in bins[1]
    ]
    assert (await api.client.get("/experiments/next/log", headers=ADMIN)).json()["changes"][0]["detail"] == (
        "warm start from test at version 6"
    )


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("experiment.arms", {"experiment.arms": ["a", "b"]}),
        ("context.features", {"context.features": {"x1": {"low": 0.0, "high": 2.0}, "x2": {"low": 0.0, "high": 1.0}}}),
        ("context.features", {"context.features": {"x2": {"low": 0.0, "high": 1.0}, "x1": {"low": 0.0, "high": 1.0}}}),
        ("reward", {"reward.high": 2.0}),
        ("algorithm", {"algorithm.half_life": "auto"}),
    ],
)
async def test_an_export_starts_no_other_kind_of_experiment(api: Api, field: str, changes: dict[str, Any]) -> None:
    await api.create(SMALL)
    await report(api, 20)
    document = (await api.client.get("/experiments/test/export", headers=ADMIN)).json()
    spec = tables({**SMALL, "experiment.name": "next", **changes})
    problem = assert_problem(
        await change(api, "warm-start", {"spec": spec, "start": document}, "next"), 422, "spec-invalid"
    )
    assert problem["field"] == field
    assert_problem(await api.client.get("/experiments/next"), 404, "not-found")


@pytest.mark.parametrize("name", RUN)
async def test_an_export_of_every_algorithm_starts_another_experiment(api: Api, name: str) -> None:
    """As text that another program wrote; the policy is the one that was exported."""
    spec = next(iter(algorithm(name).spec.instances().values())).without_people()
    body = spec.model_dump(mode="json", exclude_none=True)
    created = await api.client.post("/experiments", json=body, headers=ADMIN)
    assert created.status_code == 201, created.text
    document = (await api.client.get(f"/experiments/{spec.name}/export", headers=ADMIN)).json()
    reordered = json.loads(json.dumps(document, indent=3, sort_keys=True))
    request = {"spec": body, "start": reordered}
    started = await change(api, "warm-start", request, "next")
    if name == "trial":  # whose looks are those of its own people
        assert "cannot begin with" in assert_problem(started, 422, "spec-invalid")["detail"]
        return
    assert started.status_code == 201, started.text
    exported = (await api.client.get("/experiments/next/export", headers=ADMIN)).json()
    assert exported["record"]["certificate"]["claims"] == document["record"]["certificate"]["claims"]
    assert OfflinePolicy(read_export(exported, "FILE")).options == OfflinePolicy(read_export(document, "FILE")).options


@pytest.mark.parametrize(
    "damaged",
    [{"moment": np.full((1, 3), np.nan)}, {"mean": np.full((1, 3), np.nan)}, {"depths": np.array([3])}],
    ids=["evidence", "posterior", "tree"],
)
async def test_an_export_of_a_damaged_state_is_refused(api: Api, damaged: dict[str, Any]) -> None:
    """Numbers that are none, in whatever part of a state, and bins that are not the space."""
    await api.create(SMALL)
    document = (await api.client.get("/experiments/test/export", headers=ADMIN)).json()
    state = with_parts(decode(base64.b64decode(document["state"]), PartitionState), **damaged)
    forged = redigest({**document, "state": base64.b64encode(encode(state)).decode(), "digest": None})
    body = {"spec": tables({**SMALL, "experiment.name": "next"}), "start": forged}
    refused = assert_problem(await change(api, "warm-start", body, "next"), 422, "spec-invalid")
    assert "does not fit its spec" in refused["detail"]


async def test_a_forged_export_is_refused(api: Api) -> None:
    await api.create(SMALL)
    document = (await api.client.get("/experiments/test/export", headers=ADMIN)).json()
    spec = tables({**SMALL, "experiment.name": "next"})
    phased = phased_tables(PHASED, "local")
    for forged in (
        {},
        {**document, "format": "privateer/export/9"},
        {**document, "state": "!"},
        {**document, "state": base64.b64encode(b"junk").decode()},
        {**document, "spec": tables({"experiment.arms": ["a", "b", "c", "d"]})},
        {**document, "spec": phased},
        {**document, "more": 1},
    ):
        damaged = {"spec": spec, "start": forged}
        assert_problem(await change(api, "warm-start", damaged, "next"), 422, "spec-invalid")
        body = {"spec": spec, "start": redigest({**forged, "digest": None})}
        assert_problem(await change(api, "warm-start", body, "next"), 422, "spec-invalid")
    assert_problem(await change(api, "warm-start", {"spec": spec}, "next"), 400, "bad-request")
    assert [experiment["name"] for experiment in (await api.client.get("/experiments")).json()["experiments"]] == [
        "test"
    ]
