"""The most frequent endpoints of devices and shufflers: reports, batches, and policies at a fraction of a route's cost.

The policy endpoint is for devices that fetch it repeatedly: its responses equal those of the control route.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar, Final

from starlette.datastructures import QueryParams
from starlette.types import Scope

from privateer_core.errors import Deleted, PrivateerError
from privateer_core.serving.http.answer import AnswerTiming, Headers, HttpAnswer, make_answer
from privateer_core.serving.http.bodies import Body, Budget, IncomingRequest, Reservation, verify_digest
from privateer_core.serving.http.problems import problem_answer
from privateer_core.serving.http.report_endpoint import Endpoint
from privateer_core.serving.logs import log_answer
from privateer_core.wire.batch import BATCH, Purpose, decode_batch
from privateer_core.wire.identity import SIGNED_HEADER, Identity
from privateer_core.wire.keys import TrustedKeys
from privateer_core.wire.publication import ASKS_HEADER, ASKS_NOBODY, ASKS_PUBLISHED, MEDIA_TYPE, Envelope
from privateer_server.experiments.catalog import Experiments
from privateer_server.experiments.experiment import Experiment
from privateer_server.intake.intake import Intake
from privateer_server.intake.leader import JoinedBatch
from privateer_server.intake.receipts import Delivery
from privateer_server.metrics import ServerMetrics
from privateer_server.store.records import ShufflerKey

_OK, _ACCEPTED, _NOT_MODIFIED = 200, 202, 304
_SIGNATURE_HEADER: Final = BATCH.header.encode()
POLICY_ROUTE: Final = "/experiments/{name}/policy"
_POLICY_SUFFIX: Final = "/policy"
_POLICY_TYPE: Final = MEDIA_TYPE.encode()
_TAG: Final = re.compile(rb'"[0-9a-f]{64}"')
_WAIT_SECONDS: Final = re.compile(r"[1-5]?[0-9]")
_ASKS_HEADER: Final = ASKS_HEADER.lower().encode()
_SIGNED_HEADER: Final = SIGNED_HEADER.lower().encode()


def is_long_poll(scope: Scope, policy_digest: bytes) -> bool:
    """Whether a request for a policy may wait for the next one, or has a ``wait`` that must be checked."""
    wait = QueryParams(scope["query_string"]).get("wait")
    if wait is None:
        return False
    known_tag = dict(scope["headers"]).get(b"if-none-match", b"")
    is_known = policy_digest.hex().encode() in known_tag or b"*" in known_tag
    return is_known or not _WAIT_SECONDS.fullmatch(wait)


class BatchesEndpoint(Endpoint):
    """``POST /batches``: batches signed by trusted shufflers; other bodies are not read."""

    route = "/batches"
    purpose: ClassVar[Purpose] = BATCH

    def __init__(
        self,
        intake: Intake,
        metrics: ServerMetrics,
        budget: Budget,
        bytes_max: int,
        keys: TrustedKeys,
        trace: Callable[[AnswerTiming], None],
    ) -> None:
        super().__init__(budget, bytes_max, keys, metrics.count_refusals)
        self._intake, self._metrics, self._trace = intake, metrics, trace

    def _record_timing(self, scope: Scope, answered: AnswerTiming) -> None:  # noqa: ARG002
        self._metrics.observe_answer(answered)
        log_answer(answered)
        self._trace(answered)

    def _read_announcement(self, incoming: IncomingRequest) -> Body:
        signature = incoming.headers.get(_SIGNATURE_HEADER, b"").decode("latin-1")
        announcement = self.purpose.verify(signature, self._keys.by_id(), self._clock.now())
        return Body.from_signature(announcement, self._bytes_max)

    async def _read(self, chunks: AsyncIterator[bytes], body: Body, reservation: Reservation) -> Any:
        verified = verify_digest(chunks, body.digest or b"", self.purpose.changed_body_error())
        # Parsing a large batch must not block the event loop.
        return await asyncio.to_thread(self._decode, await reservation.read(verified))

    def _decode(self, body: bytes | bytearray) -> Any:
        return decode_batch(body)

    async def _count_reports(self, scope: Scope, envelope: Envelope, body: Body) -> HttpAnswer:  # noqa: ARG002
        """Count a shuffler's batch, and answer with its receipt; a repeated batch is not counted again."""
        return await self._deliver(self._delivery(envelope, body))

    def _delivery(self, envelope: Envelope, body: Body, joined: JoinedBatch | None = None) -> Delivery:
        shuffler_key = ShufflerKey(body.sender, self._keys.organisation(body.sender))
        return Delivery(envelope, body.digest or b"", shuffler_key, body.signed_at, joined)

    async def _deliver(self, delivery: Delivery) -> HttpAnswer:
        receipt = await self._intake.deliver(delivery)
        if not receipt.is_repeat:
            self._metrics.count_batch()
        return make_answer(_OK if receipt.is_repeat else _ACCEPTED, receipt.answer)


class Policies:
    """The endpoint for devices that fetch a publication, or check whether it has changed."""

    def __init__(
        self, experiments: Experiments, identity: Identity, record_timing: Callable[[AnswerTiming], None]
    ) -> None:
        self._experiments, self._identity, self._record_timing = experiments, identity, record_timing

    def find_answer(self, scope: Scope) -> HttpAnswer | None:
        """Return the answer to a request for a publication, if any, and record its timing; None: it has a route."""
        start_time = time.perf_counter()
        response = self._find_response(scope)
        if response:
            self._record_timing(AnswerTiming("GET", POLICY_ROUTE, response.status, time.perf_counter() - start_time))
        return response

    def _find_response(self, scope: Scope) -> HttpAnswer | None:
        """Return the response to a request of a loaded experiment's current publication; None for other requests."""
        path: str = scope["path"]
        if not path.endswith(_POLICY_SUFFIX) or scope["method"] != "GET":
            return None
        segments = path.split("/")
        if len(segments) != 4 or segments[1] != "experiments":
            return None
        try:
            experiment = self._experiments.get(segments[2])
        except Deleted as error:  # devices ask for it for long
            return problem_answer(error)
        except PrivateerError:  # another server may have it
            return None
        return None if is_long_poll(scope, experiment.current.digest) else self._build_response(experiment, scope)

    def _build_response(self, experiment: Experiment, scope: Scope) -> HttpAnswer | None:
        """Return the publication, or that it has not changed; None if the request is for another format."""
        request_headers = dict(scope["headers"])
        known_tag = request_headers.get(b"if-none-match")
        tag = b'"%s"' % experiment.current.digest.hex().encode()
        if known_tag == tag:
            return HttpAnswer(_NOT_MODIFIED, self._headers(experiment, tag))
        is_older_tag = known_tag is None or _TAG.fullmatch(known_tag)
        if is_older_tag and _POLICY_TYPE in request_headers.get(b"accept", b""):
            return make_answer(_OK, experiment.current.publication, _POLICY_TYPE, self._headers(experiment, tag))
        return None

    def _headers(self, experiment: Experiment, tag: bytes) -> Headers:
        """Return the headers of a publication: for caches, whom its round asks, and its signature."""
        asks = ASKS_NOBODY if experiment.is_inviting_nobody else ASKS_PUBLISHED
        # The last two are always sent, so that no cache keeps earlier values with an unchanged answer.
        signature = self._identity.signature_header(experiment.current.digest).encode()
        cache_headers = (b"etag", tag), (b"vary", b"Accept"), (b"cache-control", b"no-cache")
        return (*cache_headers, (_ASKS_HEADER, asks.encode()), (_SIGNED_HEADER, signature))
