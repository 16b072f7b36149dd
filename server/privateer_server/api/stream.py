"""Server-sent events: what changed, for pages that follow the server."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from privateer_core.errors import Deleted, NotFound, Unavailable
from privateer_core.serving.openapi import refusals
from privateer_core.serving.peer import peer
from privateer_core.serving.public import IS_PUBLIC
from privateer_server.api import models
from privateer_server.api.news import News
from privateer_server.api.seats import OPERATORS_MAX, STRANGERS_MAX, Seat, Seats
from privateer_server.experiments import Experiments

MEDIA_TYPE: Final = "text/event-stream"
LIFE_SECONDS: Final = 900.0
"""Then a stream ends, and whoever listens comes again with the id of the last message."""
_HEARTBEAT: Final = b":\n\n"
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_ID_MAX: Final = 64
_MESSAGE: Final = {
    "type": "object",
    "description": "One of the messages.",
    "required": ["id", "data"],
    "properties": {"id": {"type": "string"}, "data": {"type": "string", "contentMediaType": "application/json"}},
}
LastId = Annotated[str, Header(alias="Last-Event-ID", description="The last message that was heard.")]


def _answers(*errors: Any) -> dict[int | str, dict[str, Any]]:
    what = (
        "Messages, one at most in each beat of four seconds, and a comment where there is none. Their data is JSON: "
        "`experiments` that stand elsewhere than before, as their pages have them without the spec, names that were "
        "`deleted`, and whether that is the `whole`. Last-Event-ID names the last message that was heard."
    )
    return {200: {"description": what, "content": {MEDIA_TYPE: {"schema": _MESSAGE}}}, **refusals(*errors, Unavailable)}


class Stream(StreamingResponse):
    """The answer that does not end until its seat, its time or the process does.

    Parameters
    ----------
    news
        What is told.
    seats, seat, sender
        The seat that it holds, which it gives back.
    """

    def __init__(self, news: AsyncGenerator[models.News | None, None], seats: Seats, seat: Seat, sender: str) -> None:
        super().__init__(_told(news, seat), headers=_HEADERS, media_type=MEDIA_TYPE)
        self._seats, self._seat, self._sender = seats, seat, sender

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Tell until it ends."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._seats.leave(self._sender, self._seat)


async def _told(news: AsyncGenerator[models.News | None, None], seat: Seat) -> AsyncIterator[bytes]:
    ends = asyncio.get_running_loop().time() + LIFE_SECONDS
    async with aclosing(news):
        async for one in news:
            yield f"id: {one.id}\ndata: {one.model_dump_json(exclude={'id'})}\n\n".encode() if one else _HEARTBEAT
            if not seat.is_taken or asyncio.get_running_loop().time() > ends:
                return


def stream_router(experiments: Experiments, news: News) -> APIRouter:
    """Return the routes, bound to what they tell."""
    router = APIRouter(tags=["experiments"])
    strangers, operators = Seats(STRANGERS_MAX), Seats(OPERATORS_MAX)

    def stream(request: Request, last_id: str, name: str | None = None) -> Stream:
        seats, sender = strangers if IS_PUBLIC in request.scope else operators, peer(request.scope)
        return Stream(news.follow(last_id[:_ID_MAX], name), seats, seats.take(sender), sender)

    @router.get("/events", response_class=StreamingResponse, responses=_answers())
    async def events(request: Request, last_id: LastId = "") -> Stream:
        """Follow all experiments by server-sent events."""
        return stream(request, last_id)

    @router.get("/experiments/{name}/events", response_class=StreamingResponse, responses=_answers(NotFound, Deleted))
    async def events_of_one(name: str, request: Request, last_id: LastId = "") -> Stream:
        """Follow one experiment by server-sent events, until it is deleted."""
        await experiments.find(name)
        return stream(request, last_id, name)

    return router
