"""Nine sums of products: what a person adds to them, what they cost, and what they tell."""

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
from privateer_lab.simulation.devices import SeededNoise

GRID = np.unique(np.append(np.arange(0, UNIT + 1, 257), [1, 2, UNIT // 2, UNIT - 1]))
QUESTION = KeyedHits(SlotLayout.ungrouped(2, 5), 0.5, beside=True)


def people(count: int = 2_000, seed: int = 1) -> KeyedValues:
    rng = np.random.default_rng(seed)
    values, numbers = rng.beta(2, 5, count), rng.beta(3, 3, count)
    return KeyedValues(np.zeros(count, np.uint32), rng.integers(-1, 2, count), np.zeros(count, int), values, numbers)


def test_products_on_the_grid_are_a_person_whatever_value_and_number() -> None:
    """A partition of unity: so a replacement changes all sums by 2 at most, exactly, in one cell or between two."""
    values, numbers = (one.ravel() for one in np.meshgrid(GRID, GRID))
    products = CellProducts(QUESTION.layout).products(values, numbers)
    assert products.min() == 0
    assert (products.sum(axis=0) == UNIT**2).all()
    assert np.abs(products[:, :1] - products).sum(axis=0).max() == SENSITIVITY * UNIT**2
    triples = CellTriples(QUESTION.layout).parted(values)
    assert (products.reshape(3, 3, -1).sum(axis=0) == triples).all()


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_the_promise_is_kept_by_an_independent_oracle(epsilon: float) -> None:
    """The exact worst ratio of discrete Laplace noise, by probabilities that scipy has, over all nine sums.

    Planted: noise of half the scale, whose ratio is twice the promise.
    """
    mechanism = CellProducts.calibrated(QUESTION, epsilon)
    assert mechanism.released is not None
    claim = account(mechanism.released).epsilon(0.0)
    values, numbers = np.array([0, UNIT]), np.array([UNIT, 0])
    moved = np.abs(np.diff(mechanism.products(values, numbers), axis=1)).sum()

    def exact(scale: int) -> float:
        """The logarithm of P(k) / P(k + n) for noise on the grid, with n the whole numbers that a record moves."""
        decay = geom(-math.expm1(-1 / scale))
        return float(decay.logpmf(1) - decay.logpmf(1 + int(moved)))

    scale = round(mechanism.scale * mechanism.unit)
    assert exact(scale) == pytest.approx(claim, rel=1e-6)
    assert account(mechanism.released).delta(epsilon) == 0
    assert exact(scale // 2) > 1.9 * epsilon


def test_without_noise_they_add_up_to_triples_and_tell_moments() -> None:
    made, layout = people(), QUESTION.layout
    one, other = CellProducts(layout), CellTriples(layout)
    release, plain = (
        each.release(each.add(each.empty(), each.parse(each.randomize(made, SeededNoise(1)).tobytes())), SeededNoise(2))
        for each in (one, other)
    )
    for name in ("positive", "hits", "squares"):
        assert np.array_equal(getattr(release, name), getattr(plain, name))
    assert release.products is not None
    half = np.array([0.0, 0.5, 1.0])
    crossed = np.einsum("i,j,ijkg->k", half, half, release.products)
    for key in (0, 1):
        own = made.keys == key
        assert made.numbers is not None
        assert crossed[key] == pytest.approx((made.values * made.numbers)[own].sum(), abs=0.1)


def test_a_part_of_values_has_the_noise_of_three_sums() -> None:
    """1,000 releases: four standard errors of a variance of nearly Laplace noise are .28 of it.

    Planted: the noise of one sum for a part would be a third.
    """
    mechanism = CellProducts.calibrated(QUESTION, 1.0)
    wide = CellProducts(SlotLayout.ungrouped(1_000, 5), mechanism.scale)
    release = wide.simulate(people(0), np.random.default_rng(3))
    assert release.squares is not None
    assert release.squares.var() == pytest.approx(release.noise, rel=0.28)
    assert release.noise == pytest.approx(3 * CellTriples.calibrated(QUESTION, 1.0).noise)


def test_nobody_says_without_a_number_and_all_records_have_one_size() -> None:
    made = people(30)
    mechanism = CellProducts(QUESTION.layout)
    silent = KeyedValues(made.coins, made.keys, made.groups, made.values)
    known, unknown = (mechanism.randomize(one, SeededNoise(1)) for one in (made, silent))
    assert known.dtype == unknown.dtype == RECORD
    assert len(known.tobytes()) == len(unknown.tobytes()) == 8 * 30
    assert set(unknown["number"][made.keys >= 0]) == {UNIT // 2, UNIT // 2 + 1}
    assert set(known["number"][made.keys < 0]) <= {0}
