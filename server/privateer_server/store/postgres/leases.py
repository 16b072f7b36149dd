"""Leases in the database: one server at a time closes a round of an experiment."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

from privateer_server.store.postgres.pool import Pool, Unreachable, run

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
_log = logging.getLogger("privateer.server")


class Leases:
    """Leases of experiments.

    A server that stands still for longer than its lease loses it, and does not know: two may close a round then. That
    costs time and nothing else, since the journal takes the release of one of them.

    Parameters
    ----------
    seconds
        How long a lease lasts that nobody renews.
    """

    def __init__(self, pool: Pool, seconds: float = SECONDS) -> None:
        self._pool, self._seconds = pool, seconds

    @contextmanager
    def held(self, experiment: str) -> Iterator[bool]:
        """Hold the lease of an experiment, renewed as long as the context lasts; false if another has it."""
        holder = os.urandom(_HOLDER_BYTES)
        with self._pool.connection() as db:
            has_lease = run(db, _TAKE, experiment, holder, self._seconds, self._seconds) == 1
        if not has_lease:
            yield False
            return
        over = Event()
        renewing = Thread(target=self._renew, args=(experiment, holder, over), name="lease", daemon=True)
        renewing.start()
        try:
            yield True
        finally:
            over.set()
            renewing.join()
            self._give_back(experiment, holder)

    def _renew(self, experiment: str, holder: bytes, over: Event) -> None:
        while not over.wait(self._seconds / 3):
            try:
                with self._pool.connection() as db:
                    if not run(db, _RENEW, self._seconds, experiment, holder):
                        _log.warning("experiment %s: another server has taken the lease over", experiment)
                        return
            except Unreachable:
                continue  # it may answer before the lease ends

    def _give_back(self, experiment: str, holder: bytes) -> None:
        try:
            with self._pool.connection() as db:
                run(db, "DELETE FROM leases WHERE experiment = %s AND holder = %s", experiment, holder)
        except Unreachable:
            return  # it expires
