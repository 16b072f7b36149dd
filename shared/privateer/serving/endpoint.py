"""Endpoints for sealed reports: plain ASGI, since a framework costs as much as opening or storing a report."""

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from privateer.clock import Clock, SystemClock
from privateer.errors import PrivateerError
from privateer.serving.answer import Answer
from privateer.serving.bodies import Body, unchanged
from privateer.serving.budget import Budget, Reservation
from privateer.serving.peer import peer
from privateer.serving.problems import MethodNotAllowed, defect, problem_answer
from privateer.serving.timing import Answered, known_method
from privateer.wire.envelope import Envelope, decode_envelope
from privateer.wire.keys import TrustedKeys
from privateer.wire.upload import UPLOAD

_SIGNATURE: Final = UPLOAD.header.encode()
"""The name that an ASGI scope has for it: searching Starlette's headers takes as long as storing a report."""
_ALLOW: Final = ((b"allow", b"POST"),)


class Incoming:
    """A request as it comes in.

    Attributes
    ----------
    headers
        By name in lower case.
    arrived
        When the last byte came so far, by the performance counter.
    """

    __slots__ = ("_receive", "arrived", "headers", "scope")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope, self._receive = scope, receive
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.arrived = time.perf_counter()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body's bytes as they come.

        Raises
        ------
        ClientDisconnect
            If the sender hangs up before the end.
        """
        is_whole = False
        while not is_whole:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            self.arrived, is_whole = time.perf_counter(), not message.get("more_body", False)
            if body := message.get("body", b""):
                yield body


class Endpoint(ABC):
    """An ASGI application that reads an envelope and answers what becomes of its reports.

    Parameters
    ----------
    budget
        The bytes that bodies may take in memory.
    bytes_max
        The bytes of the largest body.
    keys
        Keys of the senders that it trusts.
    refuse
        Counts refused reports by reason.
    """

    route: str
    """Its template, for metrics."""

    def __init__(
        self, budget: Budget, bytes_max: int, keys: TrustedKeys, refuse: Callable[[Mapping[str, int]], None]
    ) -> None:
        self._budget, self._bytes_max, self._keys, self._refuse = budget, bytes_max, keys, refuse
        self._clock: Clock = SystemClock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        incoming = Incoming(scope, receive)
        try:
            answer = await self._answer(incoming)
        except ClientDisconnect:
            return
        except PrivateerError as error:
            answer = problem_answer(error)
        except Exception as error:
            answer = defect(error)
        seconds = time.perf_counter() - incoming.arrived
        self._tell(scope, Answered(known_method(scope), self.route, answer.status, seconds))
        await answer.send(scope, send)

    async def _answer(self, incoming: Incoming) -> Answer:
        if incoming.scope["method"] != "POST":
            return problem_answer(MethodNotAllowed("the page takes only POST", remedy="use POST"), _ALLOW)
        try:
            body = self._announced(incoming)
            room = self._budget.reserve(body.length, body.sender, is_trusted=body.is_signed)
        except PrivateerError as error:
            return self._refused(error)
        with room:
            try:
                envelope = await self._read(incoming, body, room)
            except PrivateerError as error:
                return self._refused(error)
            return await self._counted(incoming.scope, envelope, body)

    def _refused(self, error: PrivateerError) -> Answer:
        """Count a body that was refused before its reports were looked at."""
        self._refuse({error.slug: 1})
        return problem_answer(error, accepted=0, refused={error.slug: 1})

    @abstractmethod
    def _tell(self, scope: Scope, answered: Answered) -> None:
        """Take how long an answer took."""

    @abstractmethod
    def _announced(self, incoming: Incoming) -> Body:
        """Return what the headers say about the body, or refuse it."""

    @abstractmethod
    async def _read(self, incoming: Incoming, body: Body, room: Reservation) -> Envelope:
        """Read the body."""

    @abstractmethod
    async def _counted(self, scope: Scope, envelope: Envelope, body: Body) -> Answer:
        """Count the reports, and answer what became of them."""


class UploadEndpoint(Endpoint):
    """Takes uploads of reports: one person's, or more if a trusted sender signed them."""

    def _announced(self, incoming: Incoming) -> Body:
        signature, length = incoming.headers.get(_SIGNATURE), incoming.headers.get(b"content-length")
        if signature is None:
            return Body.unsigned(length, self._bytes_max, peer(incoming.scope))
        announced = UPLOAD.check(signature.decode("latin-1"), self._keys.by_id(), self._clock.now())
        return Body.signed(announced, self._bytes_max)

    async def _read(self, incoming: Incoming, body: Body, room: Reservation) -> Envelope:
        chunks = incoming.chunks()
        if body.digest:
            chunks = unchanged(chunks, body.digest, UPLOAD.changed())
        return decode_envelope(await room.read(chunks))


def answer(content: Any, status: int) -> Response:
    """Return an answer in JSON."""
    return Response(msgspec.json.encode(content), status, media_type="application/json")
