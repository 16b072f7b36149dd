"""Simulated people are those of the papers."""

from pathlib import Path

import numpy as np
import pytest

from privateer.errors import SpecError
from privateer.experiment import Population as PopulationSpec
from privateer_client.population import population_for
from privateer_client.population.adult import Adult
from privateer_client.population.peaks import Peaks
from privateer_client.population.quadrants import Quadrants
from tests.support.specs import make_spec


@pytest.mark.parametrize(("population", "regret"), [(Peaks(3), 0.41388), (Quadrants(), 1 / 6)])
def test_regret_of_the_uniform_policy(population: Peaks | Quadrants, regret: float) -> None:
    """Midpoints of a 1000 x 1000 grid: the error of the integral is far below the tolerance."""
    side = (np.arange(1000) + 0.5) / 1000
    means = population.means(np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2))
    assert (means.max(axis=1) - means.mean(axis=1)).mean() == pytest.approx(regret, abs=2e-5)
    assert means.min() >= 0
    assert means.max() <= 1


def test_rewards_have_their_means() -> None:
    """400,000 coins; a false alarm at 5 standard deviations, below 1e-6."""
    rng = np.random.default_rng(0)
    people = Peaks(3)
    contexts = people.contexts(400_000, rng)
    arms = rng.integers(0, 3, 400_000)
    rewards = people.rewards(contexts, arms, rng)
    expected = people.means(contexts)[np.arange(400_000), arms]
    assert abs((rewards - expected).mean()) < 5 * 0.5 / 400_000**0.5


ROW = "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, US, "


def test_adult_reads_people_and_names_bad_rows(tmp_path: Path) -> None:
    good = tmp_path / "good.csv"
    good.write_text(f"|remark\n{ROW}<=50K\n{ROW}>50K.\n")
    people = Adult(str(good), seed=0)
    contexts = people.contexts(2, np.random.default_rng(0))
    assert contexts[:, :3].tolist() == [[39, 13, 40]] * 2
    assert sorted(people.means(contexts).tolist()) == [[0.1, 1.0], [0.35, 0.0]]
    good.write_text(f"{ROW}<=50K\n{ROW}unknown\n")
    with pytest.raises(SpecError, match="row 2"):
        Adult(str(good), seed=0)
    with pytest.raises(SpecError, match="cannot read"):
        Adult(str(tmp_path / "none.csv"), seed=0)


def test_a_population_must_fit_the_spec() -> None:
    spec = make_spec({"population": {"name": "quadrants"}})
    with pytest.raises(SpecError, match=r"experiment\.arms"):
        population_for(spec, 0)
    assert population_for(spec.model_copy(update={"population": PopulationSpec(name="peaks")}), 0).arms == 3
