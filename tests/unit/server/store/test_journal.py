"""Both journals: the last publication of every experiment, and of several writers the first."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from privateer_core.codec import decode, encode
from privateer_server.rounds.states import RoundState
from privateer_server.store.journal import Journal
from privateer_server.store.records import JournalEntry, Leaf, LogLine, OutdatedState, RoundRecord
from tests.support.stores import embedded_journal, shared_journal

ROUND = RoundRecord(1, 10, 0, 0, RoundState.OPEN, b"one", b"{}", b"publication", b"state", b"total")
FIRST = JournalEntry("test", b"", 0, False, ROUND)
SECOND = JournalEntry("test", b"one", 10, True, replace(ROUND, version=2, digest=b"two"))
LEAVES = [Leaf("test", 1, b"one"), Leaf("other", 1, b"of other"), Leaf("test", 2, b"two")]
LINE = LogLine(1.5, "delete", "", "admin", 2, 2)


@pytest.fixture(params=["file", pytest.param("postgres", marks=pytest.mark.postgres)])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    opened: Journal
    if request.param == "file":
        opened = embedded_journal(tmp_path / "journal.db")
    else:
        cluster: Any = request.getfixturevalue("postgres")
        opened = shared_journal(cluster.make())
    yield opened
    opened.close()


def test_the_last_publication_of_every_experiment_is_there(journal: Journal) -> None:
    assert (journal.last_entry("test"), journal.experiments()) == (None, [])
    assert journal.record_publication(FIRST, None) == FIRST
    assert journal.record_publication(SECOND, FIRST) == SECOND
    assert journal.record_publication(replace(FIRST, experiment="other"), None).experiment == "other"
    assert (journal.last_entry("test"), journal.experiments()) == (SECOND, ["other", "test"])


def test_a_round_that_takes_no_further_batch_is_on_record_until_the_next_one(journal: Journal) -> None:
    journal.close_to_batches("test", b"one")
    assert journal.last_entry("test") is None
    journal.record_publication(FIRST, None)
    journal.close_to_batches("test", b"another")
    assert journal.last_entry("test") == FIRST
    for _ in range(2):
        journal.close_to_batches("test", b"one")
        assert journal.last_entry("test") == replace(FIRST, shut=True)
    assert journal.record_publication(SECOND, FIRST) == SECOND
    journal.close_to_batches("test", b"one")  # whoever was slow
    assert journal.last_entry("test") == SECOND


def test_an_entry_of_an_earlier_privateer_is_of_a_round_that_takes_batches() -> None:
    names = ("experiment", "closed", "received", "taken", "following")
    fields = {name: getattr(FIRST, name) for name in names}
    assert decode(encode(fields | {"following": asdict(ROUND)}), JournalEntry) == FIRST


def test_a_deleted_experiment_leaves_its_name(journal: Journal) -> None:
    journal.record_publication(FIRST, None)
    for _ in range(2):
        journal.record_deletion("test", LINE)
    assert (journal.last_entry("test"), journal.experiments(), journal.deletions()) == (None, [], {"test": LINE})


def test_the_log_goes_on_under_one_name_and_key(journal: Journal) -> None:
    assert (journal.origin(), journal.leaves(0)) == ("", [])
    assert journal.register_signer(b"key") == b"key"
    journal.extend_log("first", 0, LEAVES[:2])
    journal.extend_log("second", 2, LEAVES[2:])
    assert (journal.origin(), journal.leaves(0), journal.leaves(1, 1)) == ("first", LEAVES, LEAVES[1:2])
    assert (journal.leaves(2, 0), journal.leaves(3)) == ([], [])


@pytest.mark.postgres
def test_several_servers_extend_one_log(postgres: Any) -> None:
    url = postgres.make()
    journal, two = shared_journal(url), shared_journal(url)
    assert (journal.register_signer(b"key"), two.register_signer(b"another")) == (b"key", b"key")
    journal.extend_log("log", 0, LEAVES[:2])
    two.extend_log("another", 0, LEAVES)  # one was faster with the first two
    journal.extend_log("log", 2, LEAVES[2:])
    assert (two.origin(), two.leaves(0)) == ("log", LEAVES)
    fourth = Leaf("test", 4, b"four")
    for start, leaves in ((2, [fourth]), (4, [fourth]), (1, [*LEAVES[2:], fourth])):
        with pytest.raises(OutdatedState, match="not the one"):
            two.extend_log("log", start, leaves)
    assert journal.leaves(0) == LEAVES
    journal.close()
    two.close()


@pytest.mark.postgres
def test_the_first_of_several_writers_wins(postgres: Any) -> None:
    url = postgres.make()
    journal, two = shared_journal(url), shared_journal(url)
    other = replace(SECOND, following=replace(SECOND.following, digest=b"of another noise"))
    assert journal.record_publication(FIRST, None) == FIRST
    assert two.record_publication(replace(FIRST, following=replace(ROUND, digest=b"late")), None) == FIRST
    assert two.record_publication(other, FIRST) == other
    assert journal.record_publication(SECOND, FIRST) == other
    third = replace(SECOND, closed=b"two", following=replace(ROUND, version=3, digest=b"three"))
    assert two.record_publication(third, SECOND) == other  # it follows what was never put on record
    assert journal.last_entry("test") == two.last_entry("test") == other
    two.record_deletion("test", LINE)
    with pytest.raises(OutdatedState):
        journal.record_publication(third, other)
    with pytest.raises(OutdatedState):
        journal.record_publication(FIRST, None)
    assert journal.last_entry("test") is None
    journal.close()
    two.close()


@pytest.mark.postgres
def test_a_restored_journal_is_used_for_versions_alone(postgres: Any, tmp_path: Path) -> None:
    url = postgres.make()
    journal = shared_journal(url)
    journal.record_publication(FIRST, None)
    postgres.dump(url, tmp_path / "dump")
    journal.record_publication(SECOND, FIRST)
    journal.close()
    reopened = shared_journal(url)
    assert reopened.last_entry("test") == SECOND  # a restart alone changes nothing
    reopened.close()
    back = postgres.make()
    postgres.load(tmp_path / "dump", back)
    for _ in range(2):  # it is found out once, and stays so
        restored = shared_journal(back)
        last = restored.last_entry("test")
        assert (last.closed, last.following.digest, last.following.version) == (b"", b"", 1)
        restored.close()
    restored = shared_journal(back)
    assert restored.record_publication(SECOND, last) == SECOND
    assert restored.last_entry("test") == SECOND
    restored.close()


@pytest.mark.postgres
def test_a_journal_restored_under_a_running_server_is_not_used(postgres: Any, tmp_path: Path) -> None:
    from privateer_core.serving.store.postgres import Unreachable

    url = postgres.make()
    journal = shared_journal(url)
    journal.record_publication(FIRST, None)
    postgres.dump(url, tmp_path / "dump")
    postgres.drop(url)
    with pytest.raises(Unreachable):
        journal.last_entry("test")
    postgres.load(tmp_path / "dump", postgres.make_again(url))
    with pytest.raises(Unreachable, match="another copy"):
        journal.last_entry("test")
    journal.close()
