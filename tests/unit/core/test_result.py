"""Results travel, and what is not a result is refused."""

import math

import msgspec
import pytest

from privateer_core.errors import Malformed
from privateer_core.result import ESTIMATES_MAX, SIZE_MAX, Estimate, Result, decode_result, encode_result

FOUND = Result((Estimate("short", 0.5, 0.25, 1.0), Estimate("long", 0.0, -1.0, 0.0)), 0.95, "short", stopped=True)


@pytest.mark.parametrize("result", [FOUND, Result((), 0.5)])
def test_a_result_travels(result):
    assert decode_result(encode_result(result)) == result


WRONG = {
    "no interval": {"estimates": [{"name": "a", "value": 1.0}]},
    "out of its interval": {"estimates": [{"name": "a", "value": 1.0, "low": 2.0, "high": 3.0}]},
    "nan": {"estimates": [{"name": "a", "value": math.nan, "low": 0.0, "high": 3.0}]},
    "infinite": {"estimates": [{"name": "a", "value": 1.0, "low": -math.inf, "high": 3.0}]},
    "an interval of infinite ends": {"estimates": [{"name": "a", "value": math.inf, "low": 0.0, "high": math.inf}]},
    "a text for a number": {"estimates": [{"name": "a", "value": "1", "low": 0.0, "high": 3.0}]},
    "a name that steers a terminal": {"estimates": [{"name": "\x1b[2J", "value": 1.0, "low": 0.0, "high": 3.0}]},
    "an empty name": {"estimates": [{"name": "", "value": 1.0, "low": 0.0, "high": 3.0}]},
    "a long name": {"estimates": [{"name": "a" * 257, "value": 1.0, "low": 0.0, "high": 3.0}]},
    "a name twice": {"estimates": [{"name": "a", "value": 1.0, "low": 0.0, "high": 3.0}] * 2},
    "too many": {
        "estimates": [{"name": str(i), "value": 1.0, "low": 0.0, "high": 3.0} for i in range(ESTIMATES_MAX + 1)]
    },
    "too sure": {"confidence": 1.5},
    "not sure of being sure": {"confidence": math.nan},
    "a recommendation of two lines": {"recommended": "a\nb"},
    "neither stopped nor not": {"stopped": 1},
    "more": {"surprise": 1},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_not_a_result_is_refused(wrong):
    told = msgspec.to_builtins(FOUND) | WRONG[wrong]
    with pytest.raises(Malformed) as refused:
        decode_result(msgspec.msgpack.encode(told))
    assert refused.value.remedy


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc0",
        encode_result(FOUND)[:-1],
        encode_result(FOUND) + b"\x00",
        b"\x91" * 100_000,
        bytes(SIZE_MAX + 1),
        msgspec.msgpack.encode({"estimates": [], "confidence": 0.5}).replace(b"confidence", b"confid\xff\xffce"),
    ],
)
def test_other_bytes_are_refused(body):
    with pytest.raises(Malformed):
        decode_result(body)
