"""Attacks on a device by its tokens, and of a device on an issuer."""

import asyncio
import sqlite3
import time
import warnings
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import Response

from privateer_client import AsyncClient
from privateer_client.ledger.ledger import Ledger
from privateer_client.states import ReportStatus
from privateer_core.errors import Malformed, TokensExhausted, TokenWarning
from privateer_core.wire.attestation import HEADER, attest
from privateer_core.wire.token import Challenge, PendingToken, read_authorization
from privateer_core.wire.token_keys import Directory
from privateer_issuer.app import create_app
from privateer_issuer.signing_keys import Signer
from privateer_lab.load.driver import LIMITS
from tests.support.asgi import serving
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import SHUFFLED, SMALL, assert_problem
from tests.support.tokens import SECRET, Trio, issuer_settings, now, trio

# What issuer, shuffler and server can do to a device by its tokens, and what a device can do to an issuer.


CONTEXT = {"x1": 0.5, "x2": 0.5}


def device(services: Trio, name: str = "one", **options: Any) -> AsyncClient:
    """A device with a ledger of its own, which sends each report once."""
    return AsyncClient(
        "http://server",
        shuffler="http://shuffler",
        issuer="http://issuer",
        limits=LIMITS,
        ledger=Ledger(services.folder / f"{name}.db"),
        retry_timeout=0,
        transport=services.ways,
        **options,
    )


async def report(client: AsyncClient) -> ReportStatus:
    session = await client.join("test")
    await session.choose(CONTEXT)
    return await session.report(1.0)


def replace_page(page: str, body: bytes, instead_of: Any) -> Any:
    """A service that answers one page with these bytes."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await (Response(body) if scope["path"].endswith(page) else instead_of)(scope, receive, send)

    return app


async def test_uploads_hold_no_bytes_that_the_issuer_saw(tmp_path: Path) -> None:
    """No piece of 8 bytes of what the issuer gets or gives is in an upload, and no upload goes to it."""
    async with trio(tmp_path) as services:
        await services.create(SHUFFLED)
        for number in range(3):
            async with device(services, str(number)) as client:
                assert await report(client) is ReportStatus.ACCEPTED
        issued = b"".join(request.content for request in services.ways.to("issuer", "/tokens"))
        for upload in services.ways.to("shuffler", "/reports"):
            token = read_authorization(upload.headers["authorization"].encode())
            token_bytes = token.nonce + token.authenticator
            assert not any(token_bytes[at : at + 8] in issued for at in range(len(token_bytes) - 8))
            assert HEADER not in upload.headers


async def test_only_the_request_for_a_token_names_the_device(tmp_path: Path) -> None:
    def attest_device(name: str) -> str:
        return attest(SECRET, name, "somebody", now() + 600)

    async with trio(tmp_path, attestation_verifier="hmac") as services:
        await services.create(SHUFFLED)
        async with device(services, attest=attest_device) as client:
            assert await report(client) is ReportStatus.ACCEPTED
        paths = [
            each.url.path for each in services.ways.requests if any("somebody" in v for v in each.headers.values())
        ]
        assert paths == ["/experiments/test/tokens"]


async def test_a_lost_answer_of_the_issuer_costs_no_token(tmp_path: Path) -> None:
    """The device asks for the same token again, and the issuer counts it once."""

    def signed(name: str) -> str:
        return attest(SECRET, name, "somebody", now() + 600)

    async with trio(tmp_path, attestation_verifier="hmac", tokens_per_device=1) as services:
        await services.create(SHUFFLED)
        services.ways.lossy_hosts.append("issuer")
        async with device(services, attest=signed) as client:
            with pytest.warns(TokenWarning, match="signed no token"):
                await client.join("test")
        async with device(services, attest=signed) as client:  # after a restart
            assert await report(client) is ReportStatus.ACCEPTED
        first, second = services.ways.to("issuer", "/tokens")
        assert first.content == second.content


async def test_a_lost_answer_of_the_shuffler_spends_the_same_token(tmp_path: Path) -> None:
    async with trio(tmp_path) as services:
        await services.create(SHUFFLED)
        async with device(services) as client:
            session = await client.join("test")
            await session.choose(CONTEXT)
            services.ways.lossy_hosts.append("shuffler")
            assert await session.report(1.0) is ReportStatus.PENDING
        async with device(services) as client:
            assert await client.flush() == {"test": ReportStatus.ACCEPTED}
        first, second = services.ways.to("shuffler", "/reports")
        assert first.headers["authorization"] == second.headers["authorization"]
        assert first.content == second.content
        assert len(services.ways.to("issuer", "/tokens")) == 1


@pytest.mark.parametrize(("changes", "host"), [(SMALL, "server"), (SHUFFLED, "shuffler")])
async def test_a_spent_token_admits_no_other_report(tmp_path: Path, changes: dict[str, Any], host: str) -> None:
    async with trio(tmp_path, experiments=("test", "other")) as services:
        publication = await services.create(changes)
        first, second, third = (body_of(publication, [sealed]) for sealed in sealed_reports(publication, 3))
        token, at = await services.token(origin=host), "server" if host == "server" else ""
        assert (await services.upload(first, token, host=at)).status_code == 202
        assert_problem(await services.upload(second, token, host=at), 401, "token-spent")
        assert_problem(await services.upload(first, token, host=at), 409, "duplicate-report")
        assert_problem(await services.upload(second, None, host=at), 401, "token-missing")
        elsewhere = await services.token("other", origin=host)
        assert_problem(await services.upload(second, elsewhere, host=at), 401, "token-wrong-audience")
        forged = token[:2] + bytes(32) + token[34:]
        assert_problem(await services.upload(second, forged, host=at), 401, "token-invalid")
        assert (await services.upload(third, await services.token(origin=host), host=at)).status_code == 202


async def test_a_token_stays_spent_when_the_server_starts_again(tmp_path: Path) -> None:
    async with trio(tmp_path) as services:
        publication = await services.create(SMALL)
        bodies = [body_of(publication, [sealed]) for sealed in sealed_reports(publication, 2)]
        token = await services.token(origin="server")
        assert (await services.upload(bodies[0], token, host="server")).status_code == 202
    async with trio(tmp_path) as services:
        assert_problem(await services.upload(bodies[1], token, host="server"), 401, "token-spent")
        assert_problem(await services.upload(bodies[0], token, host="server"), 409, "duplicate-report")


async def test_a_refused_report_spends_no_token(tmp_path: Path) -> None:
    """A report that cannot be decrypted is not counted, so its token may admit another report."""
    async with trio(tmp_path) as services:
        publication = await services.create(SMALL)
        (sealed,) = sealed_reports(publication, 1)
        token = await services.token(origin="server")
        junk = body_of(publication, [bytes(len(sealed))])
        assert_problem(await services.upload(junk, token, host="server"), 400, "decryption-failed")
        assert (await services.upload(body_of(publication, [sealed]), token, host="server")).status_code == 202


async def test_a_token_is_refused_by_the_other_endpoint(tmp_path: Path) -> None:
    async with trio(tmp_path) as services:
        publication = await services.create(SHUFFLED)
        body = body_of(publication, sealed_reports(publication, 1))
        assert_problem(await services.upload(body, await services.token(origin="server")), 401, "token-wrong-audience")


async def test_a_blinded_request_that_is_replayed_makes_no_second_token(tmp_path: Path) -> None:
    """Whoever replays somebody's request gets the same answer, and without the blinding it is no token."""
    async with trio(tmp_path, attestation_verifier="hmac") as services:
        await services.create(SHUFFLED)
        key = await services.key()
        victim = PendingToken.draw(Challenge("issuer:80", "shuffler:80", "test"), key)
        thief = PendingToken.draw(Challenge("issuer:80", "shuffler:80", "test"), key)
        first = await services.request(victim.request, "victim")
        replayed = await services.request(victim.request, "thief")
        assert replayed.content == first.content
        with pytest.raises(Malformed):
            thief.finish(key, replayed.content)
        assert victim.finish(key, replayed.content) == victim.finish(key, first.content)  # one token, spent once
        assert_problem(
            await services.request(thief.request, "thief"), 403, "tokens-exhausted"
        )  # their share is used up


async def test_a_device_gets_no_more_than_its_share_of_tokens(tmp_path: Path) -> None:
    """A device that throws its ledger away gets nothing again, and its report waits."""

    def attest_device(name: str) -> str:
        return attest(SECRET, name, "greedy", now() + 600)

    async with trio(tmp_path, attestation_verifier="hmac", tokens_per_device=2) as services:
        await services.create(SHUFFLED)
        for number in range(2):
            async with device(services, str(number), attest=attest_device) as client:
                assert await report(client) is ReportStatus.ACCEPTED
        async with device(services, "third", attest=attest_device) as client:
            with pytest.raises(TokensExhausted):
                await client.fetch_tokens("test")
            with pytest.warns(TokenWarning, match="had its share"):
                assert await report(client) is ReportStatus.PENDING
        assert len([each for each in services.ways.to("shuffler", "/reports") if "authorization" in each.headers]) == 2


async def test_a_pending_report_gets_its_token_before_its_upload(tmp_path: Path) -> None:
    """An issuer that is away at first is asked at the next chance, and the report goes out at the one after."""
    async with trio(tmp_path) as services:
        await services.create(SHUFFLED)
        issuer = services.ways.hosts["issuer"]
        services.ways.hosts["issuer"] = replace_page("", b"", issuer)
        async with device(services) as client:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", TokenWarning)
                assert await report(client) is ReportStatus.PENDING
            services.ways.hosts["issuer"] = issuer
            assert await client.flush() == {"test": ReportStatus.PENDING}
            assert services.ways.requests[-1].url.host == "issuer"
            assert await client.flush() == {"test": ReportStatus.ACCEPTED}


async def test_a_token_that_was_spent_elsewhere_is_replaced(tmp_path: Path) -> None:
    """If the token was spent by a copy of the ledger, the report is sent with a new token."""
    async with trio(tmp_path) as services:
        publication = await services.create(SHUFFLED)
        async with device(services) as client:
            await client.join("test")
            with sqlite3.connect(services.folder / "one.db") as ledger:
                (token,) = ledger.execute("SELECT token FROM tokens").fetchone()
            ledger.close()
            body = body_of(publication, sealed_reports(publication, 1))
            assert (await services.upload(body, token)).status_code == 202
            session = await client.join("test")
            await session.choose(CONTEXT)
            assert await session.report(1.0) is ReportStatus.PENDING
            assert await client.flush() == {"test": ReportStatus.PENDING}  # without a token; then it gets one
            assert await client.flush() == {"test": ReportStatus.ACCEPTED}


async def test_a_device_erases_token_requests_and_spent_tokens(tmp_path: Path) -> None:
    """Once a token is signed the ledger has nothing that ties it to the request, and once it is spent no token."""
    async with trio(tmp_path) as services:
        await services.create(SHUFFLED)
        async with device(services) as client:
            session = await client.join("test")
            (request,) = services.ways.to("issuer", "/tokens")
            ledger = services.folder / "one.db"
            assert request.content[3:] not in ledger.read_bytes()
            await session.choose(CONTEXT)
            await session.report(1.0)
            (upload,) = services.ways.to("shuffler", "/reports")
            token = read_authorization(upload.headers["authorization"].encode())
            assert token.nonce not in ledger.read_bytes()
            assert token.authenticator not in ledger.read_bytes()
            payments = Ledger(ledger).payments()
        assert len(payments) == 1


async def test_a_device_without_an_issuer_is_told_to_name_one(tmp_path: Path) -> None:
    async with trio(tmp_path) as services:
        publication = await services.create(SHUFFLED)
        answer = await services.upload(body_of(publication, sealed_reports(publication, 1)), None)
        problem = assert_problem(answer, 401, "token-missing")
        assert "issuer" in problem["remedy"]
        assert answer.headers["www-authenticate"].startswith('PrivateToken challenge="AAI')


# A device that has had its share of tokens asks on, to keep the issuer busy: it costs no signature.


SHARE = 2


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_device_without_tokens_left_costs_no_signature(tmp_path, monkeypatch, at_once):
    signed_requests, sign = list[bytes](), Signer.sign
    monkeypatch.setattr(Signer, "sign", lambda self, blinded: signed_requests.append(blinded) or sign(self, blinded))
    headers = {HEADER: attest(SECRET, "test", "device", int(time.time()) + 600)}
    settings = issuer_settings(tmp_path, attestation_verifier="hmac", tokens_per_device=SHARE)
    async with serving(create_app(settings)) as client:
        key = Directory.decode((await client.get("/token-keys")).content).keys("test")[0]
        requests = [PendingToken.draw(Challenge("issuer", "shuffler", "test"), key).request for _ in range(12)]

        def ask(request: bytes) -> "asyncio.Task[httpx.Response]":
            return asyncio.create_task(client.post("/experiments/test/tokens", content=request, headers=headers))

        answers = await asyncio.gather(*map(ask, requests)) if at_once else [await ask(each) for each in requests]
        assert [answer.status_code for answer in answers].count(200) == SHARE
        assert_problem(next(answer for answer in answers if answer.status_code != 200), 403, "tokens-exhausted")
        assert len(signed_requests) == SHARE
        signed_request = requests[[answer.status_code for answer in answers].index(200)]
        assert (await ask(signed_request)).status_code == 200, "an answer that was lost is signed again"


async def test_an_invalid_token_request_uses_up_no_token(tmp_path: Path) -> None:
    headers = {HEADER: attest(SECRET, "test", "device", int(time.time()) + 600)}
    settings = issuer_settings(tmp_path, attestation_verifier="hmac", tokens_per_device=1)
    async with serving(create_app(settings)) as client:
        key = Directory.decode((await client.get("/token-keys")).content).keys("test")[0]
        good = PendingToken.draw(Challenge("issuer", "shuffler", "test"), key).request
        for bad in (b"\xff" * 256, bytes(256)):
            answer = await client.post("/experiments/test/tokens", content=good[:-256] + bad, headers=headers)
            assert_problem(answer, 422, "token-request-refused")
        answer = await client.post("/experiments/test/tokens", content=good, headers=headers)
        assert answer.status_code == 200
