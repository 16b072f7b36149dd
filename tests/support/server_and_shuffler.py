"""A learning server and a shuffler in this process, the shuffler's requests on the way between them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx

from privateer_core.wire.publication import decode_publication
from privateer_server.app import create_app as create_server
from privateer_server.settings import ServerSettings
from privateer_shuffler.app import create_app as create_shuffler
from privateer_shuffler.settings import ShufflerSettings
from tests.support.asgi import serving
from tests.support.sealing import body_of
from tests.support.senders import TRUSTED
from tests.support.servers import TOKEN, Api

_TRIES = 2000


class Pair:
    """Both services.

    Attributes
    ----------
    api
        The server.
    shuffler
        A client of the shuffler.
    """

    def __init__(self, api: Api, shuffler: httpx.AsyncClient) -> None:
        self.api, self.shuffler = api, shuffler

    async def upload(self, publication: bytes, sealed: bytes) -> httpx.Response:
        """One person's upload, sent again as long as the shuffler says that it cannot take it now."""
        body = body_of(publication, [sealed])
        name = decode_publication(publication).round.experiment
        for _ in range(_TRIES):
            answer = await self.shuffler.post(f"/experiments/{name}/reports", content=body)
            if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                break
            await asyncio.sleep(0.005)
        return answer

    async def uploads(self, publication: bytes, sealed: list[bytes]) -> int:
        """Uploads of so many people; how many were acknowledged."""
        answers = [await self.upload(publication, report) for report in sealed]
        return sum(answer.status_code == httpx.codes.ACCEPTED for answer in answers)

    async def version(self, version: int) -> dict[str, object]:
        """The server's facts once it has published a version."""
        async with asyncio.timeout(20):
            while (facts := await self.api.facts())["version"] < version:
                await asyncio.sleep(0.005)
        return facts


@asynccontextmanager
async def pair(folder: Path, between: httpx.AsyncBaseTransport | None = None) -> AsyncIterator[Pair]:
    """Serve both on their data in ``folder``; ``between`` replaces the shuffler's way to the server."""
    async with AsyncExitStack() as stack:
        server = create_server(
            ServerSettings(data=folder / "server", admin_token=TOKEN, shuffler_keys=(folder / "trusted",))
        )
        api = Api(await stack.enter_async_context(serving(server)))
        settings = ShufflerSettings(
            server_url="http://server",
            data=folder / "shuffler",
            public_key_file=folder / "trusted" / "one.pub",
            min_batch=2,
            sender_keys=TRUSTED,
        )
        way = between or httpx.ASGITransport(server)
        if isinstance(way, Losing):
            way.inner = httpx.ASGITransport(server)
        shuffler = await stack.enter_async_context(serving(create_shuffler(settings, way)))
        yield Pair(api, shuffler)


class Losing(httpx.AsyncBaseTransport):
    """A way to the server on which the answers to batches are lost for a while.

    Attributes
    ----------
    lost
        How many still are.
    batches
        Bodies of all batches, noted before the server has them, those included whose answer was lost.
    """

    def __init__(self, n_lost: int) -> None:
        self.n_lost, self.batches = n_lost, list[bytes]()
        self.inner: httpx.AsyncBaseTransport | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on."""
        assert self.inner is not None
        is_batch = request.url.path == "/batches"
        if is_batch:  # before what it brings about: whoever sees that, finds the batch here
            self.batches.append(await request.aread())
        answer = await self.inner.handle_async_request(request)
        if is_batch and self.n_lost:
            self.n_lost -= 1
            raise httpx.ReadTimeout("the answer is lost")
        return answer
