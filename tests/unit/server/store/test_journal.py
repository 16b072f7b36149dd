"""Both journals: the last publication of every experiment, and of several writers the first."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from privateer_core.codec import decode, encode
from privateer_server.store.journal import Journal
from privateer_server.store.records import Behind, JournalEntry, Leaf, LogLine, RoundRecord
from tests.support.stores import embedded_journal, shared_journal

ROUND = RoundRecord(1, 10, 0, 0, False, b"one", b"{}", b"publication", b"state", b"total")
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
    assert (journal.last("test"), journal.experiments()) == (None, [])
    assert journal.write(FIRST, None) == FIRST
    assert journal.write(SECOND, FIRST) == SECOND
    assert journal.write(replace(FIRST, experiment="other"), None).experiment == "other"
    assert (journal.last("test"), journal.experiments()) == (SECOND, ["other", "test"])


def test_a_round_that_takes_no_further_batch_is_on_record_until_the_next_one(journal: Journal) -> None:
    journal.shut("test", b"one")
    assert journal.last("test") is None
    journal.write(FIRST, None)
    journal.shut("test", b"another")
    assert journal.last("test") == FIRST
    for _ in range(2):
        journal.shut("test", b"one")
        assert journal.last("test") == replace(FIRST, shut=True)
    assert journal.write(SECOND, FIRST) == SECOND
    journal.shut("test", b"one")  # whoever was slow
    assert journal.last("test") == SECOND


def test_an_entry_of_an_earlier_privateer_is_of_a_round_that_takes_batches() -> None:
    names = ("experiment", "closed", "received", "taken", "following")
    fields = {name: getattr(FIRST, name) for name in names}
    assert decode(encode(fields | {"following": asdict(ROUND)}), JournalEntry) == FIRST


def test_a_deleted_experiment_leaves_its_name(journal: Journal) -> None:
    journal.write(FIRST, None)
    for _ in range(2):
        journal.bury("test", LINE)
    assert (journal.last("test"), journal.experiments(), journal.buried()) == (None, [], {"test": LINE})


def test_the_log_goes_on_under_one_name_and_key(journal: Journal) -> None:
    assert (journal.origin(), journal.leaves(0)) == ("", [])
    assert journal.signer(b"key") == b"key"
    journal.extend("first", 0, LEAVES[:2])
    journal.extend("second", 2, LEAVES[2:])
    assert (journal.origin(), journal.leaves(0), journal.leaves(1, 1)) == ("first", LEAVES, LEAVES[1:2])
    assert (journal.leaves(2, 0), journal.leaves(3)) == ([], [])


@pytest.mark.postgres
def test_several_servers_extend_one_log(postgres: Any) -> None:
    url = postgres.make()
    one, two = shared_journal(url), shared_journal(url)
    assert (one.signer(b"key"), two.signer(b"another")) == (b"key", b"key")
    one.extend("log", 0, LEAVES[:2])
    two.extend("another", 0, LEAVES)  # one was faster with the first two
    one.extend("log", 2, LEAVES[2:])
    assert (two.origin(), two.leaves(0)) == ("log", LEAVES)
    fourth = Leaf("test", 4, b"four")
    for start, leaves in ((2, [fourth]), (4, [fourth]), (1, [*LEAVES[2:], fourth])):
        with pytest.raises(Behind, match="not the one"):
            two.extend("log", start, leaves)
    assert one.leaves(0) == LEAVES
    one.close()
    two.close()


@pytest.mark.postgres
def test_the_first_of_several_writers_wins(postgres: Any) -> None:
    url = postgres.make()
    one, two = shared_journal(url), shared_journal(url)
    other = replace(SECOND, following=replace(SECOND.following, digest=b"of another noise"))
    assert one.write(FIRST, None) == FIRST
    assert two.write(replace(FIRST, following=replace(ROUND, digest=b"late")), None) == FIRST
    assert two.write(other, FIRST) == other
    assert one.write(SECOND, FIRST) == other
    third = replace(SECOND, closed=b"two", following=replace(ROUND, version=3, digest=b"three"))
    assert two.write(third, SECOND) == other  # it follows what was never put on record
    assert one.last("test") == two.last("test") == other
    two.bury("test", LINE)
    with pytest.raises(Behind):
        one.write(third, other)
    with pytest.raises(Behind):
        one.write(FIRST, None)
    assert one.last("test") is None
    one.close()
    two.close()


@pytest.mark.postgres
def test_a_journal_that_was_put_back_counts_for_versions_only(postgres: Any, tmp_path: Path) -> None:
    url = postgres.make()
    journal = shared_journal(url)
    journal.write(FIRST, None)
    postgres.dump(url, tmp_path / "dump")
    journal.write(SECOND, FIRST)
    journal.close()
    again = shared_journal(url)
    assert again.last("test") == SECOND  # a restart alone changes nothing
    again.close()
    back = postgres.make()
    postgres.load(tmp_path / "dump", back)
    for _ in range(2):  # it is found out once, and stays so
        restored = shared_journal(back)
        last = restored.last("test")
        assert (last.closed, last.following.digest, last.following.version) == (b"", b"", 1)
        restored.close()
    restored = shared_journal(back)
    assert restored.write(SECOND, last) == SECOND
    assert restored.last("test") == SECOND
    restored.close()


@pytest.mark.postgres
def test_a_journal_that_is_put_back_under_a_running_server_is_not_used(postgres: Any, tmp_path: Path) -> None:
    from privateer_core.serving.store.postgres import Unreachable

    url = postgres.make()
    journal = shared_journal(url)
    journal.write(FIRST, None)
    postgres.dump(url, tmp_path / "dump")
    postgres.drop(url)
    with pytest.raises(Unreachable):
        journal.last("test")
    postgres.load(tmp_path / "dump", postgres.make_again(url))
    with pytest.raises(Unreachable, match="another copy"):
        journal.last("test")
    journal.close()
