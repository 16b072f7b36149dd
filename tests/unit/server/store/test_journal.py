"""The journal, and the store of keys."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from privateer_core.codec import decode, encode
from privateer_core.errors import SpecError
from privateer_core.wire.keys import UNREADABLE_KEY_REMEDY
from privateer_server.intake.decryption import RoundKeys
from privateer_server.rounds.states import RoundState
from privateer_server.store.journal import Journal
from privateer_server.store.records import JournalEntry, Leaf, LogLine, OutdatedState, RoundRecord
from privateer_server.store.round_keys import KeyFolder, KeyTable
from privateer_server.store.schema import JOURNAL_SCHEMA
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
    journal.record_end_of_batches("test", b"one")
    assert journal.last_entry("test") is None
    journal.record_publication(FIRST, None)
    journal.record_end_of_batches("test", b"another")
    assert journal.last_entry("test") == FIRST
    for _ in range(2):
        journal.record_end_of_batches("test", b"one")
        assert journal.last_entry("test") == replace(FIRST, shut=True)
    assert journal.record_publication(SECOND, FIRST) == SECOND
    journal.record_end_of_batches("test", b"one")  # whoever was slow
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


@pytest.fixture(params=["folder", pytest.param("postgres", marks=pytest.mark.postgres)])
def keys(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[RoundKeys, RoundKeys]]:
    """The same keys twice: as they were made, and as another process reads them."""
    if request.param == "folder":
        yield RoundKeys(KeyFolder(tmp_path / "keys")), RoundKeys(KeyFolder(tmp_path / "keys"))
        return
    from privateer_core.serving.store.postgres import PostgresDatabase

    cluster: Any = request.getfixturevalue("postgres")
    pool = PostgresDatabase(cluster.make(), JOURNAL_SCHEMA, "PRIVATEER_JOURNAL_DATABASE")
    yield RoundKeys(KeyTable(pool, b"k" * 32)), RoundKeys(KeyTable(pool, b"k" * 32))
    pool.close()


def test_a_key_is_found_until_it_is_destroyed(keys: tuple[RoundKeys, RoundKeys]) -> None:
    first, second = keys
    public_key, other = first.create_key(), first.create_key()
    for place in keys:
        opener = place.find_decryptor(public_key)
        assert opener.public_key == public_key
    assert (first.find_decryptor(b"x" * 32), second.find_decryptor(b"x" * 32)) == (None, None)
    first.destroy(public_key)
    first.destroy(public_key)
    assert (first.find_decryptor(public_key), first.n_unerased) == (None, 0)
    second.destroy(public_key)  # whoever had read it forgets it
    assert second.find_decryptor(public_key) is None
    first.retry_erasures()
    assert second.find_decryptor(other) is not None


def test_keys_of_open_rounds_are_kept(keys: tuple[RoundKeys, RoundKeys]) -> None:
    first, second = keys
    kept_key = first.create_key()
    second.erase_all_except([kept_key])
    assert second.find_decryptor(kept_key) is not None
    second.erase_all_except([])


def test_a_key_that_may_not_be_read_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start refuses it by name of the setting, and says what to do; it gives no round up."""
    public_key = RoundKeys(KeyFolder(tmp_path / "keys")).create_key()
    monkeypatch.setattr(Path, "read_bytes", _refused_start)
    with pytest.raises(SpecError, match="the key of an open round cannot be read: Permission denied") as refused:
        RoundKeys(KeyFolder(tmp_path / "keys")).find_decryptor(public_key)
    assert (refused.value.field, refused.value.remedy) == ("PRIVATEER_DATA", UNREADABLE_KEY_REMEDY)


def _refused_start(path: Path) -> bytes:
    raise PermissionError(13, "Permission denied", str(path))
