"""What issuer, shuffler and server can do to a device by the token keys that they show to it alone."""

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from starlette.responses import Response

from privateer_client.states import Outcome
from privateer_core.errors import TermsRefused, TokenWarning, Unavailable
from privateer_core.wire.token_keys import Directory, TokenKey
from privateer_issuer.signing_keys import Signer
from tests.attacks.test_tokens_of_devices import answering, device, report
from tests.support.servers import SHUFFLED
from tests.support.tokens import Trio, now, trio


def signing(key: Signer, instead_of: Any) -> Any:
    """An issuer that signs with a key of its own choice."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        await Response(key.sign(b"\0" + message["body"][4:]))(scope, receive, send)

    async def either(scope: Any, receive: Any, send: Any) -> None:
        await (app if scope["path"].endswith("/tokens") else instead_of)(scope, receive, send)

    return either


@pytest.fixture
def strange() -> tuple[TokenKey, Signer]:
    """A key that one device alone would get."""
    private = generate_private_key(65537, 2048)
    return TokenKey.of(private.public_key(), 0, 2**40), Signer.of(private)


async def test_an_issuer_that_signs_with_a_key_of_this_devices_own(
    tmp_path: Path, strange: tuple[TokenKey, Signer]
) -> None:
    async with trio(tmp_path) as services:
        await services.create(SHUFFLED)
        services.ways.hosts["issuer"] = signing(strange[1], services.ways.hosts["issuer"])
        async with device(services) as client:
            with pytest.raises(TermsRefused, match="another key than everybody's"):
                await client.fetch_tokens("test")
            with pytest.warns(TokenWarning, match="another key"):
                assert await report(client) is Outcome.PENDING
        assert "authorization" not in services.ways.to("shuffler", "/reports")[0].headers


async def test_issuer_and_shuffler_show_a_key_of_this_devices_own(
    tmp_path: Path, strange: tuple[TokenKey, Signer]
) -> None:
    """The server, which does not collude with the shuffler, shows another one."""
    async with trio(tmp_path) as services:
        await services.create(SHUFFLED)
        page = Directory.of("issuer:80", {"test": [strange[0]]}).encode()
        services.ways.hosts["shuffler"] = answering("/token-keys", page, services.ways.hosts["shuffler"])
        services.ways.hosts["issuer"] = signing(strange[1], services.ways.hosts["issuer"])
        async with device(services) as client:
            with pytest.raises(TermsRefused, match="not show the newest token key that the server lists"):
                await client.fetch_tokens("test")
        assert not services.ways.to("issuer", "/tokens")


def listing(services: Trio, host: str, keys: list[TokenKey]) -> None:
    """Have a service show these keys."""
    page = Directory.of("issuer:80", {"test": keys}).encode()
    services.ways.hosts[host] = answering("/token-keys", page, services.ways.hosts[host])


async def test_issuer_and_shuffler_cannot_mark_a_device_by_the_older_of_two_valid_keys(
    tmp_path: Path, strange: tuple[TokenKey, Signer]
) -> None:
    """Both are everybody's, and the server lists both; who is shown the older one alone would be known by it."""
    async with trio(tmp_path) as services:
        await services.create(SHUFFLED)
        old, new = await services.key(), TokenKey(strange[0].encoded, now(), 2**40)
        listing(services, "server", [new, old])
        listing(services, "shuffler", [old])
        async with device(services) as client:
            with pytest.raises(TermsRefused, match=r"newest token key .*try again in a few minutes"):
                await client.fetch_tokens("test")
            assert not services.ways.to("issuer", "/tokens")
            # Once the shuffler shows it, too, the device takes the newest.
            listing(services, "shuffler", [old, new])
            # This issuer does not have it; of 256 keys one is called as its own is, and then what it signs is refused.
            with pytest.raises((Unavailable, TermsRefused), match=r"signed no token|another key than everybody's"):
                await client.fetch_tokens("test")
        (request,) = services.ways.to("issuer", "/tokens")
        assert request.content[2] == new.id[-1]


async def test_a_key_that_the_server_does_not_list_is_nobodys(tmp_path: Path, strange: tuple[TokenKey, Signer]) -> None:
    """In a rotation the shuffler may have the next key first: the newest one that the server lists is taken."""
    async with trio(tmp_path) as services:
        await services.create(SHUFFLED)
        old, new = await services.key(), TokenKey(strange[0].encoded, now(), 2**40)
        listing(services, "server", [old])
        listing(services, "shuffler", [new, old])
        async with device(services) as client:
            assert await report(client) is Outcome.ACCEPTED
        (request,) = services.ways.to("issuer", "/tokens")
        assert request.content[2] == old.id[-1]


async def test_a_server_that_lists_no_keys_leaves_the_choice_to_nobody(tmp_path: Path) -> None:
    async with trio(tmp_path) as services:
        await services.create(SHUFFLED)
        listing(services, "server", [])
        async with device(services) as client:
            with pytest.raises(TermsRefused, match=r"lists no token keys.*PRIVATEER_TOKEN_KEYS"):
                await client.fetch_tokens("test")
        assert not services.ways.to("issuer", "/tokens")


async def test_a_token_that_was_asked_for_before_a_rotation_is_still_signed(
    tmp_path: Path, strange: tuple[TokenKey, Signer]
) -> None:
    """Its key was the newest when it was drawn, and another token would cost the device a share."""
    async with trio(tmp_path) as services:
        await services.create(SHUFFLED)
        services.ways.lost.append("issuer")
        async with device(services) as client:
            with pytest.warns(TokenWarning, match="signed no token"):
                await client.join("test")
            old, new = await services.key(), TokenKey(strange[0].encoded, now(), 2**40)
            for host in ("server", "shuffler"):
                listing(services, host, [new, old])
            assert await client.fetch_tokens("test") == 1
        first, second = services.ways.to("issuer", "/tokens")
        assert first.content == second.content


async def test_more_keys_than_a_rotation_has(tmp_path: Path, strange: tuple[TokenKey, Signer]) -> None:
    async with trio(tmp_path) as services:
        await services.create(SHUFFLED)
        keys = [await services.key(), strange[0], TokenKey(strange[0].encoded, 1, 2**41)]
        page = Directory.of("issuer:80", {"test": keys}).encode()
        for host in ("shuffler", "server"):
            services.ways.hosts[host] = answering("/token-keys", page, services.ways.hosts[host])
        async with device(services) as client:
            with pytest.raises(TermsRefused, match="more than 2 token keys"):
                await client.fetch_tokens("test")


@pytest.mark.parametrize(
    "page", [b"", b"{}", Directory.of("other:80", {"test": []}).encode(), b"[" * 60_000], ids=["", "{}", "other", "["]
)
async def test_strange_pages_of_keys(tmp_path: Path, page: bytes) -> None:
    async with trio(tmp_path) as services:
        await services.create(SHUFFLED)
        services.ways.hosts["shuffler"] = answering("/token-keys", page, services.ways.hosts["shuffler"])
        async with device(services) as client:
            with pytest.raises(TermsRefused):
                await client.fetch_tokens("test")
