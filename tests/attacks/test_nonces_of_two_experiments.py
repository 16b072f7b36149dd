"""One person has a token of each of two experiments and gives both the same nonce: others' reports count all the same.

The issuer sees no nonce, so nothing keeps a device from this. A token is for one experiment: what was spent at one says
nothing at another.
"""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_core.wire import blind_rsa
from privateer_core.wire.token import TYPE, Challenge, PendingToken, authorization
from privateer_server.app import Server, create_app
from privateer_server.settings import ServerSettings
from tests.support import issuing
from tests.support.asgi import serving
from tests.support.postgres import Cluster
from tests.support.replicas import Shared
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import SMALL, TOKEN, Api

ORIGIN = "server:80"
NAMES = ("test", "other")
PEOPLE = 12


def token(name: str, nonce: bytes) -> bytes:
    """A token with a nonce of the attacker's choice; the issuer signs it blindly."""
    public, signer = issuing.key_pair(0)
    unsigned = TYPE + nonce + Challenge(issuing.ISSUER, ORIGIN, name).digest + public.id
    pending = PendingToken.of(unsigned, public, blind_rsa.blind(public.public, unsigned))
    return pending.finish(public, signer.sign(pending.request[3:]))


class Crowd:
    """Two experiments, and people who report in them."""

    def __init__(self, api: Api) -> None:
        self._api, self._left = api, dict[str, tuple[bytes, list[bytes]]]()

    async def create(self) -> None:
        for name in NAMES:
            assert (await self._api.create({**SMALL, "experiment.name": name})).status_code == 201
            published = await self._api.publication(name)
            self._left[name] = published, sealed_reports(published, PEOPLE)

    async def send(self, name: str, bears: bytes, api: Api | None = None) -> httpx.Response:
        published, sealed = self._left[name]
        body, headers = body_of(published, [sealed.pop()]), {"authorization": authorization(bears)}
        # An attacker is no trusted sender, and neither are the others.
        return await (api or self._api).client.post("/reports", content=body, headers=headers, auth=httpx.Auth())


async def at_once(app: Server, *sent: Any) -> list[httpx.Response]:
    """Have requests counted in one group: they come while the server is busy with another one."""
    intake = app._uploads._intake
    async with intake._writing:
        tasks = [asyncio.create_task(one) for one in sent]
        async with asyncio.timeout(20):
            while intake.waiting < len(sent):
                await asyncio.sleep(0.005)
    return list(await asyncio.gather(*tasks))


async def attacked(app: Server, client: httpx.AsyncClient) -> None:
    crowd, nonce = Crowd(Api(client)), b"n" * 32
    await crowd.create()
    honest = [crowd.send(name, issuing.minted(name, ORIGIN)) for name in NAMES for _ in range(2)]
    both = [crowd.send(name, token(name, nonce)) for name in NAMES]
    answers = await at_once(app, *honest, *both)
    assert [answer.status_code for answer in answers] == [202] * 6, [answer.text for answer in answers]
    for name in NAMES:  # each is spent all the same
        again = await crowd.send(name, token(name, nonce))
        assert (again.status_code, again.json()["type"].rpartition(":")[2]) == (401, "token-spent")
        assert (await Api(client).facts(name))["received"] == 3


async def test_one_nonce_holds_nobody_up(tmp_path: Path) -> None:
    tokens = issuing.settings(tmp_path / "tokens", *NAMES, origin=ORIGIN)
    app = create_app(ServerSettings(data=tmp_path / "data", admin_token=TOKEN, tokens=tokens))
    async with serving(app) as client:
        await attacked(app, client)


@pytest.mark.postgres
async def test_one_nonce_holds_nobody_up_on_a_shared_database(postgres: Cluster, tmp_path: Path) -> None:
    tokens = issuing.settings(tmp_path / "tokens", *NAMES, origin=ORIGIN)
    app = create_app(Shared.make(postgres, tmp_path).settings().model_copy(update={"tokens": tokens}))
    async with serving(app) as client:
        await attacked(app, client)


@pytest.mark.postgres
async def test_one_nonce_at_two_servers_at_once(postgres: Cluster, tmp_path: Path) -> None:
    tokens = issuing.settings(tmp_path / "tokens", *NAMES, origin=ORIGIN)
    settings = Shared.make(postgres, tmp_path).settings().model_copy(update={"tokens": tokens})
    async with AsyncExitStack() as stack:
        one, two = [Api(await stack.enter_async_context(serving(create_app(settings)))) for _ in range(2)]
        crowd = Crowd(one)
        await crowd.create()
        assert (await crowd.send("other", issuing.minted("other", ORIGIN), two)).status_code == 202  # it knows it
        for turn in range(8):
            nonce = bytes([turn]) * 32
            sent = zip(NAMES, (one, two), strict=True)
            answers = await asyncio.gather(*(crowd.send(name, token(name, nonce), api) for name, api in sent))
            assert [answer.status_code for answer in answers] == [202, 202], turn


@pytest.mark.postgres
async def test_one_token_at_two_servers_at_once(postgres: Cluster, tmp_path: Path) -> None:
    """One of two reports with the same token counts, whichever servers they reach."""
    tokens = issuing.settings(tmp_path / "tokens", *NAMES, origin=ORIGIN)
    settings = Shared.make(postgres, tmp_path).settings().model_copy(update={"tokens": tokens})
    async with AsyncExitStack() as stack:
        one, two = [Api(await stack.enter_async_context(serving(create_app(settings)))) for _ in range(2)]
        crowd = Crowd(one)
        await crowd.create()
        for turn in range(5):
            bears = issuing.minted("test", ORIGIN)
            answers = await asyncio.gather(*(crowd.send("test", bears, api) for api in (one, two)))
            assert sorted(answer.status_code for answer in answers) == [202, 401]
            counted = (await one.facts("test"))["received"], (await two.facts("test"))["received"]
            assert max(counted) == turn + 1
