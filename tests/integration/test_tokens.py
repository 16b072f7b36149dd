"""Devices get upload tokens ahead, spend each once, and are counted: under every kind of endpoint."""

import pytest

from privateer.verification import Limits
from privateer.wire.token import read_authorization
from privateer_client import AsyncClient
from privateer_client.answers import Outcome
from privateer_client.ledger import Ledger
from privateer_lab.load.driver import LIMITS
from tests.support.servers import SHUFFLED, SMALL
from tests.support.tokens import Trio, trio

CONTEXT = {"x1": 0.5, "x2": 0.5}


def device(services: Trio, name: str = "one", limits: Limits = LIMITS, **more: object) -> AsyncClient:
    """A device with a ledger of its own."""
    ledger = Ledger(services.folder / f"{name}.db")
    return AsyncClient(
        "http://server",
        shuffler="http://shuffler",
        issuer="http://issuer",
        limits=limits,
        ledger=ledger,
        patience=0,
        transport=services.ways,
        **more,
    )


@pytest.mark.parametrize(("changes", "host"), [(SHUFFLED, "shuffler"), (SMALL, "server")])
async def test_four_lines_are_enough(tmp_path, changes, host):
    async with trio(tmp_path) as services:
        await services.create(changes)
        async with device(services) as client:
            session = await client.join("test")
            session.choose(CONTEXT)
            assert await session.report(1.0) is Outcome.ACCEPTED
        (upload,) = services.ways.to(host, "/reports")
        token = read_authorization(upload.headers["authorization"].encode())
        (request,) = services.ways.to("issuer", "/tokens")
        assert token.authenticator not in request.content
        assert token.nonce not in request.content
        assert "authorization" not in request.headers
        assert not any(one.url.host == "issuer" for one in services.ways.asked if one.headers.get("authorization"))
