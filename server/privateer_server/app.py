"""The server as an ASGI application and as a process."""

import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from types import FrameType
from typing import Final

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from privateer.clock import Clock, SystemClock
from privateer.errors import SpecError
from privateer_server.api.backup import backup_router
from privateer_server.api.doors import batches_door, reports_door
from privateer_server.api.experiments import experiments_router
from privateer_server.api.operations import operations_router
from privateer_server.api.problems import FaultGuard, answer_problems
from privateer_server.data import open_data
from privateer_server.deadlines import Deadlines
from privateer_server.faults import log_to_stderr
from privateer_server.intake import Intake
from privateer_server.keys import TrustedShufflers
from privateer_server.metrics import Metrics
from privateer_server.settings import Settings, read_settings
from privateer_server.upkeep import Upkeep

_BACKLOG: Final = 2048
_SHUTDOWN_SECONDS: Final = 2
"""How long open requests (long polls above all) may delay a stop."""
_USAGE: Final = 2


class Server:
    """The ASGI application: two doors for reports, and control routes for everything else.

    Attributes
    ----------
    end_waits
        Answers all long polls, before a stop.
    """

    def __init__(self, doors: dict[str, ASGIApp], control: ASGIApp, end_waits: Callable[[], None]) -> None:
        self._doors, self._control, self.end_waits = doors, control, end_waits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or run the lifespan."""
        app = self._doors.get(scope["path"], self._control) if scope["type"] == "http" else self._control
        await app(scope, receive, send)


def create_app(settings: Settings, clock: Clock | None = None) -> Server:
    """The server on a data directory, which it holds until its lifespan ends; ``clock`` tells when rounds are due.

    Raises
    ------
    SpecError
        If the directory cannot be used.
    """
    metrics, clock = Metrics(), clock or SystemClock()
    held = open_data(settings, clock)
    experiments, store = held.experiments, held.store
    intake = Intake(experiments, store, held.keys, held.closer, metrics, clock)
    tasks = (intake, Deadlines(experiments, intake, clock), Upkeep(store, held.keys))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        for task in tasks:
            task.start()
        yield
        for task in reversed(tasks):
            await task.stop()
        held.close()

    control = FastAPI(
        title="Privateer server", lifespan=lifespan, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    control.add_middleware(FaultGuard)
    answer_problems(control)
    control.include_router(operations_router(intake, experiments, store, metrics))
    control.include_router(backup_router(store, settings.token_digest))
    control.include_router(experiments_router(experiments, store, settings.token_digest))
    shufflers = TrustedShufflers(settings.shuffler_keys)
    doors: dict[str, ASGIApp] = {
        "/reports": FaultGuard(reports_door(intake, metrics, settings.report_bytes_max)),
        "/batches": FaultGuard(batches_door(intake, metrics, settings.batch_bytes_max, shufflers)),
    }
    return Server(doors, control, experiments.end_waits)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the server until it is told to stop; exit code 2 and one line if it cannot start."""
    prepare_process()
    try:
        settings = read_settings(os.environ, sys.argv[1:] if arguments is None else arguments)
        app = create_app(settings)
        listener = _listen(settings)
    except SpecError as error:
        print(f"privateer-server: {error}", file=sys.stderr)
        sys.exit(_USAGE)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        lifespan="on",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        log_config=None,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    _Process(config, app).run(sockets=[listener])


def prepare_process() -> None:
    """Files of this process are its user's alone, and its log shows no values."""
    os.umask(0o077)
    log_to_stderr()


class _Process(uvicorn.Server):
    """Ends long polls when told to stop, so that the stop need not wait for them."""

    def __init__(self, config: uvicorn.Config, app: Server) -> None:
        super().__init__(config)
        self._app = app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note the signal."""
        self._app.end_waits()
        super().handle_exit(sig, frame)


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        raise SpecError(
            f"cannot listen on {where}: {error.strerror}", field="PRIVATEER_PORT", remedy="choose another"
        ) from None
