"""Nonces and ages of a participant's reports do not keep the rest's reports from being counted."""

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_core.algorithms.partition import PartitionPolicy
from privateer_core.policies.policy import AGE_SIZE
from privateer_core.wire import blind_rsa
from privateer_core.wire.token import TYPE, Challenge, PendingToken, authorization
from privateer_server.app import Server, create_app
from privateer_server.settings import ServerSettings
from tests.support import issuing
from tests.support.asgi import serving
from tests.support.postgres import Cluster
from tests.support.replicas import Shared
from tests.support.sealing import body_of, seal, sealed_reports
from tests.support.servers import SMALL, TOKEN, Api, intake_of

# One person has a token of each of two experiments and gives both the same nonce: others' reports count all the same.
#
# The issuer sees no nonce, so nothing keeps a device from this. A token is for one experiment: what was spent at one
# says
# nothing at another.


ORIGIN = "server:80"
NAMES = ("test", "other")
PEOPLE = 12


def token(name: str, nonce: bytes) -> bytes:
    """A token with a nonce of the attacker's choice; the issuer signs it blindly."""
    public, signer = issuing.key_pair(0)
    unsigned = TYPE + nonce + Challenge(issuing.ISSUER, ORIGIN, name).digest + public.id
    pending = PendingToken.from_blinded(unsigned, public, blind_rsa.blind(public.public, unsigned))
    return pending.finish(public, signer.sign(pending.request[3:]))


class Crowd:
    """Two experiments, and people who report in them."""

    def __init__(self, api: Api) -> None:
        self._api, self._remaining_reports = api, dict[str, tuple[bytes, list[bytes]]]()

    async def create(self) -> None:
        for name in NAMES:
            assert (await self._api.create({**SMALL, "experiment.name": name})).status_code == 201
            published = await self._api.publication(name)
            self._remaining_reports[name] = published, sealed_reports(published, PEOPLE)

    async def send(self, name: str, bears: bytes, api: Api | None = None) -> httpx.Response:
        published, sealed = self._remaining_reports[name]
        body, headers = body_of(published, [sealed.pop()]), {"authorization": authorization(bears)}
        # An attacker is no trusted sender, and neither are the others.
        return await (api or self._api).client.post("/reports", content=body, headers=headers, auth=httpx.Auth())


async def send_in_one_group(app: Server, *requests: Any) -> list[httpx.Response]:
    """Send requests that the server counts in one group, because it holds its write lock while they arrive."""
    intake = intake_of(app)
    async with intake._write_lock:
        tasks = [asyncio.create_task(request) for request in requests]
        async with asyncio.timeout(20):
            while intake.n_pending < len(requests):
                await asyncio.sleep(0.005)
    return list(await asyncio.gather(*tasks))


async def attack_with_one_nonce(app: Server, client: httpx.AsyncClient) -> None:
    crowd, nonce = Crowd(Api(client)), b"n" * 32
    await crowd.create()
    honest = [crowd.send(name, issuing.minted(name, ORIGIN)) for name in NAMES for _ in range(2)]
    forged = [crowd.send(name, token(name, nonce)) for name in NAMES]
    answers = await send_in_one_group(app, *honest, *forged)
    assert [answer.status_code for answer in answers] == [202] * 6, [answer.text for answer in answers]
    for name in NAMES:  # each is spent all the same
        repeated = await crowd.send(name, token(name, nonce))
        assert (repeated.status_code, repeated.json()["type"].rpartition(":")[2]) == (401, "token-spent")
        assert (await Api(client).facts(name))["received"] == 3


async def test_a_repeated_nonce_delays_no_other_report(tmp_path: Path) -> None:
    tokens = issuing.settings(tmp_path / "tokens", *NAMES, origin=ORIGIN)
    app = create_app(ServerSettings(data=tmp_path / "data", admin_token=TOKEN, tokens=tokens))
    async with serving(app) as client:
        await attack_with_one_nonce(app, client)


@pytest.mark.postgres
async def test_a_repeated_nonce_delays_no_other_report_on_a_shared_database(postgres: Cluster, tmp_path: Path) -> None:
    tokens = issuing.settings(tmp_path / "tokens", *NAMES, origin=ORIGIN)
    app = create_app(Shared.make(postgres, tmp_path).settings().model_copy(update={"tokens": tokens}))
    async with serving(app) as client:
        await attack_with_one_nonce(app, client)


@pytest.mark.postgres
async def test_a_nonce_in_two_experiments_counts_at_both_servers(postgres: Cluster, tmp_path: Path) -> None:
    tokens = issuing.settings(tmp_path / "tokens", *NAMES, origin=ORIGIN)
    settings = Shared.make(postgres, tmp_path).settings().model_copy(update={"tokens": tokens})
    async with AsyncExitStack() as stack:
        first, second = [Api(await stack.enter_async_context(serving(create_app(settings)))) for _ in range(2)]
        crowd = Crowd(first)
        await crowd.create()
        assert (await crowd.send("other", issuing.minted("other", ORIGIN), second)).status_code == 202  # it knows it
        for turn in range(8):
            nonce = bytes([turn]) * 32
            targets = zip(NAMES, (first, second), strict=True)
            answers = await asyncio.gather(*(crowd.send(name, token(name, nonce), api) for name, api in targets))
            assert [answer.status_code for answer in answers] == [202, 202], turn


@pytest.mark.postgres
async def test_a_token_at_two_servers_admits_one_report(postgres: Cluster, tmp_path: Path) -> None:
    """One of two reports with the same token counts, whichever servers they reach."""
    tokens = issuing.settings(tmp_path / "tokens", *NAMES, origin=ORIGIN)
    settings = Shared.make(postgres, tmp_path).settings().model_copy(update={"tokens": tokens})
    async with AsyncExitStack() as stack:
        first, second = [Api(await stack.enter_async_context(serving(create_app(settings)))) for _ in range(2)]
        crowd = Crowd(first)
        await crowd.create()
        for turn in range(5):
            bears = issuing.minted("test", ORIGIN)
            answers = await asyncio.gather(*(crowd.send("test", bears, api) for api in (first, second)))
            assert sorted(answer.status_code for answer in answers) == [202, 401]
            counted = (await first.facts("test"))["received"], (await second.facts("test"))["received"]
            assert max(counted) == turn + 1


# Somebody sends reports on decisions of every earlier version, and junk beside them: others must not wait for it.


VERSIONS = 7


async def test_plans_of_earlier_choices_are_made_once_each(settings, monkeypatch):
    """Each costs more than to open a report, and what does not parse is looked for by halving a group again."""
    versions: list[int] = []
    analyzer = PartitionPolicy.make_analyzer

    def analyze_and_note(self: PartitionPolicy, earlier: PartitionPolicy) -> object:
        versions.append(earlier.version)
        return analyzer(self, earlier)

    async with serving(create_app(settings)) as client:
        api = Api(client)
        await api.create(SMALL | {"experiment.horizon": 400})
        for _ in range(VERSIONS):
            body = await api.publication()
            await client.post("/reports", content=body_of(body, sealed_reports(body, 20)))
        body = await api.publication()
        good = [os.urandom(16) + age.to_bytes(AGE_SIZE, "little") + bytes(6) for age in range(VERSIONS + 1)]
        bad = os.urandom(16) + bytes(AGE_SIZE + 4) + b"\xff\xff"
        monkeypatch.setattr(PartitionPolicy, "make_analyzer", analyze_and_note)
        answer = await client.post("/reports", content=body_of(body, [seal(body, message) for message in [*good, bad]]))
        assert answer.json() == {"accepted": VERSIONS + 1, "refused": {"out-of-range": 1}}
        assert sorted(versions) == list(range(1, VERSIONS + 2))
