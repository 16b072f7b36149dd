"""Writes experiments and rounds in transactions: reports that count, and the rounds that follow each other."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from sqlalchemy import ColumnElement, Connection, Table, Update, and_, delete, func, select, text, update

from privateer_core.codec import decode, encode
from privateer_core.serving.store.database import Database, DriverStatement, insert
from privateer_server.store.records import Behind, Leaf, LogLine, Plan, RoundRecord, RoundUpdate
from privateer_server.store.report_ids import ReportIds
from privateer_server.store.schema import (
    ANSWERS,
    CLOSERS,
    EXPERIMENTS,
    LEAVES,
    LOG,
    PARTS,
    ROUNDS,
    SPENT_TOKENS,
)

CHANNEL: Final = "privateer"
"""Where servers that share their data hear of changes to experiments."""
_PUBLISHING: Final = 2
"""Places in the public log have no gap: whoever has the next one keeps everybody else from the log until it commits."""
_COUNT: Final = DriverStatement("""
UPDATE rounds SET received = received + :counted, taken = taken OR :taken, given_up = given_up OR :given_up
WHERE experiment = :experiment AND version = :version
AND (NOT :counts OR NOT (taken OR given_up)) AND (NOT :is_limited OR received + :counted <= batch)
""")
_PUT_PART: Final = DriverStatement("""
INSERT INTO parts VALUES (:experiment, :version, :part, :total)
ON CONFLICT (experiment, version, part) DO UPDATE SET total = excluded.total
""")
_ADD_REFUSALS: Final = text("""
INSERT INTO refusals VALUES (:experiment, :reason, :count)
ON CONFLICT (experiment, reason) DO UPDATE SET count = refusals.count + excluded.count
""")


class RoundWriter:
    """Writes rounds in transactions of others, who hold the rounds' experiments.

    ids: where the ids of reports are.
    """

    def __init__(self, database: Database, ids: ReportIds) -> None:
        self._database, self._ids = database, ids

    def apply(self, db: Connection, changes: Sequence[RoundUpdate]) -> None:
        """Apply changes in a transaction that holds their experiments."""
        for change in changes:
            if change.following:
                self._publish(db, change, change.following)
            else:
                self._add(db, change)

    def insert(self, db: Connection, experiment: str, new: RoundRecord) -> None:
        """Add a round and its leaf of the public log."""
        db.execute(insert(ROUNDS).values(experiment=experiment, **asdict(new)))
        self.add_leaves(db, [Leaf(experiment, new.version, new.digest)])

    def add_leaves(self, db: Connection, leaves: Sequence[Leaf]) -> None:
        """Add leaves at the end of the log; what an earlier copy of the database had to recall is there already."""
        self._database.lock(db, _PUBLISHING)
        for leaf in leaves:
            row = asdict(leaf)
            if not db.execute(select(LEAVES.c.position).where(of_round(LEAVES, leaf.experiment, leaf.version))).first():
                end = db.execute(select(func.coalesce(func.max(LEAVES.c.position), 0))).scalar_one()
                db.execute(insert(LEAVES).values(position=end + 1, **row))

    def _add(self, db: Connection, change: RoundUpdate) -> None:
        where = {"experiment": change.experiment, "version": change.version}
        counting = {
            "counted": change.counted,
            "taken": change.taken,
            "given_up": change.given_up,
            "counts": bool(change.counted),
            # Only a shuffler's batches may hold more people than the round asked for.
            "is_limited": bool(change.counted and not change.answers),
        }
        if not _COUNT.run(db, where | counting):
            raise Behind("the round takes no more reports")
        if change.total is not None:
            _PUT_PART.run(db, {**where, "part": change.part, "total": change.total})
        if change.report_ids:
            self._ids.add(db, change)
        if change.tokens:
            db.execute(insert(SPENT_TOKENS), [token._asdict() for token in change.tokens])
        if change.answers:
            answers = [{**where, "digest": digest, "answer": answer} for digest, answer in change.answers.items()]
            db.execute(insert(ANSWERS), answers)
        if change.refused:
            refused = change.refused.items()
            db.execute(_ADD_REFUSALS, [{**where, "reason": reason, "count": count} for reason, count in refused])
        if change.closer:
            closer = asdict(change.closer)
            put = insert(CLOSERS).values(**where, **closer)
            db.execute(put.on_conflict_do_update(index_elements=["experiment", "version"], set_=closer))

    def _publish(self, db: Connection, change: RoundUpdate, following: RoundRecord) -> None:
        """Close the round, open the next one, and note that what an operator wanted holds from then on."""
        name, closed = change.experiment, (change.experiment, change.version)
        plan = db.execute(select(EXPERIMENTS.c.plan).where(EXPERIMENTS.c.name == name)).scalar_one_or_none()
        if plan is None:
            raise Behind("the experiment was deleted")
        there = select(ROUNDS.c.digest).where(of_round(ROUNDS, name, following.version))
        if db.execute(there).scalar_one_or_none() == following.digest:
            return
        ended = {"taken": change.taken, "given_up": not change.taken, "state": b"", "total": b""}
        db.execute(update(ROUNDS).where(of_round(ROUNDS, *closed)).values(ended))
        for table in (PARTS, self._ids.table):
            db.execute(delete(table).where(of_round(table, *closed)))
        self.insert(db, name, following)
        db.execute(change_of(name).values(plan=encode(decode(plan, Plan).carried_out)))
        waiting = update(LOG).where(LOG.c.experiment == name, LOG.c.since.is_(None))
        db.execute(waiting.values(since=following.version))
        self.notify(db, name)

    def notify(self, db: Connection, experiment: str) -> None:
        """Tell other servers of a change to an experiment, once it is committed."""
        if self._database.is_shared:
            db.execute(select(func.pg_notify(CHANNEL, experiment)))


def of_round(table: Table, experiment: str, version: int) -> ColumnElement[bool]:
    """Return the condition that a row is of a round."""
    return and_(table.c.experiment == experiment, table.c.version == version)


def change_of(name: str) -> Update:
    """Return the change of an experiment's row, which has no values yet."""
    return update(EXPERIMENTS).where(EXPERIMENTS.c.name == name)


def insert_line(db: Connection, experiment: str, line: LogLine) -> None:
    """Add a line to the log of an experiment."""
    db.execute(insert(LOG).values(experiment=experiment, **asdict(line)))
