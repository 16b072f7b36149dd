"""HTTP/1.1 of uvicorn and httptools, with further deadlines and limits."""

import asyncio
import math
from functools import partial
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from privateer_core.errors import BadRequest, HeadersTooLarge, PrivateerError
from privateer_core.serving.connections import Connections, ConnectionStage
from privateer_core.serving.http.answer import TURN, WHOLE_ANSWER, HttpAnswer
from privateer_core.serving.http.bodies import peer_address
from privateer_core.serving.rate_limit import RateLimit
from privateer_core.wire.problem import MEDIA_TYPE, problem_body

HEADER_BYTES_MAX: Final = 16 << 10
"""Largest size of the request line with all headers, and of the framing of chunks beside a body."""
_HEADER_SECONDS: Final = 10.0
_IDLE_SECONDS: Final = 5.0
_BODY_SECONDS: Final = 30.0
_BYTES_PER_SECOND: Final = 64 << 10
"""Rate by which the deadlines of bodies and answers are extended."""
_LINGER_SECONDS: Final = 2.0
"""Time for receiving the rest of a refused body, so that the sender can read the answer."""
_LINGER_BYTES: Final = 64 << 10
"""Bytes of a refused body that are received and discarded."""
_WRITE_BUFFER_BYTES: Final = 16 << 10
"""Bytes of answers that may be buffered for a peer before it counts as slow: as much as the headers of a request."""
_BLANK_LINE: Final = b"\r\n\r\n"
"""The end of headers, and of a chunked body."""
_SINGLE_HEADERS: Final = frozenset(b"authorization content-length content-type host last-event-id origin".split())
"""Headers that a request may have only once, like Privateer's own headers."""
_OWN_HEADER_PREFIX: Final = b"privateer-"
_BODILESS_METHODS: Final = frozenset({b"GET", b"HEAD"})


class GuardedProtocol(HttpToolsProtocol):
    """The protocol of a connection, with deadlines and limits.

    Requests are parsed one by one, in the turn of their sender, and the next one of a connection after the answer.

    Headers may take ten seconds. A body may take thirty, and a second more for every 64 KiB that arrived; an answer has
    as much time. Between two requests a connection may be idle for five. Answers that are buffered for a slow peer
    count against the bounds of the table.

    rate_limit: turns uploads away by their headers; None: no upload is turned away.
    """

    def __init__(self, connections: Connections, rate_limit: RateLimit | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._rate_limit, self._is_turned_away, self._is_keep_alive = rate_limit, False, True
        self._received, self._line_end, self._missing_bytes = (
            bytearray(),
            b"",
            0,
        )  # not parsed, parsed last, of the body
        self._is_queued = self._is_held = False
        self._is_refused, self._is_reading_paused = False, False
        self.stage = ConnectionStage.WAITING
        self._connections, self.sender = connections, ""
        self._deadline = self._write_deadline = math.inf
        self._in_headers = True
        self._parsed_bytes = 0  # since the request or its body began
        self._body_start, self._body_bytes = 0.0, 0
        self._current_cycle: RequestResponseCycle
        self._pending_app: Any = None
        self._answer_at_once: Any = getattr(self.app, "answer_at_once", lambda *_: False)  # as in `PublicPages`
        self._extensions: dict[str, Any] = {WHOLE_ANSWER: self._write_whole, TURN: self._wait_for_turn}
        self._refusal: PrivateerError = BadRequest("this is not an HTTP request", remedy="send HTTP/1.1")

    def is_overdue(self, now: float) -> bool:
        """Whether the peer has exceeded its deadline for the request or for taking the answer."""
        return now > self._deadline or now > self._write_deadline

    def drop(self) -> None:
        """Close the connection at once."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register the connection, and set the deadline of its first request."""
        super().connection_made(transport)
        self.sender = peer_address({"client": self.client})
        transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        self._deadline = self.loop.time() + _HEADER_SECONDS
        self._connections.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Unregister the connection."""
        self._connections.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Keep received data until the sender's turn, except parts of a body, which the budget of bodies counts.

        No more is read while other connections of the sender come before.
        """
        if self._is_refused:
            self._parsed_bytes += len(data)
            if self._parsed_bytes > _LINGER_BYTES:
                self.drop()
            return
        self._received += data
        if not self._in_headers and not self._is_queued and self._find_end() > len(self._received):
            self._parse(self._cut_received())
        elif not self._queue_request():
            self._pause_receiving()

    def _queue_request(self) -> bool:
        """Ask for a turn if received data can be parsed; False if the data must wait for more than the next pass."""
        is_answered = self.cycle is None or self.cycle.response_complete
        if self._is_held or self.flow.write_paused or (self._in_headers and not is_answered):
            return False
        if not self._received:
            return True
        if self._is_queued:
            return False
        self._is_queued = True
        return self._connections.requests.put(self.sender, self._take_turn)

    def _pause_receiving(self) -> None:
        """Pause reading; received bytes beyond the size of headers count as buffered for a slow peer."""
        self.flow.pause_reading()
        if len(self._received) > HEADER_BYTES_MAX:
            self._connections.note_slow(self, len(self._received))

    def _take_turn(self) -> None:
        """Parse at most one request, and answer it or start its task."""
        self._is_queued = False
        if self.transport.is_closing() or self._is_refused:
            return
        self.flow.resume_reading()
        if len(self._received) > HEADER_BYTES_MAX:
            self._connections.note_drained(self)
        self._parse(self._cut_received())
        if self._received and not self._in_headers:  # the body is here, too
            self._parse(self._cut_received())
        self._start_pending()
        if self._received and not self.transport.is_closing():
            self._queue_request()
            self._pause_receiving()

    def _find_end(self) -> int:
        """Return how many received bytes the headers or the body have; more than there are if the end is missing."""
        if self._missing_bytes:
            return self._missing_bytes
        position = (self._line_end + self._received).find(_BLANK_LINE)
        return len(self._received) + 1 if position < 0 else position + len(_BLANK_LINE) - len(self._line_end)

    def _cut_received(self) -> bytes:
        """Remove and return the received data up to the end of the headers or the body."""
        end = self._find_end()
        is_line_cut = not self._missing_bytes and end > len(self._received)
        self._line_end = (self._line_end + self._received)[1 - len(_BLANK_LINE) :] if is_line_cut else b""
        data = bytes(self._received[:end])
        del self._received[:end]
        return data

    def _parse(self, data: bytes) -> None:
        """Parse data of one request, and refuse headers or framing beyond their limits."""
        self._parsed_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing() or self._is_refused:
            self._received.clear()
        elif self._in_headers:
            if self._parsed_bytes > HEADER_BYTES_MAX:
                self._refusal = _headers_too_large_error()
                self.send_400_response("")
        elif self._parsed_bytes > 2 * self._body_bytes + 2 * HEADER_BYTES_MAX:
            self._refusal = BadRequest("the body consists mostly of framing", remedy="send it with a content-length")
            self.send_400_response("")
        elif self.stage is ConnectionStage.READING:
            self._deadline = self._body_start + _BODY_SECONDS + self._body_bytes / _BYTES_PER_SECOND

    def on_message_begin(self) -> None:
        """Set the deadline of the next request's headers."""
        super().on_message_begin()
        self.scope["extensions"] = self._extensions
        if self.cycle is not None and self.cycle.response_complete:
            self._deadline = self.loop.time() + _HEADER_SECONDS

    def on_headers_complete(self) -> None:
        """Start the request, or refuse its headers; the rate limit may turn it away."""
        if self._parsed_bytes > HEADER_BYTES_MAX and self._count_header_bytes() > HEADER_BYTES_MAX:
            self._refusal = _headers_too_large_error()
            raise self._refusal
        if len(dict(self.headers)) < len(self.headers):
            self._join_headers()
        if self.parser.get_method() in _BODILESS_METHODS and self._announces_body():
            self._refusal = BadRequest("a request with this method has no body", remedy="leave it out")
            raise self._refusal
        self._missing_bytes = int(dict(self.headers).get(b"content-length", b"0"))
        if self._rate_limit is not None:
            refusal = self._rate_limit.find_refusal(self.parser.get_method(), self.url, self.headers)
            if refusal is not None:
                self._turn_away(*refusal)
                return
        self._in_headers = False
        self._parsed_bytes, self._body_bytes, self._body_start = 0, 0, self.loop.time()
        super().on_headers_complete()
        self._deadline = self._body_start + _BODY_SECONDS
        self._connections.move(self, ConnectionStage.READING)

    def _join_headers(self) -> None:
        """Join repeated headers to a single line, so that all readers agree on their values (RFC 9110, section 5.3)."""
        joined = dict[bytes, bytes]()
        for name, value in self.headers:
            if name in joined and (name in _SINGLE_HEADERS or name.startswith(_OWN_HEADER_PREFIX)):
                self._refusal = BadRequest(f"the header {name.decode('latin-1')} comes twice", remedy="send it once")
                raise self._refusal
            joined[name] = b"%s, %s" % (joined[name], value) if name in joined else value
        self.headers[:] = joined.items()

    def _announces_body(self) -> bool:
        headers = dict(self.headers)
        return b"transfer-encoding" in headers or headers.get(b"content-length", b"0").strip(b"0") != b""

    def _turn_away(self, answer: bytes, cost: int) -> None:
        """Answer at once, discard the rest of the request, and hold the connection's next request."""
        self._is_turned_away = self._is_held = True
        self._in_headers, self._body_bytes = False, 0
        self._is_keep_alive = self.parser.should_keep_alive()
        self._deadline = self.loop.time() + _LINGER_SECONDS
        self.transport.write(answer)
        self.flow.pause_reading()
        assert self._rate_limit is not None
        self._rate_limit.hold(self, cost)

    def read_on(self) -> None:
        """Resume reading after a request was turned away."""
        self._is_reading_paused = self._is_held = self.flow.write_paused  # who takes no answers is not read either
        if not self.transport.is_closing() and not self._is_reading_paused and self._queue_request():
            self.flow.resume_reading()

    def on_body(self, body: bytes) -> None:
        """Pass a chunk of the body on, or discard it if the upload was turned away."""
        self._missing_bytes = max(0, self._missing_bytes - len(body))
        if self._is_turned_away:
            self._body_bytes += len(body)
            if self._body_bytes > _LINGER_BYTES:
                self.drop()
            return
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the request is complete, so that the peer has no deadline until the answer is written."""
        self._in_headers, self._parsed_bytes = True, 0
        if self._is_turned_away:
            self._is_turned_away, self._deadline = False, self.loop.time() + _HEADER_SECONDS
            if not self._is_keep_alive:
                self.transport.close()
            return
        super().on_message_complete()
        self._start_pending()
        if self.cycle.response_complete:
            self._deadline = self.loop.time() + _IDLE_SECONDS
        else:
            self._deadline = math.inf
            self._connections.move(self, ConnectionStage.WORKING)

    def on_response_complete(self) -> None:
        """Set the deadline for taking the answer and sending the next request."""
        # Uvicorn would start a timer for each answer, which the table of connections does without.
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self._queue_request():
            self.flow.resume_reading()
        seconds = _IDLE_SECONDS if self._in_headers else _LINGER_SECONDS
        self._deadline = self.loop.time() + seconds + self.transport.get_write_buffer_size() / _BYTES_PER_SECOND
        self._connections.move(self, ConnectionStage.WAITING)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start the task of a request, or answer it without a task if it is completely received."""
        self._current_cycle = cycle
        if cycle.more_body:
            self._pending_app = app  # the rest may come with the same data
        elif self.flow.write_paused or not self._answer_at_once(cycle.scope, cycle.body, self._write):
            super()._start_asgi_task(cycle, partial(self._run_app, cycle, app))

    async def _run_app(self, cycle: RequestResponseCycle, app: Any, *asgi: Any) -> None:
        """Run the application on a request; a cancellation by the stopping process is not logged as a defect."""
        try:
            await app(*asgi)
        except asyncio.CancelledError:
            cycle.disconnected = True
            self.drop()

    def _start_pending(self) -> None:
        """Start the task of the pending request, if there is one."""
        if self._pending_app is not None:
            app, self._pending_app = self._pending_app, None
            if self._current_cycle.more_body:
                super()._start_asgi_task(self._current_cycle, partial(self._run_app, self._current_cycle, app))
            else:
                self._start_asgi_task(self._current_cycle, app)

    async def _wait_for_turn(self) -> None:
        await self._connections.requests.wait_for_turn(self.sender)

    def _write_whole(self, answer: HttpAnswer) -> bool:
        """Answer the current request in a single write; False if the peer is too slow for that."""
        if self.flow.write_paused:
            return False
        self._write(answer)
        return True

    def _write(self, answer: HttpAnswer) -> None:
        """Write the whole answer to the current request, and close the connection if it is not kept alive."""
        cycle = self._current_cycle
        # Uvicorn notes the loss of a closing connection only later.
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
        """Set the deadline of a peer that takes its answer too slowly."""
        super().pause_writing()
        unread = self.transport.get_write_buffer_size()
        self._write_deadline = self.loop.time() + _BODY_SECONDS + unread / _BYTES_PER_SECOND
        self._connections.note_slow(self, unread)

    def resume_writing(self) -> None:
        """Clear the deadline, since the peer has taken its answer."""
        super().resume_writing()
        self._write_deadline = math.inf
        self._connections.note_drained(self)
        if self._is_reading_paused:
            self.read_on()
        elif self._queue_request():
            self.flow.resume_reading()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn passes what is wrong, for its log
        """Answer an invalid request with a problem document, or close the connection in the middle of an answer."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.drop()
            return
        body = problem_body(self._refusal)
        head = (f"content-type: {MEDIA_TYPE}", f"content-length: {len(body)}", "connection: close", "", "")
        self.transport.write(STATUS_LINE[self._refusal.status] + "\r\n".join(head).encode() + body)
        # Further data are discarded until the peer closes: closing at once could destroy the answer on its way.
        self._is_refused, self._parsed_bytes = True, 0
        self._deadline = self.loop.time() + _LINGER_SECONDS
        self._connections.move(self, ConnectionStage.WAITING)
        self.flow.resume_reading()
        self.transport.write_eof()

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing, since untrusted peers must not fill the log."""

    def _count_header_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)


def _headers_too_large_error() -> HeadersTooLarge:
    detail = f"the headers have more than {HEADER_BYTES_MAX} bytes"
    return HeadersTooLarge(detail, remedy="send fewer or shorter headers")
