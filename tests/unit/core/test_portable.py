"""Numbers that several machines compare: exact sums, few digits, ties by row, equality but for last digits."""

import math
from fractions import Fraction

import numpy as np
import pytest

from privateer_core.accounting.events import Gaussian, Laplace, Parallel, Pure, ShuffledMessage
from privateer_core.portable import first_largest, is_same, norm, round_up, rounded_key


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
