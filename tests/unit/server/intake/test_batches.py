"""The door for batches: signature, exactness, idempotence, and bad reports inside."""

import asyncio
import os
import sqlite3
from pathlib import Path

import httpx
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER
from privateer_core.wire.publication import decode_publication
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from privateer_server.store.store import Store
from tests.support.asgi import serving
from tests.support.sealing import body_of, header_for, seal, sealed_reports
from tests.support.servers import SHUFFLED, SMALL, Api, assert_problem

pytestmark = pytest.mark.usefixtures("shuffler_key")


async def deliver(api: Api, body: bytes, key: Ed25519PrivateKey) -> httpx.Response:
    return await api.client.post("/batches", content=body, headers={SIGNATURE_HEADER: BATCH.sign(body, key)})


async def create_experiment(api: Api) -> bytes:
    await api.create(SHUFFLED)
    return await api.publication()


async def test_batch_closes_its_round(api: Api, shuffler_key: Ed25519PrivateKey) -> None:
    first = await create_experiment(api)
    response = await deliver(api, body_of(first, sealed_reports(first, 100)), shuffler_key)
    assert (response.status_code, response.json()) == (202, {"accepted": 100, "refused": {}, "closed": True})
    second = decode_publication(await api.publication())
    assert (second.round.version, second.round.batch_size) == (2, 100)
    assert (await api.facts())["accepted"] == 100
    assert await api.metric("privateer_batches_total") == 1


async def test_a_repeated_batch_is_answered_as_accepted(api: Api, shuffler_key: Ed25519PrivateKey) -> None:
    first = await create_experiment(api)
    body = body_of(first, sealed_reports(first, 100))
    answers = await asyncio.gather(*(deliver(api, body, shuffler_key) for _ in range(3)))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 202]
    repeated = await deliver(api, body, shuffler_key)
    assert (repeated.status_code, repeated.json()) == (200, {"accepted": 100, "refused": {}, "closed": True})
    facts = await api.facts()
    assert (facts["accepted"], facts["version"]) == (100, 2)
    other = body_of(first, sealed_reports(first, 100, seed=1))
    assert_problem(await deliver(api, other, shuffler_key), 409, "round-closed")


async def test_a_batch_with_bad_reports_is_accepted(api: Api, shuffler_key: Ed25519PrivateKey) -> None:
    first = await create_experiment(api)
    good = sealed_reports(first, 97)
    bad = [os.urandom(70), good[0], seal(first, os.urandom(16) + b"\xff" * 6)]
    response = await deliver(api, body_of(first, bad + good), shuffler_key)
    refused = {"decryption-failed": 1, "duplicate-report": 1, "out-of-range": 1}
    assert (response.status_code, response.json()) == (202, {"accepted": 97, "refused": refused, "closed": True})
    facts = await api.facts()
    assert facts | {"version": 2, "accepted": 97, "refused": refused} == facts


async def test_a_round_stays_open_below_the_honest_minimum_of_reports(api, shuffler_key):
    """The promise counts on 90 of 100: with 89 good ones the round stays open for another batch; with 90 it closes."""
    body = await create_experiment(api)
    for batch, (good, closed) in enumerate([(89, False), (1, True)]):
        reports = sealed_reports(body, good, seed=batch) + [os.urandom(70) for _ in range(100 - good)]
        answer = await deliver(api, body_of(body, reports), shuffler_key)
        expected = {"accepted": good, "refused": {"decryption-failed": 100 - good}, "closed": closed}
        assert (answer.status_code, answer.json()) == (202, expected)
    record = (await api.client.get("/experiments/test/privacy")).json()
    assert [(row["received"], row["released"]) for row in record["rounds"]] == [(90, True), (0, False)]
    state = (await api.client.get("/experiments/test/state")).json()["answer"]
    assert (state["rounds"], state["people"]) == (1, 90)


async def test_undecryptable_reports_do_not_count_for_the_horizon(api: Api, shuffler_key: Ed25519PrivateKey) -> None:
    """The schedule counts the reports that opened: 1000 people may report, and each round of 100 had five of junk."""
    await create_experiment(api)
    rounds = 0
    while (body := await api.publication()) and decode_publication(body).round.batch_size:
        rounds += 1
        reports = sealed_reports(body, 95, seed=rounds) + [os.urandom(70) for _ in range(5)]
        assert (await deliver(api, body_of(body, reports), shuffler_key)).json()["closed"] is True
    assert rounds == 10
    assert (await api.facts())["accepted"] == 950  # fewer than a round of 100 are left


async def test_batch_without_a_good_report_leaves_the_round_as_it_was(api, shuffler_key):
    first = await create_experiment(api)
    response = await deliver(api, body_of(first, [os.urandom(70) for _ in range(100)]), shuffler_key)
    expected = {"accepted": 0, "refused": {"decryption-failed": 100}, "closed": False}
    assert (response.status_code, response.json()) == (202, expected)
    assert await api.publication() == first
    assert await api.metric('privateer_decryption_failures_total{experiment="test"}') == 100


async def test_a_report_of_an_earlier_batch_of_the_round_counts_once(settings, shuffler_key):
    """Also after a restart; and a batch that comes again is answered as the first time, without being counted again."""
    async with serving(create_app(settings)) as client:
        api = Api(client)
        first = await create_experiment(api)
        early = sealed_reports(first, 60)
        batch = body_of(first, early + [os.urandom(70) for _ in range(40)])
        answer = await deliver(api, batch, shuffler_key)
        assert answer.json() == {"accepted": 60, "refused": {"decryption-failed": 40}, "closed": False}
    async with serving(create_app(settings)) as client:
        api = Api(client)
        repeated = await deliver(api, batch, shuffler_key)
        assert (repeated.status_code, repeated.json()) == (200, answer.json())
        mixed = body_of(first, early[:30] + sealed_reports(first, 70, seed=1))
        expected = {"accepted": 70, "refused": {"duplicate-report": 30}, "closed": True}
        assert (await deliver(api, mixed, shuffler_key)).json() == expected
        facts = await api.facts()
        assert (
            facts | {"version": 2, "accepted": 130, "refused": {"decryption-failed": 40, "duplicate-report": 30}}
            == facts
        )


async def test_unsigned_and_foreign_batches_are_refused(api: Api) -> None:
    first = await create_experiment(api)
    body = body_of(first, sealed_reports(first, 100))
    assert_problem(await api.client.post("/batches", content=body), 403, "batch-refused")
    assert_problem(await deliver(api, body, Ed25519PrivateKey.generate()), 403, "batch-refused")
    assert (await api.facts())["version"] == 1
    assert await api.metric('privateer_reports_refused_total{reason="batch-refused"}') == 2


async def test_changed_batches_are_refused(api: Api, shuffler_key: Ed25519PrivateKey) -> None:
    first = await create_experiment(api)
    body = body_of(first, sealed_reports(first, 100))
    signature = BATCH.sign(body, shuffler_key)
    changed = body[:-1] + bytes([body[-1] ^ 1])
    response = await api.client.post("/batches", content=changed, headers={SIGNATURE_HEADER: signature})
    assert_problem(response, 403, "batch-refused")


@pytest.mark.parametrize("count", [0, 99, 101])
async def test_batches_of_another_size_are_refused(api: Api, shuffler_key: Ed25519PrivateKey, count: int) -> None:
    first = await create_experiment(api)
    response = await deliver(api, body_of(first, sealed_reports(first, count)), shuffler_key)
    assert_problem(response, 403, "batch-refused")
    facts = await api.facts()
    assert facts | {"version": 1, "refused": {"batch-refused": 1}} == facts


@pytest.mark.parametrize(
    ("change", "status", "slug"),
    [
        ({"digest": bytes(32)}, 409, "wrong-digest"),
        ({"key_id": bytes(8)}, 409, "wrong-key"),
        ({"version": 2}, 409, "round-unknown"),
        ({"experiment": "nobody"}, 404, "not-found"),
    ],
)
async def test_batches_of_another_round_are_refused(api, shuffler_key, change, status, slug):
    first = await create_experiment(api)
    header = msgspec.structs.replace(header_for(first), **change)
    body = body_of(first, sealed_reports(first, 100), header)
    assert_problem(await deliver(api, body, shuffler_key), status, slug)
    assert (await api.facts())["version"] == 1


async def test_signed_bodies_that_are_no_batch_are_refused(api: Api, shuffler_key: Ed25519PrivateKey) -> None:
    await create_experiment(api)
    assert_problem(await deliver(api, b"not a batch", shuffler_key), 403, "batch-refused")


async def test_batches_for_a_local_experiment_are_refused(api: Api, shuffler_key: Ed25519PrivateKey) -> None:
    await api.create(SMALL)
    body = await api.publication()
    assert_problem(await deliver(api, body_of(body, sealed_reports(body, 20)), shuffler_key), 400, "wrong-endpoint")


async def test_a_shuffler_key_added_later_is_trusted(api: Api, settings: ServerSettings) -> None:
    first = await create_experiment(api)
    body, late = body_of(first, sealed_reports(first, 100)), Ed25519PrivateKey.generate()
    assert (await deliver(api, body, late)).status_code == 403
    (settings.shuffler_keys[0] / "late.pub").write_text(late.public_key().public_bytes_raw().hex())
    assert (await deliver(api, body, late)).status_code == 202


async def test_a_broken_shuffler_key_file_does_not_exclude_other_keys(api, settings, shuffler_key):
    (settings.shuffler_keys[0] / "broken.pub").write_text("no key")
    first = await create_experiment(api)
    assert (await deliver(api, body_of(first, sealed_reports(first, 100)), shuffler_key)).status_code == 202


async def test_no_report_of_a_batch_stays_in_the_store(settings, shuffler_key):
    report_id = b"id-of-one-report"
    async with serving(create_app(settings)) as client:
        api = Api(client)
        first = await create_experiment(api)
        sealed = [*sealed_reports(first, 99), seal(first, report_id + bytes(6))]
        assert (await deliver(api, body_of(first, sealed), shuffler_key)).status_code == 202
    files = list(Path(settings.data).glob("server.db*"))
    assert files
    for file in files:
        content = file.read_bytes()
        assert report_id not in content
        assert not any(report in content for report in sealed)
    with sqlite3.connect(settings.data / "server.db") as db:
        assert db.execute("SELECT count(*) FROM report_ids").fetchone() == (0,)
    db.close()


@pytest.mark.parametrize("method", ["experiment_state", "claim", "experiment"])
async def test_a_batch_during_a_store_failure_is_unavailable(api, shuffler_key, monkeypatch, method):
    def failing(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    first = await create_experiment(api)
    body = body_of(first, sealed_reports(first, 100))
    upload = body
    if method == "experiment":  # another server may have created it: the store is asked
        upload = body_of(first, [b""], msgspec.structs.replace(header_for(first), experiment="elsewhere"))
    with monkeypatch.context() as patched:
        patched.setattr(Store, method, failing)
        answer = await deliver(api, upload, shuffler_key)
    assert_problem(answer, 503, "unavailable")
    assert answer.headers["retry-after"] == "1"
    assert (await deliver(api, body, shuffler_key)).status_code == 202
