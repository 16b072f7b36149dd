"""An ASGI application in this process, with its lifespan."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from starlette.types import ASGIApp

from privateer_core.serving.http.answer import HttpAnswer
from tests.support.senders import Signing


class AtOnce:
    """Has an application take requests at once that are there as a whole, as our listeners do."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if any(name == b"transfer-encoding" for name, _ in scope.get("headers", ())):
            await self._app(scope, receive, send)  # it comes piece by piece
            return
        first = await receive()
        answer: asyncio.Future[HttpAnswer] = asyncio.get_running_loop().create_future()
        is_whole = first["type"] == "http.request" and not first.get("more_body")
        if is_whole and self._app.answer_at_once(scope, bytearray(first.get("body", b"")), answer.set_result):
            await (await answer).send(scope, send)
            return
        unread = [first]

        async def receiving() -> Any:
            return unread.pop() if unread else await receive()

        await self._app(scope, receiving, send)


@asynccontextmanager
async def serving(app: ASGIApp, at_once: bool = True) -> AsyncIterator[httpx.AsyncClient]:
    """A client of ``app`` while its lifespan runs."""
    to_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    from_app: asyncio.Queue[Any] = asyncio.Queue()
    lifespan = asyncio.create_task(app({"type": "lifespan", "asgi": {"version": "3.0"}}, to_app.get, from_app.put))
    await to_app.put({"type": "lifespan.startup"})
    assert (await from_app.get())["type"] == "lifespan.startup.complete"
    transport = httpx.ASGITransport(AtOnce(app) if at_once and hasattr(app, "answer_at_once") else app)
    async with httpx.AsyncClient(transport=transport, base_url="http://server", auth=Signing()) as client:
        yield client
    await to_app.put({"type": "lifespan.shutdown"})
    await lifespan
    assert (await from_app.get())["type"] == "lifespan.shutdown.complete"
