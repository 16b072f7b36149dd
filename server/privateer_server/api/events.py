"""Server-sent events: what has changed of all experiments, in beats that are the same for everybody.

A stream that reported each upload at once would show whoever listens when somebody reports. So nothing is looked at but
on the beat, and what was looked at is what the public pages say: a stream says no more than a page that somebody asks
for once in each beat.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import aclosing, contextmanager
from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter, Header, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from privateer_core.errors import Deleted, NotFound, Unavailable
from privateer_core.serving.connections import peer
from privateer_core.serving.http.listeners import IS_PUBLIC
from privateer_core.serving.http.openapi import refusals
from privateer_server.api import models, views
from privateer_server.api.long_polls import (
    OPERATORS_MAX,
    STREAMS_MAX,
    ConnectionLimit,
    LimitedConnection,
)
from privateer_server.experiments.catalog import Experiments
from privateer_server.experiments.experiment import Experiment

BEAT_SECONDS: Final = 4.0
"""Equals the interval at which the dashboard asks where it has no stream."""
KEPT_SECONDS: Final = 60.0
"""For so long the feed says that an experiment was deleted. Who comes later, and who is new, gets what there is."""
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
LastId = Annotated[str, Header(alias="Last-Event-ID", description="The last message that was received.")]


class _Seen(NamedTuple):
    """Where an experiment stood, and the number of the beat that brought that, with its time; None: it was deleted."""

    number: int
    standing: models.Standing | None
    at: float


class ChangeFeed:
    """The beats, and what each of them brought.

    Time is beaten only while somebody listens. Whoever comes meanwhile gets what the last beat brought.

    experiments: what is looked at.
    beat: seconds from a beat to the next one.
    kept: seconds for which a deletion is sent.
    """

    def __init__(
        self, experiments: Iterable[Experiment], beat: float = BEAT_SECONDS, kept: float = KEPT_SECONDS
    ) -> None:
        self._experiments, self._beat, self._kept = experiments, beat, kept
        self._forgotten = 0  # the number of the last deletion that is sent no more
        self._epoch, self._number = secrets.token_hex(8), 0
        self._seen: dict[str, _Seen] = {}
        self._listeners = 0
        self._is_beating = self._is_over = False
        self._next = asyncio.Event()

    def end(self) -> None:
        """Let all streams end, and those to come after their first message: the process is about to stop."""
        self._is_over = True
        self._next.set()

    async def follow(self, since: str = "", name: str | None = None) -> AsyncGenerator[models.News | None, None]:
        """Yield what to send: first all that changed after a message, then with each beat what it brought.

        None stands for a beat that brought nothing.

        since: the id of the last message that was received; where it is not one of this process, everything is sent.
        name: the experiment that it is about; by default all are. Once it is deleted, nothing more is sent.
        """
        with self._listening():
            after = self._read(since)
            while True:
                changes, after, following = self._changes(after, name), self._number, self._next
                yield changes
                if self._is_over or (changes and name in changes.deleted):
                    return
                await following.wait()

    @contextmanager
    def _listening(self) -> Iterator[None]:
        if not self._listeners:
            self._look()
            if not self._is_beating:  # who left may have left a beat that is still to come: one follows it, not two
                self._is_beating = True
                self._later()
        self._listeners += 1
        try:
            yield
        finally:
            self._listeners -= 1

    def _later(self) -> None:
        loop = asyncio.get_running_loop()
        # On a grid of the clock: nobody chooses by his coming when the beats are.
        loop.call_later(self._beat - loop.time() % self._beat, self._strike)

    def _strike(self) -> None:
        self._is_beating = self._listeners > 0 and not self._is_over
        if self._listeners:
            self._look()
        if self._is_beating:
            struck, self._next = self._next, asyncio.Event()
            struck.set()
            self._later()

    def _look(self) -> None:
        number, there, now = self._number + 1, set[str](), asyncio.get_running_loop().time()
        for experiment in self._experiments:
            there.add(experiment.name)
            standing = views.standing(experiment)
            before = self._seen.get(experiment.name)
            if before is None or before.standing != standing:
                self._seen[experiment.name], self._number = _Seen(number, standing, now), number
        for name, seen in self._seen.items():
            if name not in there and seen.standing is not None:
                self._seen[name], self._number = _Seen(number, None, now), number
        self._forget(now - self._kept)

    def _forget(self, before: float) -> None:
        for name, seen in list(self._seen.items()):
            if seen.standing is None and seen.at < before:
                self._forgotten = max(self._forgotten, seen.number)
                del self._seen[name]

    def _read(self, since: str) -> int:
        """Return the number of a message; -1 if it is none of this process."""
        epoch, _, number = since.partition("-")
        is_known = epoch == self._epoch and number.isdecimal() and len(number) < 16
        return int(number) if is_known and int(number) <= self._number else -1

    def _changes(self, after: int, name: str | None) -> models.News | None:
        if after < self._forgotten:
            after = -1
        # A newcomer who listens to everything does not learn what was deleted before; who asks for its name does.
        wanted = {
            one: seen
            for one, seen in self._seen.items()
            if one == name or (name is None and (after >= 0 or seen.standing))
        }
        found = [(one, seen.standing) for one, seen in wanted.items() if seen.number > after]
        if not found and after >= 0:
            return None
        return models.News(
            id=f"{self._epoch}-{self._number}",
            whole=after < 0,
            experiments=[standing for _, standing in found if standing],
            deleted=[one for one, standing in found if standing is None],
        )


def _answers(*errors: Any) -> dict[int | str, dict[str, Any]]:
    what = (
        "Messages, one at most in each beat of four seconds, and a comment where there is none. Their data is JSON: "
        "`experiments` that stand elsewhere than before, as their pages have them without the spec, names that were "
        "`deleted`, and whether that is the `whole`. Last-Event-ID names the last message that was received."
    )
    return {200: {"description": what, "content": {MEDIA_TYPE: {"schema": _MESSAGE}}}, **refusals(*errors, Unavailable)}


class Stream(StreamingResponse):
    """The answer that does not end until its place, its time or the process does.

    changes: what it sends.
    limit, place, sender: the place that it holds, which it gives back.
    """

    def __init__(
        self,
        changes: AsyncGenerator[models.News | None, None],
        limit: ConnectionLimit,
        place: LimitedConnection,
        sender: str,
    ) -> None:
        super().__init__(_encoded(changes, place), headers=_HEADERS, media_type=MEDIA_TYPE)
        self._limit, self._place, self._sender = limit, place, sender

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until it ends."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._limit.leave(self._sender, self._place)


async def _encoded(changes: AsyncGenerator[models.News | None, None], place: LimitedConnection) -> AsyncIterator[bytes]:
    ends = asyncio.get_running_loop().time() + LIFE_SECONDS
    async with aclosing(changes):
        async for one in changes:
            yield f"id: {one.id}\ndata: {one.model_dump_json(exclude={'id'})}\n\n".encode() if one else _HEARTBEAT
            if not place.is_taken or asyncio.get_running_loop().time() > ends:
                return


def stream_router(experiments: Experiments, feed: ChangeFeed) -> APIRouter:
    """Return the routes, bound to the feed that they send."""
    router = APIRouter(tags=["experiments"])
    strangers, operators = ConnectionLimit(STREAMS_MAX), ConnectionLimit(OPERATORS_MAX)

    def stream(request: Request, last_id: str, name: str | None = None) -> Stream:
        limit, sender = strangers if IS_PUBLIC in request.scope else operators, peer(request.scope)
        return Stream(feed.follow(last_id[:_ID_MAX], name), limit, limit.take(sender), sender)

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
