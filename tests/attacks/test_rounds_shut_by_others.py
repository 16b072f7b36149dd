"""A shuffler that is trusted, but not with this experiment, has its open round put on record as over."""

from pathlib import Path

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER, decode_batch
from privateer_core.wire.envelope import encode_envelope
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.sealing import body_of, sealed_reports
from tests.support.senders import TRUSTED
from tests.support.servers import SHUFFLED, TOKEN, Api, assert_problem


async def delivered(api: Api, batch: bytes, key: Ed25519PrivateKey) -> int:
    answer = await api.client.post("/batches", content=batch, headers={SIGNATURE_HEADER: BATCH.sign(batch, key)})
    return answer.status_code


async def test_the_open_rounds_digest_under_an_earlier_version(tmp_path: Path) -> None:
    """Nobody owns rounds that are over, so their batches are answered before anybody asks whose the experiment is."""
    shuffler_key, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    trusted = tmp_path / "trusted"
    trusted.mkdir()
    for name, key in {"one": shuffler_key, "two": other}.items():
        (trusted / f"{name}.pub").write_text(key.public_key().public_bytes_raw().hex())
    settings = ServerSettings(data=tmp_path / "data", admin_token=TOKEN, shuffler_keys=(trusted,), sender_keys=TRUSTED)
    async with serving(create_app(settings)) as client:
        api = Api(client)
        await api.create(SHUFFLED)
        first = await api.publication()
        assert await delivered(api, body_of(first, sealed_reports(first, 100, 1)), shuffler_key) == 202
        second = await api.publication()
        batch = body_of(second, sealed_reports(second, 100, 2))
        assert await delivered(api, batch, other) == 403
        envelope = decode_batch(batch)
        header = msgspec.structs.replace(envelope.header, version=1)
        forged = encode_envelope(msgspec.structs.replace(envelope, header=header))
        headers = {SIGNATURE_HEADER: BATCH.sign(forged, other)}
        assert_problem(await client.post("/batches", content=forged, headers=headers), 409, "round-closed")
    async with serving(create_app(settings)) as client:
        api = Api(client)
        assert (await api.facts())["version"] == 2
        assert await delivered(api, batch, shuffler_key) == 202
