"""The route of backups, made one at a time and sent in chunks, and the metrics of the last one."""

import asyncio
import logging
import os
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, BinaryIO, Final

from fastapi import APIRouter, Depends
from prometheus_client import CollectorRegistry, Gauge
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from privateer_core.clock import Clock
from privateer_core.errors import Conflict, Unavailable
from privateer_core.serving.http.openapi import ADMIN_REFUSALS, refusals
from privateer_core.serving.logs import tell, trace
from privateer_server.admin_tokens import Scope as TokenScope
from privateer_server.api.operators import Admins
from privateer_server.store.backup import MEDIA_TYPE
from privateer_server.store.records import TRANSIENT, BackupRecord
from privateer_server.store.store import Store

_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The database", "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}},
    **refusals(*ADMIN_REFUSALS, Conflict, Unavailable),
}
_CHUNK_BYTES: Final = 1 << 20
_FREED_BYTES: Final = 16 << 20
_STALLED_SECONDS: Final = 600.0
_log = logging.getLogger("privateer.admin")


class Backups:
    """Makes backups, and remembers how the last one went; the store does so when the server restarts."""

    def __init__(self, store: Store, clock: Clock, registry: CollectorRegistry) -> None:
        self._store, self._clock, self._is_under_way = store, clock, threading.Lock()
        self._last = store.last_backup()
        for name, text, show in (
            ("last_backup_timestamp_seconds", "When a backup was complete last; 0: none was.", self._completed),
            ("last_backup_seconds", "How long that took.", lambda: self._last.seconds),
            ("last_backup_bytes", "Its size.", lambda: self._last.bytes),
            ("last_backup_failed", "1 if the last backup that was begun did not complete.", self._has_failed),
        ):
            Gauge(f"privateer_{name}", text, registry=registry).set_function(show)

    def _completed(self) -> float:
        return self._last.completed

    def _has_failed(self) -> float:
        return float(self._last.is_incomplete and not self._is_under_way.locked())

    def begin(self) -> BinaryIO:
        """Make a copy of the database; `end` must follow."""
        if self._store.is_shared:
            detail, remedy = "the data are in PostgreSQL", "use pg_dump on it (docs/operations/scale-servers.md)"
            raise Conflict(detail, field="PRIVATEER_DATABASE", remedy=remedy)
        if not self._is_under_way.acquire(blocking=False):
            raise Unavailable("another backup is under way", remedy="wait until it is complete")
        try:
            self._last = replace(self._last, begun=self._clock.now())
            self._store.note_backup(self._last)
            return self._store.backup()
        except Exception as error:
            self._is_under_way.release()
            _log.error("backup failed (%s)", trace(error))
            if not isinstance(error, (OSError, sqlite3.Error)):
                raise
            remedy = "make room on its disk, end what reads it, such as the doctor, and see the server's log"
            raise Unavailable("the database cannot be copied now", remedy=remedy) from None

    def end(self, size: int, sent: int, who: str) -> None:
        """Put on record how many bytes of a copy were sent."""
        try:
            if sent < size:
                tell(_log, "backup broke off", level=logging.WARNING, bytes=sent, of=size, by=who)
                return
            now, seconds = self._clock.now(), max(0.0, self._clock.now() - self._last.begun)
            self._last = BackupRecord(completed=now, seconds=seconds, bytes=size)
            tell(_log, "backup fetched", bytes=size, seconds=round(self._last.seconds), by=who)
            with suppress(*TRANSIENT):  # the metrics have it until a restart
                self._store.note_backup(self._last)
        finally:
            self._is_under_way.release()


class _Copy(StreamingResponse):
    """The answer that sends a copy of the database."""

    def __init__(self, copy: BinaryIO, backups: Backups, who: str) -> None:
        self._copy, self._backups, self._who = copy, backups, who
        self._size, self._sent = os.fstat(copy.fileno()).st_size, 0
        headers = {"Cache-Control": "no-store", "Content-Length": str(self._size)}
        super().__init__(self._chunks(), headers=headers, media_type=MEDIA_TYPE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until all of it is sent, or its receiver is gone or takes nothing for minutes."""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_STALLED_SECONDS) as self._patience:
                    await super().__call__(scope, receive, send)
        finally:
            await asyncio.to_thread(self._end)

    def _end(self) -> None:
        # The file has no name, so that its blocks are freed now, bit by bit: all at once would keep commits waiting.
        try:
            with self._copy, suppress(OSError):
                for size in range(self._size, 0, -_FREED_BYTES):
                    os.truncate(self._copy.fileno(), size)
        finally:
            self._backups.end(self._size, self._sent, self._who)

    async def _chunks(self) -> AsyncIterator[bytes]:
        while chunk := await asyncio.to_thread(self._copy.read, _CHUNK_BYTES):
            yield chunk
            self._sent += len(chunk)
            self._patience.reschedule(asyncio.get_running_loop().time() + _STALLED_SECONDS)


def backup_router(backups: Backups, admins: Admins) -> APIRouter:
    """Return the route, bound to what it copies."""
    router = APIRouter(tags=["operations"])

    @router.get("/backup", response_class=StreamingResponse, responses=_ANSWERS)
    def backup(who: Annotated[str, Depends(admins.may(TokenScope.BACKUP))]) -> StreamingResponse:
        """Copy the database, for ``privateer restore``; open rounds end with the copy."""
        return _Copy(backups.begin(), backups, who)

    return router
