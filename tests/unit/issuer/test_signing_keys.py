"""Signing keys rotate: the newest signs, its predecessor is valid, and expired keys are public alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from privateer_core.errors import NotFound, SpecError, TokenRequestRefused
from privateer_core.wire.token_keys import Directory
from privateer_issuer.signing_keys import DAY, KeyRing
from privateer_issuer.store import FILE, IssuerStore, TokenRequest
from tests.support.clocks import Hands

DAYS = 30


class IssuerInTime:
    """An issuer's keys on a disk, with a clock of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock, self.store = folder, Hands(), IssuerStore(folder)
        self.clock.time = 1_000 * DAY + 5000.0
        self.keys = self.make_keys("spring", "autumn")

    def make_keys(self, *experiments: str) -> KeyRing:
        return KeyRing(self.store, experiments, DAYS, "issuer.example", self.folder / "issuer.json", self.clock)

    def later(self, days: float) -> list[int]:
        """Let days pass; the days on which the keys of an experiment began, the newest first."""
        self.clock.time += days * DAY
        self.keys.rotate()
        directory = Directory.decode((self.folder / "issuer.json").read_bytes())
        return [key.not_before // DAY - 1_000 for key in directory.keys("spring")]


@pytest.fixture
def issuer(tmp_path: Path) -> Iterator[IssuerInTime]:
    issuer = IssuerInTime(tmp_path)
    yield issuer
    issuer.store.close()


def test_keys_rotate_and_two_stay_valid(issuer: IssuerInTime) -> None:
    assert issuer.later(0) == [0]
    assert issuer.later(29) == [0]
    assert issuer.later(1) == [30, 0]
    assert issuer.later(29) == [30, 0]
    assert issuer.later(1) == [60, 30, 0]  # the oldest has expired, and is told from a forged one
    assert issuer.later(30) == [90, 60, 30]


def test_a_key_is_followed_at_its_exact_expiry(issuer: IssuerInTime) -> None:
    issuer.clock.time = (1_000 + DAYS) * DAY - 1.0
    assert issuer.later(0) == [0]
    issuer.clock.time += 1.0
    assert issuer.later(0) == [30, 0]


def test_two_keys_are_valid_at_most(issuer: IssuerInTime) -> None:
    for _ in range(28):  # four rotations, at other hours each
        issuer.later(4.3)
        directory = Directory.decode(issuer.keys.directory)
        valid = [key for key in directory.keys("spring") if key.is_valid(issuer.clock.now())]
        assert 1 <= len(valid) <= 2


def test_keys_sign_as_long_as_they_are_valid(issuer: IssuerInTime) -> None:
    first = issuer.keys.newest_keys["spring"].id[-1]
    issuer.later(59)
    assert issuer.keys.signer("spring", first) is not issuer.keys.signer(
        "spring", issuer.keys.newest_keys["spring"].id[-1]
    )
    issuer.later(1)
    with pytest.raises(TokenRequestRefused):
        issuer.keys.signer("spring", first)


def test_an_expired_private_key_is_erased_from_disk(issuer: IssuerInTime) -> None:
    private = issuer.store.keys()[0].private
    issuer.later(31)
    issuer.later(30)
    issuer.store.close()
    content = b"".join(path.read_bytes() for path in issuer.folder.glob(f"{FILE}*"))
    assert private not in content
    assert private[320:480] not in content  # of the private exponent; what comes before is public


def test_a_restart_keeps_the_keys(issuer: IssuerInTime) -> None:
    issuer.later(31)
    before = issuer.keys.directory
    issuer.store.close()
    issuer.store = IssuerStore(issuer.folder)
    assert issuer.make_keys("spring", "autumn").directory == before


def test_experiments_have_keys_of_their_own(issuer: IssuerInTime) -> None:
    keys = issuer.keys.newest_keys
    assert keys["spring"].id != keys["autumn"].id
    if keys["spring"].id[-1] != keys["autumn"].id[-1]:
        with pytest.raises(TokenRequestRefused):
            issuer.keys.signer("autumn", keys["spring"].id[-1])
    with pytest.raises(NotFound):
        issuer.keys.signer("winter", 0)


def test_two_issuers_do_not_share_a_folder(issuer: IssuerInTime) -> None:
    with pytest.raises(SpecError, match="in use"):
        IssuerStore(issuer.folder)


def test_files_of_a_killed_doctor_are_deleted_at_the_next_start(tmp_path: Path) -> None:
    copies = tmp_path / ".privateer-left"
    copies.mkdir()
    (copies / FILE).write_bytes(b"a copy of the keys")
    IssuerStore(tmp_path).close()
    assert not copies.exists()


def test_token_counts_are_erased_with_the_last_key(issuer: IssuerInTime) -> None:
    """An experiment that is taken off the list keeps its shares as long as any of its keys is known."""

    def had() -> set[str]:
        with issuer.store._database.connection() as db:
            return {name for (name,) in db.exec_driver_sql("SELECT experiment FROM issued")}

    assert issuer.store.count_requests(
        [TokenRequest(name, "somebody", b"request") for name in ("spring", "autumn")], 1
    ) == [True, True]
    pseudonym = issuer.store._hash(b"somebody")
    issuer.keys = issuer.make_keys("spring")
    issuer.later(2 * DAYS)  # the last key of autumn has expired, and is still told from a forged one
    assert had() == {"spring", "autumn"}
    assert issuer.store.count_requests([TokenRequest("autumn", "somebody", b"another")], 1) == [False]
    issuer.later(DAYS)
    assert had() == {"spring"}
    issuer.later(10 * DAYS)
    assert had() == {"spring"}  # its share is for all keys, as long as it is on the list
    issuer.keys = issuer.make_keys("winter")
    issuer.later(4 * DAYS)
    assert had() == set()
    files = [path.read_bytes() for path in issuer.folder.glob(f"{FILE}*")]
    assert not any(pseudonym in body for body in files)


def test_a_store_finds_what_does_not_agree(issuer: IssuerInTime) -> None:
    issuer.store.count_requests([TokenRequest("spring", "somebody", b"request")], 1)
    assert issuer.store.examine().without_key == []
    issuer.store.count_requests([TokenRequest("winter", "somebody", b"request")], 1)
    checkup = issuer.store.examine()
    assert (checkup.without_key, checkup.database.is_whole, checkup.database.version) == (["winter"], True, 1)
