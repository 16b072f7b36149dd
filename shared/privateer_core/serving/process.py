"""Runs a service: its process, its two listeners, and the work that goes on between requests."""

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
from privateer_core.serving.logs import BUILD, log_to_stderr, tell
from privateer_core.serving.rate_limit import RateLimit
from privateer_core.serving.settings import logs_json

_AGAIN_SECONDS: Final = 0.1
_log = logging.getLogger(__name__)
_SHUTDOWN_SECONDS: Final = 2
"""How long open requests may delay a stop."""
_CONNECTIONS_MAX: Final = 8192
"""Of the public listener. The headers of so many connections take some 128 MiB."""
_PRIVATE_MAX: Final = 1024
_BACKUPS: Final = 1 << 40
"""Bytes that may wait for operators who fetch a whole database."""
_BACKLOG: Final = 1024
_OBJECTS: Final = 20_000
"""New objects after which Python looks for cycles among them. Requests leave none behind, but the hundreds that wait
have so many objects that by default it looked all the time: that took an eighth of the server's."""
_USAGE: Final = 2
_OWNER_ONLY: Final = 0o077


class Background:
    """Tasks that run until they are done or the service stops."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        # whether a task let an exception through. That is a defect: the service is not healthy any more.
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
            # Once is not enough: Python 3.11's wait_for forgets a cancellation that comes with what it waits for.
            await asyncio.wait(self._tasks, timeout=_AGAIN_SECONDS)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failed = True
            _log.error("a background task ended with %s; restart the service", type(error).__name__, exc_info=error)


class Listener(NamedTuple):
    """An ASGI application, the socket that it answers at, and what turns uploads away before it."""

    app: Any
    socket: socket.socket
    rate_limit: RateLimit | None = None


class ServiceListeners(NamedTuple):
    """The applications that a process serves."""

    # public, private: the two listeners. The lifespan is that of the public application.
    public: Listener
    private: Listener
    data: str  # where it keeps its data, for the log
    # is called when a signal stops the process, before it waits for open requests
    on_stop: Callable[[], None] = lambda: None


def run(name: str, start: Callable[[], ServiceListeners]) -> None:
    """Run a service until a signal stops it. If it cannot start, print why in one line and exit with code 2.

    The log says when it starts to listen, and when it has stopped.

    name: the command's name, such as ``privateer-server``; its events have the logger ``privateer.server``.
    start: reads the settings, makes the applications and listens.
    """
    try:
        service = start()
    except (PrivateerError, OSError) as error:
        if logs_json(os.environ):
            logging.getLogger(name).critical("%s", error)
        else:
            print(f"{name}: {error}", file=sys.stderr)
        sys.exit(_USAGE)
    _serve(service, logging.getLogger(name.replace("-", ".")))


def prepare_process(*verbose: str) -> None:
    """Keep the files of this process from other users, values out of its log, and its memory, with its keys, off disk.

    Processes that it starts inherit this. ``PRIVATEER_LOG`` says how it logs; `run` refuses other words.
    """
    os.umask(_OWNER_ONLY)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    log_to_stderr(*verbose, as_json=logs_json(os.environ))


@contextmanager
def listen(public: tuple[str, int], private: tuple[str, int]) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Listen at two addresses, each a host and a port, and no more if the context is left by an exception.

    Data are opened in the context, so that a port that is taken touches none.
    """
    with ExitStack() as stack:
        first = stack.enter_context(_listen(*public, "PRIVATEER_PORT"))
        yield first, stack.enter_context(_listen(*private, "PRIVATEER_ADMIN_PORT"))
        stack.pop_all()


def _listen(host: str, port: int, field: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        why = str(error.strerror).partition(" (")[0]  # the rest repeats the address
        raise SpecError(f"cannot listen on {host}:{port}: {why}", field=field, remedy="choose another") from None


def _serve(service: ServiceListeners, log: logging.Logger) -> None:
    files = _open_files()
    # A connection closes some time after it has to go, and a burst is accepted at once: hence half of the files.
    public = Connections(min(_CONNECTIONS_MAX, files // 2))
    private = Connections(min(_PRIVATE_MAX, files // 8), _BACKUPS)
    config = _config(service.public.app, "on", public, service.public.rate_limit)
    beside = uvicorn.Server(_config(service.private.app, "off", private))
    gc.set_threshold(_OBJECTS)
    _Process(config, beside, service, log).run(sockets=[service.public.socket])


def _open_files() -> int:
    """Raise the number of files that the process may have open as far as possible, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = max(soft, 4 * _CONNECTIONS_MAX)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _config(app: Any, lifespan: Any, connections: Connections, rate_limit: RateLimit | None = None) -> uvicorn.Config:
    # No access log, no date header, no forwarded addresses: nothing here notes who sent something when. Uvicorn would
    # also warn about what strangers send.
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


class _Process(uvicorn.Server):
    """The public listener, with the private one beside it while the application runs."""

    def __init__(
        self, config: uvicorn.Config, beside: uvicorn.Server, service: ServiceListeners, log: logging.Logger
    ) -> None:
        super().__init__(config)
        self._beside, self._service, self._log, self._signal = beside, service, log, ""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application and listen."""
        await super().startup(sockets)
        self._beside.config.load()
        self._beside.lifespan = self._beside.config.lifespan_class(self._beside.config)
        await self._beside.startup([self._service.private.socket])
        public, private = (_address(one.socket) for one in (self._service.public, self._service.private))
        tell(self._log, "started", version=str(BUILD), data=self._service.data, public=public, private=private)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, answer open requests, and stop the application."""
        for server in self.servers:
            server.close()
        await self._beside.shutdown([self._service.private.socket])
        await super().shutdown(sockets)
        tell(self._log, "stopped", signal=self._signal)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Announce the stop, then handle the signal as uvicorn does."""
        self._signal = signal.Signals(sig).name
        self._service.on_stop()
        super().handle_exit(sig, frame)


def _address(listener: socket.socket) -> str:
    host, port, *_ = listener.getsockname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
