"""Routes for operators, and checks of their tokens: health, readiness, metrics, keys and backups.

Gauges are set when metrics are read: experiments, pending requests, keys and disks.
"""

import asyncio
import logging
import os
import sqlite3
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from typing import Annotated, BinaryIO, Final, TypeAlias

from fastapi import APIRouter, Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from privateer_core.clock import Clock
from privateer_core.errors import Conflict, ScopeMissing, Unauthorized, Unavailable
from privateer_core.experiment_status import Status
from privateer_core.serving.http.answer import OPERATOR_KEY, method_label
from privateer_core.serving.http.openapi import ADMIN_REFUSALS, describe_answer, describe_content, describe_refusals
from privateer_core.serving.http.report_endpoint import json_response
from privateer_core.serving.logs import BUILD, log_event, trace
from privateer_core.serving.write_health import WriteHealth, free_bytes
from privateer_server.admin_tokens import AdminTokens
from privateer_server.admin_tokens import Scope as TokenScope
from privateer_server.api.models import SealingKey
from privateer_server.api.views import build_sealing_key
from privateer_server.data import Data
from privateer_server.experiments.catalog import Experiments
from privateer_server.intake.intake import Intake
from privateer_server.metrics import ServerMetrics
from privateer_server.store.backup import MEDIA_TYPE
from privateer_server.store.records import TRANSIENT_ERRORS, BackupRecord
from privateer_server.store.store import Store

_TOKEN_SCHEME: Final = HTTPBearer(scheme_name="admin", description="An operator's token", auto_error=False)
Token: TypeAlias = Annotated[HTTPAuthorizationCredentials | None, Depends(_TOKEN_SCHEME)]
"""The bearer token of a request, if any."""
_MIN_LOG_INTERVAL_SECONDS: Final = 1.0
"""Refusals sooner after a log line are not logged, so that guessed tokens cannot fill the log."""
_log = logging.getLogger("privateer.admin")
_LOG_REMEDY: Final = "see the server's log"


class Gauges:
    """The metrics that are set when they are read. Times are absolute, so that readers can compute ages."""

    def __init__(
        self,
        metrics: ServerMetrics,
        data: Data,
        experiments: Experiments,
        intake: Intake,
        write_health: WriteHealth,
        clock: Clock,
    ) -> None:
        self._registry, self._data, self._experiments, self._intake = metrics.registry, data, experiments, intake
        self._write_health = write_health
        self._version = self._gauge("version", "Policy version.", "experiment")
        text = "When the open round was published, and its key made."
        self._opened = self._gauge("round_opened_timestamp_seconds", text, "experiment")
        self._statuses = self._gauge("experiments", "Experiments by status.", "status")
        self._unclosed = self._gauge("round_close_failures", "Rounds that are over, and whose closing has failed.")
        self._pending = self._gauge("requests_waiting", "Uploads and batches that wait for their answer.")
        self._oldest_wait = self._gauge("oldest_request_seconds", "How long the oldest of them has waited.")
        self._unerased = self._gauge("retained_keys", "Keys of closed rounds that the disk did not let go.")
        self._counting = self._gauge("intake_up", "1 as long as reports are counted and the store writes.")
        self._gauge("time_seconds", "The time of day here, in seconds since 1970.").set_function(clock.now)
        text = "Free bytes of the disk with the data, and of that with the journal."
        free = self._gauge("disk_free_bytes", text, "of")
        for name, folder in data.folders.items():
            free.labels(name).set_function(partial(free_bytes, folder))

    def refresh(self) -> None:
        """Set all gauges to current values."""
        self._version.clear()  # deleted experiments have none
        self._opened.clear()
        for experiment in self._experiments:
            self._version.labels(experiment.name).set(experiment.current.round.version)
            if experiment.current.round.batch_size:
                self._opened.labels(experiment.name).set(experiment.current.opened_at)
        statuses = Counter(experiment.status for experiment in self._experiments)
        for status in Status:
            self._statuses.labels(status).set(statuses[status])
        self._unclosed.set(sum(experiment.has_failed_closing for experiment in self._experiments))
        self._pending.set(self._intake.n_pending)
        self._oldest_wait.set(self._intake.oldest_wait_seconds)
        self._unerased.set(self._data.keys.n_unerased)
        self._counting.set(self._intake.is_running and self._write_health.is_writing)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"privateer_{name}", text, labels, registry=self._registry)


class Admins:
    """The authorization of operators at the private listener."""

    def __init__(self, tokens: AdminTokens, clock: Clock) -> None:
        self._tokens, self._clock = tokens, clock
        self._last_log_time, self._n_unlogged = -_MIN_LOG_INTERVAL_SECONDS, 0

    def require(self, scope: TokenScope) -> Callable[..., str]:
        """Return a FastAPI dependency that requires a scope, and returns the token's name for the log."""

        def authorize(request: Request, token: Token = None) -> str:
            bearer_token = token.credentials.strip() if token else ""
            try:
                operator = self._tokens.authorize(bearer_token, scope, self._clock.now())
            except (Unauthorized, ScopeMissing) as refusal:
                self._log_refusal(request, refusal)
                raise
            request.scope[OPERATOR_KEY] = operator
            return operator

        return authorize

    def _log_refusal(self, request: Request, refusal: Unauthorized | ScopeMissing) -> None:
        """Log a refusal with route, reason and kind of address, without data of the request."""
        now = self._clock.monotonic()
        if now - self._last_log_time < _MIN_LOG_INTERVAL_SECONDS:
            self._n_unlogged += 1
            return
        request_line = f"{method_label(request.scope)} {getattr(request.scope.get('route'), 'path', '')}"
        omitted_count = {"more_since_the_line_before": self._n_unlogged} if self._n_unlogged else {}
        facts = {"wanted": request_line, "sender": _address_kind(request), "why": refusal.detail}
        log_event(_log, "operator refused", level=logging.WARNING, **facts, **omitted_count)
        self._last_log_time, self._n_unlogged = now, 0


def _address_kind(request: Request) -> str:
    """Return the kind of a request's address: logs contain no addresses."""
    try:
        address = ip_address(request.client.host if request.client else "")
    except ValueError:
        return "an unknown address"
    if address.is_loopback:
        return "this machine"
    return "a private network" if address.is_private else "a public address"


def operations_router(
    intake: Intake, experiments: Experiments, write_health: WriteHealth, metrics: ServerMetrics, gauges: Gauges
) -> APIRouter:
    """Return the routes of health, metrics, limits and keys."""
    router = APIRouter(tags=["operations"])

    @router.get("/healthz")
    async def health() -> dict[str, str]:
        """Say that the process answers."""
        return {"status": "ok"}

    @router.get("/readyz", responses=describe_refusals(Unavailable))
    async def ready() -> dict[str, str]:
        """Say whether reports can be counted and stored."""
        if not intake.is_running:
            raise Unavailable("reports are not being counted", remedy=_LOG_REMEDY)
        if not await write_health.check():
            raise Unavailable("the server cannot write its data", remedy=_LOG_REMEDY)
        return {"status": "ready"}

    @router.get("/version")
    async def version() -> dict[str, str]:
        """Say which version this is, and of which commit; the commit is empty where it is not known."""
        return {"version": BUILD.version, "commit": BUILD.commit}

    @router.get("/metrics", response_class=PlainTextResponse)
    async def show_metrics() -> Response:
        """Show the counters in Prometheus' text format."""
        gauges.refresh()
        return Response(metrics.export_text(), media_type=CONTENT_TYPE_LATEST)

    @router.get("/limits", responses=describe_answer("ServerLimits", "The limits."))
    def limits() -> Response:
        """Show the server's limits: what it creates no experiment beyond."""
        return json_response(experiments.limits, 200)

    @router.get("/keys", responses=describe_refusals(Unavailable))
    async def keys() -> dict[str, list[SealingKey]]:
        """List the public keys to which reports of open rounds are sealed (X25519, hex)."""
        rounds = [experiment.current.round for experiment in experiments]
        return {"keys": [build_sealing_key(facts) for facts in rounds if facts.batch_size]}

    return router


_DATABASE_SCHEMA: Final = {"type": "string", "format": "binary"}
_BACKUP_RESPONSES: Final = describe_content("The database", MEDIA_TYPE, _DATABASE_SCHEMA) | describe_refusals(
    *ADMIN_REFUSALS, Conflict, Unavailable
)
_CHUNK_BYTES: Final = 1 << 20
_TRUNCATED_BYTES: Final = 16 << 20
_STALL_TIMEOUT_SECONDS: Final = 600.0


class Backups:
    """The creation of backups, and the record of the last backup, which is also stored for a restart."""

    def __init__(self, store: Store, clock: Clock, registry: CollectorRegistry) -> None:
        self._store, self._clock, self._lock = store, clock, threading.Lock()
        self._last = store.last_backup()
        completed_text = "When a backup was complete last; 0: none was."
        for name, text, read_value in (
            ("last_backup_timestamp_seconds", completed_text, lambda: self._last.completed),
            ("last_backup_duration_seconds", "How long that took.", lambda: self._last.seconds),
            ("last_backup_bytes", "Its size.", lambda: self._last.bytes),
            ("last_backup_failed", "1 if the last backup that was begun did not complete.", self._has_failed),
        ):
            Gauge(f"privateer_{name}", text, registry=registry).set_function(read_value)

    def _has_failed(self) -> float:
        return float(self._last.is_incomplete and not self._lock.locked())

    def copy_database(self) -> BinaryIO:
        """Return a copy of the database; `end` must follow."""
        if self._store.is_shared:
            detail, remedy = "the data are in PostgreSQL", "use pg_dump on it (docs/operations/scale-servers.md)"
            raise Conflict(detail, field="PRIVATEER_DATABASE", remedy=remedy)
        if not self._lock.acquire(blocking=False):
            raise Unavailable("another backup is under way", remedy="wait until it is complete")
        try:
            self._last = replace(self._last, begun=self._clock.now())
            self._store.note_backup(self._last)
            return self._store.backup()
        except Exception as error:
            self._lock.release()
            _log.error("backup failed (%s)", trace(error))
            if not isinstance(error, (OSError, sqlite3.Error)):
                raise
            remedy = "make room on its disk, end what reads it, such as the doctor, and see the server's log"
            raise Unavailable("the database cannot be copied now", remedy=remedy) from None

    def record_copy(self, size: int, n_sent_bytes: int, operator: str) -> None:
        """Record how many bytes of a copy were sent."""
        try:
            if n_sent_bytes < size:
                log_event(_log, "backup broke off", level=logging.WARNING, bytes=n_sent_bytes, of=size, by=operator)
                return
            now, seconds = self._clock.now(), max(0.0, self._clock.now() - self._last.begun)
            self._last = BackupRecord(completed=now, seconds=seconds, bytes=size)
            log_event(_log, "backup fetched", bytes=size, seconds=round(self._last.seconds), by=operator)
            with suppress(*TRANSIENT_ERRORS):  # the metrics have it until a restart
                self._store.note_backup(self._last)
        finally:
            self._lock.release()


class _BackupResponse(StreamingResponse):
    """The response that sends a copy of the database."""

    def __init__(self, copy: BinaryIO, backups: Backups, operator: str) -> None:
        self._copy, self._backups, self._operator = copy, backups, operator
        self._size, self._n_sent_bytes = os.fstat(copy.fileno()).st_size, 0
        headers = {"Cache-Control": "no-store", "Content-Length": str(self._size)}
        super().__init__(self._chunks(), headers=headers, media_type=MEDIA_TYPE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the copy until it is complete, or its receiver has disconnected or stalled."""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_STALL_TIMEOUT_SECONDS) as self._timeout:
                    await super().__call__(scope, receive, send)
        finally:
            await asyncio.to_thread(self._end)

    def _end(self) -> None:
        """Free the copy's blocks in steps, since freeing all at once would delay commits, and end the backup."""
        try:
            with self._copy, suppress(OSError):
                for size in range(self._size, 0, -_TRUNCATED_BYTES):
                    os.truncate(self._copy.fileno(), size)
        finally:
            self._backups.record_copy(self._size, self._n_sent_bytes, self._operator)

    async def _chunks(self) -> AsyncIterator[bytes]:
        """Yield the copy in chunks, each of which restarts the time limit of a stalled receiver."""
        while chunk := await asyncio.to_thread(self._copy.read, _CHUNK_BYTES):
            yield chunk
            self._n_sent_bytes += len(chunk)
            self._timeout.reschedule(asyncio.get_running_loop().time() + _STALL_TIMEOUT_SECONDS)


def backup_router(backups: Backups, admins: Admins) -> APIRouter:
    """Return the route of backups."""
    router = APIRouter(tags=["operations"])

    @router.get("/backup", response_class=StreamingResponse, responses=_BACKUP_RESPONSES)
    def backup(operator: Annotated[str, Depends(admins.require(TokenScope.BACKUP))]) -> StreamingResponse:
        """Copy the database, for ``privateer restore``; open rounds end with the copy."""
        return _BackupResponse(backups.copy_database(), backups, operator)

    return router
