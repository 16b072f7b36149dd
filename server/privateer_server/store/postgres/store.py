"""The store that servers share: one PostgreSQL database."""

from collections.abc import Iterator, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from dataclasses import astuple
from typing import Any, Final

import psycopg
from typing_extensions import override

from privateer_core.codec import decode, encode
from privateer_core.errors import Conflict
from privateer_core.serving.store.leases import Leases
from privateer_core.serving.store.postgres import Connection, ConnectionPool, row, rows, run
from privateer_server.intake.opening import REPORT_ID_SIZE
from privateer_server.store.postgres.notifications import notify
from privateer_server.store.protocol import Locked, Store
from privateer_server.store.records import (
    NO_PLAN,
    Behind,
    Change,
    ExperimentRecord,
    ExperimentState,
    Leaf,
    LogLine,
    Plan,
    PlanBefore,
    RoundRecord,
    ShufflerKey,
)

_COLUMNS: Final = "version, batch, seen, received, taken, digest, facts"
_ROUND: Final = f"{_COLUMNS}, publication, state, total, given_up"
_ALL_ROUNDS: Final = f"SELECT {_COLUMNS}, ''::bytea, ''::bytea, ''::bytea, given_up FROM rounds"  # noqa: S608 - our own
_LAST: Final = "WHERE experiment = %s ORDER BY version DESC LIMIT 1"
_THAT: Final = "WHERE experiment = %s AND version = %s"
_STANDINGS: Final = """
SELECT name, last.id, plan, last.version, last.digest, last.received, last.taken, last.given_up, shuffler, released_at,
    (SELECT coalesce(json_object_agg(reason, count), '{}') FROM refusals WHERE experiment = name)
FROM experiments JOIN LATERAL (
    SELECT id, version, digest, received, taken, given_up FROM rounds
    WHERE experiment = name ORDER BY version DESC LIMIT 1
) AS last ON true
"""
_ADD: Final = """
UPDATE rounds SET received = received + %s, taken = taken OR %s, given_up = given_up OR %s
WHERE id = %s AND version = %s AND (NOT %s OR NOT (taken OR given_up)) AND (NOT %s OR received + %s <= batch)
"""
_ADD_REFUSALS: Final = """
INSERT INTO refusals SELECT %s, * FROM unnest(%s::text[], %s::bigint[])
ON CONFLICT (experiment, reason) DO UPDATE SET count = refusals.count + excluded.count
"""
_SEEN: Final = """
SELECT counted.id FROM unnest(%b::bytea[]) AS asked (id), LATERAL
    (SELECT id FROM report_ids WHERE round = %s AND report_ids.id = asked.id LIMIT 1) AS counted
"""
"""The limit has PostgreSQL look each id up. Of ``id = ANY(...)`` it makes a filter where its statistics know little of
the round, as they do of a new one, and reads all ids of the round: 108 milliseconds instead of 3 for 900 of 200,000."""
_ADD_LINE: Final = """
INSERT INTO log (experiment, at, action, detail, who, version, since) VALUES (%s, %s, %s, %s, %s, %s, %s)
"""
_ONE_PUBLISHES: Final = "SELECT pg_advisory_xact_lock(2, 0)"
"""Places in the public log have no gap: whoever has the next one keeps everybody else from the log until it commits."""
_ADD_LEAF: Final = """
INSERT INTO leaves SELECT coalesce(max(position), 0) + 1, %s, %s, %s FROM leaves
ON CONFLICT (experiment, version) DO NOTHING
"""
_SET_CLOSER: Final = """
INSERT INTO closers VALUES (%s, %s, %s, %s) ON CONFLICT (experiment, version)
DO UPDATE SET shuffler = excluded.shuffler, organisation = excluded.organisation
"""
_CLAIM: Final = """
UPDATE experiments SET shuffler = %s WHERE name = %s AND shuffler IN ('', %s) AND released_at < %s
"""


class PostgresStore(Store):
    """The store (`privateer_server.store.protocol.Store`) of servers that share their data.

    Whoever changes an experiment locks its row first, and reads then where it stands: changes to an experiment follow
    each other, and those to different ones keep nobody waiting.
    """

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool, self._leases = pool, Leases(pool)

    @override
    def create(self, name: str, spec: bytes, first: RoundRecord, line: LogLine | None = None) -> None:
        with self._pool.transaction() as db:
            insert = "INSERT INTO experiments (name, spec, plan) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
            if not run(db, insert, name, spec, encode(NO_PLAN)):
                raise Behind("there is an experiment of this name")
            _insert_round(db, name, first)
            if line:
                run(db, _ADD_LINE, name, *astuple(line))
            notify(db, name)

    @override
    def plan(self, name: str, before: PlanBefore, plan: Plan, line: LogLine) -> None:
        with self._pool.transaction() as db:
            _, now = _locked(db, [name]).get(name, (0, None))
            if now is None or PlanBefore(now.digest, now.plan) != before or now.taken or now.given_up:
                raise Behind("the experiment has changed")
            run(db, "UPDATE experiments SET plan = %s WHERE name = %s", encode(plan), name)
            run(db, _ADD_LINE, name, *astuple(line))
            notify(db, name)

    @override
    def log(self, name: str) -> list[LogLine]:
        select = "SELECT at, action, detail, who, version, since FROM log WHERE experiment = %s ORDER BY id"
        with self._pool.connection() as db:
            return [LogLine(*one) for one in rows(db, select, name)]

    @override
    def delete(self, name: str, line: LogLine) -> None:
        with self._pool.transaction() as db:
            _locked(db, [name])
            if run(db, "INSERT INTO deleted VALUES (%s) ON CONFLICT DO NOTHING", name):
                run(db, _ADD_LINE, name, *astuple(line))
            for table in ("parts", "report_ids"):
                ids = "SELECT id FROM rounds WHERE experiment = %s"
                run(db, f"DELETE FROM {table} WHERE round IN ({ids})", name)  # noqa: S608 - our own names
            for table in ("rounds", "answers", "refusals", "closers", "leases"):
                run(db, f"DELETE FROM {table} WHERE experiment = %s", name)  # noqa: S608 - our own names
            run(db, "DELETE FROM experiments WHERE name = %s", name)
            notify(db, name)

    @override
    def deleted(self) -> list[str]:
        with self._pool.connection() as db:
            return [name for (name,) in rows(db, "SELECT experiment FROM deleted ORDER BY experiment")]

    @override
    @contextmanager
    def locked(self, names: Sequence[str]) -> Iterator["_Locked"]:
        with self._pool.connection() as db:
            run(db, "BEGIN")
            yield _Locked(db, _locked(db, names))
            if db.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                run(db, "ROLLBACK")

    @override
    def commit(self, changes: Sequence[Change]) -> None:
        """Apply all changes or none; a round that is closed already stays as it is."""
        with self.locked([change.experiment for change in changes]) as locked:
            locked.commit(changes)

    @override
    def lease(self, experiment: str) -> AbstractContextManager[bool]:
        return self._leases.held(experiment)

    @override
    def claim(self, experiment: str, shuffler: str, signed_at: float) -> bool:
        """Note which shuffler brings the batches of an experiment; false if another has claimed it, or a release."""
        with self._pool.transaction() as db:
            notify(db, experiment)
            return run(db, _CLAIM, shuffler, experiment, shuffler, signed_at) == 1

    @override
    def release(self, experiment: str, line: LogLine) -> None:
        with self._pool.transaction() as db:
            notify(db, experiment)
            run(db, "UPDATE experiments SET shuffler = '', released_at = %s WHERE name = %s", line.at, experiment)
            run(db, _ADD_LINE, experiment, *astuple(line))

    @override
    def answer(self, experiment: str, version: int, digest: bytes) -> bytes | None:
        select = f"SELECT answer FROM answers {_THAT} AND digest = %s"  # noqa: S608 - our own
        return self._blob(select, experiment, version, digest)

    @override
    def standing(self, experiment: str) -> ExperimentState | None:
        with self._pool.connection() as db:
            found = _standings(db, "WHERE name = %s", experiment)
        return found[experiment][1] if found else None

    @override
    def standings(self) -> dict[str, ExperimentState]:
        with self._pool.connection() as db:
            return {name: standing for name, (_, standing) in _standings(db, "ORDER BY name").items()}

    @override
    def experiment(self, name: str) -> ExperimentRecord | None:
        with self._pool.connection() as db, db.transaction():
            run(db, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            found = _standings(db, "WHERE name = %s", name)
            spec = row(db, "SELECT spec FROM experiments WHERE name = %s", name)
            current = row(db, f"SELECT {_ROUND} FROM rounds {_LAST}", name)  # noqa: S608 - our own
            accepted = row(db, "SELECT sum(received)::bigint FROM rounds WHERE experiment = %s", name)
            if not (found and spec and current and accepted):
                return None
            number, standing = found[name]
            return ExperimentRecord(name, spec[0], accepted[0], RoundRecord(*current), _parts(db, number), standing)

    @override
    def experiments(self) -> list[ExperimentRecord]:
        return [record for name in self.standings() if (record := self.experiment(name))]

    @override
    def sums(self, experiment: str, version: int) -> list[bytes]:
        with self._pool.connection() as db:
            begun = row(db, f"SELECT id, total FROM rounds {_THAT}", experiment, version)  # noqa: S608 - our own
            return [begun[1], *_parts(db, begun[0])] if begun else []

    @override
    def spent(self, token: bytes) -> bytes | None:
        return self._blob("SELECT report FROM spent_tokens WHERE token = %s", token)

    @override
    def forget_tokens(self, now: float) -> None:
        with self._pool.connection() as db:
            run(db, "DELETE FROM spent_tokens WHERE expires <= %s", int(now))

    @override
    def publication(self, experiment: str, version: int) -> bytes | None:
        return self._blob(f"SELECT publication FROM rounds {_THAT}", experiment, version)  # noqa: S608 - our own

    def _blob(self, select: str, *values: Any) -> bytes | None:
        with self._pool.connection() as db:
            found = row(db, select, *values)
        return found[0] if found else None

    @override
    def rounds(self, experiment: str) -> list[RoundRecord]:
        with self._pool.connection() as db:
            found = rows(db, f"{_ALL_ROUNDS} WHERE experiment = %s ORDER BY version", experiment)
        return [RoundRecord(*one) for one in found]

    @override
    def closers(self, experiment: str) -> dict[int, ShufflerKey]:
        select = "SELECT version, shuffler, organisation FROM closers WHERE experiment = %s"
        with self._pool.connection() as db:
            return {version: ShufflerKey(*names) for version, *names in rows(db, select, experiment)}

    @override
    def leaves(self, start: int) -> list[Leaf]:
        select = "SELECT experiment, version, digest FROM leaves WHERE position > %s ORDER BY position"
        with self._pool.connection() as db:
            return [Leaf(*one) for one in rows(db, select, start)]

    @override
    def place(self, experiment: str, version: int) -> int | None:
        with self._pool.connection() as db:
            found = row(db, f"SELECT position FROM leaves {_THAT}", experiment, version)  # noqa: S608 - our own
        return found[0] - 1 if found else None

    @override
    def recall(self, leaves: Sequence[Leaf]) -> None:
        with self._pool.transaction() as db:
            _add_leaves(db, leaves)

    @override
    def check(self) -> None:
        with self._pool.connection() as db:
            run(db, "INSERT INTO probe VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET checks = probe.checks + 1")

    @override
    def tidy(self) -> None:
        """Do nothing: what PostgreSQL keeps of earlier states is its operator's to erase."""

    @override
    def backup(self) -> bytes:
        """Refuse: PostgreSQL's own tools make backups.

        Raises
        ------
        Conflict
            Always.
        """
        detail, remedy = "the data are in PostgreSQL", "use pg_dump on it (docs/operations.md)"
        raise Conflict(detail, field="PRIVATEER_DATABASE", remedy=remedy)

    @override
    def close(self) -> None:
        """Let go of the database."""
        self._pool.close()


class _Locked(Locked):
    """Experiments (`privateer_server.store.protocol.Locked`) that nobody else changes while a transaction lasts."""

    def __init__(self, db: Connection, standings: dict[str, tuple[int, ExperimentState]]) -> None:
        self._db, self._standings = db, standings

    @override
    def standing(self, experiment: str) -> ExperimentState | None:
        return self._standings[experiment][1] if experiment in self._standings else None

    @override
    def seen(self, experiment: str, opened: Sequence[bytes]) -> Set[bytes]:
        """Return the ids of opened reports that are counted in the experiment's last round."""
        ids = [report[:REPORT_ID_SIZE] for report in opened if report]
        if not ids:
            return frozenset()
        return {one for (one,) in rows(self._db, _SEEN, ids, self._standings[experiment][0])}

    @override
    def commit(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.experiment not in self._standings:
                raise Behind("the experiment was deleted")
            number = self._standings[change.experiment][0]
            if change.following:
                _publish(self._db, change, change.following)
            else:
                _add(self._db, number, change)
        run(self._db, "COMMIT")


def _locked(db: Connection, names: Sequence[str]) -> dict[str, tuple[int, ExperimentState]]:
    """Lock experiments in the order of their names, and return where they stand then, as `_standings`."""
    names = list(names)
    rows(db, "SELECT name FROM experiments WHERE name = ANY(%s) ORDER BY name FOR NO KEY UPDATE", names)
    return _standings(db, "WHERE name = ANY(%s)", names)


def _standings(db: Connection, where: str, *values: Any) -> dict[str, tuple[int, ExperimentState]]:
    """Return the numbers of the last rounds of experiments, and where these stand, by name."""
    found = {}
    for name, number, plan, *others in rows(db, _STANDINGS + where, *values):
        version, digest, received, taken, given_up, shuffler, released_at, refused = others
        wanted = decode(plan, Plan)
        standing = ExperimentState(version, digest, received, taken, given_up, wanted, shuffler, released_at, refused)
        found[name] = number, standing
    return found


def _parts(db: Connection, number: int) -> tuple[bytes, ...]:
    return tuple(total for (total,) in rows(db, "SELECT total FROM parts WHERE round = %s ORDER BY part", number))


def _insert_round(db: Connection, experiment: str, new: RoundRecord) -> None:
    places = ", ".join(["%s"] * 12)
    run(db, f"INSERT INTO rounds (experiment, {_ROUND}) VALUES ({places})", experiment, *astuple(new))  # noqa: S608
    _add_leaves(db, [Leaf(experiment, new.version, new.digest)])


def _add_leaves(db: Connection, leaves: Sequence[Leaf]) -> None:
    """Add leaves at the end of the log; what an earlier copy of the database had to recall is there already."""
    run(db, _ONE_PUBLISHES)
    for leaf in leaves:
        run(db, _ADD_LEAF, *astuple(leaf))


def _add(db: Connection, number: int, change: Change) -> None:
    counted = change.counted
    # Only a shuffler's batches may hold more people than the round asked for.
    over = (counted, change.taken, change.given_up, number, change.version)
    if not run(db, _ADD, *over, bool(counted), bool(counted and not change.answers), counted):
        raise Behind("the round takes no more reports")
    if change.total is not None:
        insert = "INSERT INTO parts VALUES (%s, %s, %s) ON CONFLICT (round, part) DO UPDATE SET total = excluded.total"
        run(db, insert, number, change.part, change.total)
    if change.report_ids:
        run(db, "INSERT INTO report_ids SELECT %s, unnest(%b::bytea[])", number, list(change.report_ids))
    if change.tokens:
        tokens, reports, expiries = zip(*change.tokens, strict=True)
        insert = "INSERT INTO spent_tokens SELECT * FROM unnest(%b::bytea[], %b::bytea[], %s::bigint[])"
        run(db, insert, list(tokens), list(reports), list(expiries))
    if change.answers:
        insert = "INSERT INTO answers SELECT %s, %s, * FROM unnest(%b::bytea[], %b::bytea[])"
        run(db, insert, change.experiment, change.version, list(change.answers), list(change.answers.values()))
    if change.closer:
        run(db, _SET_CLOSER, change.experiment, change.version, *astuple(change.closer))
    if change.refused:
        run(db, _ADD_REFUSALS, change.experiment, list(change.refused), list(change.refused.values()))


def _publish(db: Connection, change: Change, following: RoundRecord) -> None:
    """Close the round, open the next one, and note that what an operator wanted holds from then on."""
    name, where = change.experiment, (change.experiment, change.version)
    if row(db, f"SELECT digest FROM rounds {_THAT}", name, following.version) == (following.digest,):  # noqa: S608
        return
    update = "UPDATE rounds SET taken = %s, given_up = %s, state = '', total = ''"
    closed = row(db, f"{update} {_THAT} RETURNING id", change.taken, not change.taken, *where)
    assert closed is not None, "it is the last round, or one before"
    for table in ("parts", "report_ids"):
        run(db, f"DELETE FROM {table} WHERE round = %s", closed[0])  # noqa: S608 - our own names
    _insert_round(db, name, following)
    plan = row(db, "SELECT plan FROM experiments WHERE name = %s", name)
    assert plan is not None, "it is locked"
    run(db, "UPDATE experiments SET plan = %s WHERE name = %s", encode(decode(plan[0], Plan).carried_out), name)
    run(db, "UPDATE log SET since = %s WHERE experiment = %s AND since IS NULL", following.version, name)
    notify(db, name)
