import logging

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer.wire.keys import TrustedKeys, signing_key_id


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


def test_a_file_without_a_key_is_told_once(tmp_path, caplog):
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
