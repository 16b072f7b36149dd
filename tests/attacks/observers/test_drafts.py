"""Drafts are public: each number of a draft summarizes at least ten people of the log."""

import tomllib
from itertools import pairwise

import numpy as np
import pytest

from privateer_lab.drafting.spec_draft import draft

FEWEST_PEOPLE = 10


@pytest.mark.parametrize("people", [100, 250, 600, 2000])
def test_cut_points_of_a_small_log_have_ten_people_between_them(people: int) -> None:
    """Cut points that are as many as people would be a list of their numbers."""
    rng = np.random.default_rng(people)
    salaries = rng.lognormal(10, 1, people).round(2)
    table = {
        "salary": salaries.tolist(),
        "arm": rng.choice(["old", "new"], people).tolist(),
        "won": rng.integers(0, 2, people).tolist(),
    }
    drawn = draft(table, arm="arm", reward="won").drawn
    assert drawn is not None
    cuts = tomllib.loads("\n".join(drawn.lines))["salary"]["quantiles"]
    counts = [int(((salaries >= low) & (salaries < high)).sum()) for low, high in pairwise(cuts)]
    # Cut points are rounded by a quarter of the distance to the next.
    assert min(counts) >= FEWEST_PEOPLE // 2
    assert np.mean(counts) >= FEWEST_PEOPLE
    assert len(cuts) == min(64, int(0.98 * people) // FEWEST_PEOPLE) + 1
