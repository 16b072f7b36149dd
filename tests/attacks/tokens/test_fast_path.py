"""Uploads that come in one piece are taken without a task: no report gets past the gate on this way either."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from privateer_core.serving.connections import Connections
from privateer_core.serving.http.answer import HttpAnswer
from privateer_core.serving.http_protocol import GuardedProtocol
from privateer_core.serving.process import _make_config
from privateer_core.wire.token import authorization
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import SHUFFLED, SMALL
from tests.support.tokens import Trio, trio
from tests.unit.serving.test_http_protocol import State

ENDPOINTS = [("shuffler", SHUFFLED, "/experiments/test/reports"), ("server", SMALL, "/reports")]
PEOPLE = 12


@dataclass
class Endpoint:
    """An endpoint that knows its round, and reports for it."""

    services: Trio
    host: str
    path: str
    publication: bytes
    sealed: list[bytes]

    def body(self) -> bytes:
        """The upload of another person."""
        return body_of(self.publication, [self.sealed.pop()])

    async def token(self) -> bytes:
        return await self.services.token(origin=self.host)

    async def send(self, body: bytes, token: bytes | None) -> HttpAnswer:
        """Send an upload by the fast path, which must take it."""
        headers = [(b"authorization", authorization(token).encode())] if token else []
        scope = {"type": "http", "method": "POST", "path": self.path, "headers": headers, "client": ("192.0.2.1", 1)}
        answer: asyncio.Future[HttpAnswer] = asyncio.get_running_loop().create_future()
        assert self.services.ways.hosts[self.host].answer_at_once(scope, bytearray(body), answer.set_result)
        async with asyncio.timeout(20):
            return await answer

    async def count_accepted(self) -> int:
        """Return the number of reports that were accepted."""
        if self.host == "shuffler":
            pool = self.services.ways.hosts["shuffler"]._endpoint._rounds._followed["test"].pool
            return int(pool.n_held)  # the metrics show tenths of a batch
        return int((await self.services.http.get("http://server/experiments/test")).json()["accepted"])


@asynccontextmanager
async def endpoint(folder: Path, host: str, changes: dict[str, Any], path: str) -> AsyncIterator[Endpoint]:
    async with trio(folder, experiments=("test", "other")) as services:
        publication = await services.create(changes)
        assert (await services.http.get(f"http://{host}/experiments/test")).status_code == 200
        yield Endpoint(services, host, path, publication, sealed_reports(publication, PEOPLE))


def slug(answer: HttpAnswer) -> str:
    """Why an upload was refused; it must say how to get a token."""
    assert answer.status == 401
    assert dict(answer.headers)[b"www-authenticate"].startswith(b"PrivateToken")
    return str(msgspec.json.decode(answer.body)["type"]).rpartition(":")[2]


@pytest.mark.parametrize(("host", "changes", "path"), ENDPOINTS)
async def test_a_token_admits_one_report(tmp_path: Path, host: str, changes: dict[str, Any], path: str) -> None:
    async with endpoint(tmp_path, host, changes, path) as gate:
        token, other_token = await gate.token(), await gate.services.token("other", gate.host)
        forged = token[:-1] + bytes([token[-1] ^ 1])
        assert slug(await gate.send(gate.body(), None)) == "token-missing"
        assert slug(await gate.send(gate.body(), forged)) == "token-invalid"
        assert slug(await gate.send(gate.body(), other_token)) == "token-wrong-audience"
        assert await gate.count_accepted() == 0
        body = gate.body()
        assert (await gate.send(body, token)).status == 202
        assert slug(await gate.send(gate.body(), token)) == "token-spent"
        assert (await gate.send(body, token)).status == 409  # the same report again, whose answer was lost
        assert await gate.count_accepted() == 1


@pytest.mark.parametrize(("host", "changes", "path"), ENDPOINTS)
async def test_concurrent_uploads_admit_one(tmp_path: Path, host: str, changes: dict[str, Any], path: str) -> None:
    async with endpoint(tmp_path, host, changes, path) as gate:
        token = await gate.token()
        answers = await asyncio.gather(*(gate.send(gate.body(), token) for _ in range(PEOPLE - 2)))
        assert sorted(answer.status for answer in answers) == [202] + [401] * (PEOPLE - 3)
        assert await gate.count_accepted() == 1


@pytest.mark.parametrize(("host", "changes", "path"), ENDPOINTS)
async def test_a_pipelined_upload_needs_its_own_token(tmp_path, host, changes, path):
    """The turnstile does not look at a request while the one before is under way; the endpoint does."""
    async with endpoint(tmp_path, host, changes, path) as gate, listening(gate.services.ways.hosts[host]) as port:
        bodies, token = [gate.body() for _ in range(3)], authorization(await gate.token())
        header_lines = [f"authorization: {token}\r\n", "", "connection: close\r\n"]
        uploads = [
            f"POST {path} HTTP/1.1\r\nhost: here\r\ncontent-length: {len(body)}\r\n{text}\r\n".encode() + body
            for body, text in zip(bodies, header_lines, strict=True)
        ]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"".join(uploads))
        async with asyncio.timeout(20):
            responses = await reader.read()
        writer.close()
        assert [responses.count(b"HTTP/1.1 %d " % status) for status in (202, 401)] == [1, 2]
        assert responses.startswith(b"HTTP/1.1 202 ")
        assert await gate.count_accepted() == 1


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[int]:
    """A listener as a process has it, with the application's turnstile."""
    config, state = _make_config(app, "off", Connections(100)), State()
    config.load()
    options = {"config": config, "server_state": state, "app_state": {}}
    server = await asyncio.get_running_loop().create_server(
        lambda: GuardedProtocol(Connections(100), app.rate_limit, **options), "127.0.0.1", 0
    )
    yield server.sockets[0].getsockname()[1]
    server.close()
    for connection in list(state.connections):
        connection.drop()
