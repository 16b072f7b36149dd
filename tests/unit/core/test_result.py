"""Results travel, and what is not a result is refused."""

import math

import msgspec
import pytest

from privateer_core.errors import Malformed
from privateer_core.result import (
    ESTIMATES_MAX,
    SIZE_MAX,
    Effect,
    Estimate,
    Result,
    Table,
    completed,
    decode_result,
    encode_result,
)

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


EFFECTS = ("segment", "arm", "effect", "low", "high", "decided")


def test_a_result_that_an_older_server_stored_has_its_effects_too():
    over_time = Table(
        "over time",
        ("people", *EFFECTS[:5]),
        ((10, "lost", "b", -0.3, -0.4, -0.2), (20, "lost", "b", None, None, None)),
    )
    rows = (
        ("won", "b", 0.2, 0.1, 0.3, True),
        ("open", "b", 0.1, -0.1, 0.3, False),
        ("corrected", "b", 0.2, 0.01, 0.3, False),
        ("again", "b", 0.1, -0.1, 0.3, True),
        ("lost", "b", None, None, None, True),
        ("few", "b", None, None, None, False),
    )
    guardrail = Table("guardrail: refund", EFFECTS, (("won", "b", 0.2, 0.1, 0.3, True),))
    average = Table("average effects", EFFECTS[1:], (("b", 0.1, 0.05, 0.2, True),))
    told = msgspec.to_builtins(
        Result((), 0.95, tables=(Table("effects", EFFECTS, rows), average, guardrail, over_time))
    )
    stored = {key: value for key, value in told.items() if key not in ("effects", "ground", "ended")}
    found = completed(decode_result(msgspec.msgpack.encode(stored)))
    assert [(one.group, one.reason) for one in found.effects] == [
        ("won", "decided better"),
        ("open", "its interval holds 0"),
        ("corrected", "its interval excludes 0, but not after the correction for several effects"),
        ("again", "its test decided at an earlier look, but its interval holds 0 again"),
        ("lost", "decided worse"),
        ("few", "too few people beside the noise"),
        (None, "decided better"),
    ]
    assert (found.effects[4].value, found.effects[4].people) == (-0.3, 10)
    assert completed(found) == found


def test_a_reason_is_one_of_a_closed_set():
    told = msgspec.to_builtins(Result((), 0.95, effects=(Effect("b", None, 0.1, 0.0, 0.2, "its interval holds 0"),)))
    assert decode_result(msgspec.msgpack.encode(told)).effects[0].is_decided is False
    told["effects"][0]["reason"] = "it seems so"
    with pytest.raises(Malformed):
        decode_result(msgspec.msgpack.encode(told))
