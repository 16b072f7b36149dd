"""Server and shuffler in this process, and a record of what whoever watches the network sees of them."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
from starlette.types import ASGIApp

from privateer.experiment import Spec
from privateer_client.client import AsyncClient
from privateer_client.ledger import Payment
from privateer_lab.audit.wire import LIMITS
from privateer_server.app import create_app as create_server
from privateer_server.settings import Settings as ServerSettings
from privateer_shuffler.app import create_app as create_shuffler
from privateer_shuffler.settings import Settings as ShufflerSettings

_TOKEN: Final = "of-the-audit"  # noqa: S105
_SECONDS: Final = 30.0


class Seen(NamedTuple):
    """One exchange, without what is public by its nature: a policy's size and digest depend on releases."""

    host: str
    method: str
    path: str
    request_headers: tuple[str, ...]
    request_size: int
    status: int
    response_headers: tuple[str, ...]
    response_size: int


class Watched(httpx.AsyncBaseTransport):
    """Passes requests on to the application of their host, and notes sizes and names of headers."""

    def __init__(self) -> None:
        self.hosts: dict[str, httpx.ASGITransport] = {}
        self.seen: list[Seen] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer one request."""
        sent = await request.aread()
        response = await self.hosts[request.url.host].handle_async_request(request)
        body, path = await response.aread(), request.url.path
        size = 0 if path.endswith("/policy") else len(body)
        names = tuple(sorted(request.headers)), tuple(sorted(response.headers))
        self.seen.append(
            Seen(request.url.host, request.method, path, names[0], len(sent), response.status_code, names[1], size)
        )
        return response


class _Purse:
    """A new person's, every time."""

    def pay(self, _: Payment) -> None:
        """Take note of nothing."""

    def has_paid(self, _: str) -> bool:
        """Never."""
        return False


class Services:
    """Both services with one experiment.

    Attributes
    ----------
    people, upstream
        What devices, and the shuffler, sent and got.
    """

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self.people, self.upstream, self._quiet = Watched(), Watched(), Watched()

    async def start(self, folder: Path, stack: AsyncExitStack) -> None:
        """Serve until ``stack`` is left."""
        (folder / "trusted").mkdir()
        settings = ServerSettings(folder / "server", _TOKEN, (folder / "trusted",))
        server = await stack.enter_async_context(_served(create_server(settings)))
        self.upstream.hosts = {"server": server}
        data = folder / "shuffler"
        mixing = ShufflerSettings("http://server", data, folder / "trusted" / "shuffler.pub")
        shuffler = await stack.enter_async_context(_served(create_shuffler(mixing, self.upstream)))
        self.people.hosts = self._quiet.hosts = {"server": server, "shuffler": shuffler}
        body = self._spec.model_dump(mode="json", exclude_none=True)
        await self.ask("POST", "http://server/experiments", json=body, headers={"Authorization": f"Bearer {_TOKEN}"})

    async def ask(self, method: str, url: str, **request: Any) -> httpx.Response:
        """An exchange of the audit's own: nobody watches it, and no client logs its address."""
        return await self._quiet.handle_async_request(httpx.Request(method, url, **request))

    async def person(self, context: dict[str, float], reward: float) -> None:
        """One person takes part by the client library."""
        client = AsyncClient(
            "http://server", shuffler="http://shuffler", limits=LIMITS, ledger=_Purse(), transport=self.people
        )
        async with client:
            session = await client.join(self._spec.experiment.name)
            session.choose(context)
            await session.report(reward)

    async def stand(self, host: str) -> dict[str, Any]:
        """What a service tells everybody about the experiment."""
        return dict((await self.ask("GET", f"http://{host}/experiments/{self._spec.experiment.name}")).json())

    async def reaches(self, host: str, version: int) -> None:
        """Wait until a service has published, or knows of, a version."""
        async with asyncio.timeout(_SECONDS):
            while (await self.stand(host))["version"] < version:
                await asyncio.sleep(0.005)


@asynccontextmanager
async def services(spec: Spec) -> AsyncIterator[Services]:
    """Both services, with an experiment, in a folder of their own."""
    with tempfile.TemporaryDirectory(prefix="privateer-audit-") as folder:
        async with AsyncExitStack() as stack:
            made = Services(spec)
            await made.start(Path(folder), stack)
            yield made


@asynccontextmanager
async def _served(app: ASGIApp) -> AsyncIterator[httpx.ASGITransport]:
    """A way to ``app`` while its lifespan runs."""
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
