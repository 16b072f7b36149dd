"""Two shufflers serve one experiment, by mistake or on purpose: what one of them acknowledges would be thrown away."""

import asyncio
import logging
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.wire.batch import SIGNATURE_HEADER, sign_claim
from privateer_core.wire.keys import TrustedKeys
from privateer_server.app import create_app as create_server
from privateer_server.settings import ServerSettings
from privateer_shuffler.app import create_app as create_shuffler
from privateer_shuffler.settings import ShufflerSettings
from tests.support.asgi import serving
from tests.support.sealing import body_of, sealed_reports
from tests.support.senders import TRUSTED
from tests.support.server_and_shuffler import Pair
from tests.support.servers import ADMIN, SHUFFLED, TOKEN, Api, assert_problem

REPORTS = "/experiments/test/reports"


def mixing(folder: Path, name: str) -> ShufflerSettings:
    return ShufflerSettings(
        server_url="http://server",
        data=folder / name,
        public_key_file=folder / "trusted" / f"{name}.pub",
        min_batch=2,
        sender_keys=TRUSTED,
    )


async def test_the_second_shuffler_acknowledges_nothing(tmp_path: Path) -> None:
    server = create_server(
        ServerSettings(data=tmp_path / "server", admin_token=TOKEN, shuffler_keys=(tmp_path / "trusted",))
    )
    way = httpx.ASGITransport(server)
    first, second = (create_shuffler(mixing(tmp_path, name), way) for name in ("one", "two"))
    async with serving(server) as api, serving(second) as two:
        async with serving(first) as one:
            services = Pair(Api(api), one)
            await services.api.create(SHUFFLED)
            publication = await services.api.publication()
            people = sealed_reports(publication, 100)
            assert await services.uploads(publication, people[:50]) == 50
            refused = await two.post(REPORTS, content=body_of(publication, people[50:51]))
            problem = assert_problem(refused, 503, "unavailable")
            assert "another shuffler" in problem["detail"]
            assert "release" in problem["remedy"]
            assert await services.uploads(publication, people[50:]) == 50
            assert (await services.version(2))["accepted"] == 100

        assert_problem(await api.delete("/experiments/test/shuffler"), 401, "unauthorized")
        assert (await api.delete("/experiments/test/shuffler", headers=ADMIN)).status_code == 200
        publication = await services.api.publication()
        person = body_of(publication, sealed_reports(publication, 1))
        async with asyncio.timeout(20):  # a claim in the second of the release is void
            while (await two.post(REPORTS, content=person)).status_code != 202:
                await asyncio.sleep(0.1)
        assert (await services.api.facts())["shuffler"] in TrustedKeys([tmp_path / "trusted" / "two.pub"]).by_id()


async def test_a_claim_that_somebody_kept_does_not_count_after_the_release(tmp_path: Path) -> None:
    """Whoever reads the network repeats the claim of a shuffler that is gone: the next one would stay out for good."""
    gone = Ed25519PrivateKey.generate()
    (tmp_path / "gone.pub").write_text(gone.public_key().public_bytes_raw().hex())
    async with serving(
        create_server(
            ServerSettings(data=tmp_path / "server", admin_token=TOKEN, shuffler_keys=(tmp_path / "gone.pub",))
        )
    ) as server:
        await Api(server).create(SHUFFLED)
        headers = {SIGNATURE_HEADER: sign_claim("test", gone)}
        assert (await server.post("/experiments/test/shuffler", headers=headers)).status_code == 200
        assert (await server.delete("/experiments/test/shuffler", headers=ADMIN)).status_code == 200
        assert_problem(await server.post("/experiments/test/shuffler", headers=headers), 409, "conflict")
        assert (await Api(server).facts())["shuffler"] is None


async def test_a_shuffler_that_may_not_claim_tells_its_operator_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Reports find no door; the operator reads why, and what to do, once however many people ask."""
    server = create_server(
        ServerSettings(data=tmp_path / "server", admin_token=TOKEN, shuffler_keys=(tmp_path / "trusted",))
    )
    one = create_shuffler(mixing(tmp_path, "one"), httpx.ASGITransport(server))
    async with serving(server) as api, serving(one) as shuffler:
        await Api(api).create(SHUFFLED)
        publication = await Api(api).publication()
        person = body_of(publication, sealed_reports(publication, 1))
        (tmp_path / "trusted" / "one.pub").unlink()
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                problem = assert_problem(await shuffler.post(REPORTS, content=person), 503, "unavailable")
                assert "PRIVATEER_SHUFFLER_KEYS" in problem["remedy"]
        assert caplog.text.count("taking no reports for test: the learning server does not trust") == 1
