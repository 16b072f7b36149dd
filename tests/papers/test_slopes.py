"""Slopes of regret: intervals cover as they say, and what is published is as printed."""

from typing import Any

import numpy as np
import pytest

from privateer_core.policies.policy import Points
from privateer_lab.baselines.run import Uniform, Visitors, play_together
from privateer_lab.environments import environment_for
from privateer_papers.growth import fit_slope
from privateer_papers.paper_2 import slopes
from privateer_papers.paper_2.contextual import PaperGeneralizedUcb, PaperLinUcb
from privateer_papers.paper_2.slopes import KINDS, LINES, SLOPES
from privateer_papers.reproduction import Effort, Rows, TableLine

PEOPLE = (1_000, 10_000, 100_000)


def runs(rng: np.random.Generator, exponent: float, seeds: int = 4, deviation: float = 1.0) -> Rows:
    """Regrets around a power of the number of people, whose constant differs from seed to seed."""
    rows = Rows()
    for seed in range(seeds):
        constant = deviation * rng.normal()
        for people in PEOPLE:
            regret = float(np.exp(constant + exponent * np.log(people) + 0.2 * rng.normal()))
            rows.append({"people": people, "seed": seed, "regret": regret})
    return rows


def test_intervals_cover_the_slope_as_often_as_they_say() -> None:
    """Called wrong once in 1,000 runs of a true one; the seed is fixed. Planted: seeds taken for one."""
    rng, by_seed, by_run = np.random.default_rng(2), [], []
    for _ in range(400):
        rows = runs(rng, 0.75)
        by_seed.append(fit_slope(rows))
        by_run.append(fit_slope(Rows({**row, "seed": 0} for row in rows)))
    covered, pooled = (np.mean([abs(s.value - 0.75) <= s.half_width for s in slopes]) for slopes in (by_seed, by_run))
    assert abs(covered - 0.95) < 3.3 * (0.95 * 0.05 / 400) ** 0.5
    assert pooled > 0.995


def test_a_slope_needs_more_runs_than_it_has_unknowns() -> None:
    rows = runs(np.random.default_rng(2), 0.5, seeds=1)
    assert fit_slope(rows).value == pytest.approx(0.5, abs=0.2)
    with pytest.raises(LookupError, match="too few"):
        fit_slope(Rows(rows[:2]))


def table_of_slopes(slopes: dict[str, float]) -> list[TableLine]:
    """The table of runs whose slopes are these, by kind."""
    rng, rows = np.random.default_rng(3), Rows()
    for name in LINES:
        for kind in KINDS:
            rows_of_kind = runs(rng, slopes[kind], deviation=0.0)
            rows += [{**row, "row": name, "kind": kind, "uniform": float(row["people"])} for row in rows_of_kind]
    return SLOPES.compared(rows)


def test_the_table_sees_slopes_on_either_side_of_the_papers() -> None:
    lines = table_of_slopes({"tight": 0.3, "published": 1.0})
    assert [line.what.partition(", exponent")[0] for line in lines] == list(LINES)
    assert sum("(below)" in line.ours for line in lines) == sum(line.exponent > 0.3 for line in LINES.values())
    assert all("(above)" in line.run_here for line in lines)


def test_every_row_runs_draws_and_has_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slopes, "_QUICK_HORIZONS", (400, 800, 1600))
    monkeypatch.setattr(slopes, "_N_QUICK_ROUNDS", 4)
    rows = Rows(SLOPES.rows(Effort(quick=True, seeds=1, jobs=1)))
    assert len(rows) == len(LINES) * len(KINDS) * 3
    assert all(row["regret"] > 0 for row in rows)
    assert SLOPES.verdict(rows).count("exponent of T") == len(LINES)
    axes = SLOPES.draw(SLOPES.title, rows).axes
    assert [axis.get_title() for axis in axes] == list(LINES)
    assert [len(axis.lines) for axis in axes] == [4] * len(LINES)


@pytest.mark.parametrize(("kind", "noise"), [(PaperLinUcb, 2.5), (PaperGeneralizedUcb, 3.75)])
def test_reports_have_the_noise_that_is_printed(kind: Any, noise: float) -> None:
    """Second moments of people without context: what is left is noise, of 1,000 people and 45 or 10 numbers."""
    spec = LINES["contextual linear"].build_spec(10_000, 10, published=True)
    learner, people = kind(spec, 1), 1000
    visitors = Visitors(0, np.zeros((people, 4)), np.full((people, 4), 0.5), np.zeros((people, 2)))
    learner.open(people)
    learner.learn(visitors, np.zeros(people, np.int64), np.full(people, 0.5))
    sigma = 6 * np.sqrt(2 * np.log(noise / 1e-5))
    assert learner.sigma == pytest.approx(sigma)
    assert np.array_equal(learner.moments, learner.moments.T)
    off = learner.moments[np.triu_indices(10, 1)] / (sigma * np.sqrt(people))
    assert 0.6 < off.std() < 1.4  # chi-square with 45 degrees of freedom: outside once in 3,000 runs
    learner.close()
    upsilon = sigma * np.sqrt(people) * (4 * np.sqrt(10) + 2 * np.log(2 * 10_000 / 0.05))
    assert np.linalg.eigvalsh(np.linalg.inv(learner.inverse)).min() > upsilon / 2


@pytest.mark.parametrize("row", ["contextual linear", "generalized linear"])
def test_without_noise_they_learn(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So their noise keeps them from learning, and the bound that follows from it."""
    spec: Any = LINES[row].build_spec(10_000, 20, published=True)
    literal: Any = LINES[row].literal
    monkeypatch.setattr(literal, "_noise", lambda self, _people, *shape: np.zeros(shape))
    monkeypatch.setattr(literal, "beta", lambda self: 0.3)
    monkeypatch.setattr(literal, "_upsilon", lambda self: 1.0)
    learned, chance = play_together(spec, {"it": literal(spec, 0), "chance": Uniform(spec, 0)}, 0)
    assert learned.regret < 0.5 * chance.regret


@pytest.mark.nightly
def test_tight_regret_grows_no_faster_than_the_paper_promises() -> None:
    """Planted: regrets as published are too large everywhere, and for most rows of points grow faster."""
    rows, faster = Rows(SLOPES.rows(Effort(quick=True, seeds=4))), []
    for name, line in LINES.items():
        (tight, published), last = (rows.where(row=name, kind=kind) for kind in KINDS), {"people": 100_000}
        assert fit_slope(tight).value - fit_slope(tight).half_width < (line.min_exponent or line.exponent) + 0.1
        assert tight.where(**last).mean()[0] < 0.6 * published.where(**last).mean()[0]
        faster.append(fit_slope(published).value - fit_slope(published).half_width > line.exponent)
    assert sum(faster) >= 3


def test_noise_between_two_points_is_as_stated_in_the_row() -> None:
    """Planted: without a standard deviation the two scores of a point are equal for each participant."""
    for row, line in LINES.items():
        if not row.startswith("two points"):
            continue
        spec, rng = line.build_spec(1000, 10, published=False), np.random.default_rng(3)
        points = Points(np.zeros(4000, np.int64), np.zeros((4000, 2, 3)))
        scores = environment_for(spec, 0).rewards(np.zeros((4000, 0)), points, rng)
        deviation = float((scores[:, 0] - scores[:, 1]).std()) / 2**0.5
        stated = float(row.split()[-1]) if "deviation" in row else 0.0
        assert deviation == pytest.approx(stated, rel=0.05)
        assert (line.min_exponent is not None) == ("deviation" in row)
