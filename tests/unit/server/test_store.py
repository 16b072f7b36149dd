"""The embedded store: what goes in comes out, and a transaction is all or nothing."""

import os
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from privateer_server.store import Change, RoundRecord
from privateer_server.store.sqlite import SqliteStore

FIRST = RoundRecord(1, 10, 0, 0, False, b"digest-1", b"{}", b"publication-1", b"state-1", b"total-1")
SECOND = replace(FIRST, version=2, seen=10, digest=b"digest-2", publication=b"publication-2", state=b"state-2")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path)
    opened.create("test", b"spec", FIRST)
    yield opened
    opened.close()


def change(received: int, **more: object) -> Change:
    return replace(Change("test", 1, received, False, b"total-2"), **more)


def test_a_round_trip(store: SqliteStore, tmp_path: Path) -> None:
    ids = [os.urandom(16) for _ in range(5)]
    store.commit([change(3, report_ids=ids[:3], refused={"unopenable": 2})])
    store.commit([change(5, total=None, report_ids=ids[3:], refused={"unopenable": 1, "wrong-key": 1})])
    store.close()
    reopened = SqliteStore(tmp_path)
    (experiment,) = reopened.experiments()
    reopened.close()
    assert (experiment.name, experiment.spec, experiment.accepted) == ("test", b"spec", 5)
    assert experiment.refused == {"unopenable": 3, "wrong-key": 1}
    assert experiment.report_ids == set(ids)
    assert experiment.current == replace(FIRST, received=5, total=b"total-2")


def test_closing_a_round_forgets_its_ids_state_and_total(store: SqliteStore, tmp_path: Path) -> None:
    store.commit([change(9, report_ids=[os.urandom(16)])])
    store.commit([change(10, taken=True, following=SECOND)])
    (experiment,) = store.experiments()
    assert (experiment.current, experiment.accepted, experiment.report_ids) == (SECOND, 10, frozenset())
    assert store.publication("test", 1) == b"publication-1"
    assert store.publication("test", 2) == b"publication-2"
    assert store.publication("test", 3) is None
    assert [(row.version, row.received, row.taken) for row in store.rounds("test")] == [(1, 10, True), (2, 0, False)]
    store.close()
    with sqlite3.connect(tmp_path / "server.db") as db:
        assert db.execute("SELECT state, total FROM rounds WHERE version = 1").fetchone() == (b"", b"")
        assert db.execute("SELECT count(*) FROM report_ids").fetchone() == (0,)
    db.close()


def test_a_failing_change_undoes_those_before_it(store: SqliteStore) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        store.commit([change(7, report_ids=[os.urandom(16)], refused={"x": 1}), change(8, following=FIRST)])
    (experiment,) = store.experiments()
    assert experiment.current == FIRST
    assert (experiment.refused, experiment.report_ids) == ({}, frozenset())
    store.commit([change(7)])
    assert store.experiments()[0].accepted == 7


def test_a_name_is_created_once(store: SqliteStore) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        store.create("test", b"other", FIRST)
    assert [experiment.spec for experiment in store.experiments()] == [b"spec"]


def test_every_commit_is_synced(store: SqliteStore) -> None:
    store.check()
    assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
