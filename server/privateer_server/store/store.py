"""The server's store, embedded in one file or shared by servers in PostgreSQL."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from typing import Any, BinaryIO, Final, TypeVar

from sqlalchemy import Connection, Select, Table, and_, bindparam, delete, func, literal, select

from privateer_core.codec import decode, encode
from privateer_core.serving.store.database import Database, SqliteDatabase, insert
from privateer_core.serving.store.leases import Leases
from privateer_core.serving.store.token_table import delete_expired
from privateer_server.rounds.states import RoundState
from privateer_server.store.backup import open_copy
from privateer_server.store.findings import StoreFindings, examine_store, read_last_backup
from privateer_server.store.openings import Openings
from privateer_server.store.records import (
    NO_PLAN,
    BackupRecord,
    ExperimentRecord,
    ExperimentState,
    Leaf,
    LogLine,
    OutdatedState,
    Plan,
    PlanBasis,
    RoundRecord,
    RoundUpdate,
    ShufflerKey,
)
from privateer_server.store.rounds import (
    IdsInMemory,
    LockedExperiments,
    ReportIds,
    RoundWriter,
    SharedIds,
    in_round,
    insert_log_line,
    update_experiment,
)
from privateer_server.store.schema import (
    ANSWERS,
    BACKUP,
    DELETED,
    EXPERIMENTS,
    LEASES,
    LEAVES,
    LOG,
    OPENINGS,
    PARTS,
    PROBE,
    REFUSALS,
    ROUNDS,
    SHUFFLERS,
    SPENT_TOKENS,
    STORE_KIND,
)

ValueT = TypeVar("ValueT")
_ROUND_COLUMNS: Final = [column for column in ROUNDS.c if column.name != "experiment"]
_LOG_LINE_COLUMNS: Final = [column for column in LOG.c if column.name not in ("id", "experiment")]
_LARGE_COLUMNS: Final = ("publication", "state", "total")
_ROUNDS: Final = ROUNDS.alias()
_LATEST: Final = select(func.max(_ROUNDS.c.version)).where(_ROUNDS.c.experiment == EXPERIMENTS.c.name).scalar_subquery()
_SELECT_STATES: Final = (
    select(
        EXPERIMENTS.c.name,
        *(ROUNDS.c[name] for name in ("version", "digest", "received", "round_state")),
        *(EXPERIMENTS.c[name] for name in ("plan", "shuffler", "released_at")),
        REFUSALS.c.reason,
        REFUSALS.c.count,
    )
    .select_from(EXPERIMENTS)
    .outerjoin(ROUNDS, and_(ROUNDS.c.experiment == EXPERIMENTS.c.name, ROUNDS.c.version == _LATEST))
    .outerjoin(REFUSALS, REFUSALS.c.experiment == EXPERIMENTS.c.name)
    .order_by(EXPERIMENTS.c.name)
)
"""Selects the states of experiments, with a row for each reason for which reports were refused."""
_SELECT_STATE: Final = _SELECT_STATES.where(EXPERIMENTS.c.name == bindparam("name"))
_IS_LISTED: Final = EXPERIMENTS.c.name.in_(bindparam("names", expanding=True))
_LOCK: Final = select(EXPERIMENTS.c.name).where(_IS_LISTED).order_by(EXPERIMENTS.c.name).with_for_update(key_share=True)


class Store:
    """The durable state of a server. Every writing method is one transaction, durable when it returns.

    A call that raises one of `privateer_server.store.records.TRANSIENT_ERRORS` may have taken effect or not. The same
    call may work later. If servers share the database, every change locks the experiment's row first, and then reads
    its state: changes to an experiment are serialized, and changes to different experiments are concurrent.

    is_shared: whether other servers use the database, too.
    """

    def __init__(self, database: Database) -> None:
        self._database, self.is_shared = database, database.is_shared
        self._ids: ReportIds = SharedIds() if self.is_shared else IdsInMemory(database)
        self._rounds, self._leases = RoundWriter(database, self._ids), Leases(database)
        self.openings = Openings(database, self._lock_and_read_states)  # of batches in shares

    def create(self, name: str, spec: bytes, first: RoundRecord, line: LogLine | None = None) -> None:
        """Add an experiment with its first round and first line of its log; `OutdatedState` if its name exists."""
        row = {"name": name, "spec": spec, "shuffler": "", "plan": encode(NO_PLAN)}
        with self._database.transaction() as db:
            if not _insert_if_absent(db, EXPERIMENTS, row):
                raise OutdatedState("there is an experiment of this name")
            self._rounds.insert_round(db, name, first)
            if line:
                insert_log_line(db, name, line)
            self._rounds.notify(db, name)

    def store_plan(self, name: str, basis: PlanBasis, plan: Plan, line: LogLine) -> None:
        """Store an operator's plan for an experiment with its log line; refuse it if the experiment has changed."""
        with self._database.transaction() as db:
            state = self._lock_and_read_states(db, [name]).get(name)
            if state is None or PlanBasis(state.digest, state.plan) != basis or state.state is not RoundState.OPEN:
                raise OutdatedState("the experiment has changed")
            db.execute(update_experiment(name).values(plan=encode(plan)))
            insert_log_line(db, name, line)
            self._rounds.notify(db, name)

    def log(self, name: str) -> list[LogLine]:
        """Return the changes to an experiment in order, a deleted one included."""
        lines = select(*_LOG_LINE_COLUMNS).where(LOG.c.experiment == name).order_by(LOG.c.id)
        with self._database.connection() as db:
            return [LogLine(*row) for row in db.execute(lines)]

    def delete(self, name: str, line: LogLine) -> None:
        """Erase an experiment but for its name and log; erasing it again changes nothing."""
        with self._database.transaction() as db:
            self._lock_and_read_states(db, [name])
            if _insert_if_absent(db, DELETED, {"experiment": name}):
                insert_log_line(db, name, line)
            for table in (ROUNDS, PARTS, OPENINGS, self._ids.table, ANSWERS, REFUSALS, SHUFFLERS):
                db.execute(delete(table).where(table.c.experiment == name))
            if self.is_shared:
                db.execute(delete(LEASES).where(LEASES.c.experiment == name))
            db.execute(delete(EXPERIMENTS).where(EXPERIMENTS.c.name == name))
            self._rounds.notify(db, name)
        self._ids.forget(name)
        self.erase_old_states()

    def deleted_names(self) -> list[str]:
        """Return the names of deleted experiments."""
        with self._database.connection() as db:
            return list(db.execute(select(DELETED.c.experiment).order_by(DELETED.c.experiment)).scalars())

    @contextmanager
    def lock_experiments(self, names: Sequence[str]) -> Iterator[LockedExperiments]:
        """Lock experiments by name against changes by other processes, as long as the context lasts.

        A single server counts in one thread, and needs no lock.
        """
        if not self.is_shared:
            with self._database.connection() as db:
                states = _read_named_states(db, names)
            yield LockedExperiments(states, self._ids, self.commit)
            return
        with self._database.transaction() as db:
            yield LockedExperiments(self._lock_and_read_states(db, names), self._ids, partial(self._commit, db), db)
            db.rollback()  # what is not committed is not done

    def _commit(self, db: Connection, changes: Sequence[RoundUpdate]) -> None:
        self._rounds.apply(db, changes)
        db.commit()

    def commit(self, changes: Sequence[RoundUpdate]) -> None:
        """Apply all changes or no change, as `LockedExperiments.commit`; a closed round stays unchanged."""
        with self._database.transaction() as db:
            if self.is_shared:
                db.execute(_LOCK, {"names": [change.experiment for change in changes]})
            self._rounds.apply(db, changes)
        for change in changes:
            self._ids.note(change)
        if any(change.following for change in changes):
            self.erase_old_states()

    def lease(self, experiment: str) -> AbstractContextManager[bool]:
        """Hold the lease to close a round of an experiment; the context is false if another server has the lease.

        A slow server may lose the lease, and two servers may close the round: the journal takes one of their releases.
        """
        return self._leases.hold(experiment) if self.is_shared else nullcontext(True)

    def claim(self, experiment: str, shuffler: str, signed_at: float) -> bool:
        """Record a shuffler's claim, signed at a time; False after another's claim, or a release since then."""
        is_free = EXPERIMENTS.c.shuffler.in_(["", shuffler])
        statement = update_experiment(experiment).where(is_free, EXPERIMENTS.c.released_at < signed_at)
        with self._database.transaction() as db:
            self._rounds.notify(db, experiment)
            return db.execute(statement.values(shuffler=shuffler)).rowcount == 1

    def release(self, experiment: str, line: LogLine) -> None:
        """Remove a shuffler's claim of an experiment, with a log line; claims signed until then are void."""
        with self._database.transaction() as db:
            self._rounds.notify(db, experiment)
            db.execute(update_experiment(experiment).values(shuffler="", released_at=line.at))
            insert_log_line(db, experiment, line)

    def find_batch_answer(self, experiment: str, version: int, digest: bytes) -> bytes | None:
        """Return the answer to a batch, if the batch was counted."""
        query = select(ANSWERS.c.answer).where(in_round(ANSWERS, experiment, version), ANSWERS.c.digest == digest)
        return self._read_scalar(query)

    def experiment_state(self, experiment: str) -> ExperimentState | None:
        """Return the state of an experiment; None if there is no experiment of that name."""
        with self._database.connection() as db:
            return _read_named_states(db, [experiment]).get(experiment)

    def experiment_states(self) -> Mapping[str, ExperimentState]:
        """Return the states of all experiments, by name."""
        with self._database.connection() as db:
            return _read_states(db, _SELECT_STATES)

    def experiment(self, name: str) -> ExperimentRecord | None:
        """Return the record of an experiment, if it exists."""
        is_of_experiment = ROUNDS.c.experiment == name
        with self._database.snapshot() as db:
            state = _read_named_states(db, [name]).get(name)
            if state is None:
                return None
            spec = db.execute(select(EXPERIMENTS.c.spec).where(EXPERIMENTS.c.name == name)).scalar_one()
            last_round = select(*_ROUND_COLUMNS).where(is_of_experiment).order_by(ROUNDS.c.version.desc()).limit(1)
            current = RoundRecord(*db.execute(last_round).one())
            accepted = int(db.execute(select(func.sum(ROUNDS.c.received)).where(is_of_experiment)).scalar_one())
            parts = _read_parts(db, name, current.version)
        return ExperimentRecord(name, spec, accepted, current, parts, state)

    def experiments(self) -> list[ExperimentRecord]:
        """Return the records of all experiments, sorted by name."""
        return [record for name in self.experiment_states() if (record := self.experiment(name))]

    def sums(self, experiment: str, version: int) -> list[bytes]:
        """Return the initial sums of a round, and its partial sums."""
        with self._database.connection() as db:
            initial = db.execute(select(ROUNDS.c.total).where(in_round(ROUNDS, experiment, version))).scalars().all()
            return [*initial, *_read_parts(db, experiment, version)]

    def find_token_report(self, expires: int, token: bytes) -> bytes | None:
        """Return the hash of the report of an upload token, if the token was spent."""
        is_token = and_(SPENT_TOKENS.c.expires == expires, SPENT_TOKENS.c.token == token)
        return self._read_scalar(select(SPENT_TOKENS.c.report).where(is_token))

    def delete_some_expired_tokens(self, now: float) -> bool:
        """Delete a chunk of spent upload tokens whose keys have long expired; return whether more may remain."""
        return delete_expired(self._database, SPENT_TOKENS, now)

    def publication(self, experiment: str, version: int) -> bytes | None:
        """Return the publication of a version, if it exists."""
        return self._read_scalar(select(ROUNDS.c.publication).where(in_round(ROUNDS, experiment, version)))

    def _read_scalar(self, query: Select[ValueT]) -> ValueT | None:
        with self._database.connection() as db:
            return db.execute(query).scalar_one_or_none()

    def rounds(self, experiment: str) -> list[RoundRecord]:
        """Return the records of all rounds by version, without publication, state and total."""
        columns = [literal(b"") if column.name in _LARGE_COLUMNS else column for column in _ROUND_COLUMNS]
        query = select(*columns).where(ROUNDS.c.experiment == experiment).order_by(ROUNDS.c.version)
        with self._database.connection() as db:
            return [RoundRecord(*row) for row in db.execute(query)]

    def batch_shufflers(self, experiment: str) -> Mapping[int, ShufflerKey]:
        """Return the shuffler of each round's last batch, by version."""
        query = select(SHUFFLERS.c.version, SHUFFLERS.c.shuffler, SHUFFLERS.c.organisation)
        with self._database.connection() as db:
            rows = db.execute(query.where(SHUFFLERS.c.experiment == experiment))
            return {version: ShufflerKey(*names) for version, *names in rows}

    def leaves(self, start: int) -> list[Leaf]:
        """Return the leaves of the public log from an index on; leaves are only ever appended."""
        query = select(LEAVES.c.experiment, LEAVES.c.version, LEAVES.c.digest)
        with self._database.connection() as db:
            rows = db.execute(query.where(LEAVES.c.position > start).order_by(LEAVES.c.position))
            return [Leaf(*row) for row in rows]

    def leaf_index(self, experiment: str, version: int) -> int | None:
        """Return the index of a publication in the public log, if the log has it."""
        return self._read_scalar(select(LEAVES.c.position - 1).where(in_round(LEAVES, experiment, version)))

    def add_missing_leaves(self, leaves: Sequence[Leaf]) -> None:
        """Add leaves that an earlier copy of the database lacks."""
        with self._database.transaction() as db:
            self._rounds.append_missing_leaves(db, leaves)

    def write_probe(self) -> None:
        """Write a probe row, or raise the error that prevents writing."""
        statement = insert(PROBE).values(id=1, checks=1)
        with self._database.transaction() as db:
            db.execute(statement.on_conflict_do_update(index_elements=["id"], set_={"checks": PROBE.c.checks + 1}))

    def examine(self) -> StoreFindings:
        """Check the database and the consistency of its rows, without changes."""
        return examine_store(self._database, self._ids.table)

    def erase_old_states(self) -> None:
        """Erase remains of earlier states of the data, as far as the database can."""
        self._database.erase_old_states()

    def last_backup(self) -> BackupRecord:
        """Return the record of the last backups."""
        with self._database.connection() as db:
            return read_last_backup(db)

    def note_backup(self, record: BackupRecord) -> None:
        """Store the record of the last backups."""
        row = asdict(record)
        with self._database.transaction() as db:
            statement = insert(BACKUP).values(id=1, **row)
            db.execute(statement.on_conflict_do_update(index_elements=["id"], set_=row))

    def backup(self) -> BinaryIO:
        """Return a copy of the database without the sums and the ids of reports, so that its open rounds cannot go on.

        Reports are counted meanwhile. The copy is an unnamed file on the database's disk.
        """
        assert isinstance(self._database, SqliteDatabase), "PostgreSQL's own tools make backups"
        with ExitStack() as stack:
            with self._database.snapshot_file() as path:
                copy = stack.enter_context(open_copy(path, STORE_KIND))
            stack.pop_all()
        return copy

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _lock_and_read_states(self, db: Connection, names: Sequence[str]) -> dict[str, ExperimentState]:
        if self.is_shared:
            db.execute(_LOCK, {"names": names})
        return _read_named_states(db, names)


def _insert_if_absent(db: Connection, table: Table, row: dict[str, Any]) -> bool:
    statement = insert(table).values(row).on_conflict_do_nothing().execution_options(preserve_rowcount=True)
    return db.execute(statement).rowcount == 1


def _read_named_states(db: Connection, names: Sequence[str]) -> dict[str, ExperimentState]:
    states = {}
    for name in names:  # names are few, and Core runs a statement with a list slowly
        states.update(_read_states(db, _SELECT_STATE, name=name))
    return states


def _read_states(db: Connection, statement: Select[Any], **values: object) -> dict[str, ExperimentState]:
    """Return the experiment states that a statement of the form of `_SELECT_STATES` selects, by name."""
    rows, refusals = {}, defaultdict[str, dict[str, int]](dict)
    for name, *columns, reason, count in db.execute(statement, values):
        if columns[0] is None:
            raise ValueError("an experiment has no round")
        rows[name] = columns
        if reason is not None:
            refusals[name][reason] = count
    return {name: _state_from_row(row, refusals[name]) for name, row in rows.items()}


def _state_from_row(row: list[Any], refused: Mapping[str, int]) -> ExperimentState:
    version, digest, received, state, encoded_plan, shuffler, released_at = row
    plan = decode(encoded_plan, Plan)
    return ExperimentState(version, digest, received, state, plan, shuffler, released_at, refused)


def _read_parts(db: Connection, experiment: str, version: int) -> tuple[bytes, ...]:
    query = select(PARTS.c.total).where(in_round(PARTS, experiment, version)).order_by(PARTS.c.part)
    return tuple(db.execute(query).scalars())
