"""Creating and reading experiments over REST."""

import json
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from privateer_core.answer.conclusion import decode_answer
from privateer_core.privacy.certificate import read_certificate, recompute
from privateer_core.wire.publication import decode_publication
from privateer_server.experiments.catalog import Experiments
from privateer_server.rounds import schedule
from privateer_server.store.records import TRANSIENT_ERRORS
from tests.support.phased import tables as phased_tables
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import ADMIN, PHASED, SHUFFLED, SMALL, Api, assert_problem
from tests.support.specs import make_spec, tables

TOML = """
[experiment]
name = "toml"
arms = ["a", "b"]
horizon = 5000
[context.features]
age = { low = 0, high = 100 }
[privacy]
model = "local"
epsilon = 2.0
[algorithm]
name = "partition"
[population]
name = "peaks"
[[sources]]
name = "clinic"
participants = 1000
epsilon = 1.0
shares = [0.5, 0.5]
population = { name = "adult", path = "a-file-of-my-own" }
"""


async def test_a_created_experiment_is_listed_and_shown(api: Api) -> None:
    created = await api.create(SMALL)
    assert created.status_code == 201
    facts = await api.facts()
    assert facts == created.json()
    assert (
        facts | {"status": "open", "version": 1, "batch_size": 20, "received": 0, "accepted": 0, "refused": {}} == facts
    )
    assert facts["spec"]["experiment"]["arms"] == ["a", "b", "c"]
    rows = (await api.client.get("/experiments")).json()["experiments"]
    assert [(row["name"], row["status"], row["model"]) for row in rows] == [("test", "open", "local")]


async def test_create_from_toml_without_its_population(api: Api) -> None:
    headers = ADMIN | {"content-type": "application/toml; charset=utf-8"}
    created = await api.client.post("/experiments", content=TOML, headers=headers)
    assert created.status_code == 201
    assert "population" not in created.json()["spec"]
    assert "a-file-of-my-own" not in created.text


async def test_create_again_is_idempotent_and_another_spec_conflicts(api: Api) -> None:
    await api.create(SMALL)
    before = await api.publication()
    assert (await api.create(SMALL)).status_code == 200
    assert await api.publication() == before
    assert_problem(await api.create(SMALL | {"privacy.epsilon": 2.0}), 409, "conflict")


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": "Basic xyz"}])
async def test_create_needs_the_admin_token(api: Api, headers: dict[str, str]) -> None:
    response = await api.client.post("/experiments", json=tables(), headers=headers)
    assert_problem(response, 401, "unauthorized")
    assert response.headers["www-authenticate"] == "Bearer"
    assert (await api.client.get("/experiments")).json() == {"experiments": []}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"experiment.colour": "red"}, "experiment.colour"),
        ({"privacy.epsilon": 0}, "privacy.epsilon"),
        ({"privacy.epsilon": -1.0}, "privacy.epsilon"),
        ({"experiment.arms": ["a"]}, "experiment.arms"),
        ({"context.features": {"x": {"low": 1.0, "high": 1.0}}}, "context.features.x"),
        (SHUFFLED | {"privacy.min_batch": 500}, "privacy.min_batch"),
        (SHUFFLED | {"privacy.min_batch": 100, "privacy.honest_fraction": 0.001}, "privacy.honest_fraction"),
        ({"algorithm.name": "paper-1-ldpmab"}, "algorithm.name"),
        (
            SHUFFLED | {"experiment.horizon": 10**10, "experiment.min_round_fraction": 1.0},
            "experiment.min_round_fraction",
        ),
    ],
)
async def test_bad_specs_are_refused_with_field_and_remedy(api: Api, changes: dict[str, Any], field: str) -> None:
    problem = assert_problem(await api.create(changes), 422, "spec-invalid")
    assert problem["field"] == field
    assert problem["remedy"]
    assert (await api.client.get("/experiments")).json() == {"experiments": []}


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"privacy": NaN}'])
async def test_bodies_other_than_specs_are_refused(api: Api, body: bytes) -> None:
    assert_problem(await api.client.post("/experiments", content=body, headers=ADMIN), 422, "spec-invalid")


async def test_bad_toml_is_refused(api: Api) -> None:
    headers = ADMIN | {"content-type": "application/toml"}
    assert_problem(await api.client.post("/experiments", content=b"[", headers=headers), 422, "spec-invalid")


async def test_an_experiment_that_cannot_be_stored_is_there_once_it_can(api, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Experiments, "_create_first_round", Mock(side_effect=TRANSIENT_ERRORS[0]("the disk is full")))
        problem = assert_problem(await api.create(SMALL), 503, "unavailable")
    assert "disk" not in problem["detail"]
    assert (await api.client.get("/experiments")).json() == {"experiments": []}
    assert (await api.create(SMALL)).status_code == 201


async def test_large_specs_are_refused(api: Api) -> None:
    response = await api.client.post("/experiments", content=b" " * 5_000_000, headers=ADMIN)
    assert_problem(response, 413, "too-large")
    toml = ADMIN | {"content-type": "application/toml"}
    assert_problem(await api.client.post("/experiments", content=b" " * 300_000, headers=toml), 413, "too-large")


async def test_a_model_whose_protocol_services_lack_is_refused(api: Api) -> None:
    answer = await api.create(SHUFFLED | {"privacy.model": "split"})
    assert assert_problem(answer, 422, "spec-invalid")["field"] == "privacy.model"
    assert (await api.client.get("/experiments")).json() == {"experiments": []}


async def test_privacy_states_the_promise_round_by_round_and_certifies_it(api: Api) -> None:
    await api.create(SHUFFLED)
    record = (await api.client.get("/experiments/test/privacy")).json()
    expected = {"model": "shuffle", "epsilon": 1.0, "delta": 1e-6, "reports_per_person": 1}
    assert record | expected == record
    (round_,) = record["rounds"]
    assert round_ | {"version": 1, "batch_size": 100, "honest": 90, "received": 0, "released": False} == round_
    assert round_["mechanism"]["type"] == "signed-symbol"
    assert 1.0 < round_["mechanism"]["epsilon"] <= 4.0
    certificate = read_certificate(record["certificate"])
    assert [claim.adversary for claim in certificate.claims] == ["the server", "server and shuffler"]
    assert all(verdict.holds for verdict in recompute(certificate))


async def test_privacy_states_what_each_source_is_promised(api: Api) -> None:
    sources = [{"name": "clinic", "participants": 200, "epsilon": 2.0, "shares": [0.5, 0.25, 0.25]}]
    assert (await api.create(SMALL | {"sources": sources})).status_code == 201
    record = (await api.client.get("/experiments/test/privacy")).json()
    (source,) = record["sources"]
    assert (record["epsilon"], source["name"], source["epsilon"]) == (1.0, "clinic", 2.0)
    assert record["rounds"] == []
    assert [round_["mechanism"]["epsilon"] for round_ in source["rounds"]] == [2.0]
    for promise, epsilon in ((record, 1.0), (source, 2.0)):
        assert [claim.epsilon for claim in read_certificate(promise["certificate"]).claims] == [epsilon, epsilon]
    summary = (await api.client.get("/experiments/test/history")).json()["rounds"][0]
    assert summary["cohort"] == "clinic"


async def test_privacy_states_what_sources_are_promised_before_their_turn(api: Api) -> None:
    """The rounds of a small source hide its people among as few as they are; one too small is never asked."""
    sizes = (("clinic", 2.0, 1000), ("abroad", 1.5, 100), ("few", 1.2, 99))
    sources = [
        {"name": name, "participants": people, "epsilon": epsilon, "shares": [0.5, 0.25, 0.25]}
        for name, epsilon, people in sizes
    ]
    sizes_of_rounds = {"experiment.round_size": 1000, "experiment.horizon": 2000}
    assert (await api.create(SHUFFLED | sizes_of_rounds | {"sources": sources})).status_code == 201
    record = (await api.client.get("/experiments/test/privacy")).json()
    clinic, abroad = record["sources"]
    assert (abroad["name"], abroad["epsilon"], abroad["rounds"]) == ("abroad", 1.5, [])
    assert len(clinic["rounds"]) == 1
    honest = [promise["certificate"]["claims"][0]["event"]["honest"] for promise in (record, clinic, abroad)]
    assert honest == [900, 900, 90]
    # What a report alone will cost follows from what is learned until then: only its bound can be claimed.
    promises = (record, clinic, abroad)
    epsilons = {promise.get("name", ""): promise["certificate"]["claims"][1]["epsilon"] for promise in promises}
    assert epsilons == {"": 4.0, "clinic": clinic["rounds"][0]["mechanism"]["epsilon"], "abroad": 4.0}
    for promise in (record, abroad):
        assert all(verdict.holds for verdict in recompute(read_certificate(promise["certificate"])))


@pytest.mark.parametrize("model", ["local", "central", "none"])
async def test_privacy_claims_of_other_trust_models(api: Api, model: str) -> None:
    promise = {"local": (1.0, 0.0), "central": (1.0, 1e-6), "none": (None, 0.0)}[model]
    changes = {"privacy.model": model, "privacy.epsilon": promise[0], "privacy.delta": promise[1]}
    assert (await api.create(SMALL | changes)).status_code == 201
    (row,) = (await api.client.get("/experiments/test/history")).json()["rounds"]
    record = (await api.client.get("/experiments/test/privacy")).json()
    assert row["mechanism"] == record["rounds"][0]["mechanism"]
    assert (record["epsilon"], record["delta"]) == promise
    certificate = read_certificate(record["certificate"])
    assert all(verdict.holds for verdict in recompute(certificate))
    claimed = {claim.adversary: claim.epsilon for claim in certificate.claims}
    assert (
        claimed
        == {
            "local": {"everybody together, who see no arms": 1.0, "everybody together, who see arms too": 1.0},
            "central": {"readers of what is published": 1.0, "the server": None},
            "none": {"readers of what is published": None, "the server": None},
        }[model]
    )


async def test_state_and_history_describe_the_first_round(api: Api) -> None:
    await api.create(SMALL)
    state = (await api.client.get("/experiments/test/state")).json()
    assert state["version"] == 1
    assert (state["answer"]["stage"], state["answer"]["people"], state["answer"]["parts"]) == ("learning", 0, [])
    rounds = (await api.client.get("/experiments/test/history")).json()["rounds"]
    digest = (await api.facts())["digest"]
    expected = {"version": 1, "batch_size": 20, "received": 0, "digest": digest, "cohort": "", "honest": 0}
    (row,) = rounds
    assert row | expected == row
    assert row["figures"] == {"bins": 1, "undecided": 1}
    assert row["mechanism"] == {"type": "signed-symbol", "epsilon": 1.0, "buckets": 1, "elsewhere": False}


async def test_an_answer_has_the_published_result_and_its_conclusion(api: Api) -> None:
    await api.client.post("/experiments", json=phased_tables(PHASED, "central"), headers=ADMIN)
    first = await api.publication()
    first_answer = (await api.client.get("/experiments/test/answer")).json()
    sentence = first_answer["conclusion"]["headline"]["sentence"]
    assert sentence.startswith("Nothing is known yet: the first result comes after ")
    assert first_answer["result"]["estimates"] == []
    people = decode_publication(first).round.batch_size
    await api.client.post("/reports", content=body_of(first, sealed_reports(first, people)))
    answer = (await api.client.get("/experiments/test/answer")).json()
    published = decode_answer(decode_publication(await api.publication()).result)
    assert answer["result"] == json.loads(msgspec.json.encode(published))
    assert (answer["experiment"], answer["version"], answer["status"]) == ("test", 2, "open")
    assert answer["conclusion"]["headline"]["arm"] == answer["result"]["recommended"]
    assert answer["began"].startswith("20")


async def test_an_answer_is_cached_until_it_changes(api: Api) -> None:
    await api.create(SMALL)
    page = await api.client.get("/experiments/test/answer")
    tag = page.headers["etag"]
    response = await api.client.get("/experiments/test/answer", headers={"If-None-Match": tag})
    assert (response.status_code, response.content) == (304, b"")
    await api.client.post("/experiments/test/stop", headers=ADMIN)
    stopped = (await api.client.get("/experiments/test/answer")).json()
    assert (stopped["status"], stopped["result"]["stop_reason"]) == ("stopped", "an operator")
    assert stopped["conclusion"]["headline"]["sentence"] == (
        "Nothing is known: it ended before enough people had reported."
    )


async def test_reading_computes_one_answer_per_state(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await api.create(SMALL)
    answered = []
    learner = type(schedule.Schedule(make_spec()).learner)
    answer = learner.answer
    monkeypatch.setattr(learner, "answer", lambda *arguments: (answered.append(1), answer(*arguments))[1])
    monkeypatch.setattr(schedule, "learner_for", lambda _: 1 / 0)
    for page in ("", "/policy", "/policy/1", "/state", "/answer", "/answer", "/history", "/privacy"):
        assert (await api.client.get(f"/experiments/test{page}")).status_code == 200
    assert answered == [1]


async def test_a_version_that_is_not_a_number_is_refused(api: Api) -> None:
    await api.create()
    problem = assert_problem(await api.client.get("/experiments/test/policy/x"), 422, "parameter-invalid")
    assert (problem["field"], problem["detail"]) == ("version", "must be an integer")


@pytest.mark.parametrize("page", ["", "/policy", "/policy/1", "/state", "/answer", "/history", "/privacy"])
async def test_unknown_experiments_are_not_found(api: Api, page: str) -> None:
    assert_problem(await api.client.get(f"/experiments/nobody{page}"), 404, "not-found")
