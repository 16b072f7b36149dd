"""Refusals of the control routes as problem documents."""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from privateer_core.clock import Clock, SystemClock
from privateer_core.errors import ParameterInvalid, Unavailable
from privateer_core.serving.body_budget import Budget
from privateer_core.serving.http import problems
from privateer_core.serving.http.answer import Heads
from privateer_core.serving.http.listeners import Hosts, Origins, PublicPages
from privateer_core.serving.http.openapi import refusals
from privateer_core.serving.http.page_cache import PageCache
from privateer_core.serving.http.report_endpoint import Reply
from privateer_core.serving.http.timing import OTHER, Answered, Timed
from privateer_core.serving.logs import BUILD, log_answer, trace
from privateer_core.serving.process import (
    Background,
    Listener,
    ServiceListeners,
    listen,
    prepare_process,
    run,
)
from privateer_core.serving.rate_limit import RateLimit
from privateer_core.serving.token_gate import TokenGate
from privateer_core.serving.write_health import WriteHealth
from privateer_core.spec.sections import said
from privateer_core.wire.keys import TrustedKeys
from privateer_server.admin_tokens import AdminTokens
from privateer_server.api.backups import Backups, backup_router
from privateer_server.api.change_routes import PRIVATE_PAGES, changes_router, claims_router
from privateer_server.api.description import describe
from privateer_server.api.endpoints import BatchesEndpoint, Policies, ReportsEndpoint
from privateer_server.api.events import ChangeFeed, stream_router
from privateer_server.api.experiment_routes import experiments_router
from privateer_server.api.operators import Admins, Gauges, operations_router
from privateer_server.api.pages import OPERATOR, READING, PageVersions, pages
from privateer_server.api.transparency import log_router, tokens_router
from privateer_server.data import Data
from privateer_server.experiments.catalog import open_experiments
from privateer_server.experiments.executor import ChangeExecutor
from privateer_server.experiments.replication import Follower
from privateer_server.intake.intake import Intake
from privateer_server.metrics import ServerMetrics
from privateer_server.rounds.deadlines import Deadlines
from privateer_server.settings import ServerSettings, read_settings
from privateer_server.store.records import TRANSIENT
from privateer_server.traces import Traces

_log = logging.getLogger("privateer.server")
_ABOUT: Final = (
    "Everybody may read policies and send reports. Changes, batches, metrics and backups are on the private listener "
    "alone. docs/wire-format.md describes publications, envelopes and signatures byte by byte."
)
_UNLOGGED: Final = frozenset({OTHER, "/metrics"})
_PUBLIC_PAGES: Final = frozenset({"/healthz", "/readyz", "/keys", "/limits", "/reports", "/events", "/openapi.json"})
_PAGES: Final = pages()
"""The dashboard's."""


def answer_problems(app: FastAPI) -> None:
    """Answer every refusal of the control routes, and every defect, with a problem."""
    problems.answer_problems(app, "server")
    app.add_exception_handler(RequestValidationError, _on_invalid)
    for kind in TRANSIENT:
        app.add_exception_handler(kind, _on_no_data)


async def _on_invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:])
    return problems.problem_response(ParameterInvalid(said(first), field=field, remedy="correct the parameter"))


async def _on_no_data(_: Request, error: Exception) -> Response:
    """Refuse for now, since a disk is full or a database does not answer."""
    _log.error("a request finds no data (%s)", trace(error))
    refusal = Unavailable("the server cannot read or write its data now", remedy="try again later")
    return problems.problem_response(refusal)


class Server:
    """The ASGI application: two endpoints for reports, the dashboard, and control routes for everything else.

    end_waits: answers all long polls and ends all streams, before a stop.
    """

    def __init__(
        self,
        uploads: ReportsEndpoint,
        batches: BatchesEndpoint,
        policies: Policies,
        control: ASGIApp,
        end_waits: Callable[[], None],
        answered: Callable[[Answered], None],
        origins: tuple[str, ...],
        rate_limit: RateLimit | None = None,
    ) -> None:
        self._endpoints: dict[str, ASGIApp] = {uploads.route: uploads, batches.route: batches}
        self._uploads, self._policies, self._control, self.end_waits = uploads, policies, control, end_waits
        self.rate_limit = rate_limit  # turns uploads without a token away, if they need one
        self._timed = Timed(self._answer, _route, answered)
        # the same without what is private: for a listener that strangers reach
        self.public = Origins(PublicPages(self, _is_public), origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or run the lifespan."""
        endpoint = self._endpoints.get(scope["path"]) if scope["type"] == "http" else None
        if endpoint:
            await endpoint(scope, receive, send)
        elif scope["type"] != "http" or not await self._policies.answer(scope, send):
            await self._timed(scope, receive, send)

    def at_once(self, scope: Scope, body: bytearray, reply: Reply) -> bool:
        """Answer an upload that is there as a whole, or a device that asks for the policy; False: ``__call__`` does."""
        if scope["path"] == self._uploads.route:
            return self._uploads.at_once(scope, body, reply)
        return self._policies.at_once(scope, reply)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = _PAGES.get(scope["path"], self._control) if scope["type"] == "http" else self._control
        await app(scope, receive, send)


def _route(scope: Scope) -> str:
    """Return the template of a page, as the router has found it."""
    if scope["path"] in _PAGES:
        return "/"
    template = str(getattr(scope.get("route"), "path", ""))
    return f"{template}?wait" if b"wait=" in scope.get("query_string", b"") and template else template


def _is_public(method: str, path: str) -> bool:
    if path in _PUBLIC_PAGES:
        return True
    parts = path.split("/")
    if len(parts) == 4 and parts[1] == "experiments" and parts[3] in PRIVATE_PAGES:
        return False
    if path.startswith(OPERATOR):
        return False
    if path in _PAGES or path == "/experiments" or path.startswith("/experiments/"):
        return method in READING
    return path.startswith("/log/") and method in READING


def create_app(settings: ServerSettings, clock: Clock | None = None) -> Server:
    """Make the server on a data directory, held until its lifespan ends; ``clock`` says when rounds are due."""
    traces, clock = Traces(settings.traces), clock or SystemClock()
    gate = settings.tokens.gate(clock=clock)
    metrics = ServerMetrics(traces.stage)
    admins = Admins(AdminTokens(settings.admin_token, settings.admin_tokens), clock)
    data, experiments = open_experiments(settings, clock)
    writes, background = WriteHealth(partial(_probe, data, metrics), _log, clock), Background()
    intake = Intake(data, experiments, metrics, clock, settings.openers, writes)
    deadlines = Deadlines(experiments, intake, clock, background)
    gauges = Gauges(metrics, data, experiments, intake, writes, clock)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        intake.start()
        for work in (deadlines.run(), data.clean(clock), traces.run(), writes.run()):
            background.start(work)
        if data.notifications:
            background.start(Follower(data, data.notifications, experiments, intake).run())
        yield
        await background.stop()
        await intake.stop()
        await asyncio.to_thread(traces.send)
        data.close()

    control = FastAPI(
        title="Privateer server",
        version=BUILD.version,
        description=_ABOUT,
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=refusals(),
    )
    answer_problems(control)
    control.include_router(operations_router(intake, experiments, writes, metrics, gauges))
    control.include_router(backup_router(Backups(data.store, clock, metrics.registry), admins))
    budget = Budget(settings.body_budget)
    shufflers = TrustedKeys(settings.shuffler_keys)
    control.include_router(experiments_router(experiments, data.store, data.log.identity, admins, budget))
    control.include_router(log_router(data.log))
    executor = ChangeExecutor(data, experiments, intake, settings, clock)
    control.include_router(changes_router(executor, experiments, data.store, admins, budget))
    feed = ChangeFeed(experiments)
    control.include_router(stream_router(experiments, feed))
    control.include_router(claims_router(experiments, admins, shufflers))
    control.include_router(tokens_router(gate))
    describe(control, _is_public)
    senders, required = TrustedKeys(settings.sender_keys), gate if settings.tokens.required else None
    uploads = ReportsEndpoint(intake, metrics, budget, settings.report_bytes_max, senders, required)
    batches = BatchesEndpoint(intake, metrics, budget, settings.batch_bytes_max, shufflers, traces.answer)
    policies = Policies(experiments, data.log.identity, metrics.answer)

    def answered(one: Answered) -> None:
        metrics.answer(one)
        traces.answer(one)
        if one.route not in _UNLOGGED and not _is_public(one.method, one.route):
            log_answer(one)

    def end_waits() -> None:
        experiments.end_waits()
        feed.end()

    rate_limit = _rate_limit(required, metrics, senders, settings.origins) if required else None
    kept = PageCache(Heads(control), PageVersions(experiments))
    return Server(uploads, batches, policies, kept, end_waits, answered, settings.origins, rate_limit)


async def _probe(data: Data, metrics: ServerMetrics) -> None:
    with metrics.stage("probe"):
        await asyncio.to_thread(data.check)


def _rate_limit(gate: TokenGate, metrics: ServerMetrics, senders: TrustedKeys, origins: tuple[str, ...]) -> RateLimit:
    endpoint = ReportsEndpoint.route
    return RateLimit(gate, lambda path: "" if path == endpoint else None, metrics.refuse, senders, origins=origins)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the server until a signal stops it; print one line and exit with code 2 if it cannot start."""
    prepare_process()
    run("privateer-server", lambda: _start(sys.argv[1:] if arguments is None else arguments))


def _start(arguments: Sequence[str]) -> ServiceListeners:
    settings = read_settings(os.environ, arguments)
    addresses = (settings.host, settings.port), (settings.admin_host, settings.admin_port)
    with listen(*addresses) as (public, private):
        app = create_app(settings)
        return ServiceListeners(
            Listener(app.public, public, app.rate_limit),
            Listener(Hosts(app, (settings.admin_host, *settings.admin_names)), private),
            "PostgreSQL" if settings.database else str(settings.data),
            app.end_waits,
        )
