"""Endpoints for sealed reports: plain ASGI, since a framework costs as much as opening or storing a report."""

import asyncio
import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, Protocol, Self

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from privateer_core.clock import Clock, SystemClock
from privateer_core.errors import PrivateerError
from privateer_core.serving.body_budget import Budget, Reservation, too_large
from privateer_core.serving.connections import peer
from privateer_core.serving.http.answer import HttpAnswer, with_json
from privateer_core.serving.http.problems import MethodNotAllowed, defect, problem_answer
from privateer_core.serving.http.timing import Answered, known_method
from privateer_core.serving.token_gate import Admission, TokenGate
from privateer_core.wire.batch import UPLOAD, Announcement, UploadAnswer
from privateer_core.wire.envelope import REPORTS_PER_BODY_MAX, Envelope, decode_envelope
from privateer_core.wire.keys import TrustedKeys

_SIGNATURE: Final = UPLOAD.header.encode()
"""The name that an ASGI scope has for it: searching Starlette's headers takes as long as storing a report."""
_TOKEN: Final = b"authorization"
_ALLOW: Final = ((b"allow", b"POST"),)
_ACCEPTED: Final = 202
Reply = Callable[[HttpAnswer], object]
"""Takes the answer to a request."""


class Body(NamedTuple):
    """A body that is about to be read."""

    length: int  # bytes that it has at most
    sender: str  # the id of the key that signed it, or the address that it comes from
    # digest, signed_at: SHA-256 that it must have, if a trusted sender signed it, and when that was, in seconds since
    # 1970
    digest: bytes | None = None
    signed_at: float = 0.0
    admission: Admission | None = None  # the upload token that it comes with, if it needs one

    @classmethod
    def unsigned(
        cls, content_length: str | bytes | None, most: int, sender: str, admission: Admission | None = None
    ) -> Self:
        """Return a body of the announced length, or of ``most`` bytes if none is announced."""
        length = _within(most if content_length is None else int(content_length), most)
        return cls(length, sender, admission=admission)

    @classmethod
    def signed(cls, announced: Announcement, most: int) -> Self:
        """Return the body that a signature announces."""
        return cls(_within(announced.length, most), announced.key_id, announced.digest, announced.signed_at)

    @property
    def is_signed(self) -> bool:
        """Whether a trusted sender signed it."""
        return self.digest is not None


def _within(length: int, most: int) -> int:
    if length > most:
        raise too_large(most)
    return length


async def unchanged(chunks: AsyncIterator[bytes], digest: bytes, changed: PrivateerError) -> AsyncIterator[bytes]:
    """Yield the chunks of a body, then raise ``changed`` if they do not have the digest that was announced."""
    hashed = hashlib.sha256()
    async for chunk in chunks:
        hashed.update(chunk)
        yield chunk
    if hashed.digest() != digest:
        raise changed


class UploadReceipt(Protocol):
    """The outcome of the reports of an upload."""

    @property
    def accepted(self) -> int:
        """Return how many count."""
        ...

    @property
    def refused(self) -> Mapping[str, int]:
        """Return how many were refused, by slug."""
        ...

    @property
    def problem(self) -> PrivateerError | None:
        """Return why the first of these was."""
        ...


class Incoming:
    """A request as it comes in."""

    __slots__ = ("arrived", "headers", "scope")

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.headers: dict[bytes, bytes] = dict(scope["headers"])  # by name in lower case
        self.arrived = time.perf_counter()  # when the last byte came so far, by the performance counter

    async def chunks(self, receive: Receive) -> AsyncIterator[bytes]:
        """Yield the body's bytes as they come."""
        is_whole = False
        while not is_whole:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            self.arrived, is_whole = time.perf_counter(), not message.get("more_body", False)
            if body := message.get("body", b""):
                yield body


class Endpoint(ABC):
    """An ASGI application that reads an envelope and answers what becomes of its reports.

    budget: the bytes that bodies may take in memory.
    bytes_max: the bytes of the largest body.
    keys: keys of the senders that it trusts.
    refuse: counts refused reports by reason.
    """

    route: str  # its template, for metrics

    def __init__(
        self, budget: Budget, bytes_max: int, keys: TrustedKeys, refuse: Callable[[Mapping[str, int]], None]
    ) -> None:
        self._budget, self._bytes_max, self._keys, self._refuse = budget, bytes_max, keys, refuse
        self._clock: Clock = SystemClock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        incoming = Incoming(scope)
        try:
            answer = await self._answer(incoming, receive)
        except ClientDisconnect:
            return
        except PrivateerError as error:
            answer = problem_answer(error)
        except Exception as error:
            answer = defect(error)
        self._time(incoming, answer)
        await answer.send(scope, send)

    async def _answer(self, incoming: Incoming, receive: Receive) -> HttpAnswer:
        if incoming.scope["method"] != "POST":
            return problem_answer(MethodNotAllowed("the page takes only POST", remedy="use POST"), _ALLOW)
        try:
            body = self._announced(incoming)
            room = self._budget.reserve(body.length, body.sender, is_trusted=body.is_signed)
        except PrivateerError as error:
            return self._refused(error)
        with room:
            try:
                envelope = await self._read(incoming.chunks(receive), body, room)
            except PrivateerError as error:
                return self._refused(error)
            return await self._counted(incoming.scope, envelope, body)

    def _refused(self, error: PrivateerError) -> HttpAnswer:
        """Count a body that was refused before its reports were looked at."""
        self._refuse({error.slug: 1})
        return problem_answer(error, accepted=0, refused={error.slug: 1})

    def _time(self, incoming: Incoming, answer: HttpAnswer) -> None:
        seconds = time.perf_counter() - incoming.arrived
        self._tell(incoming.scope, Answered(known_method(incoming.scope), self.route, answer.status, seconds))

    @abstractmethod
    def _tell(self, scope: Scope, answered: Answered) -> None:
        """Take how long an answer took."""

    @abstractmethod
    def _announced(self, incoming: Incoming) -> Body:
        """Return what the headers say about the body, or refuse it."""

    @abstractmethod
    async def _read(self, chunks: AsyncIterator[bytes], body: Body, room: Reservation) -> Envelope:
        """Read the body."""

    @abstractmethod
    async def _counted(self, scope: Scope, envelope: Envelope, body: Body) -> HttpAnswer:
        """Count the reports, and answer what became of them."""


class UploadEndpoint(Endpoint):
    """Takes uploads of reports: one person's, or more if a trusted sender signed them.

    An upload that comes in one piece is taken ``at_once``, without a task of its own, which would cost as much as the
    rest. Others are read as they come, by ``__call__``.

    gate: admits uploads that no trusted sender signed by their tokens; None: they need none.
    """

    def __init__(
        self,
        budget: Budget,
        bytes_max: int,
        keys: TrustedKeys,
        refuse: Callable[[Mapping[str, int]], None],
        gate: TokenGate | None = None,
    ) -> None:
        super().__init__(budget, bytes_max, keys, refuse)
        self._gate = gate

    def at_once(self, scope: Scope, body: bytearray, reply: Reply) -> bool:
        """Take an upload that is there as a whole, and have ``reply`` called once its reports are durable or refused.

        Returns
        -------
        bool
            False if nothing has happened, and ``__call__`` must answer the request.
        """
        if scope["method"] != "POST":
            return False
        incoming = Incoming(scope)
        try:
            announced = self._announced(incoming)
            if len(body) > announced.length:
                raise too_large(announced.length)
            room = self._budget.reserve(len(body), announced.sender, is_trusted=announced.is_signed)
        except PrivateerError as error:
            self._reply(incoming, reply, self._refused(error))
            return True
        found = self._begun(scope, body, announced)
        if isinstance(found, asyncio.Future):
            found.add_done_callback(partial(self._finish, incoming, room, reply))
            return True
        room.release()
        if found:
            self._reply(incoming, reply, found)
        return found is not None

    def _begun(self, scope: Scope, body: bytearray, announced: Body) -> "asyncio.Future[Any] | HttpAnswer | None":
        """Return what will become of the reports, or their refusal; None if `_taken` must say it."""
        try:
            if announced.digest and hashlib.sha256(body).digest() != announced.digest:
                raise UPLOAD.changed()
            envelope = decode_envelope(body)
        except PrivateerError as error:
            return self._refused(error)
        except Exception as error:
            return defect(error)
        try:
            return self._take(scope, envelope, announced)
        except PrivateerError as error:
            return self._failed(error)
        except Exception as error:
            return defect(error)

    def _finish(self, incoming: Incoming, room: Reservation, reply: Reply, receipt: "asyncio.Future[Any]") -> None:
        room.release()
        try:
            answer = self._answer_of(receipt.result())
        except PrivateerError as error:
            answer = self._failed(error)
        except Exception as error:
            answer = defect(error)
        self._reply(incoming, reply, answer)

    def _reply(self, incoming: Incoming, reply: Reply, answer: HttpAnswer) -> None:
        self._time(incoming, answer)
        reply(answer)

    def _announced(self, incoming: Incoming) -> Body:
        signature, length = incoming.headers.get(_SIGNATURE), incoming.headers.get(b"content-length")
        if signature is None:
            admission = None
            if self._gate is not None:
                admission = self._gate.admit(incoming.headers.get(_TOKEN), self._named(incoming.scope))
            return Body.unsigned(length, self._bytes_max, peer(incoming.scope), admission)
        announced = UPLOAD.check(signature.decode("latin-1"), self._keys.by_id(), self._clock.now())
        return Body.signed(announced, self._bytes_max)

    def _named(self, scope: Scope) -> str:  # noqa: ARG002
        """Return the experiment that the address names; empty if it names none."""
        return ""

    async def _read(self, chunks: AsyncIterator[bytes], body: Body, room: Reservation) -> Envelope:
        if body.digest:
            chunks = unchanged(chunks, body.digest, UPLOAD.changed())
        return decode_envelope(await room.read(chunks))

    async def _counted(self, scope: Scope, envelope: Envelope, body: Body) -> HttpAnswer:
        try:
            return self._answer_of(await self._taken(scope, envelope, body))
        except PrivateerError as error:
            return self._failed(error)

    def _answer_of(self, receipt: UploadReceipt) -> HttpAnswer:
        """Return the answer to an upload whose reports are durable or refused."""
        if receipt.problem and not receipt.accepted:
            return problem_answer(receipt.problem, accepted=0, refused=receipt.refused)
        if not receipt.refused:
            return _all_accepted(receipt.accepted)
        return with_json(_ACCEPTED, UploadAnswer(receipt.accepted, dict(receipt.refused)))

    def _failed(self, error: PrivateerError) -> HttpAnswer:
        """Return the answer to an upload that is refused as a whole."""
        return problem_answer(error)

    @abstractmethod
    def _take(self, scope: Scope, envelope: Envelope, body: Body) -> "asyncio.Future[Any] | None":
        """Return the `UploadReceipt` to come; None if that needs to be awaited."""

    @abstractmethod
    async def _taken(self, scope: Scope, envelope: Envelope, body: Body) -> UploadReceipt:
        """Have the reports counted, and return once those accepted are durable."""


@lru_cache(maxsize=REPORTS_PER_BODY_MAX)
def _all_accepted(reports: int) -> HttpAnswer:
    return with_json(_ACCEPTED, UploadAnswer(reports, {}))


def answer(content: Any, status: int) -> Response:
    """Return an answer in JSON."""
    return Response(msgspec.json.encode(content), status, media_type="application/json")
