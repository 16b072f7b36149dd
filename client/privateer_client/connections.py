"""HTTP over blocking connections, with answers that are bounded in bytes and in time.

It takes a third of the processor time of a general library, which would be most of a report's time.
"""

import os
import selectors
import ssl
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from socket import socket
from threading import Lock
from time import monotonic
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import certifi
from typing_extensions import override

from privateer_client.delivery import (
    IDENTITY,
    DeliveryRequest,
    EndpointAnswer,
    Silence,
    UnacceptableAnswer,
    append_chunk,
    body_bytes_max,
    make_answer,
)
from privateer_client.watchdog import Watchdog

_CONNECT_SHARE: Final = 0.4
"""Share of a request's time that TCP and TLS may each take; a handshake that times out also closes its connection."""
_IDLE_CONNECTIONS_MAX: Final = 16
"""Idle connections to each service that many participants share."""
_IDLE_SECONDS: Final = 5.0
"""Seconds for which an idle connection is reused."""
_TLS_SCHEME: Final = "https"
_CHUNK: Final = 1 << 16
_Selector: Final = getattr(selectors, "PollSelector", selectors.DefaultSelector)
"""The selector for a single socket: the default selector is for many sockets, and opens a file for each query."""


class _ConnectionRefused(Exception):
    """A connection could not be opened."""


class _WatchedHTTP(HTTPConnection):
    """A connection with a handle by which a watchdog can abort it, also during the TLS handshake."""

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
        """Close the handle, which must outlive `close`, since an answer may end with its connection."""
        if self.handle is not None:
            self.handle.close()


class _WatchedHTTPS(HTTPSConnection, _WatchedHTTP):
    """A watched connection with TLS."""


class _ServiceConnection:
    """A reusable connection to a service."""

    def __init__(self, service: SplitResult) -> None:
        self._connection, self._prefix, self._extra_headers = _make_connection(service)
        self._used_at = 0.0

    def send(self, request: DeliveryRequest, watchdog: Watchdog) -> EndpointAnswer:
        """Send a request, and return its answer or raise an error."""
        self._connect(request.timeout, watchdog)
        self._connection.sock.settimeout(request.timeout)
        url = urlsplit(request.url)
        target = self._prefix + (url.path or "/") + (f"?{url.query}" if url.query else "")
        self._connection.request(
            request.method, target, request.body, request.headers | self._extra_headers | {"Accept-Encoding": IDENTITY}
        )
        with self._connection.getresponse() as response:
            answer = _read_answer(response, request)
        self._used_at = monotonic()
        return answer

    def _connect(self, seconds: float, watchdog: Watchdog) -> None:
        """Open the connection if necessary, and set its watchdog."""
        connection = self._connection
        if connection.sock is not None and (monotonic() - self._used_at > _IDLE_SECONDS or _has_ended(connection.sock)):
            connection.close()
        connection.watchdog = watchdog
        if connection.sock is not None and connection.handle is not None:
            watchdog.watch(connection.handle)
            return
        connection.timeout = _CONNECT_SHARE * seconds
        try:
            connection.connect()
        except TimeoutError:
            raise
        except (OSError, HTTPException) as error:
            raise _ConnectionRefused from error

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
        self._connection.release()


class ServiceConnections:
    """Connections to services: by default a new connection for each request, since reuse would link requests."""

    def __init__(self) -> None:
        self._lock, self._idle = Lock(), defaultdict[str, list[_ServiceConnection]](list)
        self._process, self._max_idle = os.getpid(), 0

    def keep_open(self) -> None:
        """Keep connections open from now on, since many participants share them, so that they link no requests."""
        self._max_idle = _IDLE_CONNECTIONS_MAX

    def send(self, request: DeliveryRequest) -> EndpointAnswer:
        """Send a request, and return the answer; of status 0 if there is no usable answer."""
        with Watchdog(request.timeout) as watchdog:
            try:
                with self._lend_connection(urlsplit(request.url)) as connection:
                    answer = connection.send(request, watchdog)
            except _ConnectionRefused:
                answer = EndpointAnswer(0, silence=Silence.CLOSED)
            except TimeoutError:
                answer = EndpointAnswer(0, silence=Silence.LATE)
            except (OSError, HTTPException, UnacceptableAnswer):
                answer = EndpointAnswer(0, silence=Silence.NONSENSE)
        return EndpointAnswer(0, silence=Silence.LATE) if watchdog.has_expired else answer

    @contextmanager
    def _lend_connection(self, service: SplitResult) -> Iterator[_ServiceConnection]:
        """Lend a connection to one thread; after an error it is closed."""
        connection = self._take_idle(service.netloc) or _ServiceConnection(service)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        with self._lock:
            if len(self._idle[service.netloc]) < self._max_idle:
                self._idle[service.netloc].append(connection)
                return
        connection.close()

    def _take_idle(self, service: str) -> _ServiceConnection | None:
        """Take an idle connection to a service, or None; after a fork none of the parent process is used."""
        with self._lock:
            if self._process != os.getpid():  # what was open belongs to the process that this one was forked from
                self._inherited, self._process = dict(self._idle), os.getpid()
                self._idle.clear()
            return self._idle[service].pop() if self._idle[service] else None

    def close(self) -> None:
        """Close all idle connections."""
        with self._lock:
            connections = [connection for idle in self._idle.values() for connection in idle]
            self._idle.clear()
        for connection in connections:
            connection.close()


def _make_connection(service: SplitResult) -> tuple[_WatchedHTTP, str, dict[str, str]]:
    """Return an unopened connection, the prefix of request targets, and further headers."""
    proxy = _find_proxy(service)
    host_url, is_secret = proxy or service, service.scheme == _TLS_SCHEME
    host, port = host_url.hostname or "", host_url.port
    connection = _WatchedHTTPS(host, port, context=_public_authorities()) if is_secret else _WatchedHTTP(host, port)
    if proxy is None:
        return connection, "", {}
    credentials = f"{unquote(proxy.username or '')}:{unquote(proxy.password or '')}".encode()
    extra_headers = {"Proxy-Authorization": f"Basic {b64encode(credentials).decode()}"} if proxy.username else {}
    if is_secret:
        connection.set_tunnel(service.hostname or "", service.port, extra_headers)
        return connection, "", {}
    return connection, f"{service.scheme}://{service.netloc}", extra_headers


def _find_proxy(service: SplitResult) -> SplitResult | None:
    """Return the proxy in the environment for a service; None if there is none."""
    proxies = getproxies()
    proxy_url = proxies.get(service.scheme) or proxies.get("all")
    if not proxy_url or proxy_bypass(service.netloc):
        return None
    return urlsplit(proxy_url if "//" in proxy_url else f"//{proxy_url}")


@cache
def _public_authorities() -> ssl.SSLContext:
    """Return the TLS context with the trusted authorities, which all clients share, since loading is slow.

    As for curl and httpx, ``SSL_CERT_FILE`` or else ``SSL_CERT_DIR`` may name them.
    """
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file or not folder:
        return ssl.create_default_context(cafile=file or certifi.where())
    return ssl.create_default_context(capath=folder)


def _has_ended(connection: socket) -> bool:
    """Whether an idle connection has input, because the service has closed it or sent unrequested data."""
    with _Selector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        return bool(selector.select(0))


def _read_answer(response: HTTPResponse, request: DeliveryRequest) -> EndpointAnswer:
    """Read an answer up to its size limit; raise `UnacceptableAnswer` beyond it, or if it is cut short."""
    max_bytes = body_bytes_max(request, response.status, response.getheader("content-encoding", IDENTITY))
    body = bytearray()
    while chunk := response.read1(_CHUNK):
        append_chunk(body, chunk, max_bytes)
    if response.length:
        raise UnacceptableAnswer  # it ended before its end
    return make_answer(response.status, body, response.headers)
