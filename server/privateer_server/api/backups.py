"""The route of backups, made one at a time and sent in chunks, and the metrics of the last backup."""

import asyncio
import logging
import os
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, BinaryIO, Final

from fastapi import APIRouter, Depends
from prometheus_client import CollectorRegistry, Gauge
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from privateer_core.clock import Clock
from privateer_core.errors import Conflict, Unavailable
from privateer_core.serving.http.openapi import ADMIN_REFUSALS, describe_content, describe_refusals
from privateer_core.serving.logs import log_event, trace
from privateer_server.admin_tokens import Scope as TokenScope
from privateer_server.api.operators import Admins
from privateer_server.store.backup import MEDIA_TYPE
from privateer_server.store.records import TRANSIENT_ERRORS, BackupRecord
from privateer_server.store.store import Store

_DATABASE_SCHEMA: Final = {"type": "string", "format": "binary"}
_BACKUP_RESPONSES: Final = describe_content("The database", MEDIA_TYPE, _DATABASE_SCHEMA) | describe_refusals(
    *ADMIN_REFUSALS, Conflict, Unavailable
)
_CHUNK_BYTES: Final = 1 << 20
_TRUNCATED_BYTES: Final = 16 << 20
_STALL_TIMEOUT_SECONDS: Final = 600.0
_log = logging.getLogger("privateer.admin")


class Backups:
    """The creation of backups, and the record of the last backup, which is also stored for a restart."""

    def __init__(self, store: Store, clock: Clock, registry: CollectorRegistry) -> None:
        self._store, self._clock, self._lock = store, clock, threading.Lock()
        self._last = store.last_backup()
        completed_text = "When a backup was complete last; 0: none was."
        for name, text, read_value in (
            ("last_backup_timestamp_seconds", completed_text, lambda: self._last.completed),
            ("last_backup_seconds", "How long that took.", lambda: self._last.seconds),
            ("last_backup_bytes", "Its size.", lambda: self._last.bytes),
            ("last_backup_failed", "1 if the last backup that was begun did not complete.", self._has_failed),
        ):
            Gauge(f"privateer_{name}", text, registry=registry).set_function(read_value)

    def _has_failed(self) -> float:
        return float(self._last.is_incomplete and not self._lock.locked())

    def begin(self) -> BinaryIO:
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

    def end(self, size: int, n_sent_bytes: int, operator: str) -> None:
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
            self._backups.end(self._size, self._n_sent_bytes, self._operator)

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
        return _BackupResponse(backups.begin(), backups, operator)

    return router
