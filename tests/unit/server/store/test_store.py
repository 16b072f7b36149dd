"""Both stores: what goes in comes out, a transaction is all or nothing, and numbers are added up."""

import os
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, update

from privateer_core.errors import SpecError
from privateer_server.store.findings import Disagreement
from privateer_server.store.records import (
    NO_PLAN,
    PAUSED,
    Behind,
    ExperimentState,
    Leaf,
    LogLine,
    Plan,
    PlanBefore,
    RoundRecord,
    RoundUpdate,
    ShufflerKey,
    TokenRow,
)
from privateer_server.store.schema import EXPERIMENTS, LEAVES, PARTS, STORE_KIND, STORE_SCHEMA
from privateer_server.store.store import Store
from tests.support.stores import driver, embedded_store, shared_store

FIRST = RoundRecord(1, 10, 0, 0, False, b"digest-1", b"{}", b"publication-1", b"state-1", b"total-1")
SECOND = replace(FIRST, version=2, seen=10, digest=b"digest-2", publication=b"publication-2", state=b"state-2")
LINE = LogLine(1.5, "pause", "", "admin", 1)
DAY = 86_400
IDS = [os.urandom(16) for _ in range(5)]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = opened_store(request, tmp_path)
    opened.create("test", b"spec", FIRST)
    yield opened
    opened.close()


def opened_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "sqlite":
        return embedded_store(tmp_path)
    cluster: Any = request.getfixturevalue("postgres")
    return shared_store(cluster.make())


def change(counted: int, **more: Any) -> RoundUpdate:
    return RoundUpdate(
        **{"experiment": "test", "version": 1, "counted": counted, "part": b"one", "total": b"sums", **more}
    )


def standing(store: Store, name: str = "test") -> ExperimentState:
    found = store.standing(name)
    assert found is not None
    return found


def test_numbers_are_added_up_and_parts_stay_apart(store: Store) -> None:
    store.commit([change(3, report_ids=IDS[:3], refused={"unopenable": 2})])
    store.commit([change(2, report_ids=IDS[3:], refused={"unopenable": 1, "wrong-key": 1}, total=b"more")])
    store.commit([change(1, part=b"two", total=b"other")])
    store.commit([change(0, total=None, refused={"wrong-key": 4})])
    (experiment,) = store.experiments()
    assert (experiment.name, experiment.spec, experiment.accepted) == ("test", b"spec", 6)
    assert experiment.current == replace(FIRST, received=6)
    assert list(experiment.parts) == [b"more", b"other"]
    assert store.sums("test", 1) == [b"total-1", b"more", b"other"]
    assert experiment.standing == standing(store)
    refused = {"unopenable": 3, "wrong-key": 5}
    assert standing(store) == ExperimentState(1, b"digest-1", 6, False, False, NO_PLAN, "", 0.0, refused)
    assert store.standings() == {"test": standing(store)}


def test_counted_ids_are_seen(store: Store) -> None:
    with store.locked(["test"]) as locked:
        assert not locked.seen("test", IDS) & set(IDS)
        locked.commit([change(3, report_ids=IDS[:3])])
    store.commit([change(1, part=b"two", report_ids=IDS[3:4])])
    with store.locked(["test"]) as locked:
        assert locked.seen("test", IDS) & set(IDS) == set(IDS[:4])
        assert locked.seen("test", []) is not None
    store.commit([change(0, taken=True, following=SECOND)])
    with store.locked(["test"]) as locked:
        assert not locked.seen("test", IDS) & set(IDS)


def test_nothing_is_counted_in_a_round_that_is_over_or_full(store: Store) -> None:
    with pytest.raises(Behind):
        store.commit([change(11)])
    store.commit([change(10)])
    with pytest.raises(Behind):
        store.commit([change(1)])
    store.commit([change(0, total=None, taken=True, refused={"round-closed": 1})])
    store.commit([change(0, total=None)])  # nothing opens it again
    now = standing(store)
    assert (now.received, now.taken, now.given_up, now.refused) == (10, True, False, {"round-closed": 1})


def test_nothing_is_counted_in_a_round_that_is_given_up(store: Store) -> None:
    store.commit([change(2, given_up=True)])
    with pytest.raises(Behind):
        store.commit([change(1, answers={b"batch": b"answer"})])
    assert (standing(store).received, standing(store).given_up) == (2, True)
    assert store.answer("test", 1, b"batch") is None


def test_a_batch_may_hold_more_people_than_the_round_asked_for(store: Store) -> None:
    store.commit([change(8, answers={b"one": b"8"})])
    store.commit([change(8, answers={b"two": b"16"}, taken=True)])
    assert standing(store).received == 16
    assert [store.answer("test", 1, name) for name in (b"one", b"two", b"three")] == [b"8", b"16", None]


def test_what_is_published_is_in_the_log_in_order_and_stays_there(store: Store) -> None:
    store.create("other", b"spec", FIRST)
    for _ in range(2):  # the second time it is there
        store.commit([change(0, total=None, taken=True, following=SECOND)])
    leaves = [Leaf("test", 1, b"digest-1"), Leaf("other", 1, b"digest-1"), Leaf("test", 2, b"digest-2")]
    assert (store.leaves(0), store.leaves(2), store.leaves(3)) == (leaves, leaves[2:], [])
    assert [store.place(*which) for which in (("test", 1), ("test", 2), ("test", 3), ("none", 1))] == [0, 2, None, None]
    with pytest.raises(Behind):
        store.create("other", b"spec", FIRST)
    store.delete("test", LINE)
    assert store.leaves(0) == leaves


def test_an_earlier_copy_recalls_the_leaves_that_it_lacks(store: Store) -> None:
    lacking = [Leaf("test", 2, b"digest-2"), Leaf("gone", 7, b"digest-7")]
    for _ in range(2):  # by two servers, or after a death
        store.recall(lacking)
    store.commit([change(0, total=None, taken=True, following=SECOND)])
    assert store.leaves(0) == [Leaf("test", 1, b"digest-1"), *lacking]
    store.create("new", b"spec", FIRST)
    assert store.place("new", 1) == 3


def test_the_last_closer_of_a_round_is_kept_until_the_experiment_is_deleted(store: Store) -> None:
    store.commit([change(1, answers={b"one": b"1"}, closer=ShufflerKey("key-1", "one"))])
    store.commit([change(1, answers={b"two": b"2"}, closer=ShufflerKey("key-2", "two"))])
    store.commit([change(1)])
    store.commit([change(0, total=None, taken=True, following=SECOND)])
    assert (store.closers("test"), store.closers("other")) == ({1: ShufflerKey("key-2", "two")}, {})
    store.delete("test", LINE)
    assert not store.closers("test")


def test_closing_a_round_forgets_its_ids_state_and_sums(store: Store) -> None:
    store.commit([change(9, report_ids=IDS)])
    store.commit([change(1, taken=True)])
    for _ in range(2):  # another server may have done it just before
        store.commit([change(0, total=None, taken=True, following=SECOND)])
    (experiment,) = store.experiments()
    assert (experiment.current, experiment.accepted, list(experiment.parts)) == (SECOND, 10, [])
    assert store.publication("test", 1) == b"publication-1"
    assert store.publication("test", 2) == b"publication-2"
    assert store.publication("test", 3) is None
    assert [(row.version, row.received, row.taken) for row in store.rounds("test")] == [(1, 10, True), (2, 0, False)]
    assert store.sums("test", 1) == [b""]
    assert store.sums("test", 2) == [b"total-1"]
    with pytest.raises(Behind):
        store.commit([change(1)])


def test_another_round_does_not_follow_once_more(store: Store) -> None:
    store.commit([change(0, total=None, taken=True, following=SECOND)])
    with pytest.raises(Exception, match=r"(?i)unique|23505"):
        store.commit([change(0, total=None, taken=True, following=replace(SECOND, digest=b"of another noise"))])
    assert standing(store).digest == b"digest-2"


def test_a_failing_change_undoes_those_before_it(store: Store) -> None:
    store.create("other", b"spec", FIRST)
    with pytest.raises(Behind):
        store.commit([change(7, report_ids=IDS, refused={"x": 1}), change(11, experiment="other")])
    now = standing(store)
    assert (now.received, now.refused, store.sums("test", 1)) == (0, {}, [b"total-1"])
    with store.locked(["test"]) as locked:
        assert not locked.seen("test", IDS) & set(IDS)
    store.commit([change(7)])
    assert store.experiments()[1].accepted == 7


def test_what_is_not_committed_is_not_done(store: Store) -> None:
    with store.locked(["test", "nobody"]) as locked:
        assert locked.standing("test") == standing(store)
        assert locked.standing("nobody") is None
    with pytest.raises(ZeroDivisionError), store.locked(["test"]):
        raise ZeroDivisionError
    assert standing(store).received == 0


def test_a_name_is_created_once(store: Store) -> None:
    with pytest.raises(Behind):
        store.create("test", b"other", FIRST, LINE)
    assert [experiment.spec for experiment in store.experiments()] == [b"spec"]
    assert store.log("test") == []


def test_a_plan_follows_the_one_that_it_was_made_for(store: Store) -> None:
    plan, before = Plan(PAUSED, due=3.0), PlanBefore(b"digest-1", NO_PLAN)
    store.plan("test", before, plan, LINE)
    for late in (before, PlanBefore(b"digest-2", plan)):
        with pytest.raises(Behind):
            store.plan("test", late, Plan(), LINE)
    assert (standing(store).plan, store.log("test")) == (plan, [LINE])
    store.commit([change(0, total=None, given_up=True)])
    with pytest.raises(Behind):
        store.plan("test", PlanBefore(b"digest-1", plan), Plan(), LINE)
    store.commit([change(0, total=None, following=SECOND)])
    assert (standing(store).plan, store.log("test")) == (Plan(PAUSED), [replace(LINE, since=2)])
    assert [(row.taken, row.given_up) for row in store.rounds("test")] == [(False, True), (False, False)]


def test_an_experiment_has_one_shuffler(store: Store) -> None:
    assert store.claim("test", "one", 5.0)
    assert store.claim("test", "one", 4.0)
    assert not store.claim("test", "two", 6.0)
    assert standing(store).shuffler == "one"
    store.release("test", replace(LINE, at=7.0, action="release-claim"))
    assert store.log("test")[-1].action == "release-claim"
    assert not store.claim("test", "one", 7.0)
    assert store.claim("test", "two", 8.0)
    assert (standing(store).shuffler, standing(store).released_at) == ("two", 7.0)


def test_a_deleted_experiment_leaves_its_name_and_its_log(store: Store) -> None:
    store.commit([change(3, report_ids=IDS[:3], refused={"x": 1}, answers={b"batch": b"answer"})])
    for _ in range(2):
        store.delete("test", LINE)
    assert (store.deleted(), store.log("test")) == (["test"], [LINE])
    assert (store.standing("test"), store.experiment("test"), store.experiments()) == (None, None, [])
    assert (store.rounds("test"), store.publication("test", 1), store.answer("test", 1, b"batch")) == ([], None, None)
    with pytest.raises(Behind):
        store.commit([change(1)])


def test_a_token_is_spent_with_its_report_and_forgotten_with_its_key(store: Store) -> None:
    assert store.spent(50, b"token") is None
    rows = [TokenRow(50, b"token", b"report"), TokenRow(60, b"other", b"another")]
    store.commit([change(1, tokens=rows)])
    assert (store.spent(50, b"token"), store.spent(60, b"other")) == (b"report", b"another")
    store.commit([change(0, total=None, taken=True, following=SECOND)])
    store.forget_tokens(DAY + 50.5)
    assert (store.spent(50, b"token"), store.spent(60, b"other")) == (None, b"another")


def test_the_store_can_be_written_again_and_again(store: Store) -> None:
    store.check()
    store.check()
    store.tidy()


def test_a_store_finds_out_which_of_its_rows_do_not_agree(store: Store) -> None:
    store.commit([change(9, report_ids=IDS)])
    store.commit([change(0, taken=True, following=SECOND)])
    store.create("other", b"spec", FIRST, LINE)
    store.commit([change(2, experiment="other", report_ids=IDS)])
    found = store.examine()
    assert (found.experiments, found.rounds, found.last_change, found.disagreements) == (2, 3, 1.5, {})
    assert found.database.is_whole
    assert found.database.version == (STORE_SCHEMA if store.is_shared else STORE_KIND).version
    assert found.database.size > 1000
    with store._database.transaction() as db:
        db.execute(insert(PARTS).values(experiment="test", version=1, part=b"one", total=b"sums"))
        db.execute(update(LEAVES).where(LEAVES.c.experiment == "other").values(digest=b"another"))
        db.execute(insert(EXPERIMENTS).values(name="empty", spec=b"", shuffler="", plan=b""))
    assert store.examine().disagreements == {
        Disagreement.NO_ROUND: ["empty"],
        Disagreement.NOT_ERASED: ["test"],
        Disagreement.NOT_IN_LOG: ["other"],
    }


def test_nothing_of_a_closed_round_is_left_in_the_file(tmp_path: Path) -> None:
    store = embedded_store(tmp_path)
    store.create("test", b"spec", FIRST)
    store.commit([change(9, report_ids=IDS)])
    store.commit([change(0, total=None, taken=True, following=SECOND)])
    store.close()
    with sqlite3.connect(tmp_path / "server.db") as db:
        assert db.execute("SELECT state, total FROM rounds WHERE version = 1").fetchone() == (b"", b"")
        for table in ("report_ids", "parts"):
            assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    db.close()


def test_the_embedded_store_reads_what_it_wrote_before(tmp_path: Path) -> None:
    store = embedded_store(tmp_path)
    store.create("test", b"spec", FIRST)
    store.commit([change(3, report_ids=IDS)])
    before = store.experiments()
    store.close()
    reopened = embedded_store(tmp_path)
    assert reopened.experiments() == before
    with reopened.locked(["test"]) as locked:
        assert locked.seen("test", []) == set(IDS)
    reopened.close()


def test_every_commit_is_synced(tmp_path: Path) -> None:
    store = embedded_store(tmp_path)
    store.check()
    with driver(store) as db:
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


def test_a_version_that_cannot_be_migrated_is_refused(tmp_path: Path) -> None:
    for version in (5, 7):
        with sqlite3.connect(tmp_path / "server.db") as db:
            db.execute(f"PRAGMA user_version = {version}")
            db.execute("PRAGMA application_id = 1347573331")
            db.execute("CREATE TABLE IF NOT EXISTS something (id)")
        db.close()
        with pytest.raises(SpecError, match=f"schema {version}"):
            embedded_store(tmp_path)
