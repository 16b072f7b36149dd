"""The endpoints for reports and batches."""

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from privateer.serving.bodies import Body, unchanged
from privateer.serving.budget import Budget, Reservation
from privateer.serving.endpoint import Endpoint, UploadEndpoint, answer
from privateer.serving.problems import problem_response
from privateer.serving.tokens import TokenGate
from privateer.wire.batch import BATCH, decode_batch
from privateer.wire.envelope import Envelope
from privateer.wire.keys import TrustedKeys
from privateer.wire.upload import UploadAnswer
from privateer_server.accumulator import Delivery
from privateer_server.intake import Intake
from privateer_server.metrics import Metrics

_OK: Final = 200
_ACCEPTED: Final = 202


class ReportsEndpoint(UploadEndpoint):
    """``POST /reports``: envelopes of sealed reports, one person's or a trusted sender's."""

    def __init__(
        self,
        intake: Intake,
        metrics: Metrics,
        budget: Budget,
        bytes_max: int,
        keys: TrustedKeys,
        gate: TokenGate | None = None,
    ) -> None:
        super().__init__(budget, bytes_max, keys, metrics.refuse, gate)
        self._intake = intake

    async def _counted(self, request: Request, envelope: Envelope, body: Body) -> Response:  # noqa: ARG002
        signed, admission = body.is_signed, body.admission
        receipt = await self._intake.submit(envelope, body.sender, is_signed=signed, admission=admission)
        if receipt.problem and not receipt.accepted:
            return problem_response(receipt.problem, accepted=0, refused=receipt.refused)
        return answer(UploadAnswer(receipt.accepted, receipt.refused), _ACCEPTED)


class BatchesEndpoint(Endpoint):
    """``POST /batches``: batches that trusted shufflers signed; nothing else is read."""

    def __init__(self, intake: Intake, metrics: Metrics, budget: Budget, bytes_max: int, keys: TrustedKeys) -> None:
        super().__init__(budget, bytes_max, keys, metrics.refuse)
        self._intake, self._metrics = intake, metrics

    def _announced(self, request: Request) -> Body:
        signature = request.headers.get(BATCH.header, "")
        return Body.signed(BATCH.check(signature, self._keys.by_id(), self._clock.now()), self._bytes_max)

    async def _read(self, request: Request, body: Body, room: Reservation) -> Envelope:
        whole = await room.read(unchanged(request.stream(), body.digest or b"", BATCH.changed()))
        # A batch may be large: parsing it must not keep the event loop from others.
        return await asyncio.to_thread(decode_batch, whole)

    async def _counted(self, request: Request, envelope: Envelope, body: Body) -> Response:  # noqa: ARG002
        receipt = await self._intake.deliver(Delivery(envelope, body.digest or b"", body.sender, body.signed_at))
        if not receipt.again:
            self._metrics.take_batch()
        return Response(receipt.answer, _OK if receipt.again else _ACCEPTED, media_type="application/json")
