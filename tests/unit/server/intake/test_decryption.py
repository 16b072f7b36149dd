"""Opening with a round's private key."""

import os

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from privateer_server.intake.decryption import SEAL_SIZE, Decryptor


def test_decryption_omits_undecryptable_reports() -> None:
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
    key = X25519PrivateKey.from_private_bytes(os.urandom(32)).public_key()
    own_key = X25519PrivateKey.generate()
    opener = Decryptor(own_key)
    good = suite.encrypt(b"good", own_key.public_key(), info=b"info")
    other_key = suite.encrypt(b"bad", key, info=b"info")
    other_info = suite.encrypt(b"bad", own_key.public_key(), info=b"other")
    assert len(good) == len(b"good") + SEAL_SIZE
    assert opener.decrypt([other_key, good, b"", other_info, os.urandom(60), good], b"info") == [
        b"",
        b"good",
        b"",
        b"",
        b"",
        b"good",
    ]
