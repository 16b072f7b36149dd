"""Endpoints for sealed reports: plain ASGI, since a framework costs as much as opening or storing a report."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from privateer.clock import Clock, SystemClock
from privateer.errors import PrivateerError
from privateer.serving.bodies import Body, unchanged
from privateer.serving.budget import Budget, Reservation
from privateer.serving.peer import peer
from privateer.serving.problems import MethodNotAllowed, problem_response
from privateer.serving.tokens import TokenGate
from privateer.wire.envelope import Envelope, decode_envelope
from privateer.wire.keys import TrustedKeys
from privateer.wire.upload import UPLOAD

_SIGNATURE: Final = UPLOAD.header.encode()
"""The name that an ASGI scope has for it: searching Starlette's headers takes as long as storing a report."""


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

    def __init__(
        self, budget: Budget, bytes_max: int, keys: TrustedKeys, refuse: Callable[[Mapping[str, int]], None]
    ) -> None:
        self._budget, self._bytes_max, self._keys, self._refuse = budget, bytes_max, keys, refuse
        self._clock: Clock = SystemClock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            response = await self._answer(Request(scope, receive))
        except ClientDisconnect:
            return
        except PrivateerError as error:
            response = problem_response(error)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.method != "POST":
            response = problem_response(MethodNotAllowed("the page takes only POST", remedy="use POST"))
            response.headers["Allow"] = "POST"
            return response
        try:
            body = self._announced(request)
            room = self._budget.reserve(body.length, body.sender, is_trusted=body.is_signed)
        except PrivateerError as error:
            return self._refused(error)
        with room:
            try:
                envelope = await self._read(request, body, room)
            except PrivateerError as error:
                return self._refused(error)
            return await self._counted(request, envelope, body)

    def _refused(self, error: PrivateerError) -> Response:
        """Count a body that was refused before its reports were looked at."""
        self._refuse({error.slug: 1})
        return problem_response(error, accepted=0, refused={error.slug: 1})

    @abstractmethod
    def _announced(self, request: Request) -> Body:
        """Return what the headers say about the body, or refuse it."""

    @abstractmethod
    async def _read(self, request: Request, body: Body, room: Reservation) -> Envelope:
        """Read the body."""

    @abstractmethod
    async def _counted(self, request: Request, envelope: Envelope, body: Body) -> Response:
        """Count the reports, and answer what became of them."""


class UploadEndpoint(Endpoint):
    """Takes uploads of reports: one person's, or more if a trusted sender signed them.

    Parameters
    ----------
    gate
        Admits uploads that no trusted sender signed by their tokens; None: they need none.
    """

    def __init__(
        self,
        budget: Budget,
        bytes_max: int,
        keys: TrustedKeys,
        refuse: Callable[[Mapping[str, int]], None],
        gate: TokenGate | None = None,
    ) -> None:
        super().__init__(budget, bytes_max, keys, refuse)
        self._gate = gate

    def _announced(self, request: Request) -> Body:
        headers = dict(request.scope["headers"])
        signature, length = headers.get(_SIGNATURE), headers.get(b"content-length")
        if signature is None:
            admission = None
            if self._gate is not None:
                admission = self._gate.admit(headers.get(b"authorization"), request.path_params.get("name", ""))
            return Body.unsigned(length, self._bytes_max, peer(request.scope), admission)
        announced = UPLOAD.check(signature.decode("latin-1"), self._keys.by_id(), self._clock.now())
        return Body.signed(announced, self._bytes_max)

    async def _read(self, request: Request, body: Body, room: Reservation) -> Envelope:
        chunks: AsyncIterator[bytes] = request.stream()
        if body.digest:
            chunks = unchanged(chunks, body.digest, UPLOAD.changed())
        return decode_envelope(await room.read(chunks))


def answer(content: Any, status: int) -> Response:
    """Return an answer in JSON."""
    return Response(msgspec.json.encode(content), status, media_type="application/json")
