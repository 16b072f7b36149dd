"""The server's ASGI application, and the command that runs it."""

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
from privateer_core.serving.http import problems
from privateer_core.serving.http.answer import OTHER_LABEL, AnswerTiming, HeadMiddleware, HttpAnswer, TimingMiddleware
from privateer_core.serving.http.bodies import Budget
from privateer_core.serving.http.listeners import HostGuard, OriginMiddleware, PublicPages
from privateer_core.serving.http.openapi import describe_refusals
from privateer_core.serving.http.page_cache import PageCache
from privateer_core.serving.http.report_endpoint import Reply, ReportsEndpoint
from privateer_core.serving.logs import BUILD, log_answer, trace
from privateer_core.serving.process import Background, Listener, ServiceListeners, listen, prepare_process, run
from privateer_core.serving.rate_limit import RateLimit
from privateer_core.serving.token_gate import TokenGate
from privateer_core.serving.write_health import WriteHealth
from privateer_core.spec.sections import describe_error
from privateer_core.wire.keys import TrustedKeys
from privateer_server.admin_tokens import AdminTokens
from privateer_server.api.change_routes import PRIVATE_PAGES, changes_router, claims_router
from privateer_server.api.endpoints import BatchesEndpoint, Policies
from privateer_server.api.experiment_routes import experiments_router
from privateer_server.api.operators import Admins, Backups, Gauges, backup_router, operations_router
from privateer_server.api.pages import OPERATOR_PATH, READ_METHODS, PageVersions, build_dashboard, extend_openapi
from privateer_server.api.share_endpoints import ClosingsEndpoint, OpeningsEndpoint
from privateer_server.api.transparency import log_router, tokens_router
from privateer_server.data import Data
from privateer_server.experiments.catalog import open_experiments
from privateer_server.experiments.executor import ChangeExecutor
from privateer_server.intake.intake import Intake
from privateer_server.intake.leader import Leader
from privateer_server.metrics import ServerMetrics
from privateer_server.rounds.background_checks import Deadlines, Follower
from privateer_server.settings import ServerSettings, read_settings
from privateer_server.store.records import TRANSIENT_ERRORS
from privateer_server.traces import Traces

_log = logging.getLogger("privateer.server")
_API_DESCRIPTION: Final = (
    "Everybody may read policies and send reports. Changes, batches, metrics and backups are on the private listener "
    "alone. docs/wire-format.md describes publications, envelopes and signatures byte by byte."
)
_UNLOGGED_ROUTES: Final = frozenset({OTHER_LABEL, "/metrics"})
_PUBLIC_PAGES: Final = frozenset({"/healthz", "/readyz", "/keys", "/limits", "/reports", "/openapi.json"})
_DASHBOARD_PAGES: Final = build_dashboard()  # the dashboard's pages by path


def install_problem_handlers(app: FastAPI) -> None:
    """Answer every refusal of the control routes, and every unexpected error, with a problem document."""
    problems.install_problem_handlers(app, "server")
    app.add_exception_handler(RequestValidationError, _answer_invalid_request)
    for kind in TRANSIENT_ERRORS:
        app.add_exception_handler(kind, _on_transient_error)


async def _answer_invalid_request(_: Request, error: Exception) -> Response:
    """Refuse a request with the first of its invalid parameters."""
    assert isinstance(error, RequestValidationError)
    first_error = error.errors()[0]
    field = ".".join(str(part) for part in first_error["loc"][1:])
    refusal = ParameterInvalid(describe_error(first_error), field=field, remedy="correct the parameter")
    return problems.problem_response(refusal)


async def _on_transient_error(_: Request, error: Exception) -> Response:
    _log.error("a request finds no data (%s)", trace(error))
    refusal = Unavailable("the server cannot read or write its data now", remedy="try again later")
    return problems.problem_response(refusal)


class Server:
    """The ASGI application: two endpoints for reports, the dashboard, and control routes for all other paths."""

    def __init__(
        self,
        uploads: ReportsEndpoint,
        batches: Sequence[BatchesEndpoint],
        policies: Policies,
        pages: PageCache,
        end_waits: Callable[[], None],
        observe_answer: Callable[[AnswerTiming], None],
        origins: tuple[str, ...],
        rate_limit: RateLimit | None = None,
    ) -> None:
        self._endpoints: dict[str, ASGIApp] = {each.route: each for each in (uploads, *batches)}
        self._uploads, self._policies, self.end_waits = uploads, policies, end_waits
        self.rate_limit = rate_limit  # refuses uploads without a token, if required
        self._timed = TimingMiddleware(pages, _route_template, observe_answer)
        # the application without private pages, for the public listener
        self.public = OriginMiddleware(PublicPages(self, _is_public), origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or run the lifespan."""
        is_request = scope["type"] == "http"
        if endpoint := self._endpoints.get(scope["path"]) if is_request else None:
            await endpoint(scope, receive, send)
        elif answer := self._find_answer(scope) if is_request else None:
            await answer.send(scope, send)
        else:
            await self._timed(scope, receive, send)

    def answer_at_once(self, scope: Scope, body: bytearray, reply: Reply) -> bool:
        """Answer a complete upload, or the request for a policy or a kept page; False: ``__call__`` must answer."""
        if scope["path"] == self._uploads.route:
            return self._uploads.answer_at_once(scope, body, reply)
        answer = None if scope["path"] in self._endpoints else self._find_answer(scope)
        if answer:
            reply(answer)
        return answer is not None

    def _find_answer(self, scope: Scope) -> HttpAnswer | None:
        """Return an answer that is kept as bytes; None if there is none."""
        return self._policies.find_answer(scope) or self._timed.find_answer(scope)


def _route_template(scope: Scope) -> str:
    if scope["path"] in _DASHBOARD_PAGES:
        return "/"
    template = str(getattr(scope.get("route"), "path", ""))
    return f"{template}?wait" if b"wait=" in scope.get("query_string", b"") and template else template


def _is_public(method: str, path: str) -> bool:
    if path in _PUBLIC_PAGES:
        return True
    segments = path.split("/")
    if len(segments) == 4 and segments[1] == "experiments" and segments[3] in PRIVATE_PAGES:
        return False
    if path.startswith(OPERATOR_PATH):
        return False
    if path in _DASHBOARD_PAGES or path == "/experiments" or path.startswith("/experiments/"):
        return method in READ_METHODS
    return path.startswith("/log/") and method in READ_METHODS


def create_app(settings: ServerSettings, clock: Clock | None = None) -> Server:
    """Create the server on a data directory, locked until its lifespan ends; ``clock`` decides when rounds are due."""
    traces, clock = Traces(settings.traces_url), clock or SystemClock()
    gate = settings.tokens.gate(clock=clock)
    metrics = ServerMetrics(traces.trace_stage)
    admins = Admins(AdminTokens(settings.admin_token, settings.admin_tokens), clock)
    data, experiments = open_experiments(settings, clock)
    write_health, background = WriteHealth(partial(_probe_data, data, metrics), _log, clock), Background()
    intake = Intake(data, experiments, metrics, clock, settings.decrypt_workers, write_health)
    deadlines = Deadlines(experiments, intake, clock, background)
    gauges = Gauges(metrics, data, experiments, intake, write_health, clock)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        """Run the intake and all background tasks, and close the data at the end."""
        intake.start()
        for coroutine in (deadlines.run(), data.erase_obsolete_data(clock), traces.run(), write_health.run()):
            background.start(coroutine)
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
        description=_API_DESCRIPTION,
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        responses=describe_refusals(),
    )
    install_problem_handlers(control)
    control.include_router(operations_router(intake, experiments, write_health, metrics, gauges))
    control.include_router(backup_router(Backups(data.store, clock, metrics.registry), admins))
    budget = Budget(settings.body_budget)
    shufflers = TrustedKeys(settings.shuffler_keys)
    control.include_router(experiments_router(experiments, data.store, data.log.identity, admins, budget))
    control.include_router(log_router(data.log))
    executor = ChangeExecutor(data, experiments, intake, settings, clock)
    control.include_router(changes_router(executor, experiments, data.store, admins, budget))
    control.include_router(claims_router(experiments, admins, shufflers))
    control.include_router(tokens_router(gate))
    extend_openapi(control, _is_public)
    senders, required_gate = TrustedKeys(settings.sender_keys), gate if settings.tokens.required else None
    limits = budget, settings.report_bytes_max
    uploads = ReportsEndpoint(
        intake.submit, metrics.observe_answer, *limits, senders, metrics.count_refusals, required_gate
    )
    delivery = intake, metrics, budget, settings.batch_bytes_max, shufflers, traces.record_answer
    exchange = experiments, Leader(data.store, data.keys, shufflers, metrics), *delivery
    batches = BatchesEndpoint(*delivery), OpeningsEndpoint(*exchange), ClosingsEndpoint(*exchange)
    policies = Policies(experiments, data.log.identity, metrics.observe_answer)

    def observe_answer(answer: AnswerTiming) -> None:
        metrics.observe_answer(answer)
        traces.record_answer(answer)
        if answer.route not in _UNLOGGED_ROUTES and not _is_public(answer.method, answer.route):
            log_answer(answer)

    origins = settings.cors_origins
    rate_limit = _limit_rate(required_gate, metrics, senders, origins) if required_gate else None
    versions = PageVersions(experiments, gate, is_alone=data.notifications is None)
    pages = PageCache(HeadMiddleware(control), versions, _DASHBOARD_PAGES)
    return Server(uploads, batches, policies, pages, experiments.end_waits, observe_answer, origins, rate_limit)


async def _probe_data(data: Data, metrics: ServerMetrics) -> None:
    with metrics.stages["probe"].time():
        await asyncio.to_thread(data.write_probes)


def _limit_rate(gate: TokenGate, metrics: ServerMetrics, senders: TrustedKeys, origins: tuple[str, ...]) -> RateLimit:
    route = ReportsEndpoint.route
    return RateLimit(gate, lambda path: "" if path == route else None, metrics.count_refusals, senders, origins=origins)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the server until a signal stops it; print one line and exit with code 2 if it cannot start."""
    prepare_process()
    run("privateer-server", lambda: _open_listeners(sys.argv[1:] if arguments is None else arguments))


def _open_listeners(arguments: Sequence[str]) -> ServiceListeners:
    settings = read_settings(os.environ, arguments)
    addresses = (settings.host, settings.port), (settings.admin_host, settings.admin_port)
    with listen(*addresses) as (public, private):
        app = create_app(settings)
        return ServiceListeners(
            Listener(app.public, public, app.rate_limit),
            Listener(HostGuard(app, (settings.admin_host, *settings.admin_allowed_hosts)), private),
            "PostgreSQL" if settings.database else str(settings.data),
            app.end_waits,
        )
