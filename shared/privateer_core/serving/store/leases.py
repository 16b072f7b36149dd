"""Leases in the database: one replica at a time does what only one shall do."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

from privateer_core.serving.store.postgres import ConnectionPool, Unreachable, run

SECONDS: Final = 10.0
"""How long a lease lasts that nobody renews: whoever has it renews it three times in that time."""
_HOLDER_BYTES: Final = 16
_TAKE: Final = """
INSERT INTO leases VALUES (%s, %s, clock_timestamp() + %s * interval '1 second', 1)
ON CONFLICT (experiment) DO UPDATE SET
    holder = excluded.holder, expires = excluded.expires, attempts = leases.attempts + 1
WHERE leases.expires + least(greatest(leases.attempts - 2, 0), 20) * %s * interval '1 second' < clock_timestamp()
"""
"""A lease is free when it has expired; after the third holder that died with it, others wait longer each time."""
_RENEW: Final = """
UPDATE leases SET expires = clock_timestamp() + %s * interval '1 second' WHERE experiment = %s AND holder = %s
"""
_log = logging.getLogger("privateer.serving")


class Leases:
    """Leases of what has a name.

    A replica that stands still for longer than its lease loses it, and does not know: two may do the same then. So what
    they do must be the same twice, or one of them must find out before it counts.

    Parameters
    ----------
    seconds
        How long a lease lasts that nobody renews.
    """

    def __init__(self, pool: ConnectionPool, seconds: float = SECONDS) -> None:
        self._pool, self._seconds = pool, seconds

    def take(self, name: str) -> "Lease | None":
        """Take the lease of a name, which is renewed until it is given back; None if another has it."""
        holder = os.urandom(_HOLDER_BYTES)
        with self._pool.connection() as db:
            has_lease = run(db, _TAKE, name, holder, self._seconds, self._seconds) == 1
        return Lease(self._pool, self._seconds, name, holder) if has_lease else None

    @contextmanager
    def held(self, name: str) -> Iterator[bool]:
        """Hold the lease of a name as long as the context lasts; false if another has it."""
        lease = self.take(name)
        try:
            yield lease is not None
        finally:
            if lease:
                lease.give_back()


class Lease:
    """A lease that is held, renewed by a thread of its own."""

    def __init__(self, pool: ConnectionPool, seconds: float, name: str, holder: bytes) -> None:
        self._pool, self._seconds, self._name, self._holder = pool, seconds, name, holder
        self._over = Event()
        self._renewing = Thread(target=self._renew, name="lease", daemon=True)
        self._renewing.start()

    def _renew(self) -> None:
        while not self._over.wait(self._seconds / 3):
            try:
                with self._pool.connection() as db:
                    if not run(db, _RENEW, self._seconds, self._name, self._holder):
                        _log.warning("%s: another replica has taken the lease over", self._name)
                        return
            except Unreachable:
                continue  # it may answer before the lease ends

    def give_back(self) -> None:
        """Let another replica have it at once."""
        self._over.set()
        self._renewing.join()
        try:
            with self._pool.connection() as db:
                run(db, "DELETE FROM leases WHERE experiment = %s AND holder = %s", self._name, self._holder)
        except Unreachable:
            return  # it expires
