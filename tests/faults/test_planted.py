"""Defects that somebody may make: the lists of the short run catch each of them."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from privateer_server.rounds import recovery
from privateer_server.rounds.closing import Closer
from privateer_server.store.journal import JournalFile
from privateer_server.store.sqlite import SqliteStore
from privateer_shuffler.pool.round_file import RoundStore
from tests.faults.runs import every, once
from tests.faults.test_regressions import A_COPY_OF_A_ROUND_THAT_IS_OVER_AND_NOT_CLOSED
from tests.faults.test_smoke import SEEDS

Plant = Callable[[pytest.MonkeyPatch], None]


def acknowledged_before_durable(patched: pytest.MonkeyPatch) -> None:
    """What is written is committed with what is written next, or at a stop in peace."""
    honest = SqliteStore.close

    @contextmanager
    def lazily(store: SqliteStore) -> Iterator[sqlite3.Connection]:
        with store._lock:
            _commit(store)
            store._db.execute("BEGIN IMMEDIATE")
            try:
                yield store._db
            except BaseException:
                store._db.execute("ROLLBACK")
                raise

    def close(store: SqliteStore) -> None:
        _commit(store)
        honest(store)

    patched.setattr(SqliteStore, "_transaction", lazily)
    patched.setattr(SqliteStore, "close", close)


def _commit(store: SqliteStore) -> None:
    if store._db.in_transaction:
        store._db.execute("COMMIT")


def held_in_memory(patched: pytest.MonkeyPatch) -> None:
    """The shuffler acknowledges what it has not committed."""
    patched.setattr(RoundStore, "write", lambda _store, _reports: None)
    patched.setattr(RoundStore, "commit", lambda _: None)


def counted_again(patched: pytest.MonkeyPatch) -> None:
    """The server forgets which reports it has counted."""
    patched.setattr(SqliteStore, "seen", lambda _store, _name, _opened: frozenset())


def released_again(patched: pytest.MonkeyPatch) -> None:
    """A start with an earlier copy of the database goes on as if nothing had been published since."""
    patched.setattr(recovery, "reason_to_give_up", lambda _last, _entry: "")
    patched.setattr(Closer, "_on_record", lambda self, ended: self.enter(self._following(ended, 0.0), None, ended))


def told_before_on_record(patched: pytest.MonkeyPatch) -> None:
    """A shuffler hears that a round takes no further batch, and the journal does not know it."""
    patched.setattr(JournalFile, "shut", lambda *_: None)


@contextmanager
def planted(plant: Plant) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        plant(patched)
        yield


@pytest.mark.parametrize(
    ("plant", "seeds"),
    [
        (acknowledged_before_durable, SEEDS),
        (held_in_memory, SEEDS),
        (counted_again, SEEDS),
        (released_again, (58,)),
    ],
)
def test_a_planted_defect_is_caught(plant: Plant, seeds: tuple[int, ...]) -> None:
    with planted(plant), pytest.raises(AssertionError, match=r"^seed [0-9]+: AssertionError: ") as caught:
        every(seeds, shortening=0)
    print(caught.value)


def test_a_round_that_stays_open_for_good_is_caught() -> None:
    with planted(told_before_on_record), pytest.raises(AssertionError, match="the round of mixed does not close"):
        once(A_COPY_OF_A_ROUND_THAT_IS_OVER_AND_NOT_CLOSED)
