"""Planted defects of services: the lists of the short run catch each of them."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection

from privateer_core.serving.store.database import SqliteDatabase
from privateer_server.rounds import closing
from privateer_server.rounds.closing import RoundCloser
from privateer_server.store.journal import Journal
from privateer_server.store.rounds import LockedExperiments
from privateer_server.store.schema import STORE_FILE
from privateer_shuffler.pool.round_file import RoundStore
from tests.faults.runs import run_seeds, run_simulation
from tests.faults.test_regressions import A_COPY_OF_A_ROUND_THAT_IS_OVER_AND_NOT_CLOSED
from tests.faults.test_smoke import SEEDS

Plant = Callable[[pytest.MonkeyPatch], None]


class Lazy:
    """A connection that says that it has committed, and does so later."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db, self._acknowledged = db, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def begin(self) -> None:
        self._acknowledged = False
        self._db.commit()

    def commit(self) -> None:
        self._acknowledged = True

    def rollback(self) -> None:
        if not self._acknowledged:
            self._db.rollback()

    def close(self) -> None:
        self._db.commit()
        self._db.close()


def acknowledged_before_durable(patched: pytest.MonkeyPatch) -> None:
    """A write is committed together with the following write, or at a regular stop."""
    init, begin = SqliteDatabase.__init__, SqliteDatabase._begin

    def init_lazily(database: SqliteDatabase, connection: Any) -> None:
        _, _, file = connection.execute("PRAGMA database_list").fetchone()
        init(database, Lazy(connection) if file.endswith(STORE_FILE) else connection)  # type: ignore[arg-type]

    def begin_lazily(database: SqliteDatabase, db: Connection) -> None:
        if isinstance(database._raw_connection, Lazy):
            database._raw_connection.begin()
        begin(database, db)

    patched.setattr(SqliteDatabase, "__init__", init_lazily)
    patched.setattr(SqliteDatabase, "_begin", begin_lazily)


def held_in_memory(patched: pytest.MonkeyPatch) -> None:
    """The shuffler acknowledges what it has not committed."""
    patched.setattr(RoundStore, "write", lambda _store, _reports: None)
    patched.setattr(RoundStore, "commit", lambda _: None)


def counted_again(patched: pytest.MonkeyPatch) -> None:
    """The server forgets which reports it has counted."""
    patched.setattr(LockedExperiments, "counted_ids", lambda _locked, _name, _opened: frozenset())


def released_again(patched: pytest.MonkeyPatch) -> None:
    """A start with an earlier copy of the database goes on as if nothing had been published since."""
    patched.setattr(closing, "give_up_reason", lambda _last, _entry: "")
    patched.setattr(
        RoundCloser,
        "_read_or_write_entry",
        lambda self, ended: self.record(self._create_next_round(ended, 0.0), None, ended),
    )


def told_before_on_record(patched: pytest.MonkeyPatch) -> None:
    """A shuffler hears that a round takes no further batch, and the journal does not know it."""
    patched.setattr(Journal, "record_end_of_batches", lambda *_: None)


@contextmanager
def planted(plant: Plant) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        plant(patched)
        yield


@pytest.mark.parametrize(
    ("plant", "seeds"),
    [(acknowledged_before_durable, SEEDS), (held_in_memory, SEEDS), (counted_again, SEEDS), (released_again, (58,))],
)
def test_a_planted_defect_is_caught(plant: Plant, seeds: tuple[int, ...]) -> None:
    with planted(plant), pytest.raises(AssertionError, match=r"^seed [0-9]+: AssertionError: ") as caught:
        run_seeds(seeds, shortening=0)
    print(caught.value)


def test_a_round_that_stays_open_for_good_is_caught() -> None:
    with planted(told_before_on_record), pytest.raises(AssertionError, match="the round of mixed does not close"):
        run_simulation(A_COPY_OF_A_ROUND_THAT_IS_OVER_AND_NOT_CLOSED)
