"""The problems of paper 1 on the unit square: what choosing at random loses."""

import numpy as np
import pytest

from privateer_lab.environments import environment_for
from privateer_papers.paper_1 import setting


@pytest.mark.parametrize(("problem", "regret"), [(setting.PEAKS, 0.41388), (setting.QUADRANTS, 1 / 6)])
def test_regret_of_the_uniform_policy(problem: setting.SquareProblem, regret: float) -> None:
    """Midpoints of a 1000 x 1000 grid: the error of the integral is far below the tolerance."""
    source = setting.build_source("aux", 1000, 8.0, problem=problem)
    spec = setting.build_instance(2000, 1.0, [source], problem=problem)
    side = (np.arange(1000) + 0.5) / 1000
    for population in (spec.population, spec.sources[0].population):
        environment = environment_for(spec, 0, population)
        means = environment.means(np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2))
        assert (means.max(axis=1) - means.mean(axis=1)).mean() == pytest.approx(regret, abs=2e-5)
        assert means.shape[1] == problem.arms
        assert environment.contexts(0, 7, np.random.default_rng(0)).shape == (7, 2)
