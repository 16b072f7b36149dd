"""Leases in the database: one replica at a time does what only one shall do."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

from sqlalchemy import Column, DateTime, Integer, LargeBinary, MetaData, Table, Text, text

from privateer_core.serving.store.database import Database, Unreachable

SECONDS: Final = 10.0
"""How long a lease lasts that nobody renews: whoever has it renews it three times in that time."""
_HOLDER_BYTES: Final = 16
_TAKE: Final = text("""
INSERT INTO leases VALUES (:name, :holder, clock_timestamp() + :seconds * interval '1 second', 1)
ON CONFLICT (experiment) DO UPDATE SET
    holder = excluded.holder, expires = excluded.expires, attempts = leases.attempts + 1
WHERE leases.expires + least(greatest(leases.attempts - 2, 0), 20) * :seconds * interval '1 second' < clock_timestamp()
""")
"""A lease is free when it has expired; after the third holder that died with it, others wait longer each time."""
_RENEW: Final = text("""
UPDATE leases SET expires = clock_timestamp() + :seconds * interval '1 second'
WHERE experiment = :name AND holder = :holder
""")
_GIVE_BACK: Final = text("DELETE FROM leases WHERE experiment = :name AND holder = :holder")
_log = logging.getLogger("privateer.serving")


def leases_table(tables: MetaData) -> Table:
    """Declare the table of leases among the tables of a database that replicas share."""
    return Table(
        "leases",
        tables,
        Column("experiment", Text, primary_key=True),
        Column("holder", LargeBinary, nullable=False),
        Column("expires", DateTime(timezone=True), nullable=False),
        Column("attempts", Integer, nullable=False),
    )


class Leases:
    """Leases of what has a name.

    A replica that stands still for longer than its lease loses it, and does not know: two may do the same then. So what
    they do must be the same twice, or one of them must find out before it counts.

    seconds: how long a lease lasts that nobody renews.
    """

    def __init__(self, database: Database, seconds: float = SECONDS) -> None:
        self._database, self._seconds = database, seconds

    def take(self, name: str) -> "Lease | None":
        """Take the lease of a name, which is renewed until it is given back; None if another has it."""
        holder = os.urandom(_HOLDER_BYTES)
        with self._database.connection() as db:
            taken = db.execute(_TAKE, {"name": name, "holder": holder, "seconds": self._seconds})
        return Lease(self._database, self._seconds, name, holder) if taken.rowcount else None

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

    def __init__(self, database: Database, seconds: float, name: str, holder: bytes) -> None:
        self._database, self._seconds, self._name = database, seconds, name
        self._whose = {"name": name, "holder": holder}
        self._over = Event()
        self._renewing = Thread(target=self._renew, name="lease", daemon=True)
        self._renewing.start()

    def _renew(self) -> None:
        while not self._over.wait(self._seconds / 3):
            try:
                with self._database.connection() as db:
                    if not db.execute(_RENEW, {**self._whose, "seconds": self._seconds}).rowcount:
                        _log.warning("%s: another replica has taken the lease over", self._name)
                        return
            except Unreachable:
                continue  # it may answer before the lease ends

    def give_back(self) -> None:
        """Let another replica have it at once."""
        self._over.set()
        self._renewing.join()
        try:
            with self._database.connection() as db:
                db.execute(_GIVE_BACK, self._whose)
        except Unreachable:
            return  # it expires
