"""The endpoint that takes reports."""

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from privateer.clock import Clock, SystemClock
from privateer.errors import Malformed, PrivateerError
from privateer.serving.bodies import Body, announced_upload, read_upload
from privateer.serving.budget import Budget, Reservation
from privateer.serving.problems import problem_response
from privateer.wire.envelope import Envelope, decode_envelope, split_sealed
from privateer.wire.keys import TrustedKeys
from privateer.wire.upload import check_alone
from privateer_shuffler.metrics import Metrics
from privateer_shuffler.pool import Receipt
from privateer_shuffler.rounds import Rounds


class Endpoint:
    """Takes envelopes of sealed reports, one person's or a trusted sender's; answers once those accepted are durable.

    An ASGI application of its own, since a framework's wrapping costs as much as storing a report.

    Parameters
    ----------
    budget
        The bytes that bodies may take in memory.
    body_limit
        Bytes that one request may carry.
    senders
        Keys of trusted senders.
    """

    def __init__(self, rounds: Rounds, metrics: Metrics, budget: Budget, body_limit: int, senders: TrustedKeys) -> None:
        self._rounds = rounds
        self._metrics = metrics
        self._budget = budget
        self._body_limit = body_limit
        self._senders = senders
        self._clock: Clock = SystemClock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request: 202 if any report was accepted, else the problem of the first refusal."""
        response = await self._answer(Request(scope, receive))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        try:
            body = announced_upload(request, self._body_limit, self._senders, self._clock.now())
            with self._budget.reserve(body.length, body.sender, is_trusted=body.is_signed) as room:
                receipt = await self._receipt(request, body, room)
        except PrivateerError as error:
            receipt = Receipt(0, {error.slug: 1}, error)
        for reason, reports in receipt.refused.items():
            self._metrics.refused(reason, reports)
        if receipt.accepted == 0 and receipt.reason is not None:
            return problem_response(receipt.reason, accepted=0, refused=receipt.refused)
        content = msgspec.json.encode({"accepted": receipt.accepted, "refused": receipt.refused})
        return Response(content, 202, media_type="application/json")

    async def _receipt(self, request: Request, body: Body, room: Reservation) -> Receipt:
        try:
            envelope = decode_envelope(await read_upload(request, body, room))
        except ClientDisconnect as error:
            raise Malformed("the body ended early", remedy="send it again") from error
        if envelope.header.experiment != request.path_params["name"]:
            raise Malformed("the reports are for another experiment than the address", remedy="correct the address")
        return await self._hold(envelope, body.is_signed)

    async def _hold(self, envelope: Envelope, is_signed: bool) -> Receipt:
        followed = await self._rounds.current(envelope.header)
        try:
            pool = self._rounds.admit(envelope.header, followed)
        except PrivateerError as error:
            reports = len(envelope.sealed) // followed.round.report_size
            return Receipt(0, {error.slug: max(1, reports)}, error)
        if not is_signed:
            check_alone(envelope, followed.round)
        return await pool.hold(split_sealed(envelope, followed.round))
