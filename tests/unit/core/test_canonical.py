"""Canonical JSON, against the examples of RFC 8785."""

import json
import struct

import pytest

from privateer_core.canonical_json import canonical

_EXAMPLES = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}
"""Appendix B of RFC 8785: doubles, and how ECMAScript writes them."""


@pytest.mark.parametrize(("bits", "text"), _EXAMPLES.items())
def test_numbers_are_written_as_ecmascript_does(bits: str, text: str) -> None:
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical(value) == text.encode()


def test_the_example_of_the_rfc() -> None:
    value = json.loads(
        '{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],'
        ' "string": "\\u20ac$\\u000F\\u000aA\'\\u0042\\u0022\\u005c\\\\\\"\\/", "literals": [null, true, false]}'
    )
    assert canonical(value).decode() == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_keys_are_sorted_by_utf_16() -> None:
    assert list(json.loads(canonical({"\ufb33": 1, "\U0001f600": 2, "a": 3}))) == ["a", "\U0001f600", "\ufb33"]


def test_what_is_rewritten_by_another_program_has_the_same_text() -> None:
    assert canonical({"a": 1.0, "b": [1e-6]}) == canonical(json.loads('{"b": [0.000001], "a": 1}'))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1}, "\ud800", {"x": b"bytes"}])
def test_what_is_not_json_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"finite|not JSON|surrogates"):
        canonical(value)
