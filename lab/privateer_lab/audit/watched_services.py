"""Server and shuffler in this process, with a record of all traffic that a network observer sees."""

import asyncio
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
from starlette.types import ASGIApp

from privateer_client.async_client import AsyncClient
from privateer_client.ledger.account_protocol import Account, Payment
from privateer_client.ledger.choice import StoredArm
from privateer_client.ledger.known_servers import KnownServer
from privateer_client.participation import SealedReport, StoredChoice
from privateer_client.states import ReportStatus
from privateer_core.privacy.trust import Recipient
from privateer_core.spec.spec import Spec
from privateer_core.wire.batch import SIGNATURE_HEADER
from privateer_core.wire.identity import SIGNED_HEADER
from privateer_lab.audit.first_rounds import LIMITS
from privateer_server.admin_tokens import token_digest
from privateer_server.app import create_app as create_server
from privateer_server.settings import ServerSettings
from privateer_shuffler.app import create_app as create_shuffler
from privateer_shuffler.settings import ShufflerSettings

_KEY_FACTS: Final = ("digest", "shuffler")
"""Fields of public pages that differ between starts of the services, since keys are random."""
_TOKEN: Final = "the-token-of-the-audit"  # noqa: S105
_ROUND_TIMEOUT_SECONDS: Final = 20.0
"""Time after which a full round counts as not closed."""
_VARYING_HEADERS: Final = frozenset({"etag", "if-none-match", SIGNATURE_HEADER.lower(), SIGNED_HEADER.lower()})
"""Headers whose values depend on releases or sealed bytes."""


class Exchange(NamedTuple):
    """A request and its response as an observer sees them; headers and sizes that depend on releases are left out."""

    host: str
    method: str
    path: str
    request_headers: dict[str, str]
    request_size: int
    status: int
    response_headers: dict[str, str]
    response_size: int


class RecordingTransport(httpx.AsyncBaseTransport):
    """A transport that forwards requests to the application of their host and records the exchanges."""

    def __init__(self) -> None:
        self.hosts: dict[str, httpx.ASGITransport] = {}
        self.exchanges: list[Exchange] = []

    @property
    def n_accepted(self) -> int:
        """The number of acknowledged reports."""
        return sum(exchange.method == "POST" and exchange.status == httpx.codes.ACCEPTED for exchange in self.exchanges)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Forward a request, record the exchange, and return the response."""
        request_body = await request.aread()
        response = await self.hosts[request.url.host].handle_async_request(request)
        body, hidden_headers = await response.aread(), _VARYING_HEADERS
        if request.method == "GET" and request.url.path.endswith("/policy"):
            body, hidden_headers = b"", hidden_headers | {"content-length"}
        sent, received = (
            {name: "" if name in hidden_headers else value for name, value in message.headers.items()}
            for message in (request, response)
        )
        request_facts = (request.url.host, request.method, request.url.path, sent, len(request_body))
        self.exchanges.append(Exchange(*request_facts, response.status_code, received, len(body)))
        return response


class _EmptyServerStore:
    """A store that applies checks of servers, and stores nothing."""

    def get(self, _: str) -> None: ...

    def change(self, _: str, change: Callable[[KnownServer | None], KnownServer]) -> None:
        change(None)

    def store_evidence(self, _server: str, _evidence: str) -> None: ...

    def mark_rollback_answered(self, _server: str) -> None: ...

    def evidence(self, _: str) -> None: ...


class _MemoryLedger:
    """An in-memory account of one new participant, which stores the choice alone, until it is reported."""

    servers, tokens = _EmptyServerStore(), None

    def __init__(self, number: int | None = None) -> None:
        self._choice: StoredChoice | None = None
        self._number = number

    def transaction(self) -> AbstractContextManager[object]:
        return nullcontext()

    def pay(self, _payment: Payment, _endpoint: str, seal: Callable[[], bytes]) -> bytes:
        self._choice = None
        return seal()

    def payment(self, _: str) -> None: ...

    def count_visit(self, _experiment: str, times: int, _seconds: float, _period: int) -> bool:
        return secrets.randbelow(times) == 0

    def draw_number(self, _experiment: str, _seed: int, n_participants: int) -> int:
        return secrets.randbelow(n_participants) if self._number is None else self._number

    def pending_reports(self) -> list[SealedReport]:
        return []

    def tie_token(self, _: SealedReport) -> None: ...

    def erase_report(self, _: SealedReport) -> None: ...

    def choice(self, _: str) -> StoredChoice | None:
        return self._choice

    def experiments_with_choice(self) -> list[str]:
        return []

    def change_choice(
        self, _: str, change: Callable[[StoredChoice | None], StoredChoice | None]
    ) -> StoredChoice | None:
        self._choice = change(self._choice)
        return self._choice

    def change_arm(self, _: str, change: Callable[[StoredArm | None], StoredArm | None]) -> StoredArm | None:
        return change(None)

    def forget(self, _: str) -> None:
        self._choice = None

    def publication(self, _: str) -> None: ...

    def has_witnessed(self, _experiment: str, _name: bytes) -> bool:
        return False

    def store_publication(self, _experiment: str, _publication: bytes) -> None: ...


def make_memory_ledger(number: int | None = None) -> Account:
    """Make the in-memory account of a new participant, with this number in draws of participants or a random one."""
    return _MemoryLedger(number)


class WatchedServices:
    """Server and shuffler with one experiment; they record traffic of devices, and of shuffler and server."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self.devices, self.uploads, self._unwatched = (RecordingTransport(), RecordingTransport(), RecordingTransport())

    async def start(self, folder: Path, stack: AsyncExitStack) -> None:
        """Start both services, which run until ``stack`` is closed."""
        (folder / "trusted").mkdir()
        key_folders, token = (folder / "trusted",), token_digest(_TOKEN)
        settings = ServerSettings(data=folder / "server", admin_token=token, shuffler_keys=key_folders)
        server = await stack.enter_async_context(_serve_app(create_server(settings)))
        self.uploads.hosts = {"server": server}
        data, public_key_file = folder / "shuffler", folder / "trusted" / "shuffler.pub"
        shuffler_settings = ShufflerSettings(server_url="http://server", data=data, public_key_file=public_key_file)
        shuffler = await stack.enter_async_context(_serve_app(create_shuffler(shuffler_settings, self.uploads)))
        self.devices.hosts = self._unwatched.hosts = {"server": server, "shuffler": shuffler}
        body = self._spec.model_dump(mode="json", exclude_none=True)
        await self.send("POST", "http://server/experiments", json=body, headers={"Authorization": f"Bearer {_TOKEN}"})

    async def send(self, method: str, url: str, **request: Any) -> httpx.Response:
        """Send a request of the audit itself, which is not recorded, nor logged by a client."""
        return await self._unwatched.handle_async_request(httpx.Request(method, url, **request))

    async def run_participant(self, context: dict[str, float], reward: float) -> ReportStatus:
        """Let one participant take part through the client library; return the outcome of the report."""
        options: dict[str, Any] = {"limits": LIMITS, "ledger": make_memory_ledger(), "transport": self.devices}
        async with AsyncClient("http://server", shuffler="http://shuffler", **options) as client:
            session = await client.join(self._spec.name)
            await session.choose(context)
            return await session.report(reward)

    async def read_public_states(self) -> list[dict[str, Any]]:
        """Return the public page of the experiment at each service that it needs."""
        hosts = ("server", "shuffler") if self._spec.privacy.trust.endpoint is Recipient.SHUFFLER else ("server",)
        page = f"experiments/{self._spec.name}"
        states = [dict((await self.send("GET", f"http://{host}/{page}")).json()) for host in hosts]
        return [{name: value for name, value in state.items() if name not in _KEY_FACTS} for state in states]

    async def wait_for_version(self, version: int) -> None:
        """Wait until a version is published and the shuffler knows of it."""
        async with asyncio.timeout(_ROUND_TIMEOUT_SECONDS):
            while any(state["version"] < version for state in await self.read_public_states()):
                await asyncio.sleep(0.005)


@asynccontextmanager
async def serve_watched(spec: Spec) -> AsyncIterator[WatchedServices]:
    """Run both services with an experiment in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="privateer-audit-") as folder:
        async with AsyncExitStack() as stack:
            watched = WatchedServices(spec)
            await watched.start(Path(folder), stack)
            yield watched


@asynccontextmanager
async def _serve_app(app: ASGIApp) -> AsyncIterator[httpx.ASGITransport]:
    """Yield a transport to ``app`` while its lifespan runs."""
    to_app: asyncio.Queue[Any] = asyncio.Queue()
    from_app: asyncio.Queue[Any] = asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}}
    lifespan = asyncio.ensure_future(app(scope, to_app.get, from_app.put))
    await to_app.put({"type": "lifespan.startup"})
    await from_app.get()
    try:
        yield httpx.ASGITransport(app)
    finally:
        await to_app.put({"type": "lifespan.shutdown"})
        await lifespan
