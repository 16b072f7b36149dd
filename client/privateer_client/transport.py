"""HTTP requests whose answers are bounded in bytes and in time, whatever the server does."""

import asyncio
import ssl
from asyncio import sleep as async_sleep
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, cached_property
from http.cookiejar import CookieJar, DefaultCookiePolicy
from socket import SHUT_RDWR, socket
from threading import Timer
from time import sleep
from typing import Any, Final, Self, TypeVar

import httpx

from privateer_client.delivery import PROBLEM_BYTES, Ask, EndpointAnswer, Silence, Sleep, Steps
from privateer_core.wire.identity import SIGNED_HEADER
from privateer_core.wire.publication import ASKS_HEADER

_RETRY_MOST: Final = 3600.0
_IDENTITY: Final = "identity"
_CONNECTING: Final = 0.4
"""Share of a request's time that TCP and TLS may each take; a handshake that times out also closes its connection."""
_Result = TypeVar("_Result")


def _options() -> dict[str, Any]:
    # No cookies, and a new connection for each request: either would tie the report to the fetch.
    return {
        "cookies": CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),
        "limits": httpx.Limits(max_keepalive_connections=0),
        "follow_redirects": False,
        "verify": _public_authorities(),
    }


@cache
def _public_authorities() -> ssl.SSLContext:
    """Return the authorities that certificates may be from: all clients share them, since to read them takes long."""
    return httpx.create_ssl_context()


class _Unwelcome(Exception):
    """An answer that is too large, or in a form that was not asked for."""


class Exchange:
    """Carries out steps over a blocking transport."""

    def __init__(self, transport: httpx.BaseTransport | None = None) -> None:
        self._transport = transport

    @cached_property
    def _http(self) -> httpx.Client:
        return httpx.Client(transport=self._transport, **_options())

    def run(self, steps: Steps[_Result]) -> _Result:
        """Carry out all steps and return their result."""
        answer: EndpointAnswer | None = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if isinstance(step, Sleep):
                sleep(step.seconds)
            answer = None if isinstance(step, Sleep) else self._answer(step)

    def _answer(self, ask: Ask) -> EndpointAnswer:
        body = bytearray()
        with _Watchdog(ask.timeout) as watchdog:
            try:
                with self._http.stream(**_request(ask), extensions={"trace": watchdog.watch}) as response:
                    most = _most(response, ask)
                    for chunk in response.iter_bytes():
                        _grow(body, chunk, most)
            except (httpx.RequestError, _Unwelcome) as error:
                return _silent(Silence.LATE if watchdog.barked else _why(error))
            return _silent(Silence.LATE) if watchdog.barked else _made(response, body)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


class AsyncExchange:
    """Carries out steps over an asyncio transport."""

    def __init__(self, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._transport = transport

    @cached_property
    def _http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=self._transport, **_options())

    async def run(self, steps: Steps[_Result]) -> _Result:
        """Carry out all steps and return their result."""
        answer: EndpointAnswer | None = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if isinstance(step, Sleep):
                await async_sleep(step.seconds)
            answer = None if isinstance(step, Sleep) else await self._answer(step)

    async def _answer(self, ask: Ask) -> EndpointAnswer:
        body = bytearray()
        try:
            async with asyncio.timeout(ask.timeout), self._http.stream(**_request(ask)) as response:
                most = _most(response, ask)
                async for chunk in response.aiter_bytes():
                    _grow(body, chunk, most)
        except (httpx.RequestError, _Unwelcome, TimeoutError) as error:
            return _silent(_why(error))
        return _made(response, body)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


class _Watchdog:
    """Breaks a blocking request off when its time is over."""

    # A blocking transport bounds each read alone, so a server that sends a byte now and then would hold it for ever.

    def __init__(self, seconds: float) -> None:
        self.barked = False
        self._connection: socket | None = None
        self._timer = Timer(seconds, self._bark)
        self._timer.daemon = True

    def watch(self, event: str, info: Mapping[str, Any]) -> None:
        """Take note of a connection."""
        if event.endswith(".connect_tcp.complete"):
            # TLS takes the socket itself over, so this keeps a copy.
            self._connection = info["return_value"].get_extra_info("socket").dup()
            if self.barked:
                self._break_off()

    def _bark(self) -> None:
        self.barked = True
        self._break_off()

    def _break_off(self) -> None:
        connection = self._connection
        with suppress(OSError):  # the server was faster
            if connection is not None:
                connection.shutdown(SHUT_RDWR)

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        if self._connection is not None:
            self._connection.close()


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
