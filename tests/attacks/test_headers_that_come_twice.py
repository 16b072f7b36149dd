"""A header that comes twice is read alike by everybody who reads it, whichever way a request takes.

An upload in one piece is taken without a task, and one in two pieces by the endpoint; a device that asks for a policy
is answered at once, and others by the framework. One of them took the first line of a header, and the other the last:
what stood in front of a service could check one, and the service go by the other.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from privateer_core.wire.batch import UPLOAD
from privateer_core.wire.problem import slug_of
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.sealing import body_of, sealed_reports
from tests.support.senders import KEY, TRUSTED
from tests.support.servers import SMALL, TOKEN, Api
from tests.unit.serving.test_http_protocol import listening, said

OTHER = "0" * 64


@asynccontextmanager
async def server(folder: Path) -> AsyncIterator[tuple[Api, int]]:
    """A server with an experiment, and the port of a listener as it has them."""
    app = create_app(ServerSettings(data=folder / "data", admin_token=TOKEN, sender_keys=TRUSTED))
    async with serving(app) as client, listening(app) as (port, _):
        api = Api(client)
        await api.create(SMALL)
        yield api, port


def lines(*headers: tuple[str, str]) -> bytes:
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
            twice = [(name, value) for value in values]
            head = lines(*others, *signed, *twice, ("Content-Length", str(len(body))))
            request = b"POST /reports HTTP/1.1\r\n" + head + b"\r\n"
            answer = await said(port, *([request + body] if is_whole else [request, body]))
            assert answer.startswith(b"HTTP/1.1 400 "), answer
            problem = answer.partition(b"\r\n\r\n")[2]
            assert slug_of(problem) == "bad-request"
            assert f"the header {name.lower()} comes twice".encode() in problem
        assert (await api.facts())["accepted"] == 0


@pytest.mark.parametrize("path", ["policy", "policy?wait=0"], ids=["at once", "by the framework"])
async def test_tags_in_two_lines_are_one_list(tmp_path: Path, path: str) -> None:
    """RFC 9110, section 13.1.2: a list of tags, in one line or in several."""
    async with server(tmp_path) as (api, port):
        tag = (await api.client.get("/experiments/test/policy")).headers["etag"].strip('"')
        for tags in ([tag, OTHER], [OTHER, tag]):
            head = lines(("Host", "here"), *(("If-None-Match", f'"{one}"') for one in tags), ("Connection", "close"))
            answer = await said(port, f"GET /experiments/test/{path} HTTP/1.1\r\n".encode() + head + b"\r\n")
            assert answer.startswith(b"HTTP/1.1 304 "), answer[:80]


async def test_an_admin_token_beside_another_is_refused(tmp_path: Path) -> None:
    async with server(tmp_path) as (_, port):
        for tokens in ([TOKEN, "wrong-and-long-enough"], ["wrong-and-long-enough", TOKEN]):
            head = lines(("Host", "here"), *(("Authorization", f"Bearer {one}") for one in tokens))
            answer = await said(port, b"GET /experiments/test/log HTTP/1.1\r\n" + head + b"\r\n")
            assert answer.startswith(b"HTTP/1.1 400 ")


async def test_other_headers_may_come_in_several_lines(tmp_path: Path) -> None:
    """Proxies add lines of their own."""
    async with server(tmp_path) as (_, port):
        head = lines(("Host", "here"), ("Via", "1.1 a"), ("Via", "1.1 b"), ("Connection", "close"))
        assert (await said(port, b"GET /healthz HTTP/1.1\r\n" + head + b"\r\n")).startswith(b"HTTP/1.1 200 ")
