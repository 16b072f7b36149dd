"""Leases in the database, for work that only one replica at a time may do."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

from sqlalchemy import Column, DateTime, Integer, LargeBinary, MetaData, Table, Text, text

from privateer_core.serving.store.database import Database, Unreachable

LEASE_SECONDS: Final = 10.0
"""Duration of a lease without renewal; its holder renews it three times in this time."""
_HOLDER_BYTES: Final = 16
_TAKE_SQL: Final = text("""
INSERT INTO leases VALUES (:name, :holder, clock_timestamp() + :seconds * interval '1 second', 1)
ON CONFLICT (experiment) DO UPDATE SET
    holder = excluded.holder, expires = excluded.expires, attempts = leases.attempts + 1
WHERE leases.expires + least(greatest(leases.attempts - 2, 0), 20) * :seconds * interval '1 second' < clock_timestamp()
""")
"""A lease is free when it has expired; from the third holder that died on, it stays blocked longer each time."""
_RENEW_SQL: Final = text("""
UPDATE leases SET expires = clock_timestamp() + :seconds * interval '1 second'
WHERE experiment = :name AND holder = :holder
""")
_GIVE_BACK_SQL: Final = text("DELETE FROM leases WHERE experiment = :name AND holder = :holder")
_log = logging.getLogger("privateer.serving")


def declare_leases_table(tables: MetaData) -> Table:
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
    """Leases by name.

    A replica that is suspended for longer than its lease loses it without notice, so that two replicas may do the same
    work. So the work must be idempotent, or a replica must check the lease before its result counts.
    """

    def __init__(self, database: Database, seconds: float = LEASE_SECONDS) -> None:
        self._database, self._seconds = database, seconds

    def take(self, name: str) -> "Lease | None":
        """Take the lease of a name, which is renewed until it is given back; None if another replica has it."""
        holder = os.urandom(_HOLDER_BYTES)
        with self._database.connection() as db:
            result = db.execute(_TAKE_SQL, {"name": name, "holder": holder, "seconds": self._seconds})
        return Lease(self._database, self._seconds, name, holder) if result.rowcount else None

    @contextmanager
    def hold(self, name: str) -> Iterator[bool]:
        """Hold the lease of a name as long as the context lasts; false if another replica has it."""
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
        self._parameters = {"name": name, "holder": holder}
        self._end_event = Event()
        self._renewal_thread = Thread(target=self._keep_renewing, name="lease", daemon=True)
        self._renewal_thread.start()

    def _keep_renewing(self) -> None:
        """Renew the lease until it is given back, or log that another replica has taken it over."""
        while not self._end_event.wait(self._seconds / 3):
            try:
                with self._database.connection() as db:
                    if not db.execute(_RENEW_SQL, {**self._parameters, "seconds": self._seconds}).rowcount:
                        _log.warning("%s: another replica has taken the lease over", self._name)
                        return
            except Unreachable:
                continue  # it may answer before the lease ends

    def give_back(self) -> None:
        """End the lease, so that another replica can take it at once."""
        self._end_event.set()
        self._renewal_thread.join()
        try:
            with self._database.connection() as db:
                db.execute(_GIVE_BACK_SQL, self._parameters)
        except Unreachable:
            return  # it expires
