"""Welfare after an experiment: the world of one and two covariates, what is recommended there, and Theorem 4.6."""

import numpy as np
import pytest

from privateer_papers.paper_4 import welfare
from privateer_papers.paper_4.frontier import matched, published
from privateer_papers.paper_4.numbers import ConSE
from privateer_papers.paper_4.welfare import OURS, THEIRS, WELFARE, promised
from privateer_papers.paper_4.world import HEIGHT, World
from privateer_papers.reproduction import Effort, Rows


@pytest.mark.parametrize("world", [World(1), World(2), World(1, 0.137), World(2, 0.137)])
def test_cells_have_the_means_of_their_points(world: World) -> None:
    """By other means: effects at random points, averaged by cell."""
    side, rng = 8, np.random.default_rng(3)
    points = rng.random((400_000, world.dimension))
    effect = HEIGHT * np.sin(2 * np.pi * (points + world.phase)).prod(axis=1)
    cells = (points * side).astype(int) @ [side ** (world.dimension - 1 - axis) for axis in range(world.dimension)]
    count = np.bincount(cells, minlength=side**world.dimension)
    means = world.means(side)
    assert np.bincount(cells, effect) / count == pytest.approx(means[:, 1] - means[:, 0], abs=0.006)
    losses = np.bincount(cells, np.maximum(effect, 0)) / count
    assert losses == pytest.approx(world.losses(side)[:, 0], abs=0.006)
    assert world.uniform == pytest.approx(np.abs(effect).mean() / 2, rel=0.01)


def test_wide_cells_hold_the_middles_of_narrow_ones() -> None:
    assert World(1).within(8, 2).tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    grid = World(2).within(4, 2).reshape(4, 4)
    assert grid.tolist() == [[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3], [2, 2, 3, 3]]


def test_nobody_loses_where_the_sign_is_right_everywhere() -> None:
    """At phase 0 halves have one sign each. Planted: one wrong cell loses all of the effect, and a phase costs more."""
    world = World(1)
    right = world.means(64) @ [-1, 1] > 0
    assert world.worst(right) == pytest.approx(0.0, abs=1e-3)
    wrong = right.copy()
    wrong[16] = not wrong[16]
    assert world.worst(wrong) == pytest.approx(HEIGHT, rel=0.01)
    shifted = World(1, 0.137)
    assert 0.001 < shifted.worst(shifted.means(64) @ [-1, 1] > 0) < HEIGHT * 2 * np.pi / 64


def test_the_paper_s_sequences_with_two_covariates() -> None:
    two = ConSE(1_000_000, 0.25, dimension=2)
    assert (two.side, two.bins) == (31, 961)
    assert (two.wide_side, two.wide_bins) == (13, 169)
    assert two.coins == int(1e6 ** (0.5 * 0.75))


def test_who_cannot_eliminate_recommends_the_control_and_loses_what_it_loses() -> None:
    world = World(2, 0.137)
    found = published(300_000, 0.25, None, "algorithm", 0, world)
    assert found.welfare == pytest.approx(1.0, rel=0.02)
    assert found.worst == pytest.approx(HEIGHT, rel=0.01)
    ours = matched("none", 300_000, 0.25, 1.0, 0, world)
    assert ours.welfare < 0.3 * found.welfare
    assert ours.worst < found.worst


def made(exponent: float) -> Rows:
    """Outcomes of three seeds, where losses fall with this exponent."""
    rng, rows = np.random.default_rng(4), Rows()
    for policy in (*OURS, *THEIRS):
        for dimension in (1, 2):
            for people in welfare._FEW:
                for part in welfare._PARTS:
                    for seed in range(3):
                        facts = {"policy": policy, "d": dimension, "people": people, "part": part, "seed": seed}
                        told = {"worst": people**exponent * float(np.exp(0.01 * rng.normal()))}
                        rows.append({**facts, **told, "welfare": 0.1, "product": 2.0})
    return rows


def test_what_falls_too_slowly_is_said_first() -> None:
    assert (promised(1), promised(2)) == (pytest.approx(-1 / 3), -0.25)
    assert WELFARE.warnings(made(-0.5)) == []
    slow = made(-0.28)
    assert [text[:10] for text in WELFARE.warnings(slow)] == ["with d = 1"] * 2
    assert WELFARE.verdict(slow).count("above the paper's") == 5
    assert len(WELFARE.compared(slow)) == 12
    assert "0.1 of what a coin loses" in WELFARE.sentence(slow)
    assert len(WELFARE.draw(WELFARE.title, slow).axes) == 4


def test_small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(welfare, "_FEW", (2000, 6000, 20_000))
    rows = Rows(WELFARE.rows(Effort(quick=True, seeds=1, jobs=1)))
    assert len(rows) == 2 * 3 * 3 * 5
    assert all(row["worst"] <= HEIGHT and row["product"] > 0 for row in rows)
