"""Canonical JSON, and figures that every processor computes alike."""

import json
import math
import random
import struct
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privateer_core.accounting.events import Gaussian, Laplace, Parallel, Pure, ShuffledMessage
from privateer_core.codec import encode_canonical_json
from privateer_core.portable import first_largest, is_same, norm, round_up, rounded_key

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
    assert encode_canonical_json(value) == text.encode()


def test_the_example_of_the_rfc() -> None:
    value = json.loads(
        '{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],'
        ' "string": "\\u20ac$\\u000F\\u000aA\'\\u0042\\u0022\\u005c\\\\\\"\\/", "literals": [null, true, false]}'
    )
    assert encode_canonical_json(value).decode() == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_keys_are_sorted_by_utf_16() -> None:
    assert list(json.loads(encode_canonical_json({"\ufb33": 1, "\U0001f600": 2, "a": 3}))) == [
        "a",
        "\U0001f600",
        "\ufb33",
    ]


def test_documents_rewritten_by_another_program_have_the_same_text() -> None:
    assert encode_canonical_json({"a": 1.0, "b": [1e-6]}) == encode_canonical_json(
        json.loads('{"b": [0.000001], "a": 1}')
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1}, "\ud800", {"x": b"bytes"}])
def test_values_that_are_not_json_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"not representable in JCS|unsupported|UTF-8"):
        encode_canonical_json(value)


# The same, written once more, for what is signed or digested: no byte may change with the library.


def text_of(value: Any) -> str:
    if isinstance(value, dict):
        rows = sorted(value.items(), key=lambda row: row[0].encode("utf-16-be"))
        return "{" + ",".join(f"{text_of(key)}:{text_of(element)}" for key, element in rows) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(text_of, value)) + "]"
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int) and abs(value) < (1 << 53):
        return str(value)
    if isinstance(value, int | float):
        return number(float(value))
    raise ValueError(f"{type(value).__name__} is not JSON")


def number(value: float) -> str:
    """ECMAScript's ``Number::toString``, section 6.1.6.1.20: the shortest digits that name a double."""
    if value == 0:
        return "0"
    negative, decimal_digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    digits, sign = "".join(map(str, decimal_digits)), "-" * negative
    point = len(digits) + exponent
    if len(digits) <= point <= 21:
        return sign + digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{point - 1:+d}"


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(json_values)
def test_random_values_have_the_same_bytes(value: Any) -> None:
    assert encode_canonical_json(value) == text_of(value).encode()


def test_random_doubles_have_the_same_bytes() -> None:
    doubles = struct.unpack("<50000d", random.Random(0).randbytes(400_000))
    for value in filter(math.isfinite, doubles):
        assert encode_canonical_json(value) == number(value).encode()


def test_every_document_of_the_wire_format_has_the_same_bytes() -> None:
    paths = sorted((Path(__file__).parents[3] / "docs" / "wire").rglob("*.json"))
    assert paths
    for path in paths:
        value = json.loads(path.read_text())
        assert encode_canonical_json(value) == text_of(value).encode(), path


def test_a_norm_does_not_depend_on_the_order_of_its_sum() -> None:
    """Planted: a sum of squares in sequence depends on the order."""
    rng = np.random.default_rng(3)
    vectors = [rng.permutation(np.arange(1.0, 200) ** -0.5) for _ in range(20)]
    assert len({norm(vector) for vector in vectors}) == 1
    assert len({math.sqrt(sum(np.square(vector).tolist())) for vector in vectors}) > 1
    exact = sum((Fraction(x) ** 2 for x in vectors[0].tolist()), Fraction(0))
    assert norm(vectors[0]) == pytest.approx(math.sqrt(exact), rel=1e-15)


@pytest.mark.parametrize(
    ("value", "digits", "rounded"),
    [
        (181_500.45001032943, 6, 181_501.0),
        (181_501.0, 6, 181_501.0),
        (0.0007, 4, 0.0007),
        (0.00070000001, 4, 0.0007001),
        (999_999.1, 6, 1_000_000.0),
        (9.9999e-7, 4, 1e-6),
        (math.nextafter(0.25, 1.0), 6, 0.250001),
    ],
)
def test_numbers_are_rounded_up_and_never_down(value: float, digits: int, rounded: float) -> None:
    assert round_up(value, digits) == rounded >= value
    assert round_up(rounded, digits) == rounded


def test_the_first_of_equal_maxima_is_taken() -> None:
    """Planted: the maximum to the last digit has another index."""
    values = np.array([0.3, 1.0 - 1e-13, 1.0, 1.0 - 1e-14])
    assert (first_largest(values), int(values.argmax())) == (1, 2)
    assert first_largest(-values) == 0
    assert first_largest(np.array([-1.0, -np.inf, -1.0 + 1e-15])) == 0
    assert first_largest(np.array([1.0, 1.0 + 1e-6])) == 1


SEEN = Parallel((Gaussian(181_501.0, 42_970.1), ShuffledMessage(1.0, 4500)))


@pytest.mark.parametrize(
    ("other", "is_equal"),
    [
        (Parallel((Gaussian(181_501.0, 42_970.1 * (1 + 1e-15)), ShuffledMessage(1.0 - 1e-12, 4500))), True),
        (Parallel((Gaussian(181_501.0, 42_970.1 * (1 + 1e-5)), ShuffledMessage(1.0, 4500))), False),
        (Parallel((Gaussian(181_501.0, 42_970.1), ShuffledMessage(1.0, 4501))), False),
        (Parallel((Laplace(181_501.0, 42_970.1), ShuffledMessage(1.0, 4500))), False),
        (Parallel((Gaussian(181_501.0, 42_970.1),)), False),
        (Gaussian(181_501.0, 42_970.1), False),
        (None, False),
    ],
)
def test_events_are_the_same_but_for_last_digits(other: object, is_equal: bool) -> None:
    assert is_same(SEEN, other) is is_equal
    assert is_same(other, other)
    assert (rounded_key(SEEN) == rounded_key(other)) is is_equal


def test_a_number_differs_from_none() -> None:
    assert not is_same(None, 0.0)
    assert not is_same(Pure(0.0), Pure(1e-300))
    assert is_same(math.inf, math.inf)
