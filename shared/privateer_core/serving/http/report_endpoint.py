"""Endpoints for sealed reports: plain ASGI, since a framework costs as much as opening or storing a report."""

import asyncio
import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Final, Protocol

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from privateer_core.clock import Clock, SystemClock
from privateer_core.errors import PrivateerError
from privateer_core.serving.http.answer import AnswerTiming, HttpAnswer, make_json_answer, method_label
from privateer_core.serving.http.bodies import (
    Body,
    Budget,
    IncomingRequest,
    Reservation,
    peer_address,
    too_large_error,
    verify_digest,
)
from privateer_core.serving.http.problems import MethodNotAllowed, answer_defect, problem_answer
from privateer_core.serving.token_gate import TokenGate
from privateer_core.wire.batch import UPLOAD, UploadAnswer
from privateer_core.wire.keys import TrustedKeys
from privateer_core.wire.publication import REPORTS_PER_BODY_MAX, Envelope, decode_envelope

_SIGNATURE_HEADER: Final = UPLOAD.header.encode()
"""The name of the header in an ASGI scope: searching Starlette's headers takes as long as storing a report."""
_TOKEN_HEADER: Final = b"authorization"
_ALLOW_HEADERS: Final = ((b"allow", b"POST"),)
_ACCEPTED: Final = 202
CountRefusals = Callable[[Mapping[str, int]], None]
Reply = Callable[[HttpAnswer], object]
"""Sends the answer to a request."""
Submit = Callable[[Envelope, Body], "asyncio.Future[Any]"]
"""Queues the reports of an envelope, and returns their future receipt."""


class UploadReceipt(Protocol):
    """The outcome of the reports of an upload."""

    @property
    def accepted(self) -> int:
        """Return the number of accepted reports."""

    @property
    def refused(self) -> Mapping[str, int]:
        """Return the numbers of refused reports by slug."""

    @property
    def first_refusal(self) -> PrivateerError | None:
        """Return the error of the first refused report, or None."""


class Endpoint(ABC):
    """An ASGI application that reads an envelope and answers with the fate of its reports.

    keys: keys of trusted senders.
    count: counts refused reports by reason.
    gate: admits unsigned uploads by their tokens; None: uploads need no tokens.
    """

    route: str  # its template, for metrics

    def __init__(
        self, budget: Budget, bytes_max: int, keys: TrustedKeys, count: CountRefusals, gate: TokenGate | None = None
    ) -> None:
        self._budget, self._bytes_max, self._keys = budget, bytes_max, keys
        self._count_refusals, self._gate = count, gate
        self._clock: Clock = SystemClock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        incoming = IncomingRequest(scope)
        try:
            answer = await self._handle_request(incoming, receive)
        except ClientDisconnect:
            return
        except PrivateerError as error:
            answer = problem_answer(error)
        except Exception as error:
            answer = answer_defect(error)
        self._time_answer(incoming, answer)
        await answer.send(scope, send)

    async def _handle_request(self, incoming: IncomingRequest, receive: Receive) -> HttpAnswer:
        """Read the body within the budget, and return the answer, of a refusal, too, which is counted."""
        if incoming.scope["method"] != "POST":
            return problem_answer(MethodNotAllowed("the page takes only POST", remedy="use POST"), _ALLOW_HEADERS)
        try:
            body = self._read_announcement(incoming)
            reservation = self._budget.reserve(body.length, body.sender, is_trusted=body.is_signed)
        except PrivateerError as error:
            return self._refuse_body(error)
        with reservation:
            try:
                envelope = await self._read(incoming.chunks(receive), body, reservation)
            except PrivateerError as error:
                return self._refuse_body(error)
            return await self._count_reports(incoming.scope, envelope, body)

    def _refuse_body(self, error: PrivateerError) -> HttpAnswer:
        """Count and answer a body that is refused before its reports are parsed."""
        self._count_refusals({error.slug: 1})
        return problem_answer(error, accepted=0, refused={error.slug: 1})

    def _time_answer(self, incoming: IncomingRequest, answer: HttpAnswer) -> None:
        seconds = time.perf_counter() - incoming.arrived
        timing = AnswerTiming(method_label(incoming.scope), self.route, answer.status, seconds)
        self._record_timing(incoming.scope, timing)

    @abstractmethod
    def _record_timing(self, scope: Scope, answered: AnswerTiming) -> None:
        """Record the timing of an answer."""

    @abstractmethod
    def _read_announcement(self, incoming: IncomingRequest) -> Body:
        """Return the body that the headers announce, or refuse it."""

    @abstractmethod
    async def _read(self, chunks: AsyncIterator[bytes], body: Body, reservation: Reservation) -> Envelope:
        """Read and parse the body."""

    @abstractmethod
    async def _count_reports(self, scope: Scope, envelope: Envelope, body: Body) -> HttpAnswer:
        """Count the reports, and return the answer."""


class UploadEndpoint(Endpoint):
    """An endpoint for uploads: a participant's report, or more reports if a trusted sender signed them.

    `answer_at_once` handles a completely received upload without a task of its own, which would double the cost. Other
    uploads are read as they arrive, by ``__call__``.
    """

    def answer_at_once(self, scope: Scope, body: bytearray, reply: Reply) -> bool:
        """Handle a whole upload and ``reply`` once it is durable or refused; False if ``__call__`` must answer it."""
        if scope["method"] != "POST":
            return False
        incoming = IncomingRequest(scope)
        try:
            upload = self._read_announcement(incoming)
            if len(body) > upload.length:
                raise too_large_error(upload.length)
            reservation = self._budget.reserve(len(body), upload.sender, is_trusted=upload.is_signed)
        except PrivateerError as error:
            self._send_reply(incoming, reply, self._refuse_body(error))
            return True
        answer = self._start_count(scope, body, upload)
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(partial(self._finish, incoming, reservation, reply))
            return True
        reservation.release()
        if answer:
            self._send_reply(incoming, reply, answer)
        return answer is not None

    def _start_count(self, scope: Scope, body: bytearray, upload: Body) -> "asyncio.Future[Any] | HttpAnswer | None":
        """Start counting the reports; return their future receipt, a refusal, or None to use `_submit_and_wait`."""
        try:
            if upload.digest and hashlib.sha256(body).digest() != upload.digest:
                raise UPLOAD.changed_body_error()
            envelope = decode_envelope(body)
        except PrivateerError as error:
            return self._refuse_body(error)
        except Exception as error:
            return answer_defect(error)
        try:
            return self._submit(scope, envelope, upload)
        except PrivateerError as error:
            return self._failure_answer(error)
        except Exception as error:
            return answer_defect(error)

    def _finish(
        self, incoming: IncomingRequest, reservation: Reservation, reply: Reply, receipt: "asyncio.Future[Any]"
    ) -> None:
        """Release the reservation of a counted upload, and reply with its receipt or error."""
        reservation.release()
        try:
            answer = self._receipt_answer(receipt.result())
        except PrivateerError as error:
            answer = self._failure_answer(error)
        except Exception as error:
            answer = answer_defect(error)
        self._send_reply(incoming, reply, answer)

    def _send_reply(self, incoming: IncomingRequest, reply: Reply, answer: HttpAnswer) -> None:
        self._time_answer(incoming, answer)
        reply(answer)

    def _read_announcement(self, incoming: IncomingRequest) -> Body:
        """Return the body that the headers announce, with its token's admission, or refuse the upload."""
        signature, length = incoming.headers.get(_SIGNATURE_HEADER), incoming.headers.get(b"content-length")
        if signature is None:
            admission = None
            if self._gate is not None:
                admission = self._gate.admit(incoming.headers.get(_TOKEN_HEADER), self._experiment_name(incoming.scope))
            return Body.from_length(length, self._bytes_max, peer_address(incoming.scope), admission)
        announcement = UPLOAD.verify(signature.decode("latin-1"), self._keys.by_id(), self._clock.now())
        return Body.from_signature(announcement, self._bytes_max)

    def _experiment_name(self, scope: Scope) -> str:  # noqa: ARG002
        """Return the experiment in the request's path; empty if the path has no experiment."""
        return ""

    async def _read(self, chunks: AsyncIterator[bytes], body: Body, reservation: Reservation) -> Envelope:
        if body.digest:
            chunks = verify_digest(chunks, body.digest, UPLOAD.changed_body_error())
        return decode_envelope(await reservation.read(chunks))

    async def _count_reports(self, scope: Scope, envelope: Envelope, body: Body) -> HttpAnswer:
        """Submit the reports, wait until they are durable, and return the answer."""
        try:
            return self._receipt_answer(await self._submit_and_wait(scope, envelope, body))
        except PrivateerError as error:
            return self._failure_answer(error)

    def _receipt_answer(self, receipt: UploadReceipt) -> HttpAnswer:
        """Return the answer to an upload whose reports are durable or refused."""
        if receipt.first_refusal and not receipt.accepted:
            return problem_answer(receipt.first_refusal, accepted=0, refused=receipt.refused)
        if not receipt.refused:
            return _make_accepted_answer(receipt.accepted)
        return make_json_answer(_ACCEPTED, UploadAnswer(receipt.accepted, dict(receipt.refused)))

    def _failure_answer(self, error: PrivateerError) -> HttpAnswer:
        """Return the answer to an upload that is refused as a whole."""
        return problem_answer(error)

    @abstractmethod
    def _submit(self, scope: Scope, envelope: Envelope, body: Body) -> "asyncio.Future[Any] | None":
        """Submit the reports, and return their future `UploadReceipt`; None if submitting needs to be awaited."""

    @abstractmethod
    async def _submit_and_wait(self, scope: Scope, envelope: Envelope, body: Body) -> UploadReceipt:
        """Submit the reports, and return their receipt once the accepted reports are durable."""


class ReportsEndpoint(UploadEndpoint):
    """``POST /reports``: envelopes of sealed reports for all experiments of a service."""

    route = "/reports"

    def __init__(self, submit: Submit, record: Callable[[AnswerTiming], None], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._submit_reports, self._record = submit, record

    def _record_timing(self, scope: Scope, answered: AnswerTiming) -> None:  # noqa: ARG002
        self._record(answered)

    def _submit(self, scope: Scope, envelope: Envelope, body: Body) -> "asyncio.Future[Any]":  # noqa: ARG002
        return self._submit_reports(envelope, body)

    async def _submit_and_wait(self, scope: Scope, envelope: Envelope, body: Body) -> UploadReceipt:
        receipt: UploadReceipt = await self._submit(scope, envelope, body)
        return receipt


@lru_cache(maxsize=REPORTS_PER_BODY_MAX)
def _make_accepted_answer(n_reports: int) -> HttpAnswer:
    return make_json_answer(_ACCEPTED, UploadAnswer(n_reports, {}))


def json_response(content: Any, status: int) -> Response:
    """Return a JSON response."""
    return Response(msgspec.json.encode(content), status, media_type="application/json")
