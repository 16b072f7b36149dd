"""Examines a store for rows that do not agree."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import Enum
from typing import Final

from sqlalchemy import Connection, Select, Table, and_, func, select

from privateer_core.serving.store.database import Database, DatabaseFacts
from privateer_server.store.records import BackupRecord
from privateer_server.store.schema import BACKUP, EXPERIMENTS, LEAVES, LOG, PARTS, ROUNDS


class Disagreement(Enum):
    """Rows that do not agree."""

    NO_ROUND = "an experiment has no round"
    NOT_ERASED = "sums or ids of reports are left of a round that is over"
    NOT_IN_LOG = "a round is not in the public log as it was published"


@dataclass(frozen=True)
class StoreFindings:
    """The findings of a store that examines itself."""

    database: DatabaseFacts  # what the database says of itself
    # experiments, rounds: how many there are
    experiments: int
    rounds: int
    last_change: float  # when an operator changed something last, in seconds since 1970; 0: never
    # the names of the experiments whose rows do not agree, by what is wrong
    disagreements: dict[Disagreement, list[str]]
    backup: BackupRecord  # the last backups


_LAST: Final = (
    select(ROUNDS.c.experiment, func.max(ROUNDS.c.version).label("version")).group_by(ROUNDS.c.experiment).subquery()
)
_NO_ROUND: Final = select(EXPERIMENTS.c.name).where(EXPERIMENTS.c.name.not_in(select(ROUNDS.c.experiment)))
_NOT_IN_LOG: Final = (
    select(ROUNDS.c.experiment)
    .outerjoin(LEAVES, and_(LEAVES.c.experiment == ROUNDS.c.experiment, LEAVES.c.version == ROUNDS.c.version))
    .where(LEAVES.c.digest.is_distinct_from(ROUNDS.c.digest))
)


def examine(database: Database, ids: Table) -> StoreFindings:
    """Look at a store's rows in one state of its database.

    ids: where the ids of its reports are.
    """
    with database.snapshot() as db:
        count = select(func.count())
        experiments = db.execute(count.select_from(EXPERIMENTS)).scalar_one()
        rounds = db.execute(count.select_from(ROUNDS)).scalar_one()
        last_change = db.execute(select(func.coalesce(func.max(LOG.c.at), 0.0))).scalar_one()
        disagreements = dict(_disagreements(db, ids))
        backup = last_backup(db)
    return StoreFindings(database.examine(), experiments, rounds, last_change, disagreements, backup)


def last_backup(db: Connection) -> BackupRecord:
    """Return the last backups of a store."""
    row = db.execute(select(*(BACKUP.c[field.name] for field in fields(BackupRecord)))).first()
    return BackupRecord(*row) if row else BackupRecord()


def _disagreements(db: Connection, ids: Table) -> Iterator[tuple[Disagreement, list[str]]]:
    left = _left(PARTS).union(_left(ids))
    for kind, found in (
        (Disagreement.NO_ROUND, _NO_ROUND),
        (Disagreement.NOT_ERASED, left),
        (Disagreement.NOT_IN_LOG, _NOT_IN_LOG),
    ):
        if names := sorted(set(db.execute(found).scalars())):
            yield kind, names


def _left(table: Table) -> Select[str]:
    is_last = and_(_LAST.c.experiment == table.c.experiment, _LAST.c.version == table.c.version)
    return select(table.c.experiment).outerjoin(_LAST, is_last).where(_LAST.c.version.is_(None))
