"""The server's store, embedded in one file or shared by servers in PostgreSQL."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from typing import Any, BinaryIO, Final

from sqlalchemy import Connection, Select, Table, and_, bindparam, delete, func, literal, select

from privateer_core.codec import decode, encode
from privateer_core.serving.store.database import Database, insert
from privateer_core.serving.store.leases import Leases
from privateer_core.serving.store.spent_tokens import forget_expired
from privateer_core.serving.store.sqlite import SqliteDatabase
from privateer_server.store.backup import open_copy
from privateer_server.store.findings import StoreFindings, examine, last_backup
from privateer_server.store.records import (
    NO_PLAN,
    BackupRecord,
    Behind,
    ExperimentRecord,
    ExperimentState,
    Leaf,
    LogLine,
    Plan,
    PlanBefore,
    RoundRecord,
    RoundUpdate,
    ShufflerKey,
)
from privateer_server.store.report_ids import IdsInMemory, Locked, ReportIds, SharedIds
from privateer_server.store.rounds import RoundWriter, change_of, insert_line, of_round
from privateer_server.store.schema import (
    ANSWERS,
    BACKUP,
    CLOSERS,
    DELETED,
    EXPERIMENTS,
    LEASES,
    LEAVES,
    LOG,
    PARTS,
    PROBE,
    REFUSALS,
    ROUNDS,
    SPENT_TOKENS,
    STORE_KIND,
)

_ROUND: Final = [column for column in ROUNDS.c if column.name != "experiment"]
_LINE: Final = [column for column in LOG.c if column.name not in ("id", "experiment")]
_CONTENTS: Final = ("publication", "state", "total")
_EARLIER: Final = ROUNDS.alias()
_LAST: Final = select(func.max(_EARLIER.c.version)).where(_EARLIER.c.experiment == EXPERIMENTS.c.name).scalar_subquery()
_STATES: Final = (
    select(
        EXPERIMENTS.c.name,
        *(ROUNDS.c[name] for name in ("version", "digest", "received", "taken", "given_up")),
        *(EXPERIMENTS.c[name] for name in ("plan", "shuffler", "released_at")),
        REFUSALS.c.reason,
        REFUSALS.c.count,
    )
    .select_from(EXPERIMENTS)
    .outerjoin(ROUNDS, and_(ROUNDS.c.experiment == EXPERIMENTS.c.name, ROUNDS.c.version == _LAST))
    .outerjoin(REFUSALS, REFUSALS.c.experiment == EXPERIMENTS.c.name)
    .order_by(EXPERIMENTS.c.name)
)
"""Where experiments stand, with a row for each reason for which reports were refused."""
_STATE: Final = _STATES.where(EXPERIMENTS.c.name == bindparam("name"))
_NAMED: Final = EXPERIMENTS.c.name.in_(bindparam("names", expanding=True))
_LOCK: Final = select(EXPERIMENTS.c.name).where(_NAMED).order_by(EXPERIMENTS.c.name).with_for_update(key_share=True)


class Store:
    """Durable state. Every writing method is one transaction, durable when it returns.

    What raises one of `privateer_server.store.records.TRANSIENT` may have been done or not. The same call may work
    later. Where servers share the database, whoever changes an experiment locks its row first, and reads then where it
    stands: changes to an experiment follow each other, and those to different ones keep nobody waiting.

    is_shared: whether other servers use it, too.
    """

    def __init__(self, database: Database) -> None:
        self._database, self.is_shared = database, database.is_shared
        self._ids: ReportIds = SharedIds() if self.is_shared else IdsInMemory(database)
        self._rounds, self._leases = RoundWriter(database, self._ids), Leases(database)

    def create(self, name: str, spec: bytes, first: RoundRecord, line: LogLine | None = None) -> None:
        """Add an experiment with its first round, and the first line of its log."""
        row = {"name": name, "spec": spec, "shuffler": "", "plan": encode(NO_PLAN)}
        with self._database.transaction() as db:
            if not _is_new(db, EXPERIMENTS, row):
                raise Behind("there is an experiment of this name")
            self._rounds.insert(db, name, first)
            if line:
                insert_line(db, name, line)
            self._rounds.notify(db, name)

    def plan(self, name: str, before: PlanBefore, plan: Plan, line: LogLine) -> None:
        """Keep what an operator wants of an experiment, with its line in the log."""
        with self._database.transaction() as db:
            now = self._lock(db, [name]).get(name)
            if now is None or PlanBefore(now.digest, now.plan) != before or now.taken or now.given_up:
                raise Behind("the experiment has changed")
            db.execute(change_of(name).values(plan=encode(plan)))
            insert_line(db, name, line)
            self._rounds.notify(db, name)

    def log(self, name: str) -> list[LogLine]:
        """Return the changes to an experiment in order, a deleted one included."""
        lines = select(*_LINE).where(LOG.c.experiment == name).order_by(LOG.c.id)
        with self._database.connection() as db:
            return [LogLine(*row) for row in db.execute(lines)]

    def delete(self, name: str, line: LogLine) -> None:
        """Erase an experiment but for its name and log; erasing it again changes nothing."""
        with self._database.transaction() as db:
            self._lock(db, [name])
            if _is_new(db, DELETED, {"experiment": name}):
                insert_line(db, name, line)
            for table in (ROUNDS, PARTS, self._ids.table, ANSWERS, REFUSALS, CLOSERS):
                db.execute(delete(table).where(table.c.experiment == name))
            if self.is_shared:
                db.execute(delete(LEASES).where(LEASES.c.experiment == name))
            db.execute(delete(EXPERIMENTS).where(EXPERIMENTS.c.name == name))
            self._rounds.notify(db, name)
        self._ids.forget(name)
        self.tidy()

    def deleted(self) -> list[str]:
        """Return the names of deleted experiments."""
        with self._database.connection() as db:
            return list(db.execute(select(DELETED.c.experiment).order_by(DELETED.c.experiment)).scalars())

    @contextmanager
    def locked(self, names: Sequence[str]) -> Iterator[Locked]:
        """Keep everybody else from changing experiments of these names, as long as the context lasts.

        A server that is alone counts in one thread, so that nobody waits for what it reads here.
        """
        if not self.is_shared:
            with self._database.connection() as db:
                states = _named_states(db, names)
            yield Locked(states, self._ids, self.commit)
            return
        with self._database.transaction() as db:
            yield Locked(self._lock(db, names), self._ids, partial(self._commit, db), db)
            db.rollback()  # what is not committed is not done

    def _commit(self, db: Connection, changes: Sequence[RoundUpdate]) -> None:
        self._rounds.apply(db, changes)
        db.commit()

    def commit(self, changes: Sequence[RoundUpdate]) -> None:
        """Apply all changes or none, as `Locked.commit`; a round that is closed already stays as it is."""
        with self._database.transaction() as db:
            if self.is_shared:
                db.execute(_LOCK, {"names": [change.experiment for change in changes]})
            self._rounds.apply(db, changes)
        for change in changes:
            self._ids.note(change)
        if any(change.following for change in changes):
            self.tidy()

    def lease(self, experiment: str) -> AbstractContextManager[bool]:
        """Close a round of an experiment while no other server does; false if another one has the lease.

        Whoever is slow may lose the lease, and two may close the round then: the journal takes one of their releases.
        """
        return self._leases.held(experiment) if self.is_shared else nullcontext(True)

    def claim(self, experiment: str, shuffler: str, signed_at: float) -> bool:
        """Note which shuffler brings the batches of an experiment; false if another has claimed it, or a release since.

        signed_at: when the shuffler signed the claim, in seconds since 1970.
        """
        is_free = EXPERIMENTS.c.shuffler.in_(["", shuffler])
        claimed = change_of(experiment).where(is_free, EXPERIMENTS.c.released_at < signed_at)
        with self._database.transaction() as db:
            self._rounds.notify(db, experiment)
            return db.execute(claimed.values(shuffler=shuffler)).rowcount == 1

    def release(self, experiment: str, line: LogLine) -> None:
        """Note, also in the log, that no shuffler has claimed an experiment; claims signed until then are void."""
        with self._database.transaction() as db:
            self._rounds.notify(db, experiment)
            db.execute(change_of(experiment).values(shuffler="", released_at=line.at))
            insert_line(db, experiment, line)

    def answer(self, experiment: str, version: int, digest: bytes) -> bytes | None:
        """Return the answer to a batch, if it was counted."""
        found = select(ANSWERS.c.answer).where(of_round(ANSWERS, experiment, version), ANSWERS.c.digest == digest)
        return self._blob(found)

    def standing(self, experiment: str) -> ExperimentState | None:
        """Return where an experiment stands; None if there is none of that name."""
        with self._database.connection() as db:
            return _named_states(db, [experiment]).get(experiment)

    def standings(self) -> Mapping[str, ExperimentState]:
        """Return where all experiments stand, by name."""
        with self._database.connection() as db:
            return _states(db, _STATES)

    def experiment(self, name: str) -> ExperimentRecord | None:
        """Return an experiment, if there is one of that name."""
        of_name = ROUNDS.c.experiment == name
        with self._database.snapshot() as db:
            standing = _named_states(db, [name]).get(name)
            if standing is None:
                return None
            spec = db.execute(select(EXPERIMENTS.c.spec).where(EXPERIMENTS.c.name == name)).scalar_one()
            last = select(*_ROUND).where(of_name).order_by(ROUNDS.c.version.desc()).limit(1)
            current = RoundRecord(*db.execute(last).one())
            accepted = int(db.execute(select(func.sum(ROUNDS.c.received)).where(of_name)).scalar_one())
            parts = _parts(db, name, current.version)
        return ExperimentRecord(name, spec, accepted, current, parts, standing)

    def experiments(self) -> list[ExperimentRecord]:
        """Return all experiments, by name."""
        return [record for name in self.standings() if (record := self.experiment(name))]

    def sums(self, experiment: str, version: int) -> list[bytes]:
        """Return the sums that a round began with, and its parts."""
        with self._database.connection() as db:
            begun = db.execute(select(ROUNDS.c.total).where(of_round(ROUNDS, experiment, version))).scalars().all()
            return [*begun, *_parts(db, experiment, version)]

    def spent(self, expires: int, token: bytes) -> bytes | None:
        """Return the hash of the report that an upload token came with, if it was spent."""
        is_it = and_(SPENT_TOKENS.c.expires == expires, SPENT_TOKENS.c.token == token)
        return self._blob(select(SPENT_TOKENS.c.report).where(is_it))

    def forget_tokens(self, now: float) -> bool:
        """Forget spent upload tokens whose keys have long expired, a few at a time; whether there may be more."""
        return forget_expired(self._database, SPENT_TOKENS, now)

    def publication(self, experiment: str, version: int) -> bytes | None:
        """Return the publication of a version, if there is one."""
        return self._blob(select(ROUNDS.c.publication).where(of_round(ROUNDS, experiment, version)))

    def _blob(self, found: Select[bytes]) -> bytes | None:
        with self._database.connection() as db:
            return db.execute(found).scalar_one_or_none()

    def rounds(self, experiment: str) -> list[RoundRecord]:
        """Return all rounds by version, without publication, state and total."""
        columns = [literal(b"") if column.name in _CONTENTS else column for column in _ROUND]
        found = select(*columns).where(ROUNDS.c.experiment == experiment).order_by(ROUNDS.c.version)
        with self._database.connection() as db:
            return [RoundRecord(*row) for row in db.execute(found)]

    def closers(self, experiment: str) -> Mapping[int, ShufflerKey]:
        """Return whose batches the rounds of an experiment took last, by version."""
        found = select(CLOSERS.c.version, CLOSERS.c.shuffler, CLOSERS.c.organisation)
        with self._database.connection() as db:
            rows = db.execute(found.where(CLOSERS.c.experiment == experiment))
            return {version: ShufflerKey(*names) for version, *names in rows}

    def leaves(self, start: int) -> list[Leaf]:
        """Return the leaves of the public log from a place on; they are never changed, and none comes in between."""
        found = select(LEAVES.c.experiment, LEAVES.c.version, LEAVES.c.digest)
        with self._database.connection() as db:
            rows = db.execute(found.where(LEAVES.c.position > start).order_by(LEAVES.c.position))
            return [Leaf(*row) for row in rows]

    def place(self, experiment: str, version: int) -> int | None:
        """Return the place of a publication in the public log, if it is there."""
        found = select(LEAVES.c.position - 1).where(of_round(LEAVES, experiment, version))
        with self._database.connection() as db:
            return db.execute(found).scalar_one_or_none()

    def recall(self, leaves: Sequence[Leaf]) -> None:
        """Add leaves that an earlier copy of the database does not have."""
        with self._database.transaction() as db:
            self._rounds.add_leaves(db, leaves)

    def check(self) -> None:
        """Write a row, or raise what keeps the store from writing."""
        probing = insert(PROBE).values(id=1, checks=1)
        with self._database.transaction() as db:
            db.execute(probing.on_conflict_do_update(index_elements=["id"], set_={"checks": PROBE.c.checks + 1}))

    def examine(self) -> StoreFindings:
        """Look at the database and at whether its rows agree; it changes nothing."""
        return examine(self._database, self._ids.table)

    def tidy(self) -> None:
        """Erase what is left of earlier states of the data, as far as the store can."""
        self._database.tidy()

    def last_backup(self) -> BackupRecord:
        """Return the last backups."""
        with self._database.connection() as db:
            return last_backup(db)

    def note_backup(self, record: BackupRecord) -> None:
        """Keep what the last backups were."""
        row = asdict(record)
        with self._database.transaction() as db:
            put = insert(BACKUP).values(id=1, **row)
            db.execute(put.on_conflict_do_update(index_elements=["id"], set_=row))

    def backup(self) -> BinaryIO:
        """Return a copy of the database without the sums and the ids of reports, whose open rounds cannot go on.

        Reports are counted meanwhile. The copy is a file on the database's disk that has no name.
        """
        assert isinstance(self._database, SqliteDatabase), "PostgreSQL's own tools make backups"
        with ExitStack() as stack:
            with self._database.snapshot_file() as path:
                copy = stack.enter_context(open_copy(path, STORE_KIND))
            stack.pop_all()
        return copy

    def close(self) -> None:
        """Let go of the database; nothing here is used again."""
        self._database.close()

    def _lock(self, db: Connection, names: Sequence[str]) -> dict[str, ExperimentState]:
        """Lock experiments in the order of their names, and return where they stand then."""
        if self.is_shared:
            db.execute(_LOCK, {"names": names})
        return _named_states(db, names)


def _is_new(db: Connection, table: Table, row: dict[str, Any]) -> bool:
    """Insert a row, unless there is one of this key."""
    putting = insert(table).values(row).on_conflict_do_nothing().execution_options(preserve_rowcount=True)
    return db.execute(putting).rowcount == 1


def _named_states(db: Connection, names: Sequence[str]) -> dict[str, ExperimentState]:
    found = {}
    for name in names:  # there are few, and Core runs a statement with a list slowly
        found.update(_states(db, _STATE, name=name))
    return found


def _states(db: Connection, statement: Select[Any], **values: object) -> dict[str, ExperimentState]:
    rows, refused = {}, defaultdict[str, dict[str, int]](dict)
    for name, *state, reason, count in db.execute(statement, values):
        if state[0] is None:
            raise ValueError("an experiment has no round")
        rows[name] = state
        if reason is not None:
            refused[name][reason] = count
    return {name: _state(row, refused[name]) for name, row in rows.items()}


def _state(row: list[Any], refused: Mapping[str, int]) -> ExperimentState:
    version, digest, received, taken, given_up, plan, shuffler, released_at = row
    wanted = decode(plan, Plan)
    return ExperimentState(version, digest, received, taken, given_up, wanted, shuffler, released_at, refused)


def _parts(db: Connection, experiment: str, version: int) -> tuple[bytes, ...]:
    found = select(PARTS.c.total).where(of_round(PARTS, experiment, version)).order_by(PARTS.c.part)
    return tuple(db.execute(found).scalars())
