"""Welfare after an experiment: the world of one and two covariates, its recommendations, and Theorem 4.6."""

import numpy as np
import pytest

from privateer_papers.paper_4 import welfare
from privateer_papers.paper_4.frontier import play_matching, play_published
from privateer_papers.paper_4.welfare import WELFARE
from privateer_papers.paper_4.world import EFFECT_AMPLITUDE, ConSE, World
from privateer_papers.reproduction import Effort, Rows


@pytest.mark.parametrize("world", [World(1), World(2), World(1, 0.137), World(2, 0.137)])
def test_cells_have_the_means_of_their_points(world: World) -> None:
    """By other means: effects at random points, averaged by cell."""
    side, rng = 8, np.random.default_rng(3)
    points = rng.random((400_000, world.dimension))
    effect = EFFECT_AMPLITUDE * np.sin(2 * np.pi * (points + world.phase)).prod(axis=1)
    cells = (points * side).astype(int) @ [side ** (world.dimension - 1 - axis) for axis in range(world.dimension)]
    count = np.bincount(cells, minlength=side**world.dimension)
    means = world.means(side)
    assert np.bincount(cells, effect) / count == pytest.approx(means[:, 1] - means[:, 0], abs=0.006)
    losses = np.bincount(cells, np.maximum(effect, 0)) / count
    assert losses == pytest.approx(world.losses(side)[:, 0], abs=0.006)
    assert world.uniform == pytest.approx(np.abs(effect).mean() / 2, rel=0.01)


def test_wide_cells_hold_the_middles_of_narrow_ones() -> None:
    assert World(1).wide_bin_indices(8, 2).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    grid = World(2).wide_bin_indices(4, 2).reshape(4, 4)
    assert grid.tolist() == [[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3], [2, 2, 3, 3]]


def test_welfare_is_lossless_where_the_sign_is_right_everywhere() -> None:
    """At phase 0 halves have one sign each. Planted: one wrong cell loses all of the effect, and a phase costs more."""
    world = World(1)
    right = world.means(64) @ [-1, 1] > 0
    assert world.max_loss(right) == pytest.approx(0.0, abs=1e-3)
    wrong = right.copy()
    wrong[16] = not wrong[16]
    assert world.max_loss(wrong) == pytest.approx(EFFECT_AMPLITUDE, rel=0.01)
    shifted = World(1, 0.137)
    assert 0.001 < shifted.max_loss(shifted.means(64) @ [-1, 1] > 0) < EFFECT_AMPLITUDE * 2 * np.pi / 64


def test_the_paper_s_sequences_with_two_covariates() -> None:
    two = ConSE(1_000_000, 0.25, dimension=2)
    assert (two.side, two.bins) == (31, 961)
    assert (two.wide_side, two.wide_bins) == (13, 169)
    assert two.coins == int(1e6 ** (0.5 * 0.75))


def test_an_algorithm_that_cannot_eliminate_recommends_the_control_and_has_its_loss() -> None:
    world = World(2, 0.137)
    outcome = play_published(300_000, 0.25, None, "algorithm", 0, world)
    assert outcome.welfare == pytest.approx(1.0, rel=0.02)
    assert outcome.worst == pytest.approx(EFFECT_AMPLITUDE, rel=0.01)
    played_trial = play_matching("none", 300_000, 0.25, 1.0, 0, world)
    assert played_trial.welfare < 0.3 * outcome.welfare
    assert played_trial.worst < outcome.worst


def test_small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(welfare, "_QUICK_HORIZONS", (2000, 6000, 20_000))
    rows = Rows(WELFARE.rows(Effort(quick=True, seeds=1, jobs=1)))
    assert len(rows) == 2 * 3 * 3 * 5
    assert all(row["worst"] <= EFFECT_AMPLITUDE and row["product"] > 0 for row in rows)
