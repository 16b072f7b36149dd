"""A service as a process with two listeners: a public one, and a private one for operators and other services."""

import resource
import socket
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, Final, NamedTuple, cast

import uvicorn

from privateer.errors import SpecError
from privateer.serving.connections import Connections
from privateer.serving.protocol import GuardedProtocol

_SHUTDOWN_SECONDS: Final = 2
"""How long open requests may delay a stop."""
_CONNECTIONS_MAX: Final = 8192
"""The public listener takes as many as have their headers in some 128 MiB."""
_PRIVATE_MAX: Final = 1024
_BACKLOG: Final = 1024


class Listener(NamedTuple):
    """An ASGI application and the socket that it answers at."""

    app: Any
    socket: socket.socket


def listen(host: str, port: int, field: str) -> socket.socket:
    """A listening socket.

    Raises
    ------
    SpecError
        Naming ``field``, if the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        where = f"{host}:{port}"
        raise SpecError(f"cannot listen on {where}: {error.strerror}", field=field, remedy="choose another") from None


def serve(public: Listener, private: Listener, on_stop: Callable[[], None] = lambda: None) -> None:
    """Run until the process is told to stop.

    Parameters
    ----------
    public, private
        The lifespan is that of the public application.
    on_stop
        Is called when the process is told to stop, before open requests are waited for.
    """
    files = _open_files()
    # A connection is closed some time after it has to go, and a burst is accepted at once: hence half of the files.
    config = _config(public.app, "on", min(_CONNECTIONS_MAX, files // 2))
    beside = uvicorn.Server(_config(private.app, "off", min(_PRIVATE_MAX, files // 8)))
    _Process(config, beside, private.socket, on_stop).run(sockets=[public.socket])


def _open_files() -> int:
    """Files that the process may have open, after raising that number as far as it goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = max(soft, 4 * _CONNECTIONS_MAX)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _config(app: Any, lifespan: Any, connections: int) -> uvicorn.Config:
    # No access log, no date header, no forwarded addresses: nothing here notes who sent something when. Uvicorn's
    # warnings are about what strangers send.
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=cast(Any, partial(GuardedProtocol, Connections(connections))),
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
        self, config: uvicorn.Config, beside: uvicorn.Server, socket: socket.socket, on_stop: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._beside, self._socket, self._on_stop = beside, socket, on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application and listen."""
        await super().startup(sockets)
        self._beside.config.load()
        self._beside.lifespan = self._beside.config.lifespan_class(self._beside.config)
        await self._beside.startup([self._socket])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen no more, answer what is open, and stop the application."""
        for server in self.servers:
            server.close()
        await self._beside.shutdown([self._socket])
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note the signal."""
        self._on_stop()
        super().handle_exit(sig, frame)
