"""The issuer as a web service."""

import asyncio
import logging
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

from privateer_core.clock import Clock, SystemClock
from privateer_core.errors import Unavailable
from privateer_core.serving.http.cors import Origins
from privateer_core.serving.http.listeners import IS_PUBLIC, Hosts, PublicPages
from privateer_core.serving.http.openapi import public_part
from privateer_core.serving.http.page_cache import PageCache, common_version
from privateer_core.serving.http.problems import answer_problems
from privateer_core.serving.http.report_endpoint import answer
from privateer_core.serving.http.timing import Timed
from privateer_core.serving.limits.body_budget import Budget
from privateer_core.serving.process import (
    Background,
    Listener,
    ServiceListeners,
    listen,
    prepare_process,
    run,
)
from privateer_core.serving.store.sqlite import is_writable, watch_disk
from privateer_core.wire.tokens.token_keys import MEDIA_TYPE
from privateer_issuer.api import IssuerStatus, document
from privateer_issuer.attestation import attestation
from privateer_issuer.key_rotation import IssuerKeys
from privateer_issuer.metrics import IssuerMetrics
from privateer_issuer.settings import IssuerSettings, read_settings
from privateer_issuer.store import IssuerStore
from privateer_issuer.token_requests import TokenRequests, TokenShares

_OK: Final = 200
_BUDGET: Final = 4 << 20
_ROTATE_SECONDS: Final = 600.0
_log = logging.getLogger(__name__)


class IssuerPages:
    """The pages that are not for tokens."""

    def __init__(
        self, folder: Path, keys: IssuerKeys, shares: TokenShares, background: Background, metrics: IssuerMetrics
    ) -> None:
        self._folder, self._keys, self._shares = folder, keys, shares
        self._background, self._metrics = background, metrics

    async def keys(self, _: Request) -> Response:
        """Show the public keys."""
        return Response(self._keys.directory.encode(), media_type=MEDIA_TYPE)

    async def healthz(self, _: Request) -> Response:
        """Answer, since the process runs."""
        return answer(IssuerStatus("ok"), _OK)

    async def readyz(self, _: Request) -> Response:
        """Answer whether tokens can be counted and signed."""
        healthy = not (self._background.failed or self._shares.failed)
        if not healthy or not await asyncio.to_thread(is_writable, self._folder):
            raise Unavailable("the issuer cannot count tokens", remedy="check its disk and its log")
        return answer(IssuerStatus("ready"), _OK)

    async def metrics(self, _: Request) -> Response:
        """Show counts for Prometheus."""
        return Response(self._metrics.page(), media_type=CONTENT_TYPE_LATEST)

    async def openapi(self, request: Request) -> Response:
        """Describe all pages that are here."""
        whole = document()
        return answer(public_part(whole, _is_public) if IS_PUBLIC in request.scope else whole, _OK)


def create_app(settings: IssuerSettings, clock: Clock | None = None) -> ASGIApp:
    """Make the issuer's application, which holds its data folder until its lifespan ends.

    Raises
    ------
    SpecError, OSError
        If a setting is not valid, or the data folder cannot be used.
    """
    clock = clock or SystemClock()
    plug = attestation(settings.attestation, settings.environment)
    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings.data.chmod(0o700)
    store = IssuerStore(settings.data)
    try:
        keys = IssuerKeys(
            store, settings.experiments, settings.key_days, settings.name, settings.public_keys_file, clock
        )
    except (sqlite3.Error, OSError):
        store.close()
        raise
    shares, metrics, background = TokenShares(store, settings.tokens_per_device), IssuerMetrics(), Background()
    metrics.watch_keys(lambda: keys.newest)
    metrics.watch("counting", "1 as long as tokens can be counted", lambda: not shares.failed)
    metrics.watch("disk_free_bytes", "Free bytes of the disk with the data", lambda: _free(settings.data))
    pages = IssuerPages(settings.data, keys, shares, background, metrics)
    issuing = TokenRequests(keys, shares, plug, metrics, Budget(_BUDGET), clock)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        background.start(_rotating(keys))
        background.start(watch_disk(partial(asyncio.to_thread, is_writable, settings.data), _log))
        try:
            yield
        finally:
            await background.stop()
            await shares.close()
            store.close()

    app = Starlette(
        routes=[
            Route("/experiments/{name}/tokens", issuing.sign, methods=["POST"]),
            Route("/token-keys", pages.keys),
            Route("/openapi.json", pages.openapi),
            Route("/healthz", pages.healthz),
            Route("/readyz", pages.readyz),
            Route("/metrics", pages.metrics),
        ],
        lifespan=lifespan,
    )
    answer_problems(app)
    app.router.redirect_slashes = False
    return Timed(PageCache(app, common_version), _route, metrics.answer)


async def _rotating(keys: IssuerKeys) -> None:
    """Look now and then whether a key is due, until the task is cancelled."""
    while True:
        await asyncio.sleep(_ROTATE_SECONDS)
        try:
            keys.rotate()
        except (sqlite3.Error, OSError):
            _log.error("the disk does not take new keys; the issuer tries again")


def _route(scope: Scope) -> str:
    """Return the template of a page."""
    path = str(scope["path"])
    parts = path.split("/")
    if len(parts) == 4 and parts[1] == "experiments" and parts[3] == "tokens":
        return "/experiments/{name}/tokens"
    return path if path in ("/token-keys", "/healthz", "/readyz", "/metrics", "/openapi.json") else ""


def main() -> None:
    """Run the issuer with the settings of the environment; print one line and exit with code 2 if it cannot start."""
    prepare_process("privateer_issuer")
    run("privateer-issuer", _start)


def _start() -> ServiceListeners:
    settings = read_settings(os.environ)
    addresses = (settings.host, settings.port), (settings.admin_host, settings.admin_port)
    with listen(*addresses) as (public, private):
        app = create_app(settings)
        return ServiceListeners(
            Listener(Origins(PublicPages(app, _is_public), settings.origins), public),
            Listener(Hosts(app, (settings.admin_host, *settings.admin_names)), private),
            str(settings.data),
        )


def _is_public(_: str, path: str) -> bool:
    return path != "/metrics"


def _free(folder: Path) -> float:
    return shutil.disk_usage(folder).free
