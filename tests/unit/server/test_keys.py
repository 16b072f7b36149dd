"""Names of public keys, trusted shufflers, and opening."""

import os
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from privateer.wire.publication import Round
from privateer_server.keys import TrustedShufflers, key_id
from privateer_server.opening import SEAL_SIZE, Opener


def test_the_key_id_is_the_one_of_rounds() -> None:
    public = os.urandom(32)
    assert key_id(public) == Round("test", 1, "local", 1, 70, public).key_id


def test_trusted_keys_of_files_and_directories(tmp_path: Path) -> None:
    keys = [Ed25519PrivateKey.generate().public_key().public_bytes_raw() for _ in range(3)]
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.pub").write_text(keys[0].hex())
    (tmp_path / "folder" / "b.pub").write_text(keys[1].hex() + "\n")
    (tmp_path / "folder" / "ignored.txt").write_text(keys[2].hex())
    (tmp_path / "single").write_text(keys[2].hex())
    trusted = TrustedShufflers([tmp_path / "folder", tmp_path / "single", tmp_path / "missing"])
    found = trusted.keys()
    assert [key.public_bytes_raw() for key in found] == keys


def test_opening_leaves_out_what_does_not_open() -> None:
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
    key = X25519PrivateKey.from_private_bytes(os.urandom(32)).public_key()
    mine = X25519PrivateKey.generate()
    opener = Opener(mine)
    good = suite.encrypt(b"good", mine.public_key(), info=b"info")
    other_key = suite.encrypt(b"bad", key, info=b"info")
    other_info = suite.encrypt(b"bad", mine.public_key(), info=b"other")
    assert len(good) == len(b"good") + SEAL_SIZE
    assert opener.open([other_key, good, b"", other_info, os.urandom(60), good], b"info") == [b"good", b"good"]
