"""Libraries of others agree with our canonical JSON and our HPKE."""

import json
import os
import random
import struct
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from privateer_core.codec import encode_canonical_json
from privateer_core.wire.publication import Header, hpke_info
from privateer_server.intake.decryption import Decryptor
from tests.interop.programs import ask_strangers

pytestmark = pytest.mark.interop

SEED, DOCUMENTS = 61, 2_000
CHARACTERS = [chr(code) for code in range(0x250)] + ["\u20ac", "\ufb33", "\U0001f600", "\u2028", "\u200d", "\uffff"]
EDGES = [0.0, -0.0, 5e-324, 1.7976931348623157e308, 1e21, 999999999999999900000.0, 1e-6, 9.999999999999999e-7]


def test_other_libraries_write_the_same_canonical_json() -> None:
    rng = random.Random(SEED)
    values = [*EDGES, 2**53 - 1, 1 - 2**53, *(_value(rng, 0) for _ in range(DOCUMENTS))]
    answers = ask_strangers({"documents": [json.dumps(value) for value in values]})
    assert set(answers) == {"canonicalize", "jcs"}
    for name, texts in answers.items():
        different = [
            value for value, text in zip(values, texts, strict=True) if encode_canonical_json(value) != text.encode()
        ]
        assert not different, (name, different[:3])


def _value(rng: random.Random, depth: int) -> Any:
    kind = rng.randrange(7 if depth < 3 else 5)
    if kind < 2:
        return _double(rng)
    if kind == 2:
        return rng.randint(1 - 2**53, 2**53 - 1)
    if kind == 3:
        return rng.choice([True, False, None])
    if kind == 4:
        return _text(rng)
    if kind == 5:
        return [_value(rng, depth + 1) for _ in range(rng.randrange(5))]
    return {_text(rng): _value(rng, depth + 1) for _ in range(rng.randrange(5))}


def _text(rng: random.Random) -> str:
    return "".join(rng.choices(CHARACTERS, k=rng.randrange(6)))


def _double(rng: random.Random) -> float:
    value = struct.unpack(">d", rng.randbytes(8))[0] if rng.random() < 0.5 else rng.uniform(-1e6, 1e6)
    return value if value - value == 0 else 0.5  # neither infinite nor NaN


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
