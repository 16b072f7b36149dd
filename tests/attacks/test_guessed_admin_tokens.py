"""Somebody at the private listener guesses admin tokens: the log says so, quotes nothing, and does not grow with it."""

import logging

import httpx
import pytest

from privateer_core.serving.logs import Formatter
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.servers import ADMIN, SMALL, Api

WHY = 'why="the admin token is missing or wrong"'
GUESS = "0123456789abcdef-a-guess"
WRONG = {"Authorization": f"Bearer {GUESS}"}


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [one for one in caplog.records if one.name == "privateer.admin" and "refused" in one.getMessage()]
    return [Formatter("%(message)s").format(one) for one in found]


async def test_a_refused_token_is_in_the_log(settings: ServerSettings, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with serving(create_app(settings)) as client:
        await Api(client).create(SMALL)
        assert (await client.post("/experiments/test/pause", headers=WRONG)).status_code == 401
        for _ in range(50):
            await client.get("/backup", headers=WRONG)
    (line,) = lines(caplog)
    assert line == f'operator refused wanted="POST /experiments/{{name}}/pause" sender="this machine" {WHY}'
    assert caplog.records[-1].levelno <= logging.WARNING
    assert GUESS not in caplog.text


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "this machine"),
        ("::1", "this machine"),
        ("10.1.2.3", "a private network"),
        ("93.184.216.34", "a public address"),
        ("testclient", "an unknown address"),
    ],
)
async def test_the_line_has_a_kind_of_address_and_no_address(
    settings: ServerSettings, caplog: pytest.LogCaptureFixture, address: str, kind: str
) -> None:
    app = create_app(settings)
    async with serving(app):
        transport = httpx.ASGITransport(app, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await client.get("/backup")
    (line,) = lines(caplog)
    assert line == f'operator refused wanted="GET /backup" sender="{kind}" {WHY}'
    assert "10.1.2.3" not in caplog.text
    assert "93.184" not in caplog.text


async def test_a_token_that_is_right_leaves_no_such_line(
    settings: ServerSettings, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(create_app(settings)) as client:
        await Api(client).create(SMALL)
        await client.post("/experiments/test/pause", headers=ADMIN)
    assert lines(caplog) == []
