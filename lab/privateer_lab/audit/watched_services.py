"""Server and shuffler in this process, and a record of what anybody who watches the network sees of them."""

import asyncio
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
from starlette.types import ASGIApp

from privateer_client.client import AsyncClient
from privateer_client.ledger.account_protocol import Payment
from privateer_client.ledger.choice import KeptArm, KeptChoice
from privateer_client.ledger.known_servers import KnownServer
from privateer_client.participation import SealedReport
from privateer_client.states import Outcome
from privateer_core.spec.spec import Spec
from privateer_core.wire.batch import SIGNATURE_HEADER
from privateer_core.wire.identity import SIGNED_HEADER
from privateer_lab.audit.sealed_reports import LIMITS
from privateer_server.admin_tokens import token_digest
from privateer_server.app import create_app as create_server
from privateer_server.settings import ServerSettings
from privateer_shuffler.app import create_app as create_shuffler
from privateer_shuffler.settings import ShufflerSettings

_KEYS: Final = ("digest", "shuffler")
"""Facts that differ from one start of the services to the next, since keys are drawn."""
_TOKEN: Final = "the-token-of-the-audit"  # noqa: S105
_SECONDS: Final = 20.0
"""After which a full round counts as one that did not close."""


_OWN: Final = frozenset({"etag", "if-none-match", SIGNATURE_HEADER.lower(), SIGNED_HEADER.lower()})
"""Headers whose values depend on releases or sealed bytes."""


class Seen(NamedTuple):
    """One exchange: sizes and headers, without those of a policy, which depend on releases."""

    host: str
    method: str
    path: str
    request_headers: dict[str, str]
    request_size: int
    status: int
    response_headers: dict[str, str]
    response_size: int


class Watched(httpx.AsyncBaseTransport):
    """Passes requests on to the application of their host, and notes what a watcher of the network sees."""

    def __init__(self) -> None:
        self.hosts: dict[str, httpx.ASGITransport] = {}
        self.seen: list[Seen] = []

    @property
    def taken(self) -> int:
        """Reports that were acknowledged."""
        return sum(seen.method == "POST" and seen.status == httpx.codes.ACCEPTED for seen in self.seen)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer one request."""
        sent = await request.aread()
        response = await self.hosts[request.url.host].handle_async_request(request)
        body, own = await response.aread(), _OWN
        if request.method == "GET" and request.url.path.endswith("/policy"):
            body, own = b"", own | {"content-length"}
        shown = [
            {name: "" if name in own else value for name, value in part.headers.items()} for part in (request, response)
        ]
        self.seen.append(
            Seen(
                host=request.url.host,
                method=request.method,
                path=request.url.path,
                request_headers=shown[0],
                request_size=len(sent),
                status=response.status_code,
                response_headers=shown[1],
                response_size=len(body),
            )
        )
        return response


class _Servers:
    """Knows no server, every time."""

    def get(self, _: str) -> KnownServer | None:
        """Know nothing."""
        return None

    def change(self, _: str, change: Callable[[KnownServer | None], KnownServer]) -> None:
        """Check, and keep nothing."""
        change(None)

    def accuse(self, _server: str, _evidence: str) -> None:
        """Keep nothing."""

    def acquit(self, _server: str) -> None:
        """Have nothing to drop."""

    def evidence(self, _: str) -> str | None:
        """Have none."""
        return None


class _MemoryLedger:
    """The account of a new person, which is gone with them."""

    servers = _Servers()

    def __init__(self) -> None:
        self._choice: KeptChoice | None = None

    @property
    def tokens(self) -> None:
        """Keep no upload tokens."""

    def transaction(self) -> AbstractContextManager[object]:
        return nullcontext()

    def pay(self, _payment: Payment, _endpoint: str, seal: Callable[[], bytes]) -> bytes:
        """Erase the choice, and take note of nothing else."""
        self._choice = None
        return seal()

    def payment(self, _: str) -> None:
        """Say that nothing was paid."""

    def draw(self, _experiment: str, times: int, _seconds: float, _period: int) -> bool:
        """Draw anew which of so many times is the one for the report."""
        return secrets.randbelow(times) == 0

    def number(self, _experiment: str, _seed: int, people: int) -> int:
        """Draw a number anew."""
        return secrets.randbelow(people)

    def waiting(self) -> list[SealedReport]:
        """Keep nothing."""
        return []

    def answered(self, _: SealedReport) -> None:
        """Forget nothing, since nothing is kept."""

    def choice(self, _: str) -> KeptChoice | None:
        """Return the choice."""
        return self._choice

    def choices(self) -> list[str]:
        """Keep no choices."""
        return []

    def change(self, _: str, change: Callable[[KeptChoice | None], KeptChoice | None]) -> KeptChoice | None:
        """Keep a choice until its report."""
        self._choice = change(self._choice)
        return self._choice

    def change_arm(self, _: str, change: Callable[[KeptArm | None], KeptArm | None]) -> KeptArm | None:
        """Keep no arm."""
        return change(None)

    def forget(self, _: str) -> None:
        """Forget the choice."""
        self._choice = None

    def publication(self, _: str) -> None:
        """Keep no publication."""

    def has_witnessed(self, _experiment: str, _name: bytes) -> bool:
        """Have seen nothing."""
        return False

    def remember(self, _experiment: str, _publication: bytes) -> None:
        """Keep no publication."""


class WatchedStage:
    """Both services with one experiment.

    people, upstream: what devices, and the shuffler, sent and got.
    """

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self.people, self.upstream, self._quiet = Watched(), Watched(), Watched()

    async def start(self, folder: Path, stack: AsyncExitStack) -> None:
        """Serve until ``stack`` is left."""
        (folder / "trusted").mkdir()
        trusted, token = (folder / "trusted",), token_digest(_TOKEN)
        settings = ServerSettings(data=folder / "server", admin_token=token, shuffler_keys=trusted)
        server = await stack.enter_async_context(_served(create_server(settings)))
        self.upstream.hosts = {"server": server}
        data = folder / "shuffler"
        mixing = ShufflerSettings(
            server_url="http://server", data=data, public_key_file=folder / "trusted" / "shuffler.pub"
        )
        shuffler = await stack.enter_async_context(_served(create_shuffler(mixing, self.upstream)))
        self.people.hosts = self._quiet.hosts = {"server": server, "shuffler": shuffler}
        body = self._spec.model_dump(mode="json", exclude_none=True)
        await self.ask("POST", "http://server/experiments", json=body, headers={"Authorization": f"Bearer {_TOKEN}"})

    async def ask(self, method: str, url: str, **request: Any) -> httpx.Response:
        """Ask for the audit itself: nobody watches it, and no client logs its address."""
        return await self._quiet.handle_async_request(httpx.Request(method, url, **request))

    async def person(self, context: dict[str, float], reward: float) -> Outcome:
        """Have one person take part by the client library; return what became of the report."""
        client = AsyncClient(
            "http://server", shuffler="http://shuffler", limits=LIMITS, ledger=_MemoryLedger(), transport=self.people
        )
        async with client:
            session = await client.join(self._spec.name)
            await session.choose(context)
            return await session.report(reward)

    async def stand(self) -> list[dict[str, Any]]:
        """Return what the services that the experiment needs show everybody about it."""
        hosts = ("server", "shuffler") if self._spec.privacy.trust.shuffled else ("server",)
        page = f"experiments/{self._spec.name}"
        shown = [dict((await self.ask("GET", f"http://{host}/{page}")).json()) for host in hosts]
        return [{name: value for name, value in one.items() if name not in _KEYS} for one in shown]

    async def reach(self, version: int) -> None:
        """Wait until a version is published and the shuffler knows of it."""
        async with asyncio.timeout(_SECONDS):
            while any(one["version"] < version for one in await self.stand()):
                await asyncio.sleep(0.005)


@asynccontextmanager
async def services(spec: Spec) -> AsyncIterator[WatchedStage]:
    """Serve both services, with an experiment, in a folder of their own."""
    with tempfile.TemporaryDirectory(prefix="privateer-audit-") as folder:
        async with AsyncExitStack() as stack:
            made = WatchedStage(spec)
            await made.start(Path(folder), stack)
            yield made


@asynccontextmanager
async def _served(app: ASGIApp) -> AsyncIterator[httpx.ASGITransport]:
    """Yield a way to ``app`` while its lifespan runs."""
    to_app: asyncio.Queue[Any] = asyncio.Queue()
    from_app: asyncio.Queue[Any] = asyncio.Queue()
    lifespan = asyncio.create_task(_lifespan(app, to_app, from_app))
    await to_app.put({"type": "lifespan.startup"})
    await from_app.get()
    try:
        yield httpx.ASGITransport(app)
    finally:
        await to_app.put({"type": "lifespan.shutdown"})
        await lifespan


async def _lifespan(app: ASGIApp, to_app: "asyncio.Queue[Any]", from_app: "asyncio.Queue[Any]") -> None:
    await app({"type": "lifespan", "asgi": {"version": "3.0"}}, to_app.get, from_app.put)
