"""An issuer beside server and shuffler, all in this process, and devices that reach each by its host."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from privateer_core.clock import Clock
from privateer_core.serving.settings import TokenSettings
from privateer_core.wire.attestation import HEADER, attest
from privateer_core.wire.token import Challenge, PendingToken, authorization
from privateer_core.wire.token_keys import Directory, TokenKey
from privateer_issuer.app import create_app as create_issuer
from privateer_issuer.settings import IssuerSettings
from privateer_server.app import create_app as create_server
from privateer_server.settings import ServerSettings
from privateer_shuffler.app import create_app as create_shuffler
from privateer_shuffler.settings import ShufflerSettings
from tests.support.asgi import AtOnce, serving
from tests.support.senders import TRUSTED
from tests.support.servers import ADMIN, TOKEN
from tests.support.specs import tables

SECRET = b"x" * 32


class Ways(httpx.AsyncBaseTransport):
    """Leads each request to the service of its host, and keeps what was asked.

    Attributes
    ----------
    requests
        Every request with its body, in order.
    answered
        Requests and the statuses of their answers, those that are lost, too.
    lossy_hosts
        Hosts whose next answer is lost, once each.
    """

    def __init__(self) -> None:
        self.hosts: dict[str, Any] = {}
        self.requests: list[httpx.Request] = []
        self.answered: list[tuple[httpx.Request, int]] = []
        self.lossy_hosts: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on."""
        await request.aread()
        self.requests.append(request)
        app = self.hosts[request.url.host]
        app = AtOnce(app) if hasattr(app, "answer_at_once") else app
        answer = await httpx.ASGITransport(app).handle_async_request(request)
        self.answered.append((request, answer.status_code))
        if request.url.host in self.lossy_hosts:
            self.lossy_hosts.remove(request.url.host)
            raise httpx.ReadTimeout("the answer is lost")
        return answer

    def to(self, host: str, ending: str) -> list[httpx.Request]:
        """The requests to a page of a host."""
        return [request for request in self.requests if request.url.host == host and request.url.path.endswith(ending)]

    def statuses(self, host: str, ending: str) -> list[int]:
        """The statuses of the answers of a host's page."""
        urls = ((request.url, status) for request, status in self.answered)
        return [status for url, status in urls if url.host == host and url.path.endswith(ending)]


@dataclass
class Trio:
    """The three services.

    Attributes
    ----------
    ways
        How devices reach them.
    http
        A client without a trusted sender's key.
    folder
        Their data.
    """

    ways: Ways
    http: httpx.AsyncClient
    folder: Path
    apps: dict[str, Any] = field(default_factory=dict)

    async def create(self, changes: dict[str, Any]) -> bytes:
        """Create an experiment; its publication."""
        response = await self.http.post("http://server/experiments", json=tables(changes), headers=ADMIN)
        assert response.status_code == 201, response.text
        return await self.publication(changes.get("experiment.name", "test"))

    async def publication(self, name: str = "test") -> bytes:
        """What the server publishes."""
        page = f"http://server/experiments/{name}/policy"
        return (await self.http.get(page, headers={"accept": "application/msgpack"})).content

    async def key(self, name: str = "test") -> TokenKey:
        """The newest key that the shuffler shows."""
        page = await self.http.get(f"http://shuffler/experiments/{name}/token-keys")
        assert page.status_code == 200, page.text
        return Directory.decode(page.content).keys(name)[0]

    async def request(self, body: bytes, pseudonym: str = "", name: str = "test") -> httpx.Response:
        """Ask the issuer to sign."""
        headers = {HEADER: attest(SECRET, name, pseudonym, now() + 600)} if pseudonym else {}
        return await self.http.post(f"http://issuer/experiments/{name}/tokens", content=body, headers=headers)

    async def token(self, name: str = "test", origin: str = "shuffler", pseudonym: str = "") -> bytes:
        """A signed token."""
        key = await self.key(name)
        pending = PendingToken.draw(Challenge("issuer:80", f"{origin}:80", name), key)
        answer = await self.request(pending.request, pseudonym, name)
        assert answer.status_code == 200, answer.text
        return pending.finish(key, answer.content)

    async def upload(self, body: bytes, token: bytes | None, name: str = "test", host: str = "") -> httpx.Response:
        """Send a report with a token to the shuffler, or to the server's own endpoint."""
        headers = {"authorization": authorization(token)} if token else {}
        url = f"http://{host}/reports" if host else f"http://shuffler/experiments/{name}/reports"
        return await self.http.post(url, content=body, headers=headers)

    async def metric(self, host: str, line: str) -> float:
        """The value of a line of a service's metrics, 0 if it is not there."""
        text = (await self.http.get(f"http://{host}/metrics")).text
        return next((float(row.rsplit(" ", 1)[1]) for row in text.splitlines() if row.rsplit(" ", 1)[0] == line), 0.0)


def now() -> int:
    """Seconds since 1970."""
    return int(time.time())


def issuer_settings(folder: Path, **changes: Any) -> IssuerSettings:
    """Settings of an issuer that writes its keys where the others look."""
    (folder / "secrets").write_text(SECRET.hex())
    usual: dict[str, Any] = {
        "data": folder / "issuer",
        "experiments": ("test", "other"),
        "name": "issuer",
        "attestation_verifier": "open",
        "public_keys_file": folder / "tokens" / "issuer.json",
        "environment": {"PRIVATEER_ATTESTATION_SECRETS": str(folder / "secrets")},
    }
    return IssuerSettings(**usual | changes)


def token_settings(folder: Path, origin: str) -> TokenSettings:
    """Settings of a service that takes reports with tokens alone."""
    return TokenSettings(required=True, keys=str(folder / "tokens"), origins=(origin,))


@asynccontextmanager
async def trio(folder: Path, clock: Clock | None = None, misnamed: bool = False, **issuer: Any) -> AsyncIterator[Trio]:
    """Serve all three on their data in ``folder``; changes are to the issuer's settings.

    With ``misnamed`` an operator has given the endpoints names that no device knows them by.
    """
    # Hosts without a port are at port 80, and so are the names.
    issuer = {"name": "issuer:80", "experiments": ("test",), **issuer}  # each has a key, which takes a while to draw
    prefix = "mis" if misnamed else ""
    async with AsyncExitStack() as stack:
        ways = Ways()
        http = await stack.enter_async_context(httpx.AsyncClient(transport=ways))
        services = Trio(ways, http, folder)
        ways.hosts["issuer"] = create_issuer(issuer_settings(folder, **issuer), clock)
        trusted = (folder / "trusted",)
        direct = ServerSettings(
            data=folder / "server",
            admin_token=TOKEN,
            shuffler_keys=trusted,
            tokens=token_settings(folder, f"{prefix}server:80"),
        )
        ways.hosts["server"] = create_server(direct, clock)
        mixing = ShufflerSettings(
            server_url="http://server",
            data=folder / "shuffler",
            public_key_file=folder / "trusted" / "one.pub",
            min_batch=2,
            sender_keys=TRUSTED,
            tokens=token_settings(folder, f"{prefix}shuffler:80"),
        )
        ways.hosts["shuffler"] = create_shuffler(mixing, httpx.ASGITransport(ways.hosts["server"]))
        for app in list(ways.hosts.values()):
            await stack.enter_async_context(serving(app))
        yield services
