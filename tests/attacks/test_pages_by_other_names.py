"""A stranger asks the public listeners for private pages, in all ways to write a path that a router might forgive."""

import http.client
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
import pytest

from privateer_core.wire.problem import slug_of
from privateer_lab.services.processes import IssuerProcess, Services, free_port, running
from privateer_server.app import Server, _is_public, create_app
from privateer_server.settings import ServerSettings
from tests.support.asgi import AtOnce, serving
from tests.support.servers import ADMIN, SMALL, TOKEN, Api

WAYS: Final = (
    "{}",
    "{}%0A",
    "{}%0a%0A",
    "{}%0D",
    "{}/",
    "/{}",
    "{}%00",
    "{}%20",
    "{}%3F",
    "{};",
    "{}%23",
    "/.{}",
    "/x/..{}",
)
REFUSED: Final = ((401, "unauthorized"), (403, "batch-refused"))


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    issuing = IssuerProcess("test", free_port())
    with running(tmp_path_factory.mktemp("data"), free_port(), free_port(), quiet=True, issuing=issuing) as at:
        yield at


def written(path: str) -> list[str]:
    """A path, and ways to write it that are not quite it."""
    encoded = path[:-1] + f"%{ord(path[-1]):02X}"
    return [way.format(path) for way in WAYS] + [encoded, encoded + "%0A", path.upper()]


def ask(url: str, method: str, path: str) -> int:
    at = urlsplit(url)
    assert at.hostname
    connection = http.client.HTTPConnection(at.hostname, at.port or 80, timeout=10)
    connection.putrequest(method, path, skip_accept_encoding=True)
    connection.endheaders()
    status = connection.getresponse().status
    connection.close()
    return status


def test_no_stranger_reads_metrics(services: Services) -> None:
    """The shuffler's tell how many reports it holds, which its public pages keep to themselves."""
    assert ask(services.shuffler_admin, "GET", "/metrics") == 200
    for url in (services.server, services.shuffler, services.issuer):
        for path in written("/metrics"):
            for method in ("GET", "HEAD"):
                assert ask(url, method, path) in (400, 404, 405), (url, method, path)


@asynccontextmanager
async def serving_public(app: Server) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(AtOnce(app.public))
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        yield client


def pages(app: Server) -> set[tuple[str, str]]:
    """Method and path of every page that the server's routers know, in its description or not."""
    found = set()
    for one in app._control._app._app.routes:  # type: ignore[attr-defined]
        for route in getattr(getattr(one, "original_router", None), "routes", [one]):
            found |= {(method, route.path) for method in route.methods - {"HEAD"}}
    assert len(found) > 30, "the framework keeps its routes elsewhere"
    return found


async def test_every_page_of_the_server_is_public_or_asks_who_comes(tmp_path: Path) -> None:
    """Whatever page is added: strangers may find it, or it takes a token, a shuffler's signature, or is listed here."""
    app = create_app(ServerSettings(data=tmp_path, admin_token=TOKEN))
    async with serving(app) as operator, serving_public(app) as stranger:
        await Api(operator).create(SMALL)
        for method, template in sorted(pages(app)):
            path = template.format(name="test", version=1)
            if template.endswith("/events"):  # it does not end
                assert _is_public(method, path)
            elif not _is_public(method, path) and path not in ("/metrics", "/version"):
                asked = await operator.request(method, path)
                assert (asked.status_code, slug_of(asked.content)) in REFUSED, (method, path, asked.text)
                for way in written(path):
                    answer = await stranger.request(method, way, headers=ADMIN)
                    assert answer.status_code in (404, 405), (method, way, answer.text)
        assert (await Api(operator).facts())["status"] == "open"
