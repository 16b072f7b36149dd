"""Figures 4 and 5 of paper 1: two sets of centres, and densities that are the printed ones."""

import numpy as np
import pytest

from privateer_papers.paper_1.figures.problem import (
    CODE_CENTRES,
    FIGURE_4,
    FIGURE_5,
    TEXT_CENTRES,
    compute_mean_rewards,
    summarize_rewards,
)
from privateer_papers.reproduction import Effort, Rows


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
