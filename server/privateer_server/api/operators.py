"""Routes for operators, and what their tokens let them do: health, readiness, metrics and keys.

Gauges are set when somebody looks: experiments, what waits, keys and disks.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final, TypeAlias, get_args

from fastapi import APIRouter, Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, Gauge
from starlette.responses import PlainTextResponse, Response

from privateer_core.answer.export import Status
from privateer_core.clock import Clock
from privateer_core.errors import ScopeMissing, Unauthorized, Unavailable
from privateer_core.serving.http.openapi import answers, refusals
from privateer_core.serving.http.report_endpoint import answer
from privateer_core.serving.http.timing import WHO, known_method
from privateer_core.serving.logs import BUILD, tell
from privateer_core.serving.write_health import WriteHealth, free_bytes
from privateer_server.admin_tokens import AdminTokens, Scope
from privateer_server.api.models import PublicKey
from privateer_server.api.views import public_key
from privateer_server.data import Data
from privateer_server.experiments.catalog import Experiments
from privateer_server.intake.intake import Intake
from privateer_server.metrics import ServerMetrics

_EXPERIMENT: Final = ("experiment",)
_SCHEME: Final = HTTPBearer(scheme_name="admin", description="An operator's token", auto_error=False)
Token: TypeAlias = Annotated[HTTPAuthorizationCredentials | None, Depends(_SCHEME)]
"""The token that a request bears, if it bears one."""
_QUIET_SECONDS: Final = 1.0
"""Refusals that come sooner after a line have none of their own: anybody who guesses tokens must not fill the log."""
_admin_log = logging.getLogger("privateer.admin")
_RESTART: Final = "see the server's log"


class Gauges:
    """Metrics that are read when they are shown. Times are absolute: their reader knows how old they are."""

    def __init__(
        self,
        metrics: ServerMetrics,
        data: Data,
        experiments: Experiments,
        intake: Intake,
        writes: WriteHealth,
        clock: Clock,
    ) -> None:
        self._registry, self._data, self._experiments, self._intake = metrics.registry, data, experiments, intake
        self._writes = writes
        self._version = self._gauge("version", "Policy version.", *_EXPERIMENT)
        self._opened = self._gauge(
            "round_opened_timestamp_seconds", "When the open round was published, and its key made.", *_EXPERIMENT
        )
        self._statuses = self._gauge("experiments", "Experiments by status.", "status")
        self._unclosed = self._gauge("rounds_not_closed", "Rounds that are over, and whose closing has failed.")
        self._waiting = self._gauge("requests_waiting", "Uploads and batches that wait for their answer.")
        self._oldest = self._gauge("oldest_request_seconds", "How long the oldest of them has waited.")
        self._unerased = self._gauge("keys_not_erased", "Keys of closed rounds that the disk did not let go.")
        self._counting = self._gauge("counting", "1 as long as reports are counted and the store writes.")
        self._gauge("time_seconds", "The time of day here, in seconds since 1970.").set_function(clock.now)
        self._watch_disks(data.folders)

    def refresh(self) -> None:
        """Read what is shown next."""
        self._version.clear()  # deleted experiments have none
        self._opened.clear()
        for one in self._experiments:
            self._version.labels(one.name).set(one.current.round.version)
            if one.current.round.batch:
                self._opened.labels(one.name).set(one.current.opened)
        statuses = Counter(one.status for one in self._experiments)
        for status in get_args(Status):
            self._statuses.labels(status).set(statuses[status])
        self._unclosed.set(sum(one.is_put_off for one in self._experiments))
        self._waiting.set(self._intake.waiting)
        self._oldest.set(self._intake.oldest_wait)
        self._unerased.set(self._data.keys.unerased)
        self._counting.set(self._intake.running and self._writes.is_writing)

    def _watch_disks(self, folders: Mapping[str, Path]) -> None:
        text = "Free bytes of the disk with the data, and of that with the journal."
        free = self._gauge("disk_free_bytes", text, "of")
        for name, folder in folders.items():
            free.labels(name).set_function(partial(free_bytes, folder))

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"privateer_{name}", text, labels, registry=self._registry)


class Admins:
    """Checks what the bearer of a token may do at the private listener.

    tokens: what is compared.
    clock: says which tokens have expired.
    """

    def __init__(self, tokens: AdminTokens, clock: Clock) -> None:
        self._tokens, self._clock = tokens, clock
        self._logged, self._unlogged = -_QUIET_SECONDS, 0

    def may(self, scope: Scope) -> Callable[..., str]:
        """Return what a route depends on that needs a scope: it returns how logs name the token.

        What it returns is also in the log line of the request.
        """

        def admitted(request: Request, token: Token = None) -> str:
            given = token.credentials.strip() if token else ""
            try:
                who = self._tokens.authorize(given, scope, self._clock.now())
            except (Unauthorized, ScopeMissing) as refused:
                self._tell(request, refused)
                raise
            request.scope[WHO] = who
            return who

        return admitted

    def _tell(self, request: Request, refused: Unauthorized | ScopeMissing) -> None:
        """Log a refusal: what was wanted, why not, and from what kind of address; nothing of what was sent."""
        now = self._clock.monotonic()
        if now - self._logged < _QUIET_SECONDS:
            self._unlogged += 1
            return
        wanted = f"{known_method(request.scope)} {getattr(request.scope.get('route'), 'path', '')}"
        more = {"more_since_the_line_before": self._unlogged} if self._unlogged else {}
        facts = {"wanted": wanted, "sender": _kind(request), "why": refused.detail}
        tell(_admin_log, "operator refused", level=logging.WARNING, **facts, **more)
        self._logged, self._unlogged = now, 0


def _kind(request: Request) -> str:
    """Return what kind of address a request comes from: a log keeps no addresses."""
    try:
        address = ip_address(request.client.host if request.client else "")
    except ValueError:
        return "an unknown address"
    if address.is_loopback:
        return "this machine"
    return "a private network" if address.is_private else "a public address"


def operations_router(
    intake: Intake, experiments: Experiments, writes: WriteHealth, metrics: ServerMetrics, gauges: Gauges
) -> APIRouter:
    """Return the routes, bound to what they look at."""
    router = APIRouter(tags=["operations"])

    @router.get("/healthz")
    async def health() -> dict[str, str]:
        """Say that the process answers."""
        return {"status": "ok"}

    @router.get("/readyz", responses=refusals(Unavailable))
    async def ready() -> dict[str, str]:
        """Say whether reports can be counted and stored."""
        if not intake.running:
            raise Unavailable("reports are not being counted", remedy=_RESTART)
        if not await writes.check():
            raise Unavailable("the server cannot write its data", remedy=_RESTART)
        return {"status": "ready"}

    @router.get("/version")
    async def version() -> dict[str, str]:
        """Say which version this is, and of which commit; the commit is empty where it is not known."""
        return {"version": BUILD.version, "commit": BUILD.commit}

    @router.get("/metrics", response_class=PlainTextResponse)
    async def show_metrics() -> Response:
        """Show the counters in Prometheus' text format."""
        gauges.refresh()
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @router.get("/limits", responses=answers("ServerLimits", "They."))
    def limits() -> Response:
        """Show the server's limits: what it creates no experiment beyond."""
        return answer(experiments.limits, 200)

    @router.get("/keys", responses=refusals(Unavailable))
    async def keys() -> dict[str, list[PublicKey]]:
        """List the public keys to which reports of open rounds are sealed (X25519, hex)."""
        rounds = [experiment.current.round for experiment in experiments]
        return {"keys": [public_key(facts) for facts in rounds if facts.batch]}

    return router
