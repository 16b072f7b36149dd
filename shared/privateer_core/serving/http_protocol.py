"""HTTP/1.1 of uvicorn and httptools, with the deadlines and limits that uvicorn does not have."""

import asyncio
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from privateer_core.errors import BadRequest, HeadersTooLarge, PrivateerError
from privateer_core.serving.connections import Connections, ConnectionStage, peer
from privateer_core.serving.http.answer import WHOLE, HttpAnswer
from privateer_core.serving.rate_limit import RateLimit
from privateer_core.wire.problem import MEDIA_TYPE, problem_body

HEADER_BYTES_MAX: Final = 16 << 10
"""Limits the request line with all headers, and what the framing of chunks may add to a body."""
_HEADER_SECONDS: Final = 10.0
_IDLE_SECONDS: Final = 5.0
_BODY_SECONDS: Final = 30.0
_BYTES_PER_SECOND: Final = 64 << 10
"""A body or an answer may take longer if it advances at this rate."""
_LINGER_SECONDS: Final = 2.0
"""Time for the rest of a body that nobody reads, so that its sender gets to see the answer."""
_LINGER_BYTES: Final = 64 << 10
"""The same in bytes, of a body that is thrown away."""
_UNCOUNTED: Final = 16 << 10
"""What of answers may wait in memory for a peer before it counts as slow: as much as the headers of its request."""
_PIPELINE_MAX: Final = 8
_ONCE: Final = frozenset({b"authorization", b"content-length", b"content-type", b"host", b"last-event-id", b"origin"})
"""Headers that a request has once, as it has our own."""
_OURS: Final = b"privateer-"
_BODILESS: Final = frozenset({b"GET", b"HEAD"})


class GuardedProtocol(HttpToolsProtocol):
    """One connection.

    Headers may take ten seconds. A body may take thirty, and a second more for every 64 KiB that arrived; an answer has
    as much time. Between two requests a connection may be idle for five. What a slow peer leaves waiting of its answers
    counts against the bounds of the table.

    connections: the table of the listener's connections.
    rate_limit: turns uploads away by their headers; None: all become requests.
    how: the arguments that uvicorn gives its protocols.
    """

    def __init__(self, connections: Connections, rate_limit: RateLimit | None = None, **how: Any) -> None:
        super().__init__(**how)
        self._rate_limit, self._is_turned, self._goes_on = rate_limit, False, True
        self._is_refused, self._is_held = False, False
        self.stage = ConnectionStage.WAITING
        self._connections = connections
        self._due = self._write_due = math.inf
        self._in_headers = True
        self._piece = self._unparsed = 0  # bytes parsed: last, and since the request or its body began
        self._began, self._body_bytes = 0.0, 0
        self._working: RequestResponseCycle
        self._begun: Any = None
        self._at_once: Callable[[Any, bytearray, Callable[[HttpAnswer], None]], bool] = getattr(
            self.app, "at_once", lambda *_: False
        )
        self._extensions: dict[str, Any] = {WHOLE: self._write_whole}
        self._refusal: PrivateerError = BadRequest("this is not an HTTP request", remedy="send HTTP/1.1")

    def is_overdue(self, now: float) -> bool:
        """Whether the peer has had enough time to send its request or to take the answer."""
        return now > self._due or now > self._write_due

    def drop(self) -> None:
        """Close the connection at once."""
        self.transport.abort()

    @property
    def sender(self) -> str:
        """The address of the peer."""
        return peer({"client": self.client})

    def unread(self) -> int:
        """Bytes of answers that wait in memory until the peer takes them."""
        return self.transport.get_write_buffer_size()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Give the peer time for its first request."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=_UNCOUNTED)
        self._due = self.loop.time() + _HEADER_SECONDS
        self._connections.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._connections.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the data, as long as headers and framing stay within their limits."""
        self._piece = len(data)
        self._unparsed += self._piece
        if self._is_refused:
            if self._unparsed > _LINGER_BYTES:
                self.drop()
            return
        super().data_received(data)
        if self.transport.is_closing() or self._is_refused:
            return
        self._start_begun()
        if self._in_headers:
            if self._unparsed > HEADER_BYTES_MAX:
                self._refusal = _too_large()
                self.send_400_response("")
        elif self._unparsed > 2 * self._body_bytes + 2 * HEADER_BYTES_MAX:
            self._refusal = BadRequest("the body consists mostly of framing", remedy="send it with a content-length")
            self.send_400_response("")
        elif self.stage is ConnectionStage.READING:
            self._due = self._began + _BODY_SECONDS + self._body_bytes / _BYTES_PER_SECOND

    def on_message_begin(self) -> None:
        """Start the time of the next request's headers."""
        super().on_message_begin()
        self.scope["extensions"] = self._extensions
        self._unparsed = self._piece
        if self.cycle is not None and self.cycle.response_complete:
            self._due = self.loop.time() + _HEADER_SECONDS

    def on_headers_complete(self) -> None:
        """Begin the request, unless its headers are too large or too many requests wait."""
        if self._unparsed > HEADER_BYTES_MAX and self._header_bytes() > HEADER_BYTES_MAX:
            self._refusal = _too_large()
            raise self._refusal
        if len(self.pipeline) >= _PIPELINE_MAX:
            self._refusal = BadRequest("too many requests at once", remedy="wait for the answers")
            raise self._refusal
        if len(dict(self.headers)) < len(self.headers):
            self._join_headers()
        if self.parser.get_method() in _BODILESS and self._announces_body():
            self._refusal = BadRequest("a request with this method has no body", remedy="leave it out")
            raise self._refusal
        if self._rate_limit is not None and not self.pipeline and (self.cycle is None or self.cycle.response_complete):
            refusal = self._rate_limit.refusal(self.parser.get_method(), self.url, self.headers)
            if refusal is not None:
                self._turn_away(*refusal)
                return
        self._in_headers = False
        self._unparsed, self._body_bytes, self._began = self._piece, 0, self.loop.time()
        super().on_headers_complete()
        self._due = self._began + _BODY_SECONDS
        self._connections.move(self, ConnectionStage.READING)

    def _join_headers(self) -> None:
        """Leave one line of each header, so that everybody reads the same one (RFC 9110, section 5.3)."""
        joined = dict[bytes, bytes]()
        for name, value in self.headers:
            if name in joined and (name in _ONCE or name.startswith(_OURS)):
                detail = f"the header {name.decode('latin-1')} comes twice"
                self._refusal = BadRequest(detail, remedy="send it once")
                raise self._refusal
            joined[name] = b"%s, %s" % (joined[name], value) if name in joined else value
        self.headers[:] = joined.items()

    def _announces_body(self) -> bool:
        sent = dict(self.headers)
        return b"transfer-encoding" in sent or sent.get(b"content-length", b"0").strip(b"0") != b""

    def _turn_away(self, answer: bytes, cost: int) -> None:
        """Answer at once; the rest of the request is parsed and thrown away, and the next one has to wait."""
        if self.flow.read_paused:
            self._refusal = BadRequest("too many requests at once", remedy="wait for the answers")
            raise self._refusal
        self._is_turned, self._in_headers, self._body_bytes = True, False, 0
        self._goes_on = self.parser.should_keep_alive()
        self._due = self.loop.time() + _LINGER_SECONDS
        self.transport.write(answer)
        self.flow.pause_reading()
        assert self._rate_limit is not None
        self._rate_limit.hold(self, cost)

    def read_on(self) -> None:
        """Take the rest of a request that was turned away, and the next one."""
        self._is_held = self.flow.write_paused  # who does not take the answers sends nothing more, either
        if not self.transport.is_closing() and not self._is_held:
            self.flow.resume_reading()

    def on_body(self, body: bytes) -> None:
        """Pass on a part of the body; throw it away where the upload was turned away."""
        if self._is_turned:
            self._body_bytes += len(body)
            if self._body_bytes > _LINGER_BYTES:
                self.drop()
            return
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the request is complete: from now on the service takes the time."""
        self._in_headers, self._unparsed = True, 0
        if self._is_turned:
            self._is_turned, self._due = False, self.loop.time() + _HEADER_SECONDS
            if not self._goes_on:
                self.transport.close()
            return
        super().on_message_complete()
        self._start_begun()
        if self.cycle.response_complete:
            self._due = self.loop.time() + _IDLE_SECONDS
        else:
            self._due = math.inf
            self._connections.move(self, ConnectionStage.WORKING)

    def on_response_complete(self) -> None:
        """Wait for the peer to take the answer, and for its next request."""
        # Uvicorn would start a timer for each answer, which the table of connections does without.
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            self._start_begun()
            return
        seconds = _IDLE_SECONDS if self._in_headers else _LINGER_SECONDS
        self._due = self.loop.time() + seconds + self.transport.get_write_buffer_size() / _BYTES_PER_SECOND
        self._connections.move(self, ConnectionStage.WAITING)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Begin to work on a request: on one at a time, and best when it is there as a whole."""
        self._working = cycle
        if cycle.more_body:
            self._begun = app  # the rest may come with the same data
        elif self.flow.write_paused or not self._at_once(cycle.scope, cycle.body, self._write):
            super()._start_asgi_task(cycle, partial(self._unless_stopped, cycle, app))

    async def _unless_stopped(self, cycle: RequestResponseCycle, app: Any, *asgi: Any) -> None:
        """Answer a request, unless the process stops: that is no defect, and its log says nothing of it."""
        try:
            await app(*asgi)
        except asyncio.CancelledError:
            cycle.disconnected = True
            self.drop()

    def _start_begun(self) -> None:
        """Work on the request that has begun, if there is one."""
        if self._begun is not None:
            app, self._begun = self._begun, None
            if self._working.more_body:
                super()._start_asgi_task(self._working, partial(self._unless_stopped, self._working, app))
            else:
                self._start_asgi_task(self._working, app)

    def _write_whole(self, answer: HttpAnswer) -> bool:
        """Answer the request that is being worked on in one write; False if that must wait for the peer."""
        if self.flow.write_paused:
            return False
        self._write(answer)
        return True

    def _write(self, answer: HttpAnswer) -> None:
        cycle = self._working
        # When the peer hangs up, uvicorn tells only the last of several requests.
        if cycle.disconnected or self.transport.is_closing():
            cycle.disconnected = True
            return
        head = [STATUS_LINE[answer.status], *(b"%s: %s\r\n" % header for header in answer.headers)]
        if not cycle.keep_alive:
            head.append(b"connection: close\r\n")
        body = b"" if cycle.scope["method"] == "HEAD" else answer.body
        self.transport.write(b"".join((*head, b"\r\n", body)))
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()

    def pause_writing(self) -> None:
        """Start the peer's deadline, since it takes its answer more slowly than we send it."""
        super().pause_writing()
        unread = self.unread()
        self._write_due = self.loop.time() + _BODY_SECONDS + unread / _BYTES_PER_SECOND
        self._connections.delay(self, unread)

    def resume_writing(self) -> None:
        """Stop the deadline, since the peer has taken its answer."""
        super().resume_writing()
        self._write_due = math.inf
        self._connections.hasten(self)
        if self._is_held:
            self.read_on()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn passes what is wrong, for its log
        """Answer an invalid request with a problem, or just close in the middle of another answer."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.drop()
            return
        body = problem_body(self._refusal)
        head = (f"content-type: {MEDIA_TYPE}", f"content-length: {len(body)}", "connection: close", "", "")
        self.transport.write(STATUS_LINE[self._refusal.status] + "\r\n".join(head).encode() + body)
        self._linger()

    def _linger(self) -> None:
        """Throw away what still comes until the peer closes: to close before would take the answer from it."""
        self._is_refused, self._unparsed = True, 0
        self._due = self.loop.time() + _LINGER_SECONDS
        self._connections.move(self, ConnectionStage.WAITING)
        self.flow.resume_reading()
        self.transport.write_eof()

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing, since strangers must not fill the log."""

    def _header_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)


def _too_large() -> HeadersTooLarge:
    return HeadersTooLarge(
        f"the headers have more than {HEADER_BYTES_MAX} bytes", remedy="send fewer or shorter headers"
    )
