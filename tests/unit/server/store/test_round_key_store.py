"""Both places for round keys: a key is there from before its round until it is destroyed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from privateer_core.errors import SpecError
from privateer_core.wire.keys import UNREADABLE_KEY_REMEDY
from privateer_server.intake.decryption import RoundKeys
from privateer_server.store.round_keys import KeyFolder, KeyTable
from privateer_server.store.schema import JOURNAL_SCHEMA


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
        assert opener is not None
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
