import logging
import time

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.wire.keys import TrustedKeys, _FileStamp, read_public_keys, signing_key_id


def test_trusted_keys_of_files_and_directories(tmp_path):
    keys = [Ed25519PrivateKey.generate().public_key() for _ in range(3)]
    raw = [key.public_bytes_raw().hex() for key in keys]
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.pub").write_text(raw[0])
    (tmp_path / "folder" / "b.pub").write_text(raw[1] + "\n")
    (tmp_path / "folder" / "ignored.txt").write_text(raw[2])
    (tmp_path / "single").write_text(raw[2])
    trusted = TrustedKeys([tmp_path / "folder", tmp_path / "single", tmp_path / "missing"])
    assert list(trusted.by_id()) == [signing_key_id(key) for key in keys]
    (tmp_path / "single").unlink()
    assert list(trusted.by_id()) == [signing_key_id(key) for key in keys[:2]]


def test_keys_are_read_again_when_a_file_has_changed(tmp_path, monkeypatch):
    """Once files are older than a tick of their clock, they are read when something about them changes."""
    keys = [Ed25519PrivateKey.generate().public_key() for _ in range(3)]
    raw, ids = [key.public_bytes_raw().hex() for key in keys], [signing_key_id(key) for key in keys]
    monkeypatch.setattr("privateer_core.wire.keys._TICK_NANOSECONDS", -(10**12))
    read = []
    monkeypatch.setattr(
        "privateer_core.wire.keys.read_public_keys", lambda path: (read.append(path), read_public_keys(path))[1]
    )
    trusted, key_file = TrustedKeys([tmp_path]), tmp_path / "one.pub"
    assert trusted.by_id() == {}
    key_file.write_text(raw[0])
    assert [list(trusted.by_id()) for _ in range(3)] == [ids[:1]] * 3
    assert len(read) == 1
    time.sleep(0.02)
    key_file.write_text(raw[1])
    assert list(trusted.by_id()) == [ids[1]]
    (tmp_path / "new").write_text(raw[2])
    (tmp_path / "new").replace(key_file)
    assert list(trusted.by_id()) == [ids[2]]
    key_file.unlink()
    assert trusted.by_id() == {}


def test_a_file_changed_within_a_clock_tick_is_read_every_time(tmp_path, monkeypatch):
    """Two changes within a tick of the clock of files look the same."""
    keys = [Ed25519PrivateKey.generate().public_key() for _ in range(2)]
    trusted, key_file = TrustedKeys([tmp_path]), tmp_path / "one.pub"
    monkeypatch.setattr("privateer_core.wire.keys._file_stamp", lambda _: _FileStamp(1, time.time_ns()))
    for key in keys:
        key_file.write_text(key.public_bytes_raw().hex())
        assert list(trusted.by_id()) == [signing_key_id(key)]


def test_a_file_without_a_key_is_logged_once(tmp_path, caplog):
    (tmp_path / "broken.pub").write_text("no key")
    trusted = TrustedKeys([tmp_path])
    with caplog.at_level(logging.WARNING):
        assert trusted.by_id() == {}
        assert trusted.by_id() == {}
    assert caplog.messages == ["broken.pub does not hold public keys (64 hex digits each)"]


def test_an_organisation_has_a_file_with_all_its_keys(tmp_path):
    keys = [Ed25519PrivateKey.generate().public_key() for _ in range(3)]
    raw = [key.public_bytes_raw().hex() for key in keys]
    (tmp_path / "first-trust.pub").write_text(f"{raw[0]}\n{raw[1]}\n")
    (tmp_path / "other.pub").write_text(raw[2])
    trusted = TrustedKeys([tmp_path])
    assert [trusted.organisation(signing_key_id(key)) for key in keys] == ["first-trust", "first-trust", "other"]
    assert len(trusted.by_id()) == 3
    assert trusted.organisation("0" * 16) == ""
