"""Other implementations of RFC 8785 write the canonical JSON that we write, for integers within 2^53."""

import json
import random
import struct
from typing import Any

import pytest

from privateer_core.codec import encode_canonical_json
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
