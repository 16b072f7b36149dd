"""One shuffler alone brings the batches of an experiment."""

import time

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER, sign_claim
from privateer_core.wire.keys import signing_key_id
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import ADMIN, SHUFFLED, SMALL, Api, assert_problem


@pytest.fixture
def other_key(settings: ServerSettings, shuffler_key: Ed25519PrivateKey) -> Ed25519PrivateKey:
    """Of a second shuffler that the server trusts."""
    key = Ed25519PrivateKey.generate()
    (settings.shuffler_keys[0] / "two.pub").write_text(key.public_key().public_bytes_raw().hex())
    return key


async def claim(api: Api, key: Ed25519PrivateKey, name: str = "test", later: float = 0.0) -> httpx.Response:
    headers = {SIGNATURE_HEADER: sign_claim(name, key, time.time() + later)}
    return await api.client.post(f"/experiments/{name}/shuffler", headers=headers)


async def test_the_first_claim_counts_also_after_a_restart(settings, shuffler_key, other_key):
    for start in range(2):
        async with serving(create_app(settings)) as client:
            api = Api(client)
            await api.create(SHUFFLED)
            assert (await api.facts())["shuffler"] == (
                None if start == 0 else signing_key_id(shuffler_key.public_key())
            )
            for _ in range(2):
                assert (await claim(api, shuffler_key)).status_code == 200
            problem = assert_problem(await claim(api, other_key), 409, "conflict")
            assert "DELETE" in problem["remedy"]


async def test_batches_of_another_shuffler_are_refused(api, shuffler_key, other_key):
    await api.create(SHUFFLED)
    first = await api.publication()
    await claim(api, shuffler_key)
    body = body_of(first, sealed_reports(first, 100))
    for key, status in ((other_key, 403), (shuffler_key, 202)):
        headers = {SIGNATURE_HEADER: BATCH.sign(body, key)}
        assert (await api.client.post("/batches", content=body, headers=headers)).status_code == status


async def test_a_released_claim_allows_another_shuffler(api, shuffler_key, other_key):
    await api.create(SHUFFLED)
    await claim(api, shuffler_key)
    assert_problem(await api.client.delete("/experiments/test/shuffler"), 401, "unauthorized")
    assert_problem(await api.client.delete("/experiments/nobody/shuffler", headers=ADMIN), 404, "not-found")
    assert (await api.client.delete("/experiments/test/shuffler", headers=ADMIN)).json() == {"shuffler": None}
    assert (await claim(api, other_key, later=2)).status_code == 200


async def test_a_claim_from_before_the_release_is_void(api: Api, shuffler_key: Ed25519PrivateKey) -> None:
    await api.create(SHUFFLED)
    await claim(api, shuffler_key)
    await api.client.delete("/experiments/test/shuffler", headers=ADMIN)
    assert "anew" in assert_problem(await claim(api, shuffler_key), 409, "conflict")["remedy"]
    assert (await api.facts())["shuffler"] is None
    assert (await claim(api, shuffler_key, later=2)).status_code == 200


async def test_the_first_batch_is_a_claim_for_the_open_round_alone(api, shuffler_key, other_key):
    await api.create(SHUFFLED)
    first = await api.publication()
    for seed, key, status in ((1, shuffler_key, 202), (2, other_key, 409)):
        body = body_of(first, sealed_reports(first, 100, seed))
        headers = {SIGNATURE_HEADER: BATCH.sign(body, key)}
        answer = await api.client.post("/batches", content=body, headers=headers)
        assert answer.status_code == status
    assert_problem(answer, 409, "round-closed")
    facts = await api.facts()
    assert (facts["shuffler"], facts["version"]) == (signing_key_id(shuffler_key.public_key()), 2)


async def test_claims_need_a_trusted_signature_for_this_experiment(api: Api, shuffler_key: Ed25519PrivateKey) -> None:
    await api.create(SHUFFLED)
    await api.create({**SMALL, "experiment.name": "local"})
    assert_problem(await claim(api, Ed25519PrivateKey.generate()), 403, "batch-refused")
    assert_problem(await api.client.post("/experiments/test/shuffler"), 403, "batch-refused")
    headers = {SIGNATURE_HEADER: sign_claim("other", shuffler_key)}
    assert_problem(await api.client.post("/experiments/test/shuffler", headers=headers), 403, "batch-refused")
    assert_problem(await claim(api, shuffler_key, "local"), 400, "wrong-endpoint")
    assert_problem(await claim(api, shuffler_key, "nobody"), 404, "not-found")
