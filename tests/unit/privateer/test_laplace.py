"""Discrete Laplace cells: the law of the noise, its ratio, clamping and parsing."""

import math

import numpy as np
import pytest

from privateer.contributions import KeyedValues
from privateer.errors import OutOfRange, SpecError
from privateer.privatizers import laplace
from privateer.privatizers.laplace import LaplaceCells, discrete_laplace
from privateer.slots import Layout
from tests.support.noise import SeededNoise
from tests.support.statistics import fits

EDGES = np.array([[20_000, 40_000], [10_000, 65_536]], np.uint32)


def cells(epsilon=1.0):
    return LaplaceCells(Layout(5, EDGES), epsilon)


def people(n, key=0, group=1, value=0.25):
    slots = np.zeros(n, np.uint32)
    return KeyedValues(slots, np.full(n, key), np.full(n, group), np.full(n, value))


def law(scale: float, reach: int) -> np.ndarray:
    ratio = math.exp(-1 / scale)
    inside = (1 - ratio) / (1 + ratio) * ratio ** np.abs(np.arange(-reach, reach + 1))
    return np.concatenate([[(1 - inside.sum()) / 2], inside, [(1 - inside.sum()) / 2]])


@pytest.mark.parametrize("scale", [0.3, 1.0, 7.5, 50.0])
def test_discrete_laplace_has_its_law(scale):
    n, reach = 400_000, int(8 * scale) + 2
    drawn = np.clip(discrete_laplace(n, scale, SeededNoise(1)), -reach - 1, reach + 1)
    assert fits(np.bincount(drawn + reach + 1, minlength=2 * reach + 3), n * law(scale, reach))


@pytest.mark.parametrize("scale", [4096.0, 40_960.0])
def test_wide_noise_has_its_law_in_bins(scale):
    n, width = 400_000, int(scale) // 10
    drawn = np.abs(discrete_laplace(n, scale, SeededNoise(2)))
    ratio = math.exp(-1 / scale)
    edges = width * np.arange(100)
    beyond = 2 * ratio**edges / (1 + ratio)
    beyond[0] = 1.0
    assert fits(np.bincount(np.minimum(drawn // width, 99), minlength=100), n * -np.diff(np.append(beyond, 0.0)))


def test_half_the_noise_is_caught():
    """Planted: scale 3.7 where 4 is claimed."""
    n, reach = 400_000, 34
    drawn = np.clip(discrete_laplace(n, 3.7, SeededNoise(3)), -reach - 1, reach + 1)
    assert not fits(np.bincount(drawn + reach + 1, minlength=2 * reach + 3), n * law(4.0, reach))


def test_reports_carry_value_and_count():
    privatizer, n = cells(), 40_000
    reports = privatizer.randomize(people(n), SeededNoise(4)).astype(float)
    expected = np.zeros((2, 2, 3))
    expected[0, 0, 1], expected[1, 0, 1] = laplace._UNIT // 4, laplace._UNIT
    error = math.sqrt(2) * privatizer.scale / math.sqrt(n)
    assert reports.shape == (n, 12)
    # 12 columns: 6 standard errors have chance 2e-8 in all.
    assert (np.abs(reports.mean(axis=0) - expected.ravel()) < 6 * error).all()
    assert reports.std(axis=0) == pytest.approx(np.full(12, math.sqrt(2) * privatizer.scale), rel=0.05)


def test_people_without_a_key_send_noise_alone():
    privatizer = cells()
    reports = privatizer.randomize(people(40_000, key=-1), SeededNoise(4)).astype(float)
    assert (np.abs(reports.mean(axis=0)) < 6 * math.sqrt(2) * privatizer.scale / 200).all()


def test_the_l1_sensitivity_is_the_scales():
    """Two people differ by at most scale * epsilon on the grid: one cell each of rewards and counts, both ways."""

    class Silence:
        def words(self, count):
            return np.full(count, 2**64 - 1, np.uint64)

    privatizer = cells(0.7)
    left = privatizer.randomize(people(1, 0, 1, 1.0), Silence()).astype(int)
    worst = 0
    for key, group, value in [(0, 0, 1.0), (1, 1, 1.0), (0, 1, 0.0), (-1, 0, 1.0)]:
        right = privatizer.randomize(people(1, key, group, value), Silence()).astype(int)
        worst = max(worst, int(np.abs(left - right).sum()))
    assert worst == pytest.approx(privatizer.scale * 0.7)


@pytest.mark.parametrize("epsilon", [1e-7, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 16.0])
def test_the_tail_beyond_the_clamp_and_the_digits_is_negligible(epsilon):
    """Noise of finitely many digits is not Laplace at its end: that must be out of reach, or epsilon refused."""
    try:
        scale = cells(epsilon).scale
    except SpecError:
        assert epsilon < 0.01
        return
    assert math.exp(-laplace._CLAMP / scale) < 1e-12


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_reports_are_clamped(epsilon):
    class Loud:
        def words(self, count):
            words = np.zeros(count, np.uint64)
            words[count // 2 :] = np.uint64(2**64 - 1)
            return words

    reports = cells(epsilon).randomize(people(3), Loud())
    assert (np.abs(reports.astype(int)) <= laplace._CLAMP).all()
    assert cells(epsilon).parse(reports.tobytes()).tolist() == reports.tolist()


def test_what_is_no_report_is_refused():
    privatizer = cells()
    good = privatizer.randomize(people(2), SeededNoise(1)).tobytes()
    assert len(good) == 2 * privatizer.report_size
    for bad in (good[:-1], good + b"\0", b"\xff\xff\xff\x7f" * 12, b"\x00\x00\x00\x80" * 12):
        with pytest.raises(OutOfRange):
            privatizer.parse(bad)
    assert len(privatizer.parse(b"")) == 0


def test_release_is_in_units_of_values():
    privatizer = cells()
    total = privatizer.add(privatizer.empty(), np.full((3, 12), laplace._UNIT, "<i4"))
    released = privatizer.release(total, SeededNoise(0))
    assert released.reports == 3
    assert (released.rewards == 3).all()
    assert (released.counts == 3).all()
