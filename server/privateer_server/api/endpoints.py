"""The endpoints for reports and batches: plain ASGI, since a framework costs as much as opening a report."""

import asyncio
from abc import ABC, abstractmethod
from typing import Final

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from privateer.clock import Clock, SystemClock
from privateer.errors import PrivateerError
from privateer.serving.bodies import Body, announced_upload, read_upload, unchanged
from privateer.serving.budget import Budget, Reservation
from privateer.serving.problems import MethodNotAllowed, problem_response
from privateer.wire.batch import BATCH, SIGNATURE_HEADER, decode_batch
from privateer.wire.envelope import Envelope, decode_envelope
from privateer.wire.keys import TrustedKeys
from privateer_server.accumulator import Delivery
from privateer_server.api.models import UploadAnswer
from privateer_server.intake import Intake
from privateer_server.metrics import Metrics

_OK: Final = 200
_ACCEPTED: Final = 202


class Endpoint(ABC):
    """An ASGI application that hands what it reads to the intake.

    Parameters
    ----------
    budget
        What bodies may take in memory.
    bytes_max
        The largest body.
    keys
        Keys of the senders that it trusts.
    """

    def __init__(self, intake: Intake, metrics: Metrics, budget: Budget, bytes_max: int, keys: TrustedKeys) -> None:
        self._intake, self._metrics, self._budget = intake, metrics, budget
        self._bytes_max, self._keys = bytes_max, keys
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
            response = problem_response(MethodNotAllowed("the page takes POST alone", remedy="use POST"))
            response.headers["Allow"] = "POST"
            return response
        try:
            body = self._announced(request)
            room = self._budget.reserve(body.length, body.sender, is_trusted=body.is_signed)
        except PrivateerError as error:
            self._metrics.refuse({error.slug: 1})
            raise
        with room:
            return await self._counted(await self._envelope(request, body, room), body)

    async def _envelope(self, request: Request, body: Body, room: Reservation) -> Envelope:
        try:
            return await self._read(request, body, room)
        except PrivateerError as error:
            self._metrics.refuse({error.slug: 1})
            raise

    @abstractmethod
    def _announced(self, request: Request) -> Body:
        """Return what the headers say of the body, or refuse it."""

    @abstractmethod
    async def _read(self, request: Request, body: Body, room: Reservation) -> Envelope:
        """Read the body."""

    @abstractmethod
    async def _counted(self, envelope: Envelope, body: Body) -> Response:
        """Have it counted."""


class ReportsEndpoint(Endpoint):
    """``POST /reports``: envelopes of sealed reports, one person's or a trusted sender's."""

    def _announced(self, request: Request) -> Body:
        return announced_upload(request, self._bytes_max, self._keys, self._clock.now())

    async def _read(self, request: Request, body: Body, room: Reservation) -> Envelope:
        return decode_envelope(await read_upload(request, body, room))

    async def _counted(self, envelope: Envelope, body: Body) -> Response:
        receipt = await self._intake.submit(envelope, body.sender, is_signed=body.is_signed)
        if receipt.problem and not receipt.accepted:
            return problem_response(receipt.problem, refused=receipt.refused)
        return _json(msgspec.json.encode(UploadAnswer(receipt.accepted, receipt.refused)), _ACCEPTED)


class BatchesEndpoint(Endpoint):
    """``POST /batches``: batches that trusted shufflers signed; nothing else is read."""

    def _announced(self, request: Request) -> Body:
        signature = request.headers.get(SIGNATURE_HEADER, "")
        return Body.signed(BATCH.check(signature, self._keys.by_id(), self._clock.now()), self._bytes_max)

    async def _read(self, request: Request, body: Body, room: Reservation) -> Envelope:
        whole = await room.read(unchanged(request.stream(), body.digest or b"", BATCH.changed()))
        # A batch may be large: parsing it must not keep the event loop from others.
        return await asyncio.to_thread(decode_batch, whole)

    async def _counted(self, envelope: Envelope, body: Body) -> Response:
        receipt = await self._intake.deliver(Delivery(envelope, body.digest or b"", body.sender, body.signed_at))
        if not receipt.again:
            self._metrics.take_batch()
        return _json(receipt.answer, _OK if receipt.again else _ACCEPTED)


def _json(body: bytes, status: int) -> Response:
    return Response(body, status, media_type="application/json")
