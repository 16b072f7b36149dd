"""Keys that are shown to one device alone, and keys that are lost."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from starlette.responses import Response

from privateer_client import AsyncClient
from privateer_client.ledger.ledger import Ledger
from privateer_client.states import ReportStatus
from privateer_core.errors import TermsRefused, TokenWarning, Unavailable
from privateer_core.wire.attestation import attest
from privateer_core.wire.token_keys import Directory, TokenKey
from privateer_issuer.signing_keys import Signer
from privateer_lab.load.driver import LIMITS
from tests.attacks.tokens.test_devices import device, replace_page, report
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import SHUFFLED, SMALL, assert_problem
from tests.support.tokens import SECRET, Trio, now, trio

# What issuer, shuffler and server can do to a device by the token keys that they show to it alone.


def sign_with_key(key: Signer, instead_of: Any) -> Any:
    """An issuer that signs with a key of its own choice."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        await Response(key.sign(b"\0" + message["body"][4:]))(scope, receive, send)

    async def either(scope: Any, receive: Any, send: Any) -> None:
        await (app if scope["path"].endswith("/tokens") else instead_of)(scope, receive, send)

    return either


@pytest.fixture
def odd_key() -> tuple[TokenKey, Signer]:
    """A key that one device alone would get."""
    private = generate_private_key(65537, 2048)
    return TokenKey.from_rsa_key(private.public_key(), 0, 2**40), Signer.from_private_key(private)


async def test_a_token_of_a_device_specific_key_is_refused(tmp_path: Path, odd_key: tuple[TokenKey, Signer]) -> None:
    async with trio(tmp_path) as services:
        await services.create(SHUFFLED)
        services.ways.hosts["issuer"] = sign_with_key(odd_key[1], services.ways.hosts["issuer"])
        async with device(services) as client:
            with pytest.raises(TermsRefused, match="another key than everybody's"):
                await client.fetch_tokens("test")
            with pytest.warns(TokenWarning, match="another key"):
                assert await report(client) is ReportStatus.PENDING
        assert "authorization" not in services.ways.to("shuffler", "/reports")[0].headers


async def test_a_device_specific_key_of_issuer_and_shuffler_is_refused(tmp_path, odd_key):
    """The server, which does not collude with the shuffler, shows another one."""
    async with trio(tmp_path) as services:
        await services.create(SHUFFLED)
        page = Directory.from_keys("issuer:80", {"test": [odd_key[0]]}).encode()
        services.ways.hosts["shuffler"] = replace_page("/token-keys", page, services.ways.hosts["shuffler"])
        services.ways.hosts["issuer"] = sign_with_key(odd_key[1], services.ways.hosts["issuer"])
        async with device(services) as client:
            with pytest.raises(TermsRefused, match="not show the newest token key that the server lists"):
                await client.fetch_tokens("test")
        assert not services.ways.to("issuer", "/tokens")


def list_keys(services: Trio, host: str, keys: list[TokenKey]) -> None:
    """Have a service show these keys."""
    page = Directory.from_keys("issuer:80", {"test": keys}).encode()
    services.ways.hosts[host] = replace_page("/token-keys", page, services.ways.hosts[host])


async def test_issuer_and_shuffler_cannot_mark_a_device_by_the_older_of_two_valid_keys(tmp_path, odd_key):
    """The server lists both keys; a device that is shown the older key alone could be recognised by it."""
    async with trio(tmp_path) as services:
        await services.create(SHUFFLED)
        old, new = await services.key(), TokenKey(odd_key[0].encoded, now(), 2**40)
        list_keys(services, "server", [new, old])
        list_keys(services, "shuffler", [old])
        async with device(services) as client:
            with pytest.raises(TermsRefused, match=r"newest token key .*try again in a few minutes"):
                await client.fetch_tokens("test")
            assert not services.ways.to("issuer", "/tokens")
            # Once the shuffler shows it, too, the device takes the newest.
            list_keys(services, "shuffler", [old, new])
            # This issuer does not have it; of 256 keys one is called as its own is, and then what it signs is refused.
            with pytest.raises((Unavailable, TermsRefused), match=r"signed no token|another key than everybody's"):
                await client.fetch_tokens("test")
        (request,) = services.ways.to("issuer", "/tokens")
        assert request.content[2] == new.id[-1]


async def test_a_key_that_the_server_does_not_list_is_unused(tmp_path: Path, odd_key: tuple[TokenKey, Signer]) -> None:
    """In a rotation the shuffler may have the next key first: the newest one that the server lists is taken."""
    async with trio(tmp_path) as services:
        await services.create(SHUFFLED)
        old, new = await services.key(), TokenKey(odd_key[0].encoded, now(), 2**40)
        list_keys(services, "server", [old])
        list_keys(services, "shuffler", [new, old])
        async with device(services) as client:
            assert await report(client) is ReportStatus.ACCEPTED
        (request,) = services.ways.to("issuer", "/tokens")
        assert request.content[2] == old.id[-1]


async def test_without_keys_of_the_server_no_token_is_requested(tmp_path: Path) -> None:
    async with trio(tmp_path) as services:
        await services.create(SHUFFLED)
        list_keys(services, "server", [])
        async with device(services) as client:
            with pytest.raises(TermsRefused, match=r"lists no token keys.*PRIVATEER_TOKEN_KEYS"):
                await client.fetch_tokens("test")
        assert not services.ways.to("issuer", "/tokens")


async def test_a_token_that_was_asked_for_before_a_rotation_is_still_signed(tmp_path, odd_key):
    """Its key was the newest when it was drawn, and another token would cost the device a share."""
    async with trio(tmp_path) as services:
        await services.create(SHUFFLED)
        services.ways.lossy_hosts.append("issuer")
        async with device(services) as client:
            with pytest.warns(TokenWarning, match="signed no token"):
                await client.join("test")
            old, new = await services.key(), TokenKey(odd_key[0].encoded, now(), 2**40)
            for host in ("server", "shuffler"):
                list_keys(services, host, [new, old])
            assert await client.fetch_tokens("test") == 1
        first, second = services.ways.to("issuer", "/tokens")
        assert first.content == second.content


async def test_too_many_token_keys_are_refused(tmp_path: Path, odd_key: tuple[TokenKey, Signer]) -> None:
    async with trio(tmp_path) as services:
        await services.create(SHUFFLED)
        keys = [await services.key(), odd_key[0], TokenKey(odd_key[0].encoded, 1, 2**41)]
        page = Directory.from_keys("issuer:80", {"test": keys}).encode()
        for host in ("shuffler", "server"):
            services.ways.hosts[host] = replace_page("/token-keys", page, services.ways.hosts[host])
        async with device(services) as client:
            with pytest.raises(TermsRefused, match="more than 2 token keys"):
                await client.fetch_tokens("test")


@pytest.mark.parametrize(
    "page",
    [b"", b"{}", Directory.from_keys("other:80", {"test": []}).encode(), b"[" * 60_000],
    ids=["", "{}", "other", "["],
)
async def test_malformed_pages_of_keys_are_refused(tmp_path: Path, page: bytes) -> None:
    async with trio(tmp_path) as services:
        await services.create(SHUFFLED)
        services.ways.hosts["shuffler"] = replace_page("/token-keys", page, services.ways.hosts["shuffler"])
        async with device(services) as client:
            with pytest.raises(TermsRefused):
                await client.fetch_tokens("test")


# What becomes of a report whose token no endpoint takes any more: it comes with another one, and counts once.


ENDPOINTS = pytest.mark.parametrize(("changes", "host"), [(SMALL, "server"), (SHUFFLED, "shuffler")])
WAITS, ARRIVED = {"test": ReportStatus.PENDING}, {"test": ReportStatus.ACCEPTED}


@asynccontextmanager
async def device_of_lost(services: Trio, issuer: str = "http://issuer") -> AsyncIterator[AsyncClient]:
    """One person's device, which sends each report once a call."""
    async with AsyncClient(
        "http://server",
        shuffler="http://shuffler",
        issuer=issuer,
        attest=lambda name: attest(SECRET, name, "somebody", now() + 600),
        limits=LIMITS,
        ledger=Ledger(services.folder / "one.db"),
        retry_timeout=0,
        transport=services.ways,
    ) as client:
        yield client


async def report_unanswered(services: Trio, changes: dict[str, Any], host: str, is_taken: bool) -> None:
    """Have the device report once, and hear no answer: the endpoint took the report, or was away."""
    await services.create(changes)
    async with device_of_lost(services) as client:
        session = await client.join("test")
        await session.choose({"x1": 0.5, "x2": 0.5})
        if is_taken:
            services.ways.lossy_hosts.append(host)
            assert await session.report(1.0) is ReportStatus.PENDING
            return
        service, services.ways.hosts[host] = services.ways.hosts[host], away
        assert await session.report(1.0) is ReportStatus.PENDING
        services.ways.hosts[host] = service


async def away(scope: Any, receive: Any, send: Any) -> None:
    """A service that somebody is just starting again."""
    await send({"type": "http.response.start", "status": 503, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def lose(folder: Path) -> None:
    """Lose the issuer's keys, and what it knows of shares."""
    shutil.rmtree(folder / "issuer")


@ENDPOINTS
@pytest.mark.parametrize("is_taken", [False, True], ids=["new", "counted"])
@pytest.mark.battery
async def test_a_report_with_a_token_of_a_lost_key_gets_another(tmp_path, changes, host, is_taken):
    """It comes with another token once there is one. Where the first try was counted, the second one is not."""
    async with trio(tmp_path, attestation_verifier="hmac") as services:
        await report_unanswered(services, changes, host, is_taken)
        first = services.ways.to(host, "/reports")[-1]
    lose(tmp_path)
    async with trio(tmp_path, attestation_verifier="hmac") as services, device_of_lost(services) as client:
        assert await client.flush() == WAITS
        assert await client.flush() == ARRIVED
        refused, last = services.ways.to(host, "/reports")
        assert first.content == refused.content == last.content
        assert first.headers["authorization"] == refused.headers["authorization"] != last.headers["authorization"]
        assert services.ways.statuses(host, "/reports") == [401, 409 if is_taken else 202]
        assert await client.flush() == {}


@ENDPOINTS
async def test_a_report_that_was_counted_is_a_duplicate_whichever_token_it_comes_with(tmp_path, changes, host):
    at = "server" if host == "server" else ""
    async with trio(tmp_path) as services:
        body = body_of(publication := await services.create(changes), sealed_reports(publication, 1))
        assert (await services.upload(body, await services.token(origin=host), host=at)).status_code == 202
        other = await services.token(origin=host)
        assert_problem(await services.upload(body, other, host=at), 409, "duplicate-report")
    async with trio(tmp_path) as services:  # after a restart
        assert_problem(await services.upload(body, other, host=at), 409, "duplicate-report")


async def test_a_report_of_a_round_that_is_over_is_late_whichever_token_it_comes_with(tmp_path: Path) -> None:
    async with trio(tmp_path) as services:
        publication = await services.create(SMALL | {"experiment.round_size": 2})
        bodies = [body_of(publication, [sealed]) for sealed in sealed_reports(publication, 2)]
        for body in bodies:
            assert (await services.upload(body, await services.token(origin="server"), host="server")).is_success
        for body in bodies:
            repeated = await services.upload(body, await services.token(origin="server"), host="server")
            assert_problem(repeated, 409, "round-closed")


@ENDPOINTS
async def test_a_token_that_the_endpoint_may_take_again_is_kept(tmp_path, changes, host):
    """An endpoint that goes by a wrong name for an hour makes no device ask for a second token."""
    async with trio(tmp_path, attestation_verifier="hmac") as services:
        await report_unanswered(services, changes, host, is_taken=False)
    async with (
        trio(tmp_path, attestation_verifier="hmac", misnamed=True) as services,
        device_of_lost(services) as client,
    ):
        for _ in range(3):
            assert await client.flush() == WAITS
        assert services.ways.statuses(host, "/reports") == [401, 401, 401]
        assert not services.ways.to("issuer", "/tokens")
    async with trio(tmp_path, attestation_verifier="hmac") as services, device_of_lost(services) as client:
        assert await client.flush() == ARRIVED
        assert not services.ways.to("issuer", "/tokens")


@ENDPOINTS
async def test_a_report_keeps_its_token_until_there_is_another_one(tmp_path, changes, host):
    """An issuer that finds its keys again has them count."""
    async with trio(tmp_path, attestation_verifier="hmac") as services:
        await report_unanswered(services, changes, host, is_taken=False)
    shutil.copytree(tmp_path / "issuer", tmp_path / "copy")
    lose(tmp_path)
    async with trio(tmp_path, attestation_verifier="hmac") as services:
        services.ways.hosts["issuer"] = away
        async with device_of_lost(services) as client:
            for _ in range(2):
                with pytest.warns(TokenWarning, match="signed no token"):
                    assert await client.flush() == WAITS
    lose(tmp_path)
    (tmp_path / "copy").rename(tmp_path / "issuer")
    async with trio(tmp_path, attestation_verifier="hmac") as services, device_of_lost(services) as client:
        assert await client.flush() == ARRIVED


@ENDPOINTS
async def test_a_report_gets_a_token_of_the_renamed_issuer(tmp_path: Path, changes: dict[str, Any], host: str) -> None:
    """Its tokens of before are for elsewhere; the application names it anew, and the report comes with another one."""
    async with trio(tmp_path, attestation_verifier="hmac") as services:
        await report_unanswered(services, changes, host, is_taken=True)
    lose(tmp_path)
    async with trio(tmp_path, attestation_verifier="hmac", name="other:80") as services:
        async with device_of_lost(services) as client:
            with pytest.warns(TokenWarning, match="another issuer's"):
                assert await client.flush() == WAITS
        services.ways.hosts["other"] = away
        async with device_of_lost(services, "http://other") as client:
            with pytest.warns(TokenWarning, match="signed no token"):
                assert await client.flush() == WAITS
            services.ways.hosts["other"] = services.ways.hosts["issuer"]
            assert await client.flush() == WAITS
            assert await client.flush() == ARRIVED
        first, second, third, last = (upload.headers["authorization"] for upload in services.ways.to(host, "/reports"))
        assert first == second == third != last
        assert services.ways.statuses(host, "/reports") == [401, 401, 401, 409]
