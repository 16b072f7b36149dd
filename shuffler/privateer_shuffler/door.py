"""The door that reports come through."""

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from privateer.errors import Malformed, PrivateerError, TooLarge
from privateer.wire.envelope import Envelope, decode_envelope, split_sealed
from privateer_shuffler.metrics import Metrics
from privateer_shuffler.pool import Receipt
from privateer_shuffler.problems import problem
from privateer_shuffler.rounds import Rounds


class Door:
    """Takes envelopes of sealed reports and answers once those accepted are durable.

    An ASGI application of its own, since a framework's wrapping costs as much as storing a report.

    Parameters
    ----------
    body_limit
        Bytes that one request may carry.
    """

    def __init__(self, rounds: Rounds, metrics: Metrics, body_limit: int) -> None:
        self._rounds = rounds
        self._metrics = metrics
        self._body_limit = body_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request: 202 if any report was accepted, else the problem of the first refusal."""
        response = await self._answer(Request(scope, receive))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        try:
            envelope = decode_envelope(await _read_body(request, self._body_limit))
            if envelope.header.experiment != request.path_params["name"]:
                raise Malformed("the reports are for another experiment than the address", remedy="correct the address")
            receipt = await self._hold(envelope)
        except PrivateerError as error:
            receipt = Receipt(0, {error.slug: 1}, error)
        self._count(receipt)
        if receipt.accepted == 0 and receipt.reason is not None:
            return problem(receipt.reason, accepted=0, refused=receipt.refused)
        content = msgspec.json.encode({"accepted": receipt.accepted, "refused": receipt.refused})
        return Response(content, 202, media_type="application/json")

    async def _hold(self, envelope: Envelope) -> Receipt:
        followed = await self._rounds.current(envelope.header)
        try:
            pool = self._rounds.admit(envelope.header, followed)
        except PrivateerError as error:
            reports = len(envelope.sealed) // followed.round.report_size
            return Receipt(0, {error.slug: max(1, reports)}, error)
        return await pool.hold(split_sealed(envelope, followed.round))

    def _count(self, receipt: Receipt) -> None:
        for reason, reports in receipt.refused.items():
            self._metrics.refused(reason, reports)


async def _read_body(request: Request, limit: int) -> bytes:
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise TooLarge(f"a body may have {limit} bytes", remedy="send fewer reports at once")
    except ClientDisconnect as error:
        raise Malformed("the body ended early", remedy="send it again") from error
    return bytes(body)
