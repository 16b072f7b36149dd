"""Discrete Laplace cells: their sensitivity, clamping and parsing."""

import math

import numpy as np
import pytest

from privateer_core.errors import OutOfRange, SpecError
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import Layout
from privateer_core.sampling.laplace import DiscreteLaplace
from privateer_lab.simulation.scores import SeededNoise
from privateer_papers.paper_1 import laplace_cells
from privateer_papers.paper_1.laplace_cells import LaplaceCells

EDGES = np.array([[20_000, 40_000], [10_000, 65_536]], np.uint32)


def cells(epsilon=1.0):
    return LaplaceCells(Layout(5, EDGES), epsilon)


def people(n, key=0, group=1, value=0.25):
    slots = np.zeros(n, np.uint32)
    return KeyedValues(slots, np.full(n, key), np.full(n, group), np.full(n, value))


def test_reports_carry_value_and_count():
    mechanism, n = cells(), 40_000
    reports = mechanism.randomize(people(n), SeededNoise(4)).astype(float)
    expected = np.zeros((2, 2, 3))
    expected[0, 0, 1], expected[1, 0, 1] = laplace_cells.GRID_POINTS_PER_UNIT // 4, laplace_cells.GRID_POINTS_PER_UNIT
    error = math.sqrt(2) * mechanism.scale / math.sqrt(n)
    assert reports.shape == (n, 12)
    # 12 columns: 6 standard errors have chance 2e-8 in all.
    assert (np.abs(reports.mean(axis=0) - expected.ravel()) < 6 * error).all()
    assert reports.std(axis=0) == pytest.approx(np.full(12, math.sqrt(2) * mechanism.scale), rel=0.05)


def test_people_without_a_key_send_noise_alone():
    mechanism = cells()
    reports = mechanism.randomize(people(40_000, key=-1), SeededNoise(4)).astype(float)
    assert (np.abs(reports.mean(axis=0)) < 6 * math.sqrt(2) * mechanism.scale / 200).all()


def test_the_l1_sensitivity_is_the_scales(monkeypatch):
    """Two people differ by at most scale * epsilon on the grid: one cell each of rewards and counts, both ways."""
    monkeypatch.setattr(DiscreteLaplace, "draw", lambda self, count, noise: np.zeros(count, np.int64))
    mechanism = cells(0.7)
    left = mechanism.randomize(people(1, 0, 1, 1.0), SeededNoise(1)).astype(int)
    worst = 0
    for key, group, value in [(0, 0, 1.0), (1, 1, 1.0), (0, 1, 0.0), (-1, 0, 1.0)]:
        right = mechanism.randomize(people(1, key, group, value), SeededNoise(1)).astype(int)
        worst = max(worst, int(np.abs(left - right).sum()))
    assert (mechanism.scale - 1) * 0.7 < worst <= mechanism.scale * 0.7


@pytest.mark.parametrize("epsilon", [1e-7, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 16.0])
def test_the_tail_beyond_the_clamp_is_negligible(epsilon):
    """Clamped noise is not Laplace at its end: that must be out of reach, or epsilon refused."""
    try:
        scale = cells(epsilon).scale
    except SpecError:
        assert epsilon < 0.01
        return
    assert math.exp(-laplace_cells._CLAMP / scale) < 1e-12


@pytest.mark.parametrize("loud", [-(2**40), 2**40])
def test_reports_are_clamped(monkeypatch, loud):
    monkeypatch.setattr(DiscreteLaplace, "draw", lambda self, count, noise: np.full(count, loud))
    epsilon = 1.0
    reports = cells(epsilon).randomize(people(3), SeededNoise(1))
    assert (np.abs(reports.astype(int)) <= laplace_cells._CLAMP).all()
    assert cells(epsilon).parse(reports.tobytes()).tolist() == reports.tolist()


def test_bytes_that_are_no_report_are_refused():
    mechanism = cells()
    good = mechanism.randomize(people(2), SeededNoise(1)).tobytes()
    assert len(good) == 2 * mechanism.report_size
    for bad in (good[:-1], good + b"\0", b"\xff\xff\xff\x7f" * 12, b"\x00\x00\x00\x80" * 12):
        with pytest.raises(OutOfRange):
            mechanism.parse(bad)
    assert len(mechanism.parse(b"")) == 0


def test_release_is_in_units_of_values():
    mechanism = cells()
    total = mechanism.add(mechanism.empty(), np.full((3, 12), laplace_cells.GRID_POINTS_PER_UNIT, "<i4"))
    released = mechanism.release(total, SeededNoise(0))
    assert released.reports == 3
    assert (released.rewards == 3).all()
    assert (released.counts == 3).all()
