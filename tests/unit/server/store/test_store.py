"""Both stores: reads return what was written, transactions are atomic, and counts are added up."""

import os
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, update

from privateer_core.errors import SpecError
from privateer_server.rounds.states import RoundState
from privateer_server.store.findings import Disagreement
from privateer_server.store.records import (
    NO_PLAN,
    PAUSED,
    ExperimentState,
    Leaf,
    LogLine,
    OutdatedState,
    Plan,
    PlanBasis,
    RoundRecord,
    RoundUpdate,
    ShufflerKey,
    TokenRow,
)
from privateer_server.store.schema import EXPERIMENTS, LEAVES, PARTS, STORE_KIND, STORE_SCHEMA
from privateer_server.store.store import Store
from tests.support.stores import driver, embedded_store, shared_store

FIRST = RoundRecord(1, 10, 0, 0, RoundState.OPEN, b"digest-1", b"{}", b"publication-1", b"state-1", b"total-1")
SECOND = replace(FIRST, version=2, seen=10, digest=b"digest-2", publication=b"publication-2", state=b"state-2")
LINE = LogLine(1.5, "pause", "", "admin", 1)
DAY = 86_400
IDS = [os.urandom(16) for _ in range(5)]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = open_store(request, tmp_path)
    opened.create("test", b"spec", FIRST)
    yield opened
    opened.close()


def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "sqlite":
        return embedded_store(tmp_path)
    cluster: Any = request.getfixturevalue("postgres")
    return shared_store(cluster.make())


def change(counted: int, **fields: Any) -> RoundUpdate:
    return RoundUpdate(
        **{"experiment": "test", "version": 1, "counted": counted, "part": b"one", "total": b"sums", **fields}
    )


def read_standing(store: Store, name: str = "test") -> ExperimentState:
    experiment_state = store.experiment_state(name)
    assert experiment_state is not None
    return experiment_state


def test_counts_are_added_up_and_parts_stay_separate(store: Store) -> None:
    store.commit([change(3, report_ids=IDS[:3], refused={"decryption-failed": 2})])
    store.commit([change(2, report_ids=IDS[3:], refused={"decryption-failed": 1, "wrong-key": 1}, total=b"more")])
    store.commit([change(1, part=b"two", total=b"other")])
    store.commit([change(0, total=None, refused={"wrong-key": 4})])
    (experiment,) = store.experiments()
    assert (experiment.name, experiment.spec, experiment.accepted) == ("test", b"spec", 6)
    assert experiment.current == replace(FIRST, received=6)
    assert list(experiment.parts) == [b"more", b"other"]
    assert store.sums("test", 1) == [b"total-1", b"more", b"other"]
    assert experiment.state == read_standing(store)
    refused = {"decryption-failed": 3, "wrong-key": 5}
    assert read_standing(store) == ExperimentState(1, b"digest-1", 6, RoundState.OPEN, NO_PLAN, "", 0.0, refused)
    assert store.experiment_states() == {"test": read_standing(store)}


def test_counted_report_ids_are_found(store: Store) -> None:
    with store.lock_experiments(["test"]) as locked:
        assert not locked.counted_ids("test", IDS) & set(IDS)
        locked.commit([change(3, report_ids=IDS[:3])])
    store.commit([change(1, part=b"two", report_ids=IDS[3:4])])
    with store.lock_experiments(["test"]) as locked:
        assert locked.counted_ids("test", IDS) & set(IDS) == set(IDS[:4])
        assert locked.counted_ids("test", []) is not None
    store.commit([change(0, state=RoundState.CLOSED, following=SECOND)])
    with store.lock_experiments(["test"]) as locked:
        assert not locked.counted_ids("test", IDS) & set(IDS)


def test_a_closed_or_full_round_counts_no_reports(store: Store) -> None:
    with pytest.raises(OutdatedState):
        store.commit([change(11)])
    store.commit([change(10)])
    with pytest.raises(OutdatedState):
        store.commit([change(1)])
    store.commit([change(0, total=None, state=RoundState.CLOSED, refused={"round-closed": 1})])
    store.commit([change(0, total=None)])  # nothing opens it again
    now = read_standing(store)
    assert (now.received, now.state, now.refused) == (10, RoundState.CLOSED, {"round-closed": 1})


def test_an_abandoned_round_counts_no_reports(store: Store) -> None:
    store.commit([change(2, state=RoundState.GIVEN_UP)])
    with pytest.raises(OutdatedState):
        store.commit([change(1, answers={b"batch": b"answer"})])
    assert (read_standing(store).received, read_standing(store).state) == (2, RoundState.GIVEN_UP)
    assert store.find_batch_answer("test", 1, b"batch") is None


def test_a_batch_may_hold_more_people_than_the_round_asked_for(store: Store) -> None:
    store.commit([change(8, answers={b"one": b"8"})])
    store.commit([change(8, answers={b"two": b"16"}, state=RoundState.CLOSED)])
    assert read_standing(store).received == 16
    assert [store.find_batch_answer("test", 1, name) for name in (b"one", b"two", b"three")] == [b"8", b"16", None]


def test_the_log_keeps_publications_in_order(store: Store) -> None:
    store.create("other", b"spec", FIRST)
    for _ in range(2):  # the second time it is there
        store.commit([change(0, total=None, state=RoundState.CLOSED, following=SECOND)])
    leaves = [Leaf("test", 1, b"digest-1"), Leaf("other", 1, b"digest-1"), Leaf("test", 2, b"digest-2")]
    assert (store.leaves(0), store.leaves(2), store.leaves(3)) == (leaves, leaves[2:], [])
    assert [store.leaf_index(*publication) for publication in (("test", 1), ("test", 2), ("test", 3), ("none", 1))] == [
        0,
        2,
        None,
        None,
    ]
    with pytest.raises(OutdatedState):
        store.create("other", b"spec", FIRST)
    store.delete("test", LINE)
    assert store.leaves(0) == leaves


def test_an_earlier_copy_recalls_the_leaves_that_it_lacks(store: Store) -> None:
    lacking = [Leaf("test", 2, b"digest-2"), Leaf("gone", 7, b"digest-7")]
    for _ in range(2):  # by two servers, or after a death
        store.add_missing_leaves(lacking)
    store.commit([change(0, total=None, state=RoundState.CLOSED, following=SECOND)])
    assert store.leaves(0) == [Leaf("test", 1, b"digest-1"), *lacking]
    store.create("new", b"spec", FIRST)
    assert store.leaf_index("new", 1) == 3


def test_the_last_closer_of_a_round_is_kept_until_the_experiment_is_deleted(store: Store) -> None:
    store.commit([change(1, answers={b"one": b"1"}, shuffler_key=ShufflerKey("key-1", "one"))])
    store.commit([change(1, answers={b"two": b"2"}, shuffler_key=ShufflerKey("key-2", "two"))])
    store.commit([change(1)])
    store.commit([change(0, total=None, state=RoundState.CLOSED, following=SECOND)])
    assert (store.batch_shufflers("test"), store.batch_shufflers("other")) == ({1: ShufflerKey("key-2", "two")}, {})
    store.delete("test", LINE)
    assert not store.batch_shufflers("test")


def test_closing_a_round_forgets_its_ids_state_and_sums(store: Store) -> None:
    store.commit([change(9, report_ids=IDS)])
    store.commit([change(1, state=RoundState.CLOSED)])
    for _ in range(2):  # another server may have done it just before
        store.commit([change(0, total=None, state=RoundState.CLOSED, following=SECOND)])
    (experiment,) = store.experiments()
    assert (experiment.current, experiment.accepted, list(experiment.parts)) == (SECOND, 10, [])
    assert store.publication("test", 1) == b"publication-1"
    assert store.publication("test", 2) == b"publication-2"
    assert store.publication("test", 3) is None
    outcomes = [(row.version, row.received, row.round_state) for row in store.rounds("test")]
    assert outcomes == [(1, 10, RoundState.CLOSED), (2, 0, RoundState.OPEN)]
    assert store.sums("test", 1) == [b""]
    assert store.sums("test", 2) == [b"total-1"]
    with pytest.raises(OutdatedState):
        store.commit([change(1)])


def test_a_round_is_followed_once(store: Store) -> None:
    store.commit([change(0, total=None, state=RoundState.CLOSED, following=SECOND)])
    with pytest.raises(Exception, match=r"(?i)unique|23505"):
        store.commit(
            [change(0, total=None, state=RoundState.CLOSED, following=replace(SECOND, digest=b"of another noise"))]
        )
    assert read_standing(store).digest == b"digest-2"


def test_a_failing_change_rolls_back_its_transaction(store: Store) -> None:
    store.create("other", b"spec", FIRST)
    with pytest.raises(OutdatedState):
        store.commit([change(7, report_ids=IDS, refused={"x": 1}), change(11, experiment="other")])
    now = read_standing(store)
    assert (now.received, now.refused, store.sums("test", 1)) == (0, {}, [b"total-1"])
    with store.lock_experiments(["test"]) as locked:
        assert not locked.counted_ids("test", IDS) & set(IDS)
    store.commit([change(7)])
    assert store.experiments()[1].accepted == 7


def test_uncommitted_changes_are_rolled_back(store: Store) -> None:
    with store.lock_experiments(["test", "nobody"]) as locked:
        assert locked.state("test") == read_standing(store)
        assert locked.state("nobody") is None
    with pytest.raises(ZeroDivisionError), store.lock_experiments(["test"]):
        raise ZeroDivisionError
    assert read_standing(store).received == 0


def test_a_name_is_created_once(store: Store) -> None:
    with pytest.raises(OutdatedState):
        store.create("test", b"other", FIRST, LINE)
    assert [experiment.spec for experiment in store.experiments()] == [b"spec"]
    assert store.log("test") == []


def test_a_plan_replaces_only_the_plan_it_was_made_for(store: Store) -> None:
    plan, before = Plan(PAUSED, due=3.0), PlanBasis(b"digest-1", NO_PLAN)
    store.store_plan("test", before, plan, LINE)
    for late in (before, PlanBasis(b"digest-2", plan)):
        with pytest.raises(OutdatedState):
            store.store_plan("test", late, Plan(), LINE)
    assert (read_standing(store).plan, store.log("test")) == (plan, [LINE])
    store.commit([change(0, total=None, state=RoundState.GIVEN_UP)])
    with pytest.raises(OutdatedState):
        store.store_plan("test", PlanBasis(b"digest-1", plan), Plan(), LINE)
    store.commit([change(0, total=None, state=RoundState.GIVEN_UP, following=SECOND)])
    assert (read_standing(store).plan, store.log("test")) == (Plan(PAUSED), [replace(LINE, since=2)])
    assert [row.round_state for row in store.rounds("test")] == [RoundState.GIVEN_UP, RoundState.OPEN]


def test_an_experiment_has_one_shuffler(store: Store) -> None:
    assert store.claim("test", "one", 5.0)
    assert store.claim("test", "one", 4.0)
    assert not store.claim("test", "two", 6.0)
    assert read_standing(store).shuffler == "one"
    store.release("test", replace(LINE, at=7.0, action="release-claim"))
    assert store.log("test")[-1].action == "release-claim"
    assert not store.claim("test", "one", 7.0)
    assert store.claim("test", "two", 8.0)
    assert (read_standing(store).shuffler, read_standing(store).released_at) == ("two", 7.0)


def test_a_deleted_experiment_leaves_its_name_and_its_log(store: Store) -> None:
    store.commit([change(3, report_ids=IDS[:3], refused={"x": 1}, answers={b"batch": b"answer"})])
    for _ in range(2):
        store.delete("test", LINE)
    assert (store.deleted_names(), store.log("test")) == (["test"], [LINE])
    assert (store.experiment_state("test"), store.experiment("test"), store.experiments()) == (None, None, [])
    assert (store.rounds("test"), store.publication("test", 1), store.find_batch_answer("test", 1, b"batch")) == (
        [],
        None,
        None,
    )
    with pytest.raises(OutdatedState):
        store.commit([change(1)])


def test_a_token_is_spent_with_its_report_and_forgotten_with_its_key(store: Store) -> None:
    assert store.find_token_report(50, b"token") is None
    rows = [TokenRow(50, b"token", b"report"), TokenRow(60, b"other", b"another")]
    store.commit([change(1, tokens=rows)])
    assert (store.find_token_report(50, b"token"), store.find_token_report(60, b"other")) == (b"report", b"another")
    store.commit([change(0, total=None, state=RoundState.CLOSED, following=SECOND)])
    store.delete_some_expired_tokens(DAY + 50.5)
    assert (store.find_token_report(50, b"token"), store.find_token_report(60, b"other")) == (None, b"another")


def test_store_probes_can_be_repeated(store: Store) -> None:
    store.write_probe()
    store.write_probe()
    store.erase_old_states()


def test_a_checkup_finds_inconsistent_rows(store: Store) -> None:
    store.commit([change(9, report_ids=IDS)])
    store.commit([change(0, state=RoundState.CLOSED, following=SECOND)])
    store.create("other", b"spec", FIRST, LINE)
    store.commit([change(2, experiment="other", report_ids=IDS)])
    checkup = store.examine()
    assert (checkup.experiments, checkup.rounds, checkup.last_change, checkup.disagreements) == (2, 3, 1.5, {})
    assert checkup.database.is_whole
    assert checkup.database.version == (STORE_SCHEMA if store.is_shared else STORE_KIND).version
    assert checkup.database.size > 1000
    with store._database.transaction() as db:
        db.execute(insert(PARTS).values(experiment="test", version=1, part=b"one", total=b"sums"))
        db.execute(update(LEAVES).where(LEAVES.c.experiment == "other").values(digest=b"another"))
        db.execute(insert(EXPERIMENTS).values(name="empty", spec=b"", shuffler="", plan=b""))
    assert store.examine().disagreements == {
        Disagreement.NO_ROUND: ["empty"],
        Disagreement.NOT_ERASED: ["test"],
        Disagreement.NOT_IN_LOG: ["other"],
    }


def test_a_closed_round_leaves_no_bytes_in_the_file(tmp_path: Path) -> None:
    store = embedded_store(tmp_path)
    store.create("test", b"spec", FIRST)
    store.commit([change(9, report_ids=IDS)])
    store.commit([change(0, total=None, state=RoundState.CLOSED, following=SECOND)])
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
    with reopened.lock_experiments(["test"]) as locked:
        assert locked.counted_ids("test", []) == set(IDS)
    reopened.close()


def test_every_commit_is_synced(tmp_path: Path) -> None:
    store = embedded_store(tmp_path)
    store.write_probe()
    with driver(store) as db:
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


def test_a_version_that_cannot_be_migrated_is_refused(tmp_path: Path) -> None:
    for version in (STORE_KIND.version - 1, STORE_KIND.version + 1):
        with sqlite3.connect(tmp_path / "server.db") as db:
            db.execute(f"PRAGMA user_version = {version}")
            db.execute("PRAGMA application_id = 1347573331")
            db.execute("CREATE TABLE IF NOT EXISTS something (id)")
        db.close()
        with pytest.raises(SpecError, match=f"schema {version}"):
            embedded_store(tmp_path)
