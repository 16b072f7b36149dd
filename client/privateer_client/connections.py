"""HTTP over blocking connections of our own: answers are bounded in bytes and in time, whatever the server does.

It takes a third of the processor time that a general library takes, which is most of a report's.
"""

import os
import ssl
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from selectors import EVENT_READ, DefaultSelector
from socket import socket
from threading import Lock
from time import monotonic
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from typing_extensions import override

from privateer_client.delivery import (
    IDENTITY,
    Ask,
    EndpointAnswer,
    Silence,
    Unwelcome,
    answer_of,
    grow,
    most_of,
    silent,
)
from privateer_client.watchdog import Watchdog

_CONNECTING: Final = 0.4
"""Share of a request's time that TCP and TLS may each take; a handshake that times out also closes its connection."""
_KEPT: Final = 16
"""ServiceConnections to each service that many people share."""
_LASTS: Final = 5.0
"""Seconds for which a connection that nobody uses is good."""
_TLS: Final = "https"
_CHUNK: Final = 1 << 16


class _Refused(Exception):
    """There is no connection."""


class _Watched(HTTPConnection):
    """A connection that keeps a handle, by which another thread can break it off, also while TLS is agreed on."""

    handle: socket | None = None
    watchdog: Watchdog | None = None

    @override
    def connect(self) -> None:
        self.release()
        super().connect()
        self.handle = self.sock.dup()  # TLS takes the socket itself over
        if self.watchdog is not None:
            self.watchdog.watch(self.handle)

    def release(self) -> None:
        """Let go of the handle: an answer may still come after `close`, if it ends with its connection."""
        if self.handle is not None:
            self.handle.close()


class _WatchedTLS(HTTPSConnection, _Watched):
    """The same with TLS."""


class _Line:
    """One connection to a service."""

    def __init__(self, service: SplitResult) -> None:
        self._made, self._prefix, self._extra = _connection(service)
        self._used = 0.0

    def ask(self, ask: Ask, watchdog: Watchdog) -> EndpointAnswer:
        """Return the answer to one request; anything wrong with it raises an error."""
        self._connect(ask.timeout, watchdog)
        self._made.sock.settimeout(ask.timeout)
        where = urlsplit(ask.url)
        target = self._prefix + (where.path or "/") + (f"?{where.query}" if where.query else "")
        self._made.request(ask.method, target, ask.body, ask.headers | self._extra | {"Accept-Encoding": IDENTITY})
        with self._made.getresponse() as response:
            answer = _read(response, ask)
        self._used = monotonic()
        return answer

    def _connect(self, seconds: float, watchdog: Watchdog) -> None:
        """Make sure that there is a connection, and that it can be broken off."""
        made = self._made
        if made.sock is not None and (monotonic() - self._used > _LASTS or _has_ended(made.sock)):
            made.close()
        made.watchdog = watchdog
        if made.sock is not None and made.handle is not None:
            watchdog.watch(made.handle)
            return
        made.timeout = _CONNECTING * seconds
        try:
            made.connect()
        except TimeoutError:
            raise
        except (OSError, HTTPException) as error:
            raise _Refused from error

    def close(self) -> None:
        """Close the connection."""
        self._made.close()
        self._made.release()


class ServiceConnections:
    """Connections to services: a new one for each request, since one would tie a person's report to their fetch."""

    def __init__(self) -> None:
        self._lock, self._idle = Lock(), defaultdict[str, list[_Line]](list)
        self._process, self._most = os.getpid(), 0

    def share(self) -> None:
        """Keep connections open from now on: they are many people's, and tie nothing together."""
        self._most = _KEPT

    def answer(self, ask: Ask) -> EndpointAnswer:
        """Return the answer to one request; of status 0 if there is none that can be used."""
        with Watchdog(ask.timeout) as watchdog:
            try:
                with self._line(urlsplit(ask.url)) as line:
                    answer = line.ask(ask, watchdog)
            except _Refused:
                answer = silent(Silence.CLOSED)
            except TimeoutError:
                answer = silent(Silence.LATE)
            except (OSError, HTTPException, Unwelcome):
                answer = silent(Silence.NONSENSE)
        return silent(Silence.LATE) if watchdog.barked else answer

    @contextmanager
    def _line(self, service: SplitResult) -> Iterator[_Line]:
        """Lend a line to one thread; after an error nobody uses it again."""
        line = self._taken(service.netloc) or _Line(service)
        try:
            yield line
        except BaseException:
            line.close()
            raise
        with self._lock:
            if len(self._idle[service.netloc]) < self._most:
                self._idle[service.netloc].append(line)
                return
        line.close()

    def _taken(self, service: str) -> _Line | None:
        with self._lock:
            if self._process != os.getpid():  # what was open belongs to the process that this one was forked from
                self._inherited, self._process = dict(self._idle), os.getpid()
                self._idle.clear()
            return self._idle[service].pop() if self._idle[service] else None

    def close(self) -> None:
        """Close those that nobody uses."""
        with self._lock:
            lines = [line for idle in self._idle.values() for line in idle]
            self._idle.clear()
        for line in lines:
            line.close()


def _connection(service: SplitResult) -> tuple[_Watched, str, dict[str, str]]:
    """Return a connection that is not made yet, what requests put before their path, and their further headers."""
    proxy = _proxy(service)
    first, is_secret = proxy or service, service.scheme == _TLS
    host, port = first.hostname or "", first.port
    made = _WatchedTLS(host, port, context=_public_authorities()) if is_secret else _Watched(host, port)
    if proxy is None:
        return made, "", {}
    known = f"{unquote(proxy.username or '')}:{unquote(proxy.password or '')}".encode()
    extra = {"Proxy-Authorization": f"Basic {b64encode(known).decode()}"} if proxy.username else {}
    if is_secret:
        made.set_tunnel(service.hostname or "", service.port, extra)
        return made, "", {}
    return made, f"{service.scheme}://{service.netloc}", extra


def _proxy(service: SplitResult) -> SplitResult | None:
    """Return the proxy that the environment names for a service."""
    proxies = getproxies()
    named = proxies.get(service.scheme) or proxies.get("all")
    if not named or proxy_bypass(service.netloc):
        return None
    return urlsplit(named if "//" in named else f"//{named}")


@cache
def _public_authorities() -> ssl.SSLContext:
    """Return the authorities that certificates may be from: all clients share them, since to read them takes long."""
    import httpx

    return httpx.create_ssl_context()


def _has_ended(connection: socket) -> bool:
    """Whether the service has closed a connection that nobody uses, or says something that nobody asked for."""
    with DefaultSelector() as selector:
        selector.register(connection, EVENT_READ)
        return bool(selector.select(0))


def _read(response: HTTPResponse, ask: Ask) -> EndpointAnswer:
    """Read an answer, no further than it may go."""
    most = most_of(ask, response.status, response.getheader("content-encoding", IDENTITY))
    body = bytearray()
    while chunk := response.read1(_CHUNK):
        grow(body, chunk, most)
    if response.length:
        raise Unwelcome  # it ended before its end
    return answer_of(response.status, body, response.headers)
