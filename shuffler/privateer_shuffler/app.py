"""The shuffler as a web service."""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from privateer.errors import PrivateerError, Unavailable
from privateer.serving.budget import Budget
from privateer.serving.process import Listener, listen, serve
from privateer.serving.public import PublicPages
from privateer.wire.keys import TrustedKeys, public_hex, publish_key
from privateer_shuffler import problems
from privateer_shuffler.endpoint import Endpoint
from privateer_shuffler.folder import Folder
from privateer_shuffler.forwarding import Forwarding
from privateer_shuffler.identity import load_key
from privateer_shuffler.logs import start_logging
from privateer_shuffler.metrics import Metrics
from privateer_shuffler.rounds import Rounds
from privateer_shuffler.settings import Settings, read_settings
from privateer_shuffler.terms import Terms
from privateer_shuffler.upstream import Upstream

_UMASK: Final = 0o077


class Service:
    """The pages that are not for reports."""

    def __init__(self, folder: Path, public_key: str, rounds: Rounds, upstream: Upstream, metrics: Metrics) -> None:
        self._folder = folder
        self._public_key = public_key
        self._rounds = rounds
        self._upstream = upstream
        self._metrics = metrics

    async def experiment(self, request: Request) -> Response:
        """The open round of an experiment, and nothing that a single report changes before the batch is full."""
        followed = await self._rounds.find(request.path_params["name"])
        round_, pool = followed.round, followed.pool
        return JSONResponse(
            {
                "experiment": round_.experiment,
                "version": round_.version,
                "model": round_.model,
                "batch": round_.batch,
                "open": pool is not None and not pool.full,
            }
        )

    async def keys(self, _: Request) -> Response:
        """The public key that batches are signed with."""
        return JSONResponse({"public_key": self._public_key})

    async def healthz(self, _: Request) -> Response:
        """Whether the process answers."""
        return JSONResponse({"status": "ok"})

    async def readyz(self, _: Request) -> Response:
        """Whether reports can be stored and forwarded."""
        if not self._rounds.healthy or not await asyncio.to_thread(_writable, self._folder):
            raise Unavailable("the shuffler cannot store reports", remedy="see to its disk, and to its log")
        if not await self._upstream.reachable():
            raise Unavailable("the learning server does not answer", remedy="start it, or check PRIVATEER_SERVER_URL")
        return JSONResponse({"status": "ready"})

    async def metrics(self, _: Request) -> Response:
        """Counts for Prometheus."""
        return Response(self._metrics.page(), media_type=CONTENT_TYPE_LATEST)


def create_app(settings: Settings, transport: httpx.AsyncBaseTransport | None = None) -> Starlette:
    """The shuffler's application.

    Parameters
    ----------
    settings
        What the operator decides.
    transport
        How to reach the server; tests pass one in the same process.

    Raises
    ------
    PrivateerError, OSError
        If the data folder cannot be used.
    """
    folder = Folder(settings.data)
    try:
        return _app_on(folder, settings, transport)
    except (PrivateerError, OSError):
        folder.release()
        raise


def _app_on(folder: Folder, settings: Settings, transport: httpx.AsyncBaseTransport | None) -> Starlette:
    key = load_key(settings.data)
    publish_key(key, settings.public_key_file)
    metrics = Metrics()
    upstream = Upstream(settings.server_url, transport, settings.server_ca)
    forwarding = Forwarding(upstream, key, metrics)
    rounds = Rounds(settings.data, Terms(settings.min_batch), upstream, forwarding, metrics)
    service = Service(settings.data, public_hex(key), rounds, upstream, metrics)
    budget, senders = Budget(settings.body_budget), TrustedKeys(settings.sender_keys)
    endpoint = Endpoint(rounds, metrics, budget, settings.body_limit, senders)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await rounds.start()
        try:
            yield
        finally:
            await rounds.stop()
            await upstream.close()
            folder.release()

    app = Starlette(
        routes=[
            Route("/experiments/{name}/reports", endpoint, methods=["POST"]),
            Route("/experiments/{name}", service.experiment),
            Route("/keys", service.keys),
            Route("/healthz", service.healthz),
            Route("/readyz", service.readyz),
            Route("/metrics", service.metrics),
        ],
        exception_handlers={
            PrivateerError: problems.told,
            HTTPException: problems.from_http,
            Exception: problems.unexpected,
        },
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    return app


def main() -> None:
    """Run the shuffler with the settings of the environment; a bad one is told in one line, with exit code 2."""
    start_logging()
    os.umask(_UMASK)
    try:
        settings = read_settings(os.environ)
        app = create_app(settings)
        pages = PublicPages(app, _is_public)
        public = Listener(pages, listen(settings.host, settings.port, "PRIVATEER_PORT"))
        private = Listener(app, listen(settings.admin_host, settings.admin_port, "PRIVATEER_ADMIN_PORT"))
    except (PrivateerError, OSError) as error:
        print(f"privateer-shuffler: {error}", file=sys.stderr)
        sys.exit(2)
    serve(public, private)


def _is_public(_: str, path: str) -> bool:
    return path != "/metrics"


def _writable(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"0")
            probe.flush()
            os.fsync(probe.fileno())
    except OSError:
        return False
    return True
