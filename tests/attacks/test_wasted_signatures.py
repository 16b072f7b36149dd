"""A device that has had its share of tokens asks on, to keep the issuer busy: it costs no signature."""

import asyncio
import time
from pathlib import Path

import httpx
import pytest

from privateer_core.wire.attestation import HEADER, attest
from privateer_core.wire.token import Challenge, PendingToken
from privateer_core.wire.token_keys import Directory
from privateer_issuer.app import create_app
from privateer_issuer.signing_keys import Signer
from tests.support.asgi import serving
from tests.support.servers import assert_problem
from tests.support.tokens import SECRET, issuer_settings

SHARE = 2


@pytest.mark.parametrize("at_once", [False, True])
async def test_who_has_no_token_left_costs_no_signature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    signed, real = list[bytes](), Signer.sign
    monkeypatch.setattr(Signer, "sign", lambda self, blinded: signed.append(blinded) or real(self, blinded))
    told = {HEADER: attest(SECRET, "test", "device", int(time.time()) + 600)}
    settings = issuer_settings(tmp_path, attestation="hmac", tokens_per_device=SHARE)
    async with serving(create_app(settings)) as client:
        key = Directory.decode((await client.get("/token-keys")).content).keys("test")[0]
        requests = [PendingToken.draw(Challenge("issuer", "shuffler", "test"), key).request for _ in range(12)]

        def ask(request: bytes) -> "asyncio.Task[httpx.Response]":
            return asyncio.create_task(client.post("/experiments/test/tokens", content=request, headers=told))

        answers = await asyncio.gather(*map(ask, requests)) if at_once else [await ask(one) for one in requests]
        assert [one.status_code for one in answers].count(200) == SHARE
        assert_problem(next(one for one in answers if one.status_code != 200), 403, "tokens-exhausted")
        assert len(signed) == SHARE
        again = requests[[one.status_code for one in answers].index(200)]
        assert (await ask(again)).status_code == 200, "an answer that was lost is signed again"


async def test_what_cannot_be_signed_uses_up_nothing(tmp_path: Path) -> None:
    told = {HEADER: attest(SECRET, "test", "device", int(time.time()) + 600)}
    settings = issuer_settings(tmp_path, attestation="hmac", tokens_per_device=1)
    async with serving(create_app(settings)) as client:
        key = Directory.decode((await client.get("/token-keys")).content).keys("test")[0]
        good = PendingToken.draw(Challenge("issuer", "shuffler", "test"), key).request
        for bad in (b"\xff" * 256, bytes(256)):
            answer = await client.post("/experiments/test/tokens", content=good[:-256] + bad, headers=told)
            assert_problem(answer, 422, "token-request-refused")
        answer = await client.post("/experiments/test/tokens", content=good, headers=told)
        assert answer.status_code == 200
