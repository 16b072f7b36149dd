"""Nine sums of products: a participant's contribution, the privacy cost, and the moments they release."""

import math

import numpy as np
import pytest
from scipy.stats import geom

from privateer_core.accounting.accountant import account
from privateer_core.mechanisms.cell_pairs import SENSITIVITY, CellTriples
from privateer_core.mechanisms.cell_products import RECORD, CellProducts
from privateer_core.mechanisms.mechanism import UNIT
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import SlotLayout
from privateer_core.primitives.questions import KeyedHits
from privateer_lab.simulation.scores import SeededNoise

GRID = np.unique(np.append(np.arange(0, UNIT + 1, 257), [1, 2, UNIT // 2, UNIT - 1]))
QUESTION = KeyedHits(SlotLayout.ungrouped(2, 5), 0.5, has_covariate=True)


def people(count: int = 2_000, seed: int = 1) -> KeyedValues:
    rng = np.random.default_rng(seed)
    values, numbers = rng.beta(2, 5, count), rng.beta(3, 3, count)
    return KeyedValues(np.zeros(count, np.uint32), rng.integers(-1, 2, count), np.zeros(count, int), values, numbers)


def test_products_on_the_grid_are_a_person_whatever_value_and_number() -> None:
    """A partition of unity: so a replacement changes all sums by 2 at most, exactly, in one cell or between two."""
    values, numbers = (axis.ravel() for axis in np.meshgrid(GRID, GRID))
    products = CellProducts(QUESTION.layout).multiply_parts(values, numbers)
    assert products.min() == 0
    assert (products.sum(axis=0) == UNIT**2).all()
    assert np.abs(products[:, :1] - products).sum(axis=0).max() == SENSITIVITY * UNIT**2
    triples = CellTriples(QUESTION.layout).split_values(values)
    assert (products.reshape(3, 3, -1).sum(axis=0) == triples).all()


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_the_promise_is_kept_by_an_independent_oracle(epsilon: float) -> None:
    """The exact worst ratio of discrete Laplace noise, by probabilities that scipy has, over all nine sums.

    Planted: noise of half the scale, whose ratio is twice the promise.
    """
    mechanism = CellProducts.calibrated(QUESTION, epsilon)
    assert mechanism.release_event is not None
    claim = account(mechanism.release_event).epsilon(0.0)
    values, numbers = np.array([0, UNIT]), np.array([UNIT, 0])
    moved = np.abs(np.diff(mechanism.multiply_parts(values, numbers), axis=1)).sum()

    def exact(scale: int) -> float:
        """The logarithm of P(k) / P(k + n) for noise on the grid, with n the whole numbers that a record moves."""
        decay = geom(-math.expm1(-1 / scale))
        return float(decay.logpmf(1) - decay.logpmf(1 + int(moved)))

    scale = round(mechanism.scale * mechanism.unit)
    assert exact(scale) == pytest.approx(claim, rel=1e-6)
    assert account(mechanism.release_event).delta(epsilon) == 0
    assert exact(scale // 2) > 1.9 * epsilon


def test_without_noise_they_add_up_to_triples_and_tell_moments() -> None:
    rows, layout = people(), QUESTION.layout
    cell_products, other = CellProducts(layout), CellTriples(layout)
    release, plain = (
        each.release(each.add(each.empty(), each.parse(each.randomize(rows, SeededNoise(1)).tobytes())), SeededNoise(2))
        for each in (cell_products, other)
    )
    for name in ("positive", "hits", "squares"):
        assert np.array_equal(getattr(release, name), getattr(plain, name))
    assert release.products is not None
    half = np.array([0.0, 0.5, 1.0])
    crossed = np.einsum("i,j,ijkg->k", half, half, release.products)
    for key in (0, 1):
        has_key = rows.keys == key
        assert rows.numbers is not None
        assert crossed[key] == pytest.approx((rows.values * rows.numbers)[has_key].sum(), abs=0.1)


def test_a_part_of_values_has_the_noise_of_three_sums() -> None:
    """1,000 releases: four standard errors of a variance of nearly Laplace noise are .28 of it.

    Planted: the noise of one sum for a part would be a third.
    """
    mechanism = CellProducts.calibrated(QUESTION, 1.0)
    wide = CellProducts(SlotLayout.ungrouped(1_000, 5), mechanism.scale)
    release = wide.simulate(people(0), np.random.default_rng(3))
    assert release.squares.var() == pytest.approx(release.noise, rel=0.28)
    assert release.noise == pytest.approx(3 * CellTriples.calibrated(QUESTION, 1.0).noise)


def test_records_have_one_size_with_or_without_a_number() -> None:
    rows = people(30)
    mechanism = CellProducts(QUESTION.layout)
    silent = KeyedValues(rows.coins, rows.keys, rows.groups, rows.values)
    full, blank = (mechanism.randomize(values, SeededNoise(1)) for values in (rows, silent))
    assert full.dtype == blank.dtype == RECORD
    assert len(full.tobytes()) == len(blank.tobytes()) == 8 * 30
    assert set(blank["number"][rows.keys >= 0]) == {UNIT // 2, UNIT // 2 + 1}
    assert set(full["number"][rows.keys < 0]) <= {0}
