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
from starlette.types import Receive, Scope, Send

from privateer_core.clock import SystemClock
from privateer_core.errors import NotFound, PrivateerError, Unavailable
from privateer_core.serving.http.answer import wait_for_turn
from privateer_core.serving.http.bodies import Budget
from privateer_core.serving.http.listeners import IS_PUBLIC_KEY, HostGuard, OriginMiddleware, PublicPages
from privateer_core.serving.http.openapi import ServiceStatus, select_public
from privateer_core.serving.http.page_cache import PageCache, Version, find_common_page_version
from privateer_core.serving.http.problems import install_problem_handlers
from privateer_core.serving.http.report_endpoint import Reply, json_response
from privateer_core.serving.logs import BUILD
from privateer_core.serving.process import Background, Listener, ServiceListeners, listen, prepare_process, run
from privateer_core.serving.rate_limit import RateLimit
from privateer_core.serving.settings import ServiceParser
from privateer_core.serving.token_gate import TokenGate
from privateer_core.serving.write_health import WriteHealth, free_bytes
from privateer_core.wire.keys import TrustedKeys, public_hex, publish_key, signing_key_id
from privateer_core.wire.token_keys import MEDIA_TYPE
from privateer_shuffler.api import (
    EXPERIMENT,
    ExperimentStatus,
    HeldRound,
    HeldRounds,
    PoolEndpoint,
    SigningKey,
    build_openapi_document,
)
from privateer_shuffler.delivery import Forwarding
from privateer_shuffler.followed_rounds import FollowedRounds
from privateer_shuffler.metrics import ShufflerMetrics
from privateer_shuffler.resources import Resources, open_resources
from privateer_shuffler.server_health import ServerHealth
from privateer_shuffler.settings import ShufflerSettings, read_settings
from privateer_shuffler.upstream import Upstream

_OK: Final = 200
_HOUR: Final = 3600
_DAY: Final = 24 * _HOUR
_DISK_STEP: Final = 16 << 20
_BLOCK: Final = 512  # size in bytes of a block of a file
_log = logging.getLogger("privateer.shuffler")


class ShufflerPages:
    """The pages of the service beside the endpoint for reports."""

    def __init__(
        self,
        writes: WriteHealth,
        public_key: str,
        rounds: FollowedRounds,
        server: ServerHealth,
        metrics: ShufflerMetrics,
        list_held: Callable[[], HeldRounds],
        gate: TokenGate | None = None,
    ) -> None:
        self._writes, self._public_key, self._rounds, self._server = writes, public_key, rounds, server
        self._metrics, self._list_held, self._gate = metrics, list_held, gate

    async def token_keys(self, request: Request) -> Response:
        """Show the token keys of an experiment, the same for all clients; `NotFound` if no tokens are taken."""
        if self._gate is None:
            raise NotFound("no upload tokens are taken here", remedy="send reports without")
        directory = self._gate.directory(request.path_params["name"])
        return Response(directory.encode(), media_type=MEDIA_TYPE)

    async def experiment(self, request: Request) -> Response:
        """Show the open round of an experiment, without facts that a single report changes before the batch is full."""
        try:
            followed = await self._rounds.get_round(request.path_params["name"])
        finally:
            await wait_for_turn(request.scope)  # many wait for the same answer of the server
        round_, pool = followed.round, followed.pool
        is_open = pool is not None and not pool.is_full
        status = ExperimentStatus(round_.experiment, round_.version, round_.model, round_.batch_size, is_open)
        return json_response(status, _OK)

    async def keys(self, _: Request) -> Response:
        """Show the public key that verifies batches."""
        return json_response(SigningKey(self._public_key), _OK)

    async def limits(self, _: Request) -> Response:
        """Show the limits of rounds that the shuffler takes reports for."""
        return json_response(self._rounds.limits, _OK)

    async def held_rounds(self, _: Request) -> Response:
        """Show the held reports of every round, in tenths of a batch as in the metrics."""
        return json_response(self._list_held(), _OK)

    async def healthz(self, _: Request) -> Response:
        """Answer that the process runs."""
        return json_response(ServiceStatus("ok"), _OK)

    async def readyz(self, _: Request) -> Response:
        """Answer whether reports can be stored, for an open round or one that the server may open."""
        if not self._rounds.is_healthy or not await self._writes.check():
            raise Unavailable("the shuffler cannot store reports", remedy="check its disk or database, and its log")
        await self._server.check(is_taking=self._rounds.held_pools.is_taking)
        return json_response(ServiceStatus("ready"), _OK)

    async def version(self, _: Request) -> Response:
        """Show the build of the service."""
        return json_response(BUILD, _OK)

    async def metrics(self, _: Request) -> Response:
        """Show counts for Prometheus."""
        return Response(self._metrics.render(), media_type=CONTENT_TYPE_LATEST)

    async def openapi(self, request: Request) -> Response:
        """Show the OpenAPI document of the pages of this listener."""
        pages = build_openapi_document()
        return json_response(select_public(pages, _is_public) if IS_PUBLIC_KEY in request.scope else pages, _OK)


class Shuffler:
    """The ASGI application: the endpoint for reports, and the other pages.

    Reports bypass the router of the pages, which would cost as much as holding a report.

    rate_limit: limits uploads without a token, if they need one.
    """

    def __init__(self, endpoint: PoolEndpoint, pages: PageCache, rate_limit: RateLimit | None = None) -> None:
        self._endpoint, self._pages, self.rate_limit = endpoint, pages, rate_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or run the lifespan."""
        name = _find_reported_experiment(scope["path"]) if scope["type"] == "http" else None
        if name:
            scope[EXPERIMENT] = name
            await self._endpoint(scope, receive, send)
        else:
            await self._pages(scope, receive, send)

    def answer_at_once(self, scope: Scope, body: bytearray, reply: Reply) -> bool:
        """Take an upload whose body is complete, or answer from the cache; False if ``__call__`` must answer."""
        name = _find_reported_experiment(scope["path"])
        if not name:
            answer = self._pages.find_answer(scope)
            if answer:
                reply(answer)
            return answer is not None
        scope[EXPERIMENT] = name
        return self._endpoint.answer_at_once(scope, body, reply)


def _find_reported_experiment(path: str) -> str | None:
    parts = path.split("/")
    return parts[2] if len(parts) == 4 and parts[1] == "experiments" and parts[3] == "reports" and parts[2] else None


def create_app(settings: ShufflerSettings, transport: httpx.AsyncBaseTransport | None = None) -> Shuffler:
    """Create the shuffler's application; tests pass a transport to a server in the same process."""
    resources = open_resources(settings)
    try:
        return _build_app(resources, settings, transport)
    except (PrivateerError, OSError):
        resources.pool_store.close()
        raise


def _build_app(
    resources: Resources, settings: ShufflerSettings, transport: httpx.AsyncBaseTransport | None
) -> Shuffler:
    """Build the application on open resources: publish its key, follow rounds, and register the pages."""
    if settings.public_key_file:
        publish_key(resources.key, settings.public_key_file)
    metrics, pool_store = ShufflerMetrics(), resources.pool_store
    upstream = Upstream(settings.server_url, transport, settings.server_ca, resources.pin)
    forwarding = Forwarding(upstream, resources.key, metrics)
    gate = settings.tokens.gate(pool_store.is_known_spent)
    server, writes = ServerHealth(upstream), WriteHealth(pool_store.is_writable, _log)
    rounds = FollowedRounds(pool_store, settings.limits, upstream, forwarding, metrics, server)
    background = Background()
    _register_gauges(metrics, rounds, resources)
    metrics.register_gauge(
        "store_up", "1 as long as reports can be stored", lambda: rounds.is_healthy and writes.is_writing
    )
    metrics.register_gauge("following", "1 as long as the server's rounds can be followed", lambda: server.is_followed)
    own_key_id = signing_key_id(resources.key.public_key())

    def list_held() -> HeldRounds:
        rounds_held = [
            HeldRound(pool.round.experiment, pool.round.version, pool.round.batch_size, pool.n_shown, pool.is_full)
            for pool in rounds.held_pools.pools
        ]
        return HeldRounds(own_key_id, settings.min_batch, rounds_held)

    pages = ShufflerPages(writes, public_hex(resources.key), rounds, server, metrics, list_held, gate)
    budget, senders = Budget(settings.body_budget), TrustedKeys(settings.sender_keys)
    required_gate = gate if settings.tokens.required else None
    endpoint = PoolEndpoint(rounds, metrics, budget, settings.body_limit, senders, required_gate)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await rounds.start()
        background.start(pool_store.delete_expired_tokens())
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
            Route("/held", pages.held_rounds),
            Route("/version", pages.version),
            Route("/metrics", pages.metrics),
        ],
        lifespan=lifespan,
    )
    install_problem_handlers(app, "shuffler")
    app.router.redirect_slashes = False
    rate_limit, origins = None, settings.cors_origins
    if required_gate:
        rate_limit = RateLimit(
            required_gate, _find_reported_experiment, metrics.count_refusals, senders, origins=origins
        )
    return Shuffler(endpoint, PageCache(app, partial(_page_version, rounds, gate)), rate_limit)


def _page_version(rounds: FollowedRounds, gate: TokenGate | None, scope: Scope) -> Version | None:
    """Return the version of a page; None if its answer may wait for the server."""
    path = scope["path"]
    segments = path.split("/")
    if path == "/keys":
        return Version(path, None)
    if segments[1] == "experiments" and len(segments) == 3:
        followed = rounds.find_followed(segments[2])
        return Version(path, (followed.digest, followed.state)) if followed else None
    if gate and segments[1] == "experiments" and segments[3:] == ["token-keys"]:
        return Version(path, gate.find_keys(segments[2]))
    return find_common_page_version(scope)


def _register_gauges(metrics: ShufflerMetrics, rounds: FollowedRounds, resources: Resources) -> None:
    """Register gauges of the shuffler's state. Times are absolute, so that they need no updates."""
    created_at = resources.key_file.stat().st_mtime
    metrics.register_gauge("reports_held", "Reports held, in tenths of a batch", lambda: rounds.held_pools.n_shown)
    metrics.register_gauge(
        "full_batch_timestamp_seconds",
        "In which hour the oldest full batch that waits for the server became full; 0: none waits",
        lambda: rounds.held_pools.full_since // _HOUR * _HOUR,
    )
    metrics.register_gauge("time_seconds", "The time of day here, in seconds since 1970", SystemClock().now)
    if resources.folder:
        text = "Free bytes of the disk with the data, in steps of 16 MiB"
        metrics.register_gauge("disk_free_bytes", text, partial(_round_free_bytes, resources.folder))
    metrics.register_gauge(
        "key_timestamp_seconds", "On which day the key that signs batches was made", lambda: created_at // _DAY * _DAY
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the shuffler with the settings of the environment; print one line and exit with code 2 if it cannot start."""
    ServiceParser("privateer-shuffler", "Permutes sealed reports, and passes them on in batches.").parse_args(arguments)
    prepare_process("privateer_shuffler")
    run("privateer-shuffler", _open_listeners)


def _open_listeners() -> ServiceListeners:
    settings = read_settings(os.environ)
    addresses = (settings.host, settings.port), (settings.admin_host, settings.admin_port)
    with listen(*addresses) as (public, private):
        app = create_app(settings)
        return ServiceListeners(
            Listener(OriginMiddleware(PublicPages(app, _is_public), settings.cors_origins), public, app.rate_limit),
            Listener(HostGuard(app, (settings.admin_host, *settings.admin_allowed_hosts)), private),
            "PostgreSQL" if settings.database else str(settings.data),
        )


def _is_public(_: str, path: str) -> bool:
    return path not in ("/metrics", "/held", "/version")


def _round_free_bytes(folder: Path) -> int:
    """Return the free bytes in steps, without logs, which grow with uploads until they are emptied."""
    free = free_bytes(folder)
    for log in folder.glob("*-wal"):
        with suppress(FileNotFoundError):
            free += log.stat().st_blocks * _BLOCK
    return free // _DISK_STEP * _DISK_STEP
