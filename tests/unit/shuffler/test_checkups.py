"""Checkups of a folder's stores: they find histories of other rounds, and damaged files."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from privateer_core.serving.store.database import read_facts
from privateer_core.wire.publication import Round
from privateer_shuffler.pool.pool import Label
from privateer_shuffler.pool.spent_tokens import TOKENS_FILE, FiledTokens
from privateer_shuffler.pool.store import HISTORY_FILE, FolderStore, LastPublication, open_history
from tests.unit.shuffler.fake_server import SIZE
from tests.unit.shuffler.helpers import sealed_reports

LABEL = Label(Round("spring", 2, "shuffle", 3, SIZE, bytes(32)), b"d" * 32)


async def store_report(folder: Path) -> None:
    """Hold a report for a round of three."""
    store = FolderStore(folder, open_history(folder), FiledTokens(folder))
    store.store_publication("spring", LastPublication(2, LABEL.digest))
    pool = await store.create_round(LABEL)
    assert (await pool.hold(sealed_reports(1))).accepted == 1
    await pool.close()
    store.close()


async def test_a_checkup_of_a_sound_store_finds_nothing(tmp_path: Path) -> None:
    await store_report(tmp_path)
    store = FolderStore(tmp_path, open_history(tmp_path), FiledTokens(tmp_path))
    checkup = store.examine()
    assert checkup.disagreements == []
    assert set(checkup.databases) == {HISTORY_FILE, TOKENS_FILE, f"{(b'd' * 32).hex()}.db"}
    assert all(database.is_whole and database.size >= 4096 for database in checkup.databases.values())
    assert {name for name, database in checkup.databases.items() if database.version != 1} == {TOKENS_FILE}
    await (await store.open_stored_rounds([]))[0].close()
    store.close()


@pytest.mark.parametrize("harm", ["DELETE FROM taken", "UPDATE taken SET version = 1", "UPDATE taken SET digest = 'x'"])
async def test_a_checkup_finds_a_restored_history(tmp_path: Path, harm: str) -> None:
    await store_report(tmp_path)
    with closing(sqlite3.connect(tmp_path / HISTORY_FILE)) as db:
        db.execute(harm)
        db.commit()
    store = FolderStore(tmp_path, open_history(tmp_path))
    (wrong,) = store.examine().disagreements
    assert wrong.startswith("the history does not know the round of spring")
    await (await store.open_stored_rounds([]))[0].close()
    store.close()


def test_a_checkup_finds_damage(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as db:
        db.executescript("CREATE TABLE one (value); INSERT INTO one VALUES (NULL); PRAGMA user_version=7")
        assert (read_facts(db).version, read_facts(db).is_whole) == (7, True)
        db.executescript(
            "PRAGMA writable_schema=ON; UPDATE sqlite_schema SET sql = 'CREATE TABLE one (value NOT NULL)'"
        )
    with closing(sqlite3.connect(tmp_path / "a.db")) as db:
        assert not read_facts(db).is_whole
