"""The ids of counted reports, by which one that comes again is known: in memory, or where servers share them.

What may count further reports is locked meanwhile: nobody else changes these experiments.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Final

from sqlalchemy import Connection, Table, bindparam, select
from typing_extensions import override

from privateer_core.serving.store.database import Database, DriverStatement
from privateer_server.intake.opening import REPORT_ID_SIZE
from privateer_server.store.records import ExperimentState, RoundUpdate
from privateer_server.store.schema import JOINED_IDS, SINGLE_IDS

_JOINED: Final = select(JOINED_IDS.c.ids).where(
    JOINED_IDS.c.experiment == bindparam("name"), JOINED_IDS.c.version == bindparam("number")
)
_ADD_JOINED: Final = DriverStatement("INSERT INTO report_ids VALUES (:name, :number, :ids)")
_SEEN: Final = """
SELECT counted.id FROM unnest(%b::bytea[]) AS asked (id), LATERAL (
    SELECT id FROM report_ids WHERE experiment = %s AND version = %s AND report_ids.id = asked.id LIMIT 1
) AS counted
"""
"""The limit has PostgreSQL look each id up. Of ``id = ANY(...)`` it makes a filter where its statistics know little of
the round, as they do of a new one, and reads all ids of the round: 108 milliseconds instead of 3 for 900 of 200,000."""


class ReportIds(ABC):
    """The ids of reports that open rounds have counted."""

    table: Table  # where they are, by experiment and version

    @abstractmethod
    def seen(self, db: Connection | None, experiment: str, version: int, opened: Sequence[bytes]) -> Set[bytes]:
        """Return the ids of opened reports that are counted in a round, and perhaps others."""

    @abstractmethod
    def add(self, db: Connection, change: RoundUpdate) -> None:
        """Keep the ids of what a change counts, in its transaction."""

    @abstractmethod
    def note(self, change: RoundUpdate) -> None:
        """Learn that a change is durable."""

    @abstractmethod
    def forget(self, experiment: str) -> None:
        """Learn that an experiment is deleted."""


class IdsInMemory(ReportIds):
    """The ids of a server that is alone, which reads those of a round once and has them in memory from then on."""

    table = JOINED_IDS

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, tuple[int, set[bytes]]] = {}

    @override
    def seen(self, db: Connection | None, experiment: str, version: int, opened: Sequence[bytes]) -> Set[bytes]:
        """Return all ids that are counted in a round."""
        known = self._known.get(experiment)
        if known is None or known[0] != version:
            known = self._known[experiment] = version, self._read(experiment, version)
        return known[1]

    def _read(self, experiment: str, version: int) -> set[bytes]:
        with self._database.connection() as db:
            joined = db.execute(_JOINED, {"name": experiment, "number": version}).scalars().all()
        return {ids[at : at + REPORT_ID_SIZE] for ids in joined for at in range(0, len(ids), REPORT_ID_SIZE)}

    @override
    def add(self, db: Connection, change: RoundUpdate) -> None:
        # One row for all: a row or an index entry for each id would cost more than everything else the store does.
        row = {"name": change.experiment, "number": change.version, "ids": b"".join(change.report_ids)}
        _ADD_JOINED.run(db, row)

    @override
    def note(self, change: RoundUpdate) -> None:
        known = self._known.get(change.experiment)
        if known and known[0] == change.version:
            known[1].update(change.report_ids)

    @override
    def forget(self, experiment: str) -> None:
        self._known.pop(experiment, None)


class SharedIds(ReportIds):
    """The ids of servers that share their data, which ask for those of the reports at hand."""

    table = SINGLE_IDS

    @override
    def seen(self, db: Connection | None, experiment: str, version: int, opened: Sequence[bytes]) -> Set[bytes]:
        assert db is not None, "others are kept from the experiment on it"
        ids = [report[:REPORT_ID_SIZE] for report in opened if report]
        return set(db.exec_driver_sql(_SEEN, (ids, experiment, version)).scalars()) if ids else frozenset()

    @override
    def add(self, db: Connection, change: RoundUpdate) -> None:
        # One statement for all ids: the driver would send one for each.
        row = (change.experiment, change.version, list(change.report_ids))
        db.exec_driver_sql("INSERT INTO report_ids SELECT %s, %s, unnest(%b::bytea[])", row)

    @override
    def note(self, change: RoundUpdate) -> None:
        """Do nothing: the database has them."""

    @override
    def forget(self, experiment: str) -> None:
        """Do nothing: the database has forgotten them."""


class Locked:
    """Experiments that nobody else changes until `commit`, or until the context is left.

    standings: where they stand.
    ids: of the reports that they have counted.
    commit: applies changes.
    db: the transaction that holds them where servers share the store.
    """

    def __init__(
        self,
        standings: Mapping[str, ExperimentState],
        ids: ReportIds,
        commit: Callable[[Sequence[RoundUpdate]], None],
        db: Connection | None = None,
    ) -> None:
        self._standings, self._ids, self._commit, self._db = standings, ids, commit, db

    def standing(self, experiment: str) -> ExperimentState | None:
        """Return where an experiment stands; None if there is none of that name."""
        return self._standings.get(experiment)

    def seen(self, experiment: str, opened: Sequence[bytes]) -> Set[bytes]:
        """Return the ids of opened reports that are counted in the experiment's last round, and perhaps others."""
        return self._ids.seen(self._db, experiment, self._standings[experiment].version, opened)

    def commit(self, changes: Sequence[RoundUpdate]) -> None:
        """Apply all changes or none; they are durable when this returns."""
        self._commit(changes)
