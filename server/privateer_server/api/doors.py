"""The doors for reports and batches: plain ASGI, since a framework costs as much as opening a report."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from privateer.errors import PrivateerError, TooLarge
from privateer.wire.batch import SIGNATURE_HEADER, check_signature, decode_batch, is_signature, unsigned
from privateer.wire.envelope import decode_envelope
from privateer_server.api.problems import MethodNotAllowed, problem_response
from privateer_server.intake import Intake
from privateer_server.keys import TrustedShufflers
from privateer_server.metrics import Metrics
from privateer_server.tally import Delivery, Outcome

_OK: Final = 200
_ACCEPTED: Final = 202
_BATCHES_AT_ONCE: Final = 4
"""Batches read at the same time: anybody can begin one, and each may be as large as memory allows one to be."""


Taken = Callable[[], Awaitable[Response]]
"""Hands what was read to the intake, and answers."""


class Door:
    """An ASGI application that hands what it reads to the intake.

    Parameters
    ----------
    read
        Reads a request, or refuses it.
    """

    def __init__(self, metrics: Metrics, read: Callable[[Request], Awaitable[Taken]]) -> None:
        self._metrics, self._read = metrics, read

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
            taken = await self._read(request)
        except PrivateerError as error:
            self._metrics.refuse({error.slug: 1})
            raise
        return await taken()


def reports_door(intake: Intake, metrics: Metrics, bytes_max: int) -> Door:
    """``POST /reports``: envelopes of sealed reports from devices."""

    async def read(request: Request) -> Taken:
        envelope = decode_envelope(await read_body(request, bytes_max))

        async def taken() -> Response:
            return _of_reports(await intake.submit(envelope))

        return taken

    return Door(metrics, read)


def batches_door(intake: Intake, metrics: Metrics, bytes_max: int, shufflers: TrustedShufflers) -> Door:
    """``POST /batches``: signed batches from trusted shufflers."""

    def verified(body: bytes, signature: str) -> Delivery:
        shuffler = check_signature(body, signature, shufflers.keys())
        return Delivery(decode_batch(body), hashlib.sha256(body).digest(), shuffler)

    reading = asyncio.Semaphore(_BATCHES_AT_ONCE)

    async def read(request: Request) -> Taken:
        signature = request.headers.get(SIGNATURE_HEADER, "")
        if not is_signature(signature):
            raise unsigned()
        async with reading:
            body = await read_body(request, bytes_max)
            # A batch may be large: hashing it must not keep the event loop from others.
            delivery = await asyncio.to_thread(verified, body, signature)

        async def taken() -> Response:
            outcome = await intake.deliver(delivery)
            if not outcome.again:
                metrics.take_batch()
            return Response(outcome.answer, _OK if outcome.again else _ACCEPTED, media_type="application/json")

        return taken

    return Door(metrics, read)


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


def _of_reports(outcome: Outcome) -> Response:
    if outcome.problem and not outcome.accepted:
        return problem_response(outcome.problem, refused=outcome.refused)
    return JSONResponse({"accepted": outcome.accepted, "refused": outcome.refused}, _ACCEPTED)
