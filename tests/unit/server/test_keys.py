"""The private key on disk, and opening with it."""

import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from privateer.errors import SpecError
from privateer.wire.publication import Round
from privateer_server.keys import key_id, load_private_key
from privateer_server.opening import SEAL_SIZE, Opener


def test_the_key_is_made_once_and_private(tmp_path: Path) -> None:
    first = load_private_key(tmp_path).private_bytes_raw()
    assert load_private_key(tmp_path).private_bytes_raw() == first
    assert [file.name for file in tmp_path.iterdir()] == ["hpke.key"]
    assert (tmp_path / "hpke.key").stat().st_mode & 0o777 == 0o600


def test_an_interrupted_start_leaves_no_half_key(tmp_path: Path) -> None:
    (tmp_path / "hpke.new").write_bytes(b"half")
    assert len(load_private_key(tmp_path).private_bytes_raw()) == 32


def test_a_damaged_key_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "hpke.key").write_bytes(b"short")
    with pytest.raises(SpecError, match="not a private key"):
        load_private_key(tmp_path)
    assert (tmp_path / "hpke.key").read_bytes() == b"short"


def test_the_key_id_is_the_one_of_rounds() -> None:
    public = os.urandom(32)
    assert key_id(public) == Round("test", 1, "local", 1, 70, public).key_id


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
