"""Welfare after an experiment: the world of one and two covariates, its recommendations, and Theorem 4.6."""

import numpy as np
import pytest

from privateer_papers.paper_4 import welfare
from privateer_papers.paper_4.frontier import play_matching, play_published
from privateer_papers.paper_4.welfare import OUR_MODELS, PEERS, WELFARE, rate_slope
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


def rows_of_losses(exponent: float) -> Rows:
    """Outcomes of three seeds, where losses fall with this exponent."""
    rng, rows = np.random.default_rng(4), Rows()
    for policy in (*OUR_MODELS, *PEERS):
        for dimension in (1, 2):
            for people in welfare._QUICK_HORIZONS:
                for part in welfare._ALPHA_PARTS:
                    for seed in range(3):
                        facts = {"policy": policy, "d": dimension, "people": people, "part": part, "seed": seed}
                        figures = {"worst": people**exponent * float(np.exp(0.01 * rng.normal()))}
                        rows.append({**facts, **figures, "welfare": 0.1, "product": 2.0})
    return rows


def test_losses_that_fall_too_slowly_are_named_first() -> None:
    assert (rate_slope(1), rate_slope(2)) == (pytest.approx(-1 / 3), -0.25)
    assert WELFARE.warnings(rows_of_losses(-0.5)) == []
    slow = rows_of_losses(-0.28)
    assert [text[:10] for text in WELFARE.warnings(slow)] == ["with d = 1"] * 2
    assert WELFARE.verdict(slow).count("(above)") == 5
    assert len(WELFARE.compared(slow)) == 12
    assert "0.1 of what a coin loses" in WELFARE.sentence(slow)
    assert len(WELFARE.draw(WELFARE.title, slow).axes) == 4


def test_small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(welfare, "_QUICK_HORIZONS", (2000, 6000, 20_000))
    rows = Rows(WELFARE.rows(Effort(quick=True, seeds=1, jobs=1)))
    assert len(rows) == 2 * 3 * 3 * 5
    assert all(row["worst"] <= EFFECT_AMPLITUDE and row["product"] > 0 for row in rows)
