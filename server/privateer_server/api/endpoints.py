"""The endpoints for reports and batches."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

from starlette.types import Scope

from privateer_core.serving.body_budget import Budget, Reservation
from privateer_core.serving.http.answer import HttpAnswer, with_body
from privateer_core.serving.http.report_endpoint import Body, Endpoint, Incoming, UploadEndpoint, unchanged
from privateer_core.serving.http.timing import Answered
from privateer_core.serving.logs import log_answer
from privateer_core.serving.token_gate import TokenGate
from privateer_core.wire.batch import BATCH, decode_batch
from privateer_core.wire.envelope import Envelope
from privateer_core.wire.keys import TrustedKeys
from privateer_server.intake.intake import Intake
from privateer_server.intake.receipts import Delivery, Receipt
from privateer_server.observability.metrics import ServerMetrics
from privateer_server.store.records import ShufflerKey

_OK: Final = 200
_ACCEPTED: Final = 202
_SIGNATURE: Final = BATCH.header.encode()


class ReportsEndpoint(UploadEndpoint):
    """``POST /reports``: envelopes of sealed reports, one person's or a trusted sender's."""

    route = "/reports"

    def __init__(
        self,
        intake: Intake,
        metrics: ServerMetrics,
        budget: Budget,
        bytes_max: int,
        keys: TrustedKeys,
        gate: TokenGate | None = None,
    ) -> None:
        super().__init__(budget, bytes_max, keys, metrics.refuse, gate)
        self._intake, self._metrics = intake, metrics

    def _tell(self, scope: Scope, answered: Answered) -> None:  # noqa: ARG002
        self._metrics.answer(answered)

    def _take(self, scope: Scope, envelope: Envelope, body: Body) -> asyncio.Future[Receipt]:  # noqa: ARG002
        signed, admission = body.is_signed, body.admission
        return self._intake.submit(envelope, body.sender, is_signed=signed, admission=admission)

    async def _taken(self, scope: Scope, envelope: Envelope, body: Body) -> Receipt:
        return await self._take(scope, envelope, body)


class BatchesEndpoint(Endpoint):
    """``POST /batches``: batches that trusted shufflers signed; nothing else is read.

    Parameters
    ----------
    trace
        Takes how long an answer took, for traces.
    """

    route = "/batches"

    def __init__(
        self,
        intake: Intake,
        metrics: ServerMetrics,
        budget: Budget,
        bytes_max: int,
        keys: TrustedKeys,
        trace: Callable[[Answered], None],
    ) -> None:
        super().__init__(budget, bytes_max, keys, metrics.refuse)
        self._intake, self._metrics, self._trace = intake, metrics, trace

    def _tell(self, scope: Scope, answered: Answered) -> None:  # noqa: ARG002
        self._metrics.answer(answered)
        log_answer(answered)
        self._trace(answered)

    def _announced(self, incoming: Incoming) -> Body:
        signature = incoming.headers.get(_SIGNATURE, b"").decode("latin-1")
        return Body.signed(BATCH.check(signature, self._keys.by_id(), self._clock.now()), self._bytes_max)

    async def _read(self, chunks: AsyncIterator[bytes], body: Body, room: Reservation) -> Envelope:
        whole = await room.read(unchanged(chunks, body.digest or b"", BATCH.changed()))
        # A batch may be large: parsing it must not keep the event loop from others.
        return await asyncio.to_thread(decode_batch, whole)

    async def _counted(self, scope: Scope, envelope: Envelope, body: Body) -> HttpAnswer:  # noqa: ARG002
        closer = ShufflerKey(body.sender, self._keys.organisation(body.sender))
        receipt = await self._intake.deliver(Delivery(envelope, body.digest or b"", closer, body.signed_at))
        if not receipt.again:
            self._metrics.take_batch()
        return with_body(_OK if receipt.again else _ACCEPTED, receipt.answer)
