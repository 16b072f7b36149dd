"""Both places for round keys: a key is there from before its round until it is destroyed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from privateer_core.errors import SpecError
from privateer_core.wire.keys import UNREADABLE_KEY
from privateer_server.store.round_keys import KeyFolder, KeyTable, RoundKeys
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
    made, again = keys
    public_key, other = made.make(), made.make()
    for place in keys:
        opener = place.find(public_key)
        assert opener is not None
        assert opener.public_key == public_key
    assert (made.find(b"x" * 32), again.find(b"x" * 32)) == (None, None)
    made.destroy(public_key)
    made.destroy(public_key)
    assert (made.find(public_key), made.unerased) == (None, 0)
    again.destroy(public_key)  # whoever had read it forgets it
    assert again.find(public_key) is None
    made.retry()
    assert again.find(other) is not None


def test_keys_of_open_rounds_are_kept(keys: tuple[RoundKeys, RoundKeys]) -> None:
    made, again = keys
    wanted = made.make()
    again.keep([wanted])
    assert again.find(wanted) is not None
    again.keep([])


def test_a_key_that_may_not_be_read_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start refuses it by name of the setting, and says what to do; it gives no round up."""
    made = RoundKeys(KeyFolder(tmp_path / "keys")).make()
    monkeypatch.setattr(Path, "read_bytes", _refused)
    with pytest.raises(SpecError, match="the key of an open round cannot be read: Permission denied") as refused:
        RoundKeys(KeyFolder(tmp_path / "keys")).find(made)
    assert (refused.value.field, refused.value.remedy) == ("PRIVATEER_DATA", UNREADABLE_KEY)


def _refused(path: Path) -> bytes:
    raise PermissionError(13, "Permission denied", str(path))
