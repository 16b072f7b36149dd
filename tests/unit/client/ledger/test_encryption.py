"""Choices are encrypted with the application's key, or with a key in a file beside the ledger."""

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from privateer_client.ledger.encryption import Encryption
from privateer_client.ledger.ledger import Ledger
from privateer_client.participation import Participation, StoredChoice
from privateer_core.errors import InputError
from tests.support.experiments import OPEN, waiting_spec
from tests.support.publications import published

KEY = bytes(range(32))


@pytest.fixture
def choice() -> StoredChoice:
    followed = Participation(published(waiting_spec()), "test", OPEN)
    return StoredChoice.decide(followed, np.zeros((1, 2)), np.array([7], np.uint32), 0.0)


def keep(ledger: Ledger, choice: StoredChoice, name: str = "a") -> None:
    ledger.change_choice(name, lambda stored: stored or choice)


def test_the_application_may_have_the_key(tmp_path: Path, choice: StoredChoice) -> None:
    path = tmp_path / "ledger.db"
    keep(Ledger(path, key=KEY), choice)
    assert [file.name for file in tmp_path.iterdir()] == ["ledger.db"]
    stored = Ledger(path, key=KEY).choice("a")
    assert stored.due == choice.due
    for other in (None, bytes(32)):
        with pytest.raises(InputError, match="cannot be read") as refusal:
            Ledger(path, key=other).choice("a")
        assert refusal.value.field == "key"
        assert "ledger.forget('a')" in str(refusal.value)
        with pytest.raises(InputError, match="cannot be read"):
            keep(Ledger(path, key=other), choice)
    assert Ledger(path, key=KEY).choice("a") is not None


def test_the_key_is_by_default_in_a_file_of_the_user(tmp_path: Path, choice: StoredChoice) -> None:
    path = tmp_path / "ledger.db"
    Ledger(path).payments()
    assert not (tmp_path / "ledger.db.key").exists()  # until something is kept
    keep(Ledger(path), choice)
    assert (tmp_path / "ledger.db.key").stat().st_mode & 0o777 == 0o600
    key = (tmp_path / "ledger.db.key").read_bytes()
    keep(Ledger(path), choice, "b")
    assert (tmp_path / "ledger.db.key").read_bytes() == key
    assert (len(key), Ledger(path).experiments_with_choice()) == (32, ["a", "b"])


@pytest.mark.parametrize("key", [b"", b"short", bytes(31), bytes(33)])
def test_a_key_of_another_length_is_refused(tmp_path: Path, key: bytes) -> None:
    with pytest.raises(InputError) as refusal:
        Ledger(tmp_path / "ledger.db", key=key)
    assert refusal.value.field == "key"


def test_a_damaged_key_file_is_left_alone(tmp_path: Path, choice: StoredChoice) -> None:
    (tmp_path / "ledger.db.key").write_bytes(b"short")
    with pytest.raises(InputError, match="cannot use the key beside the ledger"):
        keep(Ledger(tmp_path / "ledger.db"), choice)
    assert (tmp_path / "ledger.db.key").read_bytes() == b"short"


def test_an_incomplete_key_file_is_replaced(tmp_path: Path, choice: StoredChoice) -> None:
    (tmp_path / "ledger.db.key.new").write_bytes(b"beg")
    keep(Ledger(tmp_path / "ledger.db"), choice)
    assert [file.name for file in sorted(tmp_path.iterdir())] == ["ledger.db", "ledger.db.key"]


@pytest.mark.parametrize("place", [0, 11, 12, 40, -1])
def test_a_damaged_row_is_one_error_and_is_not_touched(tmp_path: Path, choice: StoredChoice, place: int) -> None:
    path = tmp_path / "ledger.db"
    keep(Ledger(path), choice)
    keep(Ledger(path), choice, "b")
    with closing(sqlite3.connect(path)) as database:
        (body,) = database.execute("SELECT body FROM choices WHERE experiment = 'a'").fetchone()
        harmed = bytearray(body)
        harmed[place] ^= 1
        database.execute("UPDATE choices SET body = ? WHERE experiment = 'a'", (bytes(harmed),))
        database.commit()
    with pytest.raises(InputError, match="cannot be read"):
        Ledger(path).choice("a")
    assert Ledger(path).experiments_with_choice() == ["a", "b"]
    assert Ledger(path).choice("b") is not None
    Ledger(path).forget("a")
    assert Ledger(path).experiments_with_choice() == ["b"]


@pytest.mark.parametrize("body", [b"", b"x", bytes(12), bytes(28)])
def test_a_row_that_is_too_short_is_the_same_error(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "ledger.db"
    Ledger(path)
    (tmp_path / "ledger.db.key").write_bytes(KEY)
    with closing(sqlite3.connect(path)) as database:
        database.execute("INSERT INTO choices VALUES (x'', 'a', 0, ?)", (body,))
        database.commit()
    with pytest.raises(InputError, match="cannot be read"):
        Ledger(path).choice("a")


def test_a_damaged_publication_is_none(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger(path).store_publication("a", b"published")
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE publications SET body = CAST('publish' AS BLOB)")
        database.commit()
    assert Ledger(path).publication("a") is None
    Ledger(path).store_publication("a", b"published")
    assert Ledger(path).publication("a") == b"published"


def test_the_two_spellings_of_an_accent_are_one_person(tmp_path: Path) -> None:
    keys = Encryption(KEY, tmp_path / "key")
    assert keys.pseudonym("Ren\u00e9") == keys.pseudonym("Rene\u0301")
    assert keys.pseudonym("Ren\u00e9") != keys.pseudonym("Rene")
