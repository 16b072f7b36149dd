"""Rates of paper 1's theorems, and the problem that they are about."""

import numpy as np
import pytest

from privateer_lab.environments import environment_for
from privateer_papers.growth import fit_slope
from privateer_papers.paper_1.figures.problem import (
    CODE_CENTRES,
    FIGURE_4,
    FIGURE_5,
    TEXT_CENTRES,
    compute_mean_rewards,
    summarize_rewards,
)
from privateer_papers.paper_1.figures.rates import EXPONENT, MARGIN, compute_bounds, compute_information, rate_slope
from privateer_papers.paper_1.setting import build_instance, build_two_sources
from privateer_papers.reproduction import Effort, Rows


def test_the_problem_has_the_margin_that_the_rates_are_for() -> None:
    """The share of people whose gap is at most D grows with D to the margin. Planted: a squared gap has half of it."""
    environment = environment_for(build_instance(1000, 1.0), 0)
    means = environment.means(environment.contexts(0, 400_000, np.random.default_rng(1)))
    best = np.sort(means, axis=1)
    gaps, at = best[:, -1] - best[:, -2], np.geomspace(0.003, 0.1, 6)
    slope, squared = (
        np.polyfit(np.log(at), np.log([(g <= edge).mean() for edge in at]), 1)[0] for g in (gaps, gaps**2)
    )
    assert slope == pytest.approx(MARGIN, abs=0.1)
    assert squared == pytest.approx(MARGIN / 2, abs=0.1)


def test_bounds_are_those_of_the_theorems() -> None:
    """By hand, for d = 2 and beta = 1: n (n epsilon^2)^(-1/3); gamma 2 gives a source the power 6/10."""
    assert pytest.approx(1 / 3) == EXPONENT
    assert compute_information(1000, 0.5) == 250
    assert compute_information(1000, 1.0, 1024, 2.0, 0.0) == pytest.approx(5096)
    assert compute_information(0, 1.0, 1024, 1.0, 2.0) == pytest.approx(64)
    rows = Rows({"panel": "n", "n": n, "information": compute_information(n, 1.0)} for n in (8, 1000, 8000))
    assert compute_bounds(rows, "n")[1].tolist() == pytest.approx([4.0, 100.0, 400.0])
    assert rate_slope(rows, "n") == pytest.approx(2 / 3)


def test_a_slope_may_be_in_any_fact() -> None:
    rows = Rows({"seed": seed, "n_aux": x, "regret": x**-0.5, "other": x**2.0} for seed in (0, 1) for x in (1, 2, 4))
    assert fit_slope(rows, "n_aux").value == pytest.approx(-0.5)
    assert fit_slope(rows, "n_aux", "other").value == pytest.approx(2.0)
    assert fit_slope(rows, "n_aux").error == pytest.approx(0.0, abs=1e-9)


def test_each_of_two_sources_has_the_printed_number_of_people() -> None:
    assert [source["participants"] for source in build_two_sources(500, 8.0, 0.0)] == [500, 500]


def test_peaks_are_at_their_centres() -> None:
    at = np.linspace(0, 1, 1201)
    assert at[compute_mean_rewards(CODE_CENTRES, at).argmax(axis=0)].tolist() == pytest.approx([1 / 4, 1 / 2, 3 / 4])
    assert at[compute_mean_rewards(TEXT_CENTRES, at).argmax(axis=0)].tolist() == pytest.approx([1 / 3, 2 / 3, 1])
    assert compute_mean_rewards(TEXT_CENTRES, np.array([1 / 3])).max() == 1.0


def test_figure_4_prints_the_regret_at_random_and_of_the_best_arm() -> None:
    """Regret at random .41388 and of the best arm .38363, as others measured with the code's centres."""
    rows = Rows(FIGURE_4.rows(Effort()))
    shares, random, constant = summarize_rewards(rows, CODE_CENTRES)
    assert shares == pytest.approx([0.375, 0.25, 0.375], abs=0.004)
    assert (random, constant) == (pytest.approx(0.41388, abs=0.002), pytest.approx(0.38363, abs=0.002))
    assert summarize_rewards(rows, TEXT_CENTRES)[0] == pytest.approx([0.5, 1 / 3, 1 / 6], abs=0.004)
    assert FIGURE_4.compared(rows)[2].published == "50%, 33%, 17% by its text"
    assert FIGURE_4.compared(rows)[0].ours == "0.414"
    assert len(FIGURE_4.draw(FIGURE_4.title, rows).axes) == 2


def test_figure_5_is_the_printed_density() -> None:
    """Planted: the authors' sampler, which has twice the gamma, is told apart."""
    rows = Rows(FIGURE_5.rows(Effort()))
    assert len(rows) == 3 * 400
    for gamma in (0.2, 1.0, 2.0):
        assert np.mean([row["density"] for row in rows.where(gamma=gamma)]) == pytest.approx(1.0)
    shares = {line.what: (line.published, line.ours) for line in FIGURE_5.compared(rows)}
    assert shares["share of people within 1/4 of the middle, gamma 1"] == ("0.1250", "0.1250")
    assert [line.published for line in FIGURE_5.compared(rows)] == [line.ours for line in FIGURE_5.compared(rows)]
    assert FIGURE_5.sentence(rows).startswith("Our density is the printed one to ")
    assert len(FIGURE_5.draw(FIGURE_5.title, rows).axes) == 4
