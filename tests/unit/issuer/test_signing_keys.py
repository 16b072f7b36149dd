"""Keys have their turns: one signs, its predecessor is valid, an older one is shown without its private half."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from privateer_core.errors import NotFound, SpecError, TokenRequestRefused
from privateer_core.wire.token_keys import Directory
from privateer_issuer.signing_keys import DAY, IssuerKeys
from privateer_issuer.store import FILE, IssuerStore, Taking
from tests.support.clocks import Hands

DAYS = 30


class Shown:
    """An issuer's keys on a disk, with a clock of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock, self.store = folder, Hands(), IssuerStore(folder)
        self.clock.time = 1_000 * DAY + 5000.0
        self.keys = self.anew()

    def anew(self) -> IssuerKeys:
        return IssuerKeys(
            self.store, ("spring", "autumn"), DAYS, "issuer.example", self.folder / "issuer.json", self.clock
        )

    def later(self, days: float) -> list[int]:
        """Let days pass; the days on which the keys of an experiment began, the newest first."""
        self.clock.time += days * DAY
        self.keys.rotate()
        directory = Directory.decode((self.folder / "issuer.json").read_bytes())
        return [key.not_before // DAY - 1_000 for key in directory.keys("spring")]


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[Shown]:
    shown = Shown(tmp_path)
    yield shown
    shown.store.close()


def test_keys_have_their_turns(shown: Shown) -> None:
    assert shown.later(0) == [0]
    assert shown.later(29) == [0]
    assert shown.later(1) == [30, 0]
    assert shown.later(29) == [30, 0]
    assert shown.later(1) == [60, 30, 0]  # the oldest has expired, and is told from a forged one
    assert shown.later(30) == [90, 60, 30]


def test_two_keys_are_valid_at_most(shown: Shown) -> None:
    for _ in range(28):  # four rotations, at other hours each
        shown.later(4.3)
        valid = [key for key in shown.keys.directory.keys("spring") if key.is_valid(shown.clock.now())]
        assert 1 <= len(valid) <= 2


def test_keys_sign_as_long_as_they_are_valid(shown: Shown) -> None:
    first = shown.keys.newest["spring"].id[-1]
    shown.later(59)
    assert shown.keys.signer("spring", first) is not shown.keys.signer("spring", shown.keys.newest["spring"].id[-1])
    shown.later(1)
    with pytest.raises(TokenRequestRefused):
        shown.keys.signer("spring", first)


def test_an_expired_private_key_is_gone(shown: Shown) -> None:
    private = shown.store.keys()[0].private
    shown.later(31)
    shown.later(30)
    shown.store.close()
    left = b"".join(path.read_bytes() for path in shown.folder.glob(f"{FILE}*"))
    assert private not in left
    assert private[320:480] not in left  # of the private exponent; what comes before is public


def test_a_restart_keeps_the_keys(shown: Shown) -> None:
    shown.later(31)
    before = shown.keys.directory
    shown.store.close()
    shown.store = IssuerStore(shown.folder)
    assert shown.anew().directory == before


def test_experiments_have_keys_of_their_own(shown: Shown) -> None:
    keys = shown.keys.newest
    assert keys["spring"].id != keys["autumn"].id
    if keys["spring"].id[-1] != keys["autumn"].id[-1]:
        with pytest.raises(TokenRequestRefused):
            shown.keys.signer("autumn", keys["spring"].id[-1])
    with pytest.raises(NotFound):
        shown.keys.signer("winter", 0)


def test_two_issuers_do_not_share_a_folder(shown: Shown) -> None:
    with pytest.raises(SpecError, match="in use"):
        IssuerStore(shown.folder)


def test_what_a_killed_doctor_left_goes_at_the_next_start(tmp_path: Path) -> None:
    left = tmp_path / ".privateer-left"
    left.mkdir()
    (left / FILE).write_bytes(b"a copy of the keys")
    IssuerStore(tmp_path).close()
    assert not left.exists()


def test_who_had_tokens_is_forgotten_with_the_last_key(shown: Shown) -> None:
    """An experiment that is taken off the list keeps its shares as long as any of its keys is known."""

    def had() -> set[str]:
        with shown.store._database.connection() as db:
            return {name for (name,) in db.exec_driver_sql("SELECT experiment FROM issued")}

    assert shown.store.take([Taking(name, "somebody", b"request") for name in ("spring", "autumn")], 1) == [True, True]
    whose = shown.store._hash(b"somebody")
    shown.keys = IssuerKeys(shown.store, ("spring",), DAYS, "issuer.example", shown.folder / "issuer.json", shown.clock)
    shown.later(2 * DAYS)  # the last key of autumn has expired, and is still told from a forged one
    assert had() == {"spring", "autumn"}
    assert shown.store.take([Taking("autumn", "somebody", b"another")], 1) == [False]
    shown.later(DAYS)
    assert had() == {"spring"}
    shown.later(10 * DAYS)
    assert had() == {"spring"}  # its share is for all keys, as long as it is on the list
    shown.keys = IssuerKeys(shown.store, ("winter",), DAYS, "issuer.example", shown.folder / "issuer.json", shown.clock)
    shown.later(4 * DAYS)
    assert had() == set()
    files = [path.read_bytes() for path in shown.folder.glob(f"{FILE}*")]
    assert not any(whose in body for body in files)


def test_a_store_finds_what_does_not_agree(shown: Shown) -> None:
    shown.store.take([Taking("spring", "somebody", b"request")], 1)
    assert shown.store.examine().without_key == []
    shown.store.take([Taking("winter", "somebody", b"request")], 1)
    found = shown.store.examine()
    assert (found.without_key, found.database.is_whole, found.database.version) == (["winter"], True, 1)
