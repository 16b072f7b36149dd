"""Pages of foreign origins use the services only where the operator names them."""

from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from privateer_core.errors import SpecError
from privateer_core.serving.http.answer import HttpAnswer, make_answer
from privateer_core.serving.http.listeners import OriginMiddleware
from privateer_core.serving.settings import PrivatePort, PublicPort, ServiceSettings

SHOP = "https://shop.example"
ASKS = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}


async def _page(_: Request) -> Response:
    return Response("read", headers={"ETag": '"1"'})


async def _answer(allowed: tuple[str, ...], method: str, **headers: str) -> httpx.Response:
    app = OriginMiddleware(Starlette(routes=[Route("/reports", _page, methods=["GET", "POST"])]), allowed)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server") as client:
        return await client.request(
            method, "/reports", headers={key.replace("_", "-"): value for key, value in headers.items()}
        )


async def test_by_default_no_page_reads_an_answer() -> None:
    read, preflight = await _answer((), "GET", origin=SHOP), await _answer((), "OPTIONS", origin=SHOP, **ASKS)
    assert (read.status_code, read.text, preflight.status_code) == (200, "read", 405)
    for answer in (read, preflight):
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_a_named_origin_may_ask_and_read() -> None:
    preflight = await _answer((SHOP,), "OPTIONS", origin=SHOP, **ASKS)
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == SHOP
    allowed = preflight.headers["access-control-allow-headers"].lower().split(", ")
    assert {"content-type", "authorization", "privateer-attestation"} <= set(allowed)  # a token, and who asks for one
    read = await _answer((SHOP,), "GET", origin=SHOP)
    assert (read.text, read.headers["access-control-allow-origin"], read.headers["vary"]) == ("read", SHOP, "Origin")
    assert "Privateer-Asks" in read.headers["access-control-expose-headers"]


@pytest.mark.parametrize("other", ["https://shop.example.evil", "http://shop.example", "null", "https://SHOP.example"])
async def test_other_origins_may_not_read_an_answer(other: str) -> None:
    read = await _answer((SHOP,), "GET", origin=other)
    assert "access-control-allow-origin" not in read.headers
    # A cache must not give one origin what it keeps for another.
    assert read.headers["vary"] == "Origin"
    assert (await _answer((SHOP,), "OPTIONS", origin=other, **ASKS)).status_code == 400


async def test_no_answer_allows_cookies() -> None:
    for allowed in ((SHOP,), ("*",)):
        for method in ("GET", "OPTIONS"):
            answer = await _answer(allowed, method, origin=SHOP, **ASKS)
            assert answer.headers["access-control-allow-origin"] in (SHOP, "*")
            assert "access-control-allow-credentials" not in answer.headers


class AnyService(ServiceSettings):
    port: PublicPort = 1
    admin_port: PrivatePort = 2


def origins(variables: dict[str, str]) -> tuple[str, ...]:
    return AnyService.read(variables).cors_origins


def test_origins_are_parsed() -> None:
    assert origins({}) == origins({"PRIVATEER_CORS_ORIGINS": ""}) == ()
    listed = origins({"PRIVATEER_CORS_ORIGINS": "https://a.example, http://127.0.0.1:8080 *"})
    assert listed == ("https://a.example", "http://127.0.0.1:8080", "*")


@pytest.mark.parametrize(
    "text", ["shop.example", "https://shop.example/", "https://Shop.example", "ftp://a", "https://me@a", "https://a:0"]
)
def test_malformed_origins_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match="no origin") as refusal:
        origins({"PRIVATEER_CORS_ORIGINS": f"https://a {text}"})
    assert refusal.value.field == "PRIVATEER_CORS_ORIGINS"


class _AtOnce:
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...

    def answer_at_once(self, _: Any, __: bytearray, reply: Any) -> bool:
        reply(make_answer(202, b"{}"))
        return True


@pytest.mark.parametrize("allowed", [(), (SHOP,), ("*",)])
def test_the_fast_path_needs_an_empty_list_of_origins(allowed: tuple[str, ...]) -> None:
    """Else the listener that strangers reach would never take the short way; with origins every answer names them."""
    answers: list[HttpAnswer] = []
    is_answered = OriginMiddleware(_AtOnce(), allowed).answer_at_once(
        {"path": "/reports", "method": "POST"}, bytearray(), answers.append
    )
    assert is_answered == (not allowed) == (len(answers) == 1)
