"""HTTP requests whose answers are bounded in bytes and in time, whatever the server does."""

import ssl
from asyncio import ensure_future, get_running_loop, timeout, wait
from asyncio import sleep as async_sleep
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, cached_property, partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from socket import SHUT_RDWR, socket
from threading import Lock, Timer
from time import monotonic, sleep
from typing import Any, Final, NamedTuple, Self, TypeVar
from urllib.parse import urlsplit

import httpx

from privateer_client.delivery import PROBLEM_BYTES, Ask, EndpointAnswer, Silence, Sleep, Steps
from privateer_client.in_time import AwaitedResult
from privateer_core.wire.identity import SIGNED_HEADER
from privateer_core.wire.publication import ASKS_HEADER

_RETRY_MOST: Final = 3600.0
_IDENTITY: Final = "identity"
_CONNECTING: Final = 0.4
"""Share of a request's time that TCP and TLS may each take; a handshake that times out also closes its connection."""
_KEPT: Final = 16
"""Connections to each service that many people share."""
_THREADS: Final = 2
"""Threads beside an event loop: they wait for the disk, and with more of them the loop waits for its turn."""
_WAITING: Final = 32
"""Threads beside an event loop that wait for answers: as many requests are on their way at a time."""
_Result = TypeVar("_Result")


def _options(kept: int) -> dict[str, Any]:
    # No cookies, and a new connection for each request of one person: either would tie the report to the fetch.
    return {
        "cookies": CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),
        "limits": httpx.Limits(max_keepalive_connections=kept),
        "follow_redirects": False,
        "verify": _public_authorities(),
    }


@cache
def _public_authorities() -> ssl.SSLContext:
    """Return the authorities that certificates may be from: all clients share them, since to read them takes long."""
    return httpx.create_ssl_context()


class _Unwelcome(Exception):
    """An answer that is too large, or in a form that was not asked for."""


class _Line:
    """Connections for one request at a time, so that it is known which one to break off."""

    def __init__(self, transport: httpx.BaseTransport | None, kept: int) -> None:
        self.http = httpx.Client(transport=transport, **_options(kept))
        self.connection: socket | None = None

    def connected(self, connection: socket | None) -> None:
        """Take note of a connection, and let go of the one before."""
        if self.connection is not None:
            self.connection.close()
        self.connection = connection

    def close(self) -> None:
        """Close the connections."""
        self.connected(None)
        self.http.close()


class Exchange:
    """Carries out steps over a blocking transport."""

    def __init__(self, transport: httpx.BaseTransport | None = None) -> None:
        self._transport, self._keeps = transport, 0
        self._lock, self._idle = Lock(), defaultdict[str, list[_Line]](list)

    def share(self) -> None:
        """Keep connections open from now on: they are many people's, and tie nothing together."""
        self._keeps = 1

    def run(self, steps: Steps[_Result]) -> _Result:
        """Carry out all steps and return their result."""
        answer: EndpointAnswer | None = None
        while True:
            step = _advance(steps, answer)
            if isinstance(step, _End):
                return step.result  # type: ignore[no-any-return]
            if isinstance(step, Sleep):
                sleep(step.seconds)
            answer = None if isinstance(step, Sleep) else self.answer(step)

    def answer(self, ask: Ask) -> EndpointAnswer:
        """Return the answer to one request."""
        body = bytearray()
        with self._line(urlsplit(ask.url).netloc) as line, _Watchdog(ask.timeout, line) as watchdog:
            try:
                with line.http.stream(**_request(ask), extensions={"trace": watchdog.watch}) as response:
                    most = _most(response, ask)
                    for chunk in response.iter_bytes():
                        _grow(body, chunk, most)
            except (httpx.RequestError, _Unwelcome) as error:
                return _silent(Silence.LATE if watchdog.barked else _why(error))
            return _silent(Silence.LATE) if watchdog.barked else _made(response, body)

    @contextmanager
    def _line(self, service: str) -> Iterator[_Line]:
        with self._lock:
            idle = self._idle[service]
            line = idle.pop() if idle else None
        line = line or _Line(self._transport, self._keeps)
        try:
            yield line
        finally:
            if not self._keeps:
                line.connected(None)
            with self._lock:
                is_kept = len(self._idle[service]) < _KEPT
                if is_kept:
                    self._idle[service].append(line)
            if not is_kept:
                line.close()

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            lines = [line for idle in self._idle.values() for line in idle]
            self._idle.clear()
        for line in lines:
            line.close()


class AsyncExchange:
    """Carries out steps beside the event loop.

    transport: what requests go over; by default over blocking connections in threads, which takes a quarter of the
    processor time.
    """

    def __init__(self, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._transport, self._blocking = transport, Exchange()

    def share(self) -> None:
        """Keep connections open from now on: they are many people's, and tie nothing together."""
        self._blocking.share()

    @cached_property
    def _http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=self._transport, **_options(0))

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_THREADS, "privateer-client")

    @cached_property
    def _waiting_threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_WAITING, "privateer-client-asks")

    async def run(self, steps: Steps[_Result]) -> _Result:
        """Carry out all steps and return their result."""
        answer: EndpointAnswer | None = None
        while True:
            step = await self.beside(_advance, steps, answer)
            if isinstance(step, _End):
                return step.result  # type: ignore[no-any-return]
            if isinstance(step, Sleep):
                await async_sleep(step.seconds)
            answer = None if isinstance(step, Sleep) else await self._answer(step)

    async def beside(self, call: Callable[..., _Result], *arguments: Any, **options: Any) -> _Result:
        """Call in a thread, so that the event loop goes on."""
        return await get_running_loop().run_in_executor(self._threads, partial(call, *arguments, **options))

    async def beside_in_time(self, call: Callable[..., _Result], end: float) -> _Result | None:
        """Call in a thread, and return None if it has not ended, nor begun what lasts, by ``end``."""
        promise = AwaitedResult()
        result = ensure_future(self.beside(call, is_awaited=promise.is_awaited))
        await wait({result}, timeout=max(0.0, end - monotonic()))
        if not result.done() and promise.give_up():
            result.add_done_callback(lambda done: done.cancelled() or done.exception())
            return None
        return await result

    async def _answer(self, ask: Ask) -> EndpointAnswer:
        if self._transport is None:
            return await get_running_loop().run_in_executor(self._waiting_threads, self._blocking.answer, ask)
        body = bytearray()
        try:
            async with timeout(ask.timeout), self._http.stream(**_request(ask)) as response:
                most = _most(response, ask)
                async for chunk in response.aiter_bytes():
                    _grow(body, chunk, most)
        except (httpx.RequestError, _Unwelcome, TimeoutError) as error:
            return _silent(_why(error))
        return _made(response, body)

    async def close(self) -> None:
        """Close the connections."""
        if "_http" in self.__dict__:
            await self._http.aclose()
        for name in ("_threads", "_waiting_threads"):
            if name in self.__dict__:
                self.__dict__[name].shutdown(wait=False)
        self._blocking.close()


class _End(NamedTuple):
    """The result of steps."""

    result: Any


def _advance(steps: Steps[Any], answer: EndpointAnswer | None) -> "Ask | Sleep | _End":
    try:
        return steps.send(answer)
    except StopIteration as end:
        return _End(end.value)


class _Watchdog:
    """Breaks a blocking request off when its time is over."""

    # A blocking transport bounds each read alone, so a server that sends a byte now and then would hold it for ever.

    def __init__(self, seconds: float, line: _Line) -> None:
        self.barked = False
        self._line = line
        self._timer = Timer(seconds, self._bark)
        self._timer.daemon = True

    def watch(self, event: str, info: Mapping[str, Any]) -> None:
        """Take note of a connection."""
        if event.endswith(".connect_tcp.complete"):
            # TLS takes the socket itself over, so this keeps a copy.
            self._line.connected(info["return_value"].get_extra_info("socket").dup())
            if self.barked:
                self._break_off()

    def _bark(self) -> None:
        self.barked = True
        self._break_off()

    def _break_off(self) -> None:
        connection = self._line.connection
        with suppress(OSError):  # the server was faster
            if connection is not None:
                connection.shutdown(SHUT_RDWR)

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()


def _request(ask: Ask) -> dict[str, Any]:
    return {
        "method": ask.method,
        "url": ask.url,
        "content": ask.body,
        "headers": ask.headers | {"Accept-Encoding": _IDENTITY},
        "timeout": httpx.Timeout(ask.timeout, connect=_CONNECTING * ask.timeout),
    }


def _why(error: Exception) -> Silence:
    if isinstance(error, httpx.TimeoutException | TimeoutError):
        return Silence.LATE
    return Silence.CLOSED if isinstance(error, httpx.ConnectError) else Silence.NONSENSE


def _silent(why: Silence) -> EndpointAnswer:
    return EndpointAnswer(0, silence=why)


def _most(response: httpx.Response, ask: Ask) -> int:
    """Return how many bytes the body may have, before anything of it is read or unpacked."""
    if response.headers.get("content-encoding", _IDENTITY).strip().lower() != _IDENTITY:
        raise _Unwelcome
    return ask.most if response.is_success else PROBLEM_BYTES


def _grow(body: bytearray, chunk: bytes, most: int) -> None:
    if len(body) + len(chunk) > most:
        raise _Unwelcome
    body += chunk


def _made(response: httpx.Response, body: bytearray) -> EndpointAnswer:
    headers = response.headers
    wait, asks, signed = headers.get("retry-after", ""), headers.get(ASKS_HEADER, ""), headers.get(SIGNED_HEADER, "")
    return EndpointAnswer(response.status_code, bytes(body), retry_seconds(wait), asks, signed)


def retry_seconds(retry_after: str) -> float:
    """Parse a ``Retry-After``, an hour at most; a date counts as 0 seconds, since clocks differ."""
    digits = retry_after.strip()
    if not (digits.isascii() and digits.isdecimal()):
        return 0.0
    return min(_RETRY_MOST, float(digits))
