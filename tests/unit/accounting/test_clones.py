"""The clones bound: published values, enumeration of small batches, and the sharper form that is false."""

import math
from itertools import product

import mpmath
import numpy as np
import pytest

from privateer_core.accounting.amplification import clones_delta, clones_local_epsilon, shuffled_delta
from privateer_core.errors import SpecError

TABLE = {
    0.1: (0.65, 1.52, 3.12, 5.26),
    0.5: (1.90, 3.70, 5.92, 8.21),
    1.0: (2.72, 4.80, 7.07, 9.37),
    2.0: (3.45, 5.64, 7.93, 10.23),
}


@pytest.mark.parametrize("epsilon", TABLE)
def test_published_values(epsilon):
    for batch, expected in zip((10**3, 10**4, 10**5, 10**6), TABLE[epsilon], strict=True):
        assert clones_local_epsilon(epsilon, 1e-6, batch) == pytest.approx(expected, abs=0.01)


def test_the_bound_has_its_check_value():
    assert clones_delta(0.1698, 4.0, 10**5) == pytest.approx(1e-6, rel=0.01)


def shuffled_exactly(matrix: np.ndarray, epsilon: float, batch: int) -> float:
    """Return the largest delta of a shuffled batch over neighbours and all other inputs, by enumeration of counts."""
    inputs, symbols = matrix.shape

    def law(people: tuple[int, ...]) -> dict[tuple[int, ...], float]:
        counts = {(0,) * symbols: 1.0}
        for person in people:
            following: dict[tuple[int, ...], float] = {}
            for histogram, mass in counts.items():
                for symbol in range(symbols):
                    key = tuple(n + (i == symbol) for i, n in enumerate(histogram))
                    following[key] = following.get(key, 0.0) + mass * matrix[person, symbol]
            counts = following
        return counts

    worst = 0.0
    for others in product(range(inputs), repeat=batch - 1):
        laws = [law((indice, *others)) for indice in range(inputs)]
        for left, right in product(laws, laws):
            worst = max(worst, sum(max(0.0, left[k] - math.exp(epsilon) * right[k]) for k in left))
    return worst


def randomizers(local_epsilon: float) -> list[np.ndarray]:
    """Return randomized response, an unbalanced binary response, and a response with an improbable shared symbol."""
    e = math.exp(local_epsilon)
    unbalanced = np.array([[0.3, 0.7], [0.3 / e, 1 - 0.3 / e]])
    ternary = (np.ones((3, 3)) + (e - 1) * np.eye(3)) / (e + 2)
    rare = np.array([[e, 1, 1], [1, e, 1], [1, 1, e]]) * np.array([1, 1, 0.1])
    return [ternary, unbalanced, rare / rare.sum(axis=1, keepdims=True)]


@pytest.mark.parametrize("batch", [2, 3, 4])
@pytest.mark.parametrize(("epsilon", "local_epsilon"), [(0.2, 1.0), (0.5, 1.0), (0.5, 2.0), (1.0, 2.0)])
def test_the_bound_covers_small_batches_of_any_randomizer(epsilon, local_epsilon, batch):
    for matrix in randomizers(local_epsilon):
        ratio = (matrix[:, None, :] / matrix[None, :, :]).max()
        pure = math.log(ratio)
        assert clones_delta(epsilon, max(pure, 1e-6), batch) >= shuffled_exactly(matrix, epsilon, batch) * (1 - 1e-9)


def test_the_enumeration_catches_a_bound_that_is_too_small():
    """Planted: two more people than there are."""
    ternary = randomizers(2.0)[0]
    assert clones_delta(0.5, 2.0, 40) < shuffled_exactly(ternary, 0.5, 3)


@pytest.mark.parametrize("batch", [100, 1000, 10_000])
def test_a_bound_for_the_randomizer_itself_is_sharper(batch):
    assert shuffled_delta(1.0, 5.0, 2, batch) < clones_delta(1.0, 5.0, batch)


def test_curves_fall():
    assert all(np.diff([clones_delta(e, 4.0, 1000) for e in np.linspace(0.1, 4, 40)]) <= 0)
    assert all(np.diff([clones_delta(1.0, 4.0, n) for n in (10, 100, 1000, 10_000)]) < 0)


@pytest.mark.parametrize(
    "arguments", [(0.0, 1.0, 10), (1.0, 0.0, 10), (1.0, 31.0, 10), (1.0, 1.0, 0), (math.nan, 1, 1)]
)
def test_numbers_out_of_range_are_refused(arguments):
    with pytest.raises(SpecError):
        clones_delta(*arguments)
    with pytest.raises(SpecError):
        clones_local_epsilon(1.0, 0.0, 100)


def precise_delta(epsilon: float, local_epsilon: float, batch: int) -> mpmath.mpf:
    """The clones bound with forty digits; a lower bound, by counts of clones within ten deviations."""
    with mpmath.workdps(40):
        e, l = mpmath.exp(epsilon), mpmath.exp(local_epsilon)  # noqa: E741
        q, trials, probability = l / (1 + l), batch - 1, 1 / l
        width = 10 * mpmath.sqrt(trials * probability * (1 - probability)) + 10
        low, high = max(1, int(trials * probability - width)), min(trials, int(trials * probability + width))
        mass = mpmath.binomial(trials, low) * probability**low * (1 - probability) ** (trials - low)
        delta = mpmath.mpf(0)
        for clones in range(low, high + 1):
            share = (e * q - (1 - q)) / ((2 * q - 1) * (1 + e))
            threshold = int(mpmath.floor((clones + 1) * share)) + 1
            term = mpmath.binomial(clones, threshold - 1) / mpmath.mpf(2) ** clones
            tail, point, count = mpmath.mpf(0), term, threshold - 1
            while count <= clones and term > tail * mpmath.mpf(10) ** -30:
                tail, term, count = tail + term, term * (clones - count) / (count + 1), count + 1
            inner_tail = tail - point
            delta += mass * max(0, (q * tail + (1 - q) * inner_tail) - e * ((1 - q) * tail + q * inner_tail))
            mass *= probability / (1 - probability) * (trials - clones) / (clones + 1)
        return delta


@pytest.mark.parametrize(
    ("epsilon", "local_epsilon", "batch"),
    [(2e-10, 1e-7, 20_000), (3e-10, 1e-7, 20_000), (2e-7, 1e-4, 10_000), (1e-9, 1e-6, 100_000)],
)
def test_rounding_of_differences_of_tails_is_covered(epsilon, local_epsilon, batch):
    expected = precise_delta(epsilon, local_epsilon, batch)
    assert mpmath.mpf(clones_delta(epsilon, local_epsilon, batch)) >= expected
    assert clones_delta(epsilon, local_epsilon, batch) < 1.1 * float(expected)


@pytest.mark.parametrize("batch", [0, -5, 10**9 + 1, 10**23])
def test_a_batch_out_of_range_is_refused(batch):
    with pytest.raises(SpecError) as refused:
        clones_local_epsilon(1.0, 1e-6, batch)
    assert refused.value.field == "batch"
    assert "30" not in refused.value.remedy
