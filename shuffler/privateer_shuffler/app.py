"""The shuffler as a web service."""

import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import httpx
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from privateer_core.clock import SystemClock
from privateer_core.errors import NotFound, PrivateerError, Unavailable
from privateer_core.serving.body_budget import Budget
from privateer_core.serving.http.listeners import IS_PUBLIC, Hosts, Origins, PublicPages
from privateer_core.serving.http.openapi import public_part
from privateer_core.serving.http.page_cache import PageCache, common_version
from privateer_core.serving.http.problems import answer_problems
from privateer_core.serving.http.report_endpoint import Reply, answer
from privateer_core.serving.logs import BUILD
from privateer_core.serving.process import (
    Background,
    Listener,
    ServiceListeners,
    listen,
    prepare_process,
    run,
)
from privateer_core.serving.rate_limit import RateLimit
from privateer_core.serving.settings import ServiceParser
from privateer_core.serving.token_gate import TokenGate
from privateer_core.serving.write_health import WriteHealth, free_bytes
from privateer_core.wire.keys import TrustedKeys, public_hex, publish_key, signing_key_id
from privateer_core.wire.token_keys import MEDIA_TYPE
from privateer_shuffler.api import (
    ExperimentStatus,
    HeldRound,
    HeldRounds,
    ShufflerStatus,
    SigningKey,
    document,
)
from privateer_shuffler.delivery import Forwarding, Upstream
from privateer_shuffler.endpoint import EXPERIMENT, PoolEndpoint
from privateer_shuffler.followed_rounds import FollowedRounds
from privateer_shuffler.metrics import ShufflerMetrics
from privateer_shuffler.resources import Resources, open_resources
from privateer_shuffler.server_health import ServerHealth
from privateer_shuffler.settings import ShufflerSettings, read_settings

_OK: Final = 200
_HOUR: Final = 3600
_DAY: Final = 24 * _HOUR
_DISK_STEP: Final = 16 << 20
_BLOCK: Final = 512
"""Bytes of a block, as files are measured."""
_log = logging.getLogger("privateer.shuffler")


class ShufflerPages:
    """The pages that are not for reports."""

    def __init__(
        self,
        writes: WriteHealth,
        public_key: str,
        rounds: FollowedRounds,
        server: ServerHealth,
        metrics: ShufflerMetrics,
        holds: Callable[[], HeldRounds],
        gate: TokenGate | None = None,
    ) -> None:
        self._writes = writes
        self._public_key = public_key
        self._rounds = rounds
        self._server = server
        self._metrics, self._holds = metrics, holds
        self._gate = gate

    async def token_keys(self, request: Request) -> Response:
        """Show the token keys of an experiment, which are the same for everybody."""
        if self._gate is None:
            raise NotFound("no upload tokens are taken here", remedy="send reports without")
        directory = self._gate.directory(request.path_params["name"])
        return Response(directory.encode(), media_type=MEDIA_TYPE)

    async def experiment(self, request: Request) -> Response:
        """Show the open round of an experiment, but nothing that a single report changes before the batch is full."""
        followed = await self._rounds.find(request.path_params["name"])
        round_, pool = followed.round, followed.pool
        is_open = pool is not None and not pool.full
        return answer(ExperimentStatus(round_.experiment, round_.version, round_.model, round_.batch, is_open), _OK)

    async def keys(self, _: Request) -> Response:
        """Show the public key that batches are signed with."""
        return answer(SigningKey(self._public_key), _OK)

    async def limits(self, _: Request) -> Response:
        """Show what rounds the shuffler takes reports for."""
        return answer(self._rounds.limits, _OK)

    async def held(self, _: Request) -> Response:
        """Show what is held for every round, as coarsely as the metrics do."""
        return answer(self._holds(), _OK)

    async def healthz(self, _: Request) -> Response:
        """Answer, since the process runs."""
        return answer(ShufflerStatus("ok"), _OK)

    async def readyz(self, _: Request) -> Response:
        """Answer whether reports can be stored, for a round that is open or one that the server may open."""
        if not self._rounds.healthy or not await self._writes.check():
            raise Unavailable("the shuffler cannot store reports", remedy="check its disk or database, and its log")
        await self._server.check(is_taking=self._rounds.is_taking)
        return answer(ShufflerStatus("ready"), _OK)

    async def version(self, _: Request) -> Response:
        """Show which build this is."""
        return answer(BUILD, _OK)

    async def metrics(self, _: Request) -> Response:
        """Show counts for Prometheus."""
        return Response(self._metrics.page(), media_type=CONTENT_TYPE_LATEST)

    async def openapi(self, request: Request) -> Response:
        """Describe all pages that are here."""
        whole = document()
        return answer(public_part(whole, _is_public) if IS_PUBLIC in request.scope else whole, _OK)


class Shuffler:
    """The ASGI application: the endpoint for reports, and pages for everything else.

    The router of the pages would cost as much as holding a report does.

    rate_limit: turns uploads without a token away, if they need one.
    """

    def __init__(self, endpoint: PoolEndpoint, pages: ASGIApp, rate_limit: RateLimit | None = None) -> None:
        self._endpoint, self._pages, self.rate_limit = endpoint, pages, rate_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or run the lifespan."""
        name = _reported(scope["path"]) if scope["type"] == "http" else ""
        if name:
            scope[EXPERIMENT] = name
            await self._endpoint(scope, receive, send)
        else:
            await self._pages(scope, receive, send)

    def at_once(self, scope: Scope, body: bytearray, reply: Reply) -> bool:
        """Take an upload that is there as a whole; False if ``__call__`` must answer the request."""
        name = _reported(scope["path"])
        if not name:
            return False
        scope[EXPERIMENT] = name
        return self._endpoint.at_once(scope, body, reply)


def _reported(path: str) -> str:
    """Return the experiment that a path takes reports for; empty if it is another page's."""
    parts = path.split("/")
    return parts[2] if len(parts) == 4 and parts[1] == "experiments" and parts[3] == "reports" else ""


def create_app(settings: ShufflerSettings, transport: httpx.AsyncBaseTransport | None = None) -> Shuffler:
    """Make the shuffler's application.

    settings: what the operator decides.
    transport: how to reach the server; tests pass one in the same process.
    """
    held = open_resources(settings)
    try:
        return _app_on(held, settings, transport)
    except (PrivateerError, OSError):
        held.pool_store.close()
        raise


def _app_on(held: Resources, settings: ShufflerSettings, transport: httpx.AsyncBaseTransport | None) -> Shuffler:
    if settings.public_key_file:
        publish_key(held.key, settings.public_key_file)
    metrics, pool_store = ShufflerMetrics(), held.pool_store
    upstream = Upstream(settings.server_url, transport, settings.server_ca, held.pin)
    forwarding = Forwarding(upstream, held.key, metrics)
    gate = settings.tokens.gate(pool_store.knows)
    server, writes = ServerHealth(upstream), WriteHealth(pool_store.is_writable, _log)
    rounds = FollowedRounds(pool_store, settings.limits, upstream, forwarding, metrics, server)
    background = Background()
    _watch(metrics, rounds, held)
    storing, following = "1 as long as reports can be stored", "1 as long as the server's rounds can be followed"
    metrics.watch("storing", storing, lambda: rounds.healthy and writes.is_writing)
    metrics.watch("following", following, lambda: server.is_followed)
    own = signing_key_id(held.key.public_key())

    def holds() -> HeldRounds:
        of = [
            HeldRound(one.round.experiment, one.round.version, one.round.batch, one.shown, one.full)
            for one in rounds.pools
        ]
        return HeldRounds(own, settings.min_batch, of)

    pages = ShufflerPages(writes, public_hex(held.key), rounds, server, metrics, holds, gate)
    budget, senders = Budget(settings.body_budget), TrustedKeys(settings.sender_keys)
    checked = gate if settings.tokens.required else None
    endpoint = PoolEndpoint(rounds, metrics, budget, settings.body_limit, senders, checked)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await rounds.start()
        background.start(pool_store.tidy())
        background.start(writes.run())
        background.start(server.run())
        try:
            yield
        finally:
            await background.stop()
            await rounds.stop()
            await upstream.close()
            pool_store.close()

    app = Starlette(
        routes=[
            Route("/experiments/{name}", pages.experiment),
            Route("/experiments/{name}/token-keys", pages.token_keys),
            Route("/keys", pages.keys),
            Route("/limits", pages.limits),
            Route("/openapi.json", pages.openapi),
            Route("/healthz", pages.healthz),
            Route("/readyz", pages.readyz),
            Route("/held", pages.held),
            Route("/version", pages.version),
            Route("/metrics", pages.metrics),
        ],
        lifespan=lifespan,
    )
    answer_problems(app, "shuffler")
    app.router.redirect_slashes = False
    kept = PageCache(app, common_version)
    return Shuffler(endpoint, kept, _rate_limit(checked, metrics, senders, settings.origins) if checked else None)


def _rate_limit(gate: TokenGate, metrics: ShufflerMetrics, senders: TrustedKeys, origins: tuple[str, ...]) -> RateLimit:
    return RateLimit(gate, lambda path: _reported(path) or None, metrics.refuse, senders, origins=origins)


def _watch(metrics: ShufflerMetrics, rounds: FollowedRounds, held: Resources) -> None:
    """Show how the shuffler is when somebody looks. Times are given as they were, and age by themselves."""
    made = held.key_file.stat().st_mtime
    metrics.watch("reports_held", "Reports held, in tenths of a batch", lambda: rounds.held)
    metrics.watch(
        "full_batch_timestamp_seconds",
        "In which hour the oldest full batch that waits for the server became full; 0: none waits",
        lambda: rounds.full_since // _HOUR * _HOUR,
    )
    metrics.watch("time_seconds", "The time of day here, in seconds since 1970", SystemClock().now)
    if held.folder:
        text = "Free bytes of the disk with the data, in steps of 16 MiB"
        metrics.watch("disk_free_bytes", text, partial(_free, held.folder))
    metrics.watch(
        "key_timestamp_seconds", "On which day the key that signs batches was made", lambda: made // _DAY * _DAY
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the shuffler with the settings of the environment; print one line and exit with code 2 if it cannot start."""
    ServiceParser("privateer-shuffler", "Permutes sealed reports, and passes them on in batches.").parse_args(arguments)
    prepare_process("privateer_shuffler")
    run("privateer-shuffler", _start)


def _start() -> ServiceListeners:
    settings = read_settings(os.environ)
    addresses = (settings.host, settings.port), (settings.admin_host, settings.admin_port)
    with listen(*addresses) as (public, private):
        app = create_app(settings)
        return ServiceListeners(
            Listener(Origins(PublicPages(app, _is_public), settings.origins), public, app.rate_limit),
            Listener(Hosts(app, (settings.admin_host, *settings.admin_names)), private),
            "PostgreSQL" if settings.database else str(settings.data),
        )


def _is_public(_: str, path: str) -> bool:
    return path not in ("/metrics", "/held", "/version")


def _free(folder: Path) -> int:
    """Return the free bytes in steps, as if no log were there: the logs grow with uploads until they are emptied."""
    free = free_bytes(folder)
    for log in folder.glob("*-wal"):
        with suppress(FileNotFoundError):
            free += log.stat().st_blocks * _BLOCK
    return free // _DISK_STEP * _DISK_STEP
