"""Other implementations of RFC 9180 open reports of devices, and the server opens reports that they seal."""

import os

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from privateer_core.wire.publication import Header, hpke_info
from privateer_server.intake.decryption import Decryptor
from tests.interop.programs import ask_strangers

pytestmark = pytest.mark.interop
LIBRARIES = {"@hpke/core", "hpke", "pyhpke"}
SIZES = (1, 16, 37, 4096)


def test_other_libraries_open_our_reports_and_seal_theirs() -> None:
    key = X25519PrivateKey.generate()
    info = hpke_info(Header("peaks", 7, os.urandom(8), os.urandom(32)), "shuffle")
    messages = [os.urandom(size) for size in SIZES]
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
    question = {
        "key": key.private_bytes_raw().hex(),
        "public": key.public_key().public_bytes_raw().hex(),
        "info": info.hex(),
        "messages": [message.hex() for message in messages],
        "sealed": [suite.encrypt(message, key.public_key(), info=info).hex() for message in messages],
    }
    answers = ask_strangers(question)
    from_sdk = ask_strangers(question | {"sealed": answers["sdk"]["sealed"]})
    assert set(answers) == LIBRARIES | {"sdk"}
    opener, other_info = Decryptor(key), info[:-1] + bytes([info[-1] ^ 1])
    for name in LIBRARIES:
        assert answers[name]["opened"] == question["messages"], name
        assert from_sdk[name]["opened"] == question["messages"], name
    for name, answer in answers.items():
        sealed = [bytes.fromhex(report) for report in answer["sealed"]]
        assert opener.decrypt(sealed, info) == messages, name
        assert opener.decrypt(sealed, other_info) == [b""] * len(messages), name
