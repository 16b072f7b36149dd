"""Keys of rounds on disk: there before they are used, and gone after."""

import logging
import os
from pathlib import Path

import pytest

from privateer_server.intake.opening import Opener
from privateer_server.store.round_keys import KeyFolder, RoundKeys


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "keys"


def test_a_key_is_found_again_by_another_process(folder: Path) -> None:
    public = RoundKeys(KeyFolder(folder)).make()
    found = RoundKeys(KeyFolder(folder)).find(public)
    assert found is not None
    assert found.public_key == public
    (path,) = folder.iterdir()
    assert (path.name, path.stat().st_mode & 0o777) == (f"{public.hex()}.key", 0o600)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_every_round_has_another(folder: Path) -> None:
    keys = RoundKeys(KeyFolder(folder))
    assert len({keys.make() for _ in range(5)}) == 5


@pytest.mark.parametrize("raw", [b"", b"short", bytes(32), bytes(33)])
def test_a_damaged_key_is_as_good_as_lost(folder: Path, raw: bytes) -> None:
    public = RoundKeys(KeyFolder(folder)).make()
    (folder / f"{public.hex()}.key").write_bytes(raw)
    assert RoundKeys(KeyFolder(folder)).find(public) is None


def test_a_key_that_the_disk_does_not_let_go_is_not_found_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError

    keys = RoundKeys(KeyFolder(folder))
    public = keys.make()
    monkeypatch.setattr(KeyFolder, "_erase", fail)
    keys.destroy(public)
    assert (folder / f"{public.hex()}.key").exists()
    assert keys.find(public) is None


def test_a_destroyed_key_is_overwritten_before_its_name_goes(folder: Path) -> None:
    keys = RoundKeys(KeyFolder(folder))
    public = keys.make()
    path = folder / f"{public.hex()}.key"
    private = path.read_bytes()
    (folder.parent / "link").hardlink_to(path)
    keys.destroy(public)
    assert (keys.find(public), list(folder.iterdir())) == (None, [])
    assert (folder.parent / "link").read_bytes() not in (private, b"")
    keys.destroy(public)  # again is the same


def test_a_key_that_the_disk_keeps_is_destroyed_later(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keys = RoundKeys(KeyFolder(folder))
    public = keys.make()

    def fails(_: int) -> None:
        raise OSError("secret detail")

    with monkeypatch.context() as broken, caplog.at_level(logging.ERROR):
        broken.setattr(os, "fsync", fails)
        keys.destroy(public)
    assert keys.find(public) is not None or list(folder.iterdir())
    assert "not destroyed yet" in caplog.text
    assert "secret" not in caplog.text
    keys.retry()
    assert list(folder.iterdir()) == []


def test_only_the_keys_of_open_rounds_are_kept(folder: Path) -> None:
    keys = RoundKeys(KeyFolder(folder))
    kept, *_ = [keys.make() for _ in range(3)]
    (folder / f"{os.urandom(32).hex()}.key").write_bytes(b"half")
    (folder / "notes.txt").write_bytes(b"of the operator")
    (folder / "lost+found").mkdir()
    keys.keep([kept, os.urandom(32)])
    assert {path.name for path in folder.iterdir()} == {f"{kept.hex()}.key", "notes.txt", "lost+found"}


def test_sums_are_read_with_the_key_and_for_the_round_they_were_encrypted_for(folder: Path) -> None:
    keys = RoundKeys(KeyFolder(folder))
    one, other = keys.find(keys.make()), keys.find(keys.make())
    assert one is not None
    assert other is not None
    protected = [one.protect(b"sums", b"digest") for _ in range(2)]
    assert protected[0] != protected[1]
    assert [one.reveal(text, b"digest") for text in protected] == [b"sums"] * 2
    assert b"sums" not in protected[0]
    spoilt = protected[0][:-1] + bytes([protected[0][-1] ^ 1])
    tries = [other.reveal(protected[0], b"digest"), one.reveal(protected[0], b"other"), one.reveal(spoilt, b"digest")]
    assert [*tries, one.reveal(b"", b"digest"), one.reveal(b"short", b"digest")] == [None] * 5


def test_an_opener_shows_no_key() -> None:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    private = X25519PrivateKey.generate()
    assert private.private_bytes_raw().hex() not in repr(vars(Opener(private)))
