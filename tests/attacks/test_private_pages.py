"""A stranger, or a page in an operator's browser, wants pages of the private listener."""

import http.client
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
import pytest

from privateer_core.errors import SpecError
from privateer_core.serving.logs import Formatter
from privateer_core.wire.batch import UPLOAD
from privateer_core.wire.problem import read_slug
from privateer_lab.services.processes import IssuerProcess, Services, free_port, run_services
from privateer_server.app import Server, _is_public, create_app
from privateer_server.settings import ServerSettings
from privateer_shuffler.settings import read_settings
from tests.support.asgi import AtOnce, serving
from tests.support.sealing import body_of, sealed_reports
from tests.support.senders import KEY, TRUSTED
from tests.support.servers import ADMIN, SMALL, TOKEN, Api
from tests.unit.serving.test_http_protocol import listening, send_raw

# Somebody at the private listener guesses admin tokens: the log says so, quotes nothing, and does not grow with it.


WHY = 'why="the admin token is missing or wrong"'
GUESS = "0123456789abcdef-a-guess"
WRONG = {"Authorization": f"Bearer {GUESS}"}


def refusal_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = [each for each in caplog.records if each.name == "privateer.admin" and "refused" in each.getMessage()]
    return [Formatter("%(message)s").format(record) for record in records]


async def test_a_refused_token_is_in_the_log(settings, caplog, monkeypatch):
    monkeypatch.setattr("privateer_server.api.operators._MIN_LOG_INTERVAL_SECONDS", 3600.0)
    caplog.set_level(logging.INFO)
    async with serving(create_app(settings)) as client:
        await Api(client).create(SMALL)
        assert (await client.post("/experiments/test/pause", headers=WRONG)).status_code == 401
        for _ in range(50):
            await client.get("/backup", headers=WRONG)
    (line,) = refusal_lines(caplog)
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
async def test_the_log_line_has_the_kind_of_address_alone(settings, caplog, address, kind):
    app = create_app(settings)
    async with serving(app):
        transport = httpx.ASGITransport(app, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await client.get("/backup")
    (line,) = refusal_lines(caplog)
    assert line == f'operator refused wanted="GET /backup" sender="{kind}" {WHY}'
    assert "10.1.2.3" not in caplog.text
    assert "93.184" not in caplog.text


async def test_a_right_token_is_not_logged(settings: ServerSettings, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(create_app(settings)) as client:
        await Api(client).create(SMALL)
        await client.post("/experiments/test/pause", headers=ADMIN)
    assert refusal_lines(caplog) == []


# A header that comes twice is read alike by everybody who reads it, whichever way a request takes.
#
# An upload in one piece is taken without a task, and one in two pieces by the endpoint; a device that asks for a policy
# is answered at once, and others by the framework. One of them took the first line of a header, and the other the last:
# what stood in front of a service could check one, and the service go by the other.


OTHER = "0" * 64


@asynccontextmanager
async def server(folder: Path) -> AsyncIterator[tuple[Api, int]]:
    """A server with an experiment, and the port of a listener as it has them."""
    app = create_app(ServerSettings(data=folder / "data", admin_token=TOKEN, sender_keys=TRUSTED))
    async with serving(app) as client, listening(app) as (port, _):
        api = Api(client)
        await api.create(SMALL)
        yield api, port


def lines_of_headers(*headers: tuple[str, str]) -> bytes:
    return b"".join(f"{name}: {value}\r\n".encode() for name, value in headers)


@pytest.mark.parametrize("is_whole", [True, False], ids=["at once", "by a task"])
@pytest.mark.parametrize("name", ["Privateer-Sender", "Authorization", "Content-Type", "Host"])
async def test_an_upload_has_one_of_each_header(tmp_path: Path, name: str, is_whole: bool) -> None:
    async with server(tmp_path) as (api, port):
        publication = await api.publication()
        for order in (1, -1):
            body = body_of(publication, sealed_reports(publication, 2))
            values = [UPLOAD.sign(body, KEY), "something-else"][::order]
            others = [("Host", "here")] if name != "Host" else []
            signed = [("Privateer-Sender", values[order < 0])] if name != "Privateer-Sender" else []
            repeated_header = [(name, value) for value in values]
            head = lines_of_headers(*others, *signed, *repeated_header, ("Content-Length", str(len(body))))
            request = b"POST /reports HTTP/1.1\r\n" + head + b"\r\n"
            answer = await send_raw(port, *([request + body] if is_whole else [request, body]))
            assert answer.startswith(b"HTTP/1.1 400 "), answer
            problem = answer.partition(b"\r\n\r\n")[2]
            assert read_slug(problem) == "bad-request"
            assert f"the header {name.lower()} comes twice".encode() in problem
        assert (await api.facts())["accepted"] == 0


@pytest.mark.parametrize("path", ["policy", "policy?wait=0"], ids=["at once", "by the framework"])
async def test_tags_in_two_lines_are_one_list(tmp_path: Path, path: str) -> None:
    """RFC 9110, section 13.1.2: a list of tags, in one line or in several."""
    async with server(tmp_path) as (api, port):
        tag = (await api.client.get("/experiments/test/policy")).headers["etag"].strip('"')
        for tags in ([tag, OTHER], [OTHER, tag]):
            head = lines_of_headers(
                ("Host", "here"), *(("If-None-Match", f'"{etag}"') for etag in tags), ("Connection", "close")
            )
            answer = await send_raw(port, f"GET /experiments/test/{path} HTTP/1.1\r\n".encode() + head + b"\r\n")
            assert answer.startswith(b"HTTP/1.1 304 "), answer[:80]


async def test_an_admin_token_beside_another_is_refused(tmp_path: Path) -> None:
    async with server(tmp_path) as (_, port):
        for tokens in ([TOKEN, "wrong-and-long-enough"], ["wrong-and-long-enough", TOKEN]):
            head = lines_of_headers(("Host", "here"), *(("Authorization", f"Bearer {token}") for token in tokens))
            answer = await send_raw(port, b"GET /experiments/test/log HTTP/1.1\r\n" + head + b"\r\n")
            assert answer.startswith(b"HTTP/1.1 400 ")


async def test_other_headers_may_come_in_several_lines(tmp_path: Path) -> None:
    """Proxies add lines of their own."""
    async with server(tmp_path) as (_, port):
        head = lines_of_headers(("Host", "here"), ("Via", "1.1 a"), ("Via", "1.1 b"), ("Connection", "close"))
        assert (await send_raw(port, b"GET /healthz HTTP/1.1\r\n" + head + b"\r\n")).startswith(b"HTTP/1.1 200 ")


# A stranger asks the public listeners for private pages, in all ways to write a path that a router might forgive.


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
    with run_services(tmp_path_factory.mktemp("data"), free_port(), free_port(), quiet=True, issuing=issuing) as at:
        yield at


def spellings_of(path: str) -> list[str]:
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
        for path in spellings_of("/metrics"):
            for method in ("GET", "HEAD"):
                assert ask(url, method, path) in (400, 404, 405), (url, method, path)


@asynccontextmanager
async def serving_public(app: Server) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(AtOnce(app.public))
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        yield client


def pages(app: Server) -> set[tuple[str, str]]:
    """Method and path of every page that the server's routers know, in its description or not."""
    method_paths = set()
    for mount in app._timed._app._app._app.routes:  # type: ignore[attr-defined]
        for route in getattr(getattr(mount, "original_router", None), "routes", [mount]):
            method_paths |= {(method, route.path) for method in route.methods - {"HEAD"}}
    assert len(method_paths) > 30, "the framework keeps its routes elsewhere"
    return method_paths


async def test_every_page_of_the_server_is_public_or_authenticated(tmp_path: Path) -> None:
    """Whatever page is added: strangers may find it, or it takes a token, a shuffler's signature, or is listed here."""
    app = create_app(ServerSettings(data=tmp_path, admin_token=TOKEN))
    async with serving(app) as operator, serving_public(app) as stranger:
        await Api(operator).create(SMALL)
        for method, template in sorted(pages(app)):
            path = template.format(name="test", version=1)
            if not _is_public(method, path) and path not in ("/metrics", "/version"):
                refusal = await operator.request(method, path)
                assert (refusal.status_code, read_slug(refusal.content)) in REFUSED, (method, path, refusal.text)
                for way in spellings_of(path):
                    answer = await stranger.request(method, way, headers=ADMIN)
                    assert answer.status_code in (404, 405), (method, way, answer.text)
        assert (await Api(operator).facts())["status"] == "open"


# A page in an operator's browser has its name resolve to the private listener, and reads it as its own site.
#
# Real services are asked as a browser asks them then: at the loopback address, by the name of the page. A page cannot
# choose what its browser sends as ``Host``.


EVIL = ["evil.example", "evil.example:8002", "127.0.0.1.evil.example", "localhost.evil.example", "0x7f000001", "127.1"]
NONE = ["", "evil.example@127.0.0.1", "[::1", "127.0.0.1 evil.example", "[evil.example]"]
OWN = ["127.0.0.1", "127.0.0.1:8002", "[::1]:8002", "localhost:8002", "LOCALHOST", "server.localhost", "10.1.2.3:80"]
GIVEN = ["operations.internal", "operations.internal.:8002", "OPERATIONS.internal"]


@pytest.fixture(scope="module")
def services_of_rebound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PRIVATEER_ADMIN_ALLOWED_HOSTS", "other.internal, operations.internal")
        ports = free_port(), free_port()
        issuing = IssuerProcess("test", free_port())
        with run_services(tmp_path_factory.mktemp("data"), *ports, quiet=True, issuing=issuing) as at:
            yield at


def ask_of_rebound(url: str, host: str | None, page: str = "/metrics") -> tuple[int, bytes]:
    """The status and the body of an answer to a request by such a name."""
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    named = "" if host is None else f"Host: {host}\r\n"
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as to:
        to.sendall(f"GET {page} HTTP/1.1\r\n{named}Connection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: to.recv(1 << 16), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


@pytest.mark.parametrize("host", [*EVIL, *NONE, None])
def test_a_rebound_name_reads_nothing(services_of_rebound: Services, host: str | None) -> None:
    pages = [
        (services_of_rebound.admin, page) for page in ("/metrics", "/", "/dashboard/operator/token.mjs", "/experiments")
    ]
    for url, page in [*pages, (services_of_rebound.shuffler_admin, "/metrics")]:
        status, body = ask_of_rebound(url, host, page)
        assert (status, read_slug(body)) == (421, "host-refused"), (url, page, body[:200])


@pytest.mark.parametrize("host", [*OWN, *GIVEN])
def test_host_names_of_the_operator_are_answered(services_of_rebound: Services, host: str) -> None:
    for url in (services_of_rebound.admin, services_of_rebound.shuffler_admin):
        assert ask_of_rebound(url, host)[0] == 200


def test_the_public_listener_accepts_any_host_name(services_of_rebound: Services) -> None:
    """The public listener holds nothing private, and devices may know it by names that the service does not."""
    for url in (services_of_rebound.server, services_of_rebound.shuffler):
        assert ask_of_rebound(url, "learn.example", "/healthz")[0] == 200


@pytest.mark.parametrize("names", ["server:8002", "http://server", "Server.internal", "a b/c", "*"])
def test_invalid_host_names_are_refused(names: str) -> None:
    with pytest.raises(SpecError, match="is no name of a host") as caught:
        read_settings({"PRIVATEER_ADMIN_ALLOWED_HOSTS": names})
    assert (caught.value.field, bool(caught.value.remedy)) == ("PRIVATEER_ADMIN_ALLOWED_HOSTS", True)
