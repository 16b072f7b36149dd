"""The process of a service: its two listeners, and its background tasks."""

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FrameType
from typing import Any, Final, NamedTuple, cast

import uvicorn

from privateer_core.errors import PrivateerError, SpecError
from privateer_core.serving.connections import Connections
from privateer_core.serving.http_protocol import GuardedProtocol
from privateer_core.serving.logs import BUILD, log_event, log_to_stderr
from privateer_core.serving.rate_limit import RateLimit
from privateer_core.serving.settings import is_json_log

_CANCEL_RETRY_SECONDS: Final = 0.1
_log = logging.getLogger(__name__)
_SHUTDOWN_SECONDS: Final = 2
"""Time for open requests when the service stops."""
_PUBLIC_CONNECTIONS_MAX: Final = 8192
"""Connections of the public listener, whose headers take up to 128 MiB."""
_PRIVATE_CONNECTIONS_MAX: Final = 1024
_BACKUP_BYTES_MAX: Final = 1 << 40
"""Bytes that may be buffered for operators who fetch a whole database."""
_BACKLOG: Final = 1024
_GC_THRESHOLD: Final = 20_000
"""New objects after which Python's garbage collector runs. Requests leave no cycles, but hundreds of pending requests
have so many objects that with the default it took an eighth of the server's processor time."""
_USAGE_EXIT_CODE: Final = 2
_OWNER_ONLY_UMASK: Final = 0o077


class Background:
    """Tasks that run until they are done or the service stops."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        # whether a task ended with an exception, which is a defect: the service is no longer healthy
        self.failed = False

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` as a task."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish)
        return task

    async def stop(self) -> None:
        """Cancel all tasks and wait for them to end."""
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            # Python 3.11's wait_for loses a cancellation that arrives together with the awaited result.
            await asyncio.wait(self._tasks, timeout=_CANCEL_RETRY_SECONDS)

    def _finish(self, task: asyncio.Task[None]) -> None:
        """Forget a task that has ended; log and note an exception, which is a defect."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failed = True
            _log.error("a background task ended with %s; restart the service", type(error).__name__, exc_info=error)


class Listener(NamedTuple):
    """An ASGI application, its socket, and the rate limit before it."""

    app: Any
    socket: socket.socket
    rate_limit: RateLimit | None = None


class ServiceListeners(NamedTuple):
    """The two listeners of a service."""

    # public, private: the two listeners. The lifespan is that of the public application.
    public: Listener
    private: Listener
    data: str  # location of the service's data, for the log
    # called when a signal stops the process, before it waits for open requests
    on_stop: Callable[[], None] = lambda: None


def run(name: str, start: Callable[[], ServiceListeners]) -> None:
    """Run a service until a signal stops it. If it cannot start, print why in one line and exit with code 2.

    The start of listening and the stop are logged.

    name: the command's name, such as ``privateer-server``; its events have the logger ``privateer.server``.
    """
    try:
        service = start()
    except (PrivateerError, OSError) as error:
        if is_json_log(os.environ):
            logging.getLogger(name).critical("%s", error)
        else:
            print(f"{name}: {error}", file=sys.stderr)
        sys.exit(_USAGE_EXIT_CODE)
    _serve(service, logging.getLogger(name.replace("-", ".")))


def prepare_process(*extra_loggers: str) -> None:
    """Restrict new files to this user, disable core dumps, which would contain keys, and configure the log.

    Child processes inherit this. ``PRIVATEER_LOG_FORMAT`` sets the form of the log; `run` refuses other words.
    """
    os.umask(_OWNER_ONLY_UMASK)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    log_to_stderr(*extra_loggers, as_json=is_json_log(os.environ))


@contextmanager
def listen(public: tuple[str, int], private: tuple[str, int]) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Listen at two addresses, each a host and a port, and close the sockets if the context raises an exception.

    Data are opened in the context, so that no data are changed if a port is in use.
    """
    with ExitStack() as stack:
        public_socket = stack.enter_context(_listen(*public, "PRIVATEER_PORT"))
        yield public_socket, stack.enter_context(_listen(*private, "PRIVATEER_ADMIN_PORT"))
        stack.pop_all()


def _listen(host: str, port: int, field: str) -> socket.socket:
    """Return a socket that listens on an address; the error of a port in use names the setting."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        reason = str(error.strerror).partition(" (")[0]  # the rest repeats the address
        raise SpecError(f"cannot listen on {host}:{port}: {reason}", field=field, remedy="choose another") from None


def _serve(service: ServiceListeners, log: logging.Logger) -> None:
    """Run both listeners in this process until a signal stops it, with connections bounded by open files."""
    n_files = _raise_file_limit()
    # Connections close with a delay, and bursts are accepted at once: hence half of the files.
    public_connections = Connections(min(_PUBLIC_CONNECTIONS_MAX, n_files // 2))
    private_connections = Connections(min(_PRIVATE_CONNECTIONS_MAX, n_files // 8), _BACKUP_BYTES_MAX)
    config = _make_config(service.public.app, "on", public_connections, service.public.rate_limit)
    private_server = uvicorn.Server(_make_config(service.private.app, "off", private_connections))
    gc.set_threshold(_GC_THRESHOLD)
    _ServiceProcess(config, private_server, service, log).run(sockets=[service.public.socket])


def _raise_file_limit() -> int:
    """Raise the process's limit of open files as far as possible, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = max(soft, 4 * _PUBLIC_CONNECTIONS_MAX)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _make_config(
    app: Any, lifespan: Any, connections: Connections, rate_limit: RateLimit | None = None
) -> uvicorn.Config:
    # No access log, no date header, no forwarded addresses: no time of a request is stored with its sender. Uvicorn
    # would also warn about invalid requests.
    """Return the configuration of uvicorn for a listener with guarded connections."""
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=cast(Any, partial(GuardedProtocol, connections, rate_limit)),
        ws="none",
        lifespan=lifespan,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        log_config=None,
        log_level="error",
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )


class _ServiceProcess(uvicorn.Server):
    """The server of the public listener, which also starts and stops the server of the private listener."""

    def __init__(
        self, config: uvicorn.Config, private_server: uvicorn.Server, service: ServiceListeners, log: logging.Logger
    ) -> None:
        super().__init__(config)
        self._private_server, self._service, self._log, self._signal = private_server, service, log, ""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application and listen."""
        await super().startup(sockets)
        self._private_server.config.load()
        self._private_server.lifespan = self._private_server.config.lifespan_class(self._private_server.config)
        await self._private_server.startup([self._service.private.socket])
        public, private = map(_format_address, (self._service.public.socket, self._service.private.socket))
        log_event(self._log, "started", version=str(BUILD), data=self._service.data, public=public, private=private)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, answer open requests, and stop the application."""
        for server in self.servers:
            server.close()
        await self._private_server.shutdown([self._service.private.socket])
        await super().shutdown(sockets)
        log_event(self._log, "stopped", signal=self._signal)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Announce the stop, then handle the signal as uvicorn does."""
        self._signal = signal.Signals(sig).name
        self._service.on_stop()
        super().handle_exit(sig, frame)


def _format_address(listener: socket.socket) -> str:
    host, port, *_ = listener.getsockname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
