"""Checks of a store for rows that contradict each other."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Final

from sqlalchemy import Connection, Select, Table, and_, func, select

from privateer_core.serving.store.database import Database, DatabaseFacts
from privateer_server.store.records import BackupRecord
from privateer_server.store.schema import BACKUP, EXPERIMENTS, LEAVES, LOG, OPENINGS, PARTS, ROUNDS


class Disagreement(Enum):
    """Rows that do not agree."""

    NO_ROUND = "an experiment has no round"
    NOT_ERASED = "sums or ids of reports are left of a round that is over"
    NOT_IN_LOG = "a round is not in the public log as it was published"


@dataclass(frozen=True)
class StoreFindings:
    """The result of a store's consistency check."""

    database: DatabaseFacts  # facts of the database itself
    # experiments, rounds: their numbers
    experiments: int
    rounds: int
    last_change: float  # when an operator changed something last, in seconds since 1970; 0: never
    # the names of the experiments whose rows do not agree, by what is wrong
    disagreements: dict[Disagreement, list[str]]
    backup: BackupRecord  # the last backups


_LAST_VERSIONS: Final = (
    select(ROUNDS.c.experiment, func.max(ROUNDS.c.version).label("version")).group_by(ROUNDS.c.experiment).subquery()
)
_WITHOUT_ROUND: Final = select(EXPERIMENTS.c.name).where(EXPERIMENTS.c.name.not_in(select(ROUNDS.c.experiment)))
_ROUNDS_NOT_IN_LOG: Final = (
    select(ROUNDS.c.experiment)
    .outerjoin(LEAVES, and_(LEAVES.c.experiment == ROUNDS.c.experiment, LEAVES.c.version == ROUNDS.c.version))
    .where(LEAVES.c.digest.is_distinct_from(ROUNDS.c.digest))
)


def examine_store(database: Database, ids: Table) -> StoreFindings:
    """Check a store's rows in one snapshot of its database."""
    with database.snapshot() as db:
        count = select(func.count())
        experiments = db.execute(count.select_from(EXPERIMENTS)).scalar_one()
        rounds = db.execute(count.select_from(ROUNDS)).scalar_one()
        last_change = db.execute(select(func.coalesce(func.max(LOG.c.at), 0.0))).scalar_one()
        disagreements = dict(_find_disagreements(db, ids))
        backup = read_last_backup(db)
    return StoreFindings(database.examine(), experiments, rounds, last_change, disagreements, backup)


def read_last_backup(db: Connection) -> BackupRecord:
    """Read the record of the last backups of a store."""
    row = db.execute(select(*(BACKUP.c[field.name] for field in fields(BackupRecord)))).first()
    return BackupRecord(*row) if row else BackupRecord()


def _find_disagreements(db: Connection, ids: Table) -> Iterator[tuple[Disagreement, list[str]]]:
    """Yield each disagreement that the database has, with the names of its experiments."""
    unerased_rows = _select_unerased(PARTS).union(_select_unerased(OPENINGS), _select_unerased(ids))
    queries: tuple[Any, ...] = (_WITHOUT_ROUND, unerased_rows, _ROUNDS_NOT_IN_LOG)
    for disagreement, query in zip(Disagreement, queries, strict=True):
        if names := sorted(set(db.execute(query).scalars())):
            yield disagreement, names


def _select_unerased(table: Table) -> Select[str]:
    is_last = and_(_LAST_VERSIONS.c.experiment == table.c.experiment, _LAST_VERSIONS.c.version == table.c.version)
    return select(table.c.experiment).outerjoin(_LAST_VERSIONS, is_last).where(_LAST_VERSIONS.c.version.is_(None))
