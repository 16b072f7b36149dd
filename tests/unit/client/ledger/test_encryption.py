"""What a ledger stores: choices, encrypted with its key."""

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import pytest

from privateer_client.ledger.choice import encode_choice
from privateer_client.ledger.encryption import Encryption
from privateer_client.ledger.ledger import Ledger
from privateer_client.participation import Participation, StoredChoice
from privateer_client.publication_parts import digest_meaning
from privateer_core.codec import decode
from privateer_core.errors import InputError, Malformed
from privateer_core.privacy.terms_verification import Limits
from tests.support.experiments import OPEN, WEEK, waiting_spec
from tests.support.publications import published
from tests.support.specs import make_spec

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


NOW = 1_000_000.0


def stored_choice(window: float = WEEK) -> StoredChoice:
    followed = Participation(published(waiting_spec(**{"experiment.conversion_window_seconds": window})), "test", OPEN)
    return StoredChoice.decide(followed, np.array([[0.25, 0.5]]), np.array([7], np.uint32), NOW)


@pytest.mark.parametrize("window", [1.0, 90.0, 3600.0, WEEK, 365 * 86_400.0])
def test_a_report_is_due_when_the_window_is_over_and_kept_no_finer_than_a_hundredth(window: float) -> None:
    stored = stored_choice(window)
    assert NOW + window <= stored.due <= NOW + window + max(1.0, window / 100)
    assert stored.due % max(1.0, window / 100) == pytest.approx(0, abs=1e-6)
    assert not stored.is_due(stored.due - 0.5)
    assert stored.is_due(stored.due)


def test_outcomes_replace_each_other_until_the_report_is_due() -> None:
    stored = stored_choice()
    updated = stored.with_outcome(np.array([0.5]), NOW).with_outcome(np.array([0.75]), NOW + 5)
    assert (updated.rewards[0], updated.due) == (0.75, stored.due)
    assert updated.with_outcome(np.array([1.0]), updated.due) is updated
    assert stored.rewards[0] == 0.0


def test_without_a_window_the_first_outcome_makes_the_report_due() -> None:
    stored = stored_choice(0.0)
    assert not stored.is_due(1e15)
    updated = stored.with_outcome(np.array([0.5]), NOW)
    assert updated.is_due(NOW)
    assert updated.due % 86_400 == 0  # the day says enough
    assert updated.with_outcome(np.array([1.0]), NOW) is updated


def test_a_choice_is_read_as_it_was_written() -> None:
    stored = stored_choice()
    read = decode(encode_choice(stored), StoredChoice)
    assert (read.display_value, read.decided) == (stored.display_value, 1)
    assert (read.digest, read.due) == (stored.digest, stored.due)
    assert read.decisions.arms == stored.decisions.arms  # type: ignore[union-attr]
    np.testing.assert_array_equal(read.contexts, stored.contexts)
    for body in (b"", b"\xff", encode_choice(stored)[:-1]):
        with pytest.raises(Malformed):
            decode(body, StoredChoice)


def test_a_choice_that_is_too_large_is_refused() -> None:
    large = msgspec.structs.replace(stored_choice(), contexts=np.zeros((1, 200_000)))
    with pytest.raises(InputError) as refusal:
        encode_choice(large)
    assert refusal.value.field == "context"


def test_stored_choices_have_one_size_whatever_the_arms_name() -> None:
    names = ["a", "ä" * 64, "名" * 64]
    spec = make_spec({"experiment.arms": names})
    followed = Participation(published(spec), "test", Limits())
    choices = [StoredChoice.decide(followed, np.zeros((1, 2)), np.array([n], np.uint32), NOW) for n in range(60)]
    assert {stored.display_value for stored in choices} == set(names)
    assert len({len(encode_choice(stored)) for stored in choices}) == 1


def test_changes_that_an_operator_may_make_keep_the_meaning() -> None:
    spec = make_spec()
    harmless = [
        {"experiment.horizon": 30_000},
        {"experiment.retired_arms": ["arm-2"]},
        {"experiment.conversion_window_seconds": 5.0},
    ]
    others = [{"reward.low": -1.0}, {"privacy.epsilon": 0.5}, {"experiment.arms": ["arm-0", "x", "arm-2"]}]
    others += [{"context.features": {"x1": {"low": 0.0, "high": 1.0}}}]
    assert {digest_meaning(make_spec(changes)) for changes in harmless} == {digest_meaning(spec)}
    assert len({digest_meaning(make_spec(changes)) for changes in [{}, *others]}) == 5
    partition_spec = make_spec({"experiment.arms": ["arm-0", "arm-1", "arm-2", "new"]})
    assert digest_meaning(partition_spec, 3) == digest_meaning(spec) != digest_meaning(partition_spec)
