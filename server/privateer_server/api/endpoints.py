"""What devices and shufflers ask most: endpoints for reports, batches and, at a fraction of a route's cost, the policy.

The policy is for devices that ask for it again and again: it is answered as the control route answers.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

from starlette.types import Scope, Send

from privateer_core.errors import PrivateerError
from privateer_core.serving.body_budget import Budget, Reservation
from privateer_core.serving.http.answer import Headers, HttpAnswer, with_body
from privateer_core.serving.http.report_endpoint import Body, Endpoint, Incoming, Reply, UploadEndpoint, unchanged
from privateer_core.serving.http.timing import Answered
from privateer_core.serving.logs import log_answer
from privateer_core.serving.token_gate import TokenGate
from privateer_core.wire.batch import BATCH, decode_batch
from privateer_core.wire.envelope import MEDIA_TYPE, Envelope
from privateer_core.wire.identity import SIGNED_HEADER, Identity
from privateer_core.wire.keys import TrustedKeys
from privateer_core.wire.publication import ASKS_HEADER, ASKS_NOBODY, ASKS_PUBLISHED
from privateer_server.experiments.catalog import Experiments
from privateer_server.experiments.experiment import Experiment
from privateer_server.intake.intake import Intake
from privateer_server.intake.receipts import Delivery, Receipt
from privateer_server.metrics import ServerMetrics
from privateer_server.store.records import ShufflerKey

_OK: Final = 200
_ACCEPTED: Final = 202
_NOT_MODIFIED: Final = 304
_SIGNATURE: Final = BATCH.header.encode()
POLICY_ROUTE: Final = "/experiments/{name}/policy"
_POLICY_PAGE: Final = "/policy"
_POLICY_TYPE: Final = MEDIA_TYPE.encode()
_ASKS: Final = ASKS_HEADER.lower().encode()
_SIGNED: Final = SIGNED_HEADER.lower().encode()


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

    trace: takes how long an answer took, for traces.
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


class Policies:
    """Answers what devices ask: for the publication, or whether it still is the one that they have.

    identity: signs what is published.
    tell: takes how long an answer took.
    """

    def __init__(self, experiments: Experiments, identity: Identity, tell: Callable[[Answered], None]) -> None:
        self._experiments, self._identity, self._tell = experiments, identity, tell

    async def answer(self, scope: Scope, send: Send) -> bool:
        """Answer a request, or return False: the control route answers everything else."""
        answer = self._timed(scope)
        if answer:
            await answer.send(scope, send)
        return answer is not None

    def at_once(self, scope: Scope, reply: Reply) -> bool:
        """Answer a request without a task of its own, as `answer` does."""
        answer = self._timed(scope)
        if answer:
            reply(answer)
        return answer is not None

    def _timed(self, scope: Scope) -> HttpAnswer | None:
        began = time.perf_counter()
        answer = self._found(scope)
        if answer:
            self._tell(Answered("GET", POLICY_ROUTE, answer.status, time.perf_counter() - began))
        return answer

    def _found(self, scope: Scope) -> HttpAnswer | None:
        path: str = scope["path"]
        if not path.endswith(_POLICY_PAGE) or scope["method"] != "GET" or scope["query_string"]:
            return None
        parts = path.split("/")
        if len(parts) != 4 or parts[1] != "experiments":
            return None
        try:
            return self._answered(self._experiments.get(parts[2]), dict(scope["headers"]))
        except PrivateerError:  # there is none of that name
            return None

    def _answered(self, experiment: Experiment, asked: dict[bytes, bytes]) -> HttpAnswer | None:
        known = asked.get(b"if-none-match")
        tag = b'"%s"' % experiment.current.digest.hex().encode()
        if known == tag:
            return HttpAnswer(_NOT_MODIFIED, self._headers(experiment, tag))
        if known is None and _POLICY_TYPE in asked.get(b"accept", b""):
            return with_body(_OK, experiment.current.publication, _POLICY_TYPE, self._headers(experiment, tag))
        return None

    def _headers(self, experiment: Experiment, tag: bytes) -> Headers:
        asks = ASKS_NOBODY if experiment.is_silent else ASKS_PUBLISHED
        # The last two are always there, so that no cache keeps an earlier one with an answer that did not change.
        signed = self._identity.signed(experiment.current.digest).encode()
        unchanging = (b"etag", tag), (b"vary", b"Accept"), (b"cache-control", b"no-cache")
        return (*unchanging, (_ASKS, asks.encode()), (_SIGNED, signed))
