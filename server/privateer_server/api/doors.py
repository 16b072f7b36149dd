"""The doors for reports and batches: plain ASGI, since a framework costs as much as opening a report."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from privateer.errors import PrivateerError, TooLarge
from privateer.wire.batch import SIGNATURE_HEADER, check_signature, decode_batch, is_signature, unsigned
from privateer.wire.envelope import Envelope, decode_envelope
from privateer_server.api.problems import MethodNotAllowed, problem_response
from privateer_server.intake import Intake
from privateer_server.keys import TrustedShufflers
from privateer_server.metrics import Metrics
from privateer_server.tally import Outcome

_OK: Final = 200
_ACCEPTED: Final = 202
_BATCHES_AT_ONCE: Final = 4
"""Batches read at the same time: anybody can begin one, and each may be as large as memory allows one to be."""


class Door:
    """An ASGI application that hands what it reads to the intake.

    Parameters
    ----------
    read
        Makes an envelope of a request, or refuses.
    is_batch
        Whether the envelopes are batches.
    """

    def __init__(
        self, intake: Intake, metrics: Metrics, read: Callable[[Request], Awaitable[Envelope]], is_batch: bool
    ) -> None:
        self._intake, self._metrics, self._read, self._is_batch = intake, metrics, read, is_batch

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
            envelope = await self._read(request)
        except PrivateerError as error:
            self._metrics.refuse({error.slug: 1})
            raise
        outcome = await self._intake.submit(envelope, is_batch=self._is_batch)
        if self._is_batch and not outcome.already_taken:
            self._metrics.take_batch()
        return _response(outcome, self._is_batch)


def reports_door(intake: Intake, metrics: Metrics, bytes_max: int) -> Door:
    """``POST /reports``: envelopes of sealed reports from devices."""

    async def read(request: Request) -> Envelope:
        return decode_envelope(await read_body(request, bytes_max))

    return Door(intake, metrics, read, is_batch=False)


def batches_door(intake: Intake, metrics: Metrics, bytes_max: int, shufflers: TrustedShufflers) -> Door:
    """``POST /batches``: signed batches from trusted shufflers."""

    def verified(body: bytes, signature: str) -> Envelope:
        check_signature(body, signature, shufflers.keys())
        return decode_batch(body)

    reading = asyncio.Semaphore(_BATCHES_AT_ONCE)

    async def read(request: Request) -> Envelope:
        signature = request.headers.get(SIGNATURE_HEADER, "")
        if not is_signature(signature):
            raise unsigned()
        async with reading:
            body = await read_body(request, bytes_max)
            # A batch may be large: hashing it must not keep the event loop from others.
            return await asyncio.to_thread(verified, body, signature)

    return Door(intake, metrics, read, is_batch=True)


async def read_body(request: Request, bytes_max: int) -> bytes:
    """The body of a request.

    Raises
    ------
    TooLarge
        As soon as more than ``bytes_max`` bytes are announced or sent.
    """
    announced = request.headers.get("content-length", "0")
    _check_size(int(announced) if announced.isdigit() else 0, bytes_max)
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        _check_size(size, bytes_max)
        chunks.append(chunk)
    return b"".join(chunks)


def _check_size(size: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise TooLarge(f"the body is above {bytes_max} bytes", remedy="send less at once")


def _response(outcome: Outcome, is_batch: bool) -> Response:
    if outcome.already_taken:
        return JSONResponse({"status": "already-taken"}, _OK)
    if outcome.problem and not outcome.accepted and not is_batch:
        return problem_response(outcome.problem, refused=outcome.refused)
    return JSONResponse({"accepted": outcome.accepted, "refused": outcome.refused}, _ACCEPTED)
