"""People with numeric rewards that correlate with a covariate from before."""

from pathlib import Path

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec, read_spec
from privateer_core.errors import SpecError
from privateer_core.policies.policy import Arms
from privateer_lab.environments import environment_for
from privateer_lab.simulation.scores import encode_contexts, scale_rewards
from privateer_lab.simulation.simulate import simulate_without_path
from tests.support.specs import tables

ADJUSTED = Path(__file__).parents[4] / "examples" / "adjusted.toml"
PEOPLE = 200_000


def test_the_example_tells_of_its_people() -> None:
    """Five standard errors: .0022 of a correlation, and .045 minutes of a mean."""
    spec = read_spec(ADJUSTED.read_text())
    people, rng, minutes_before = (
        environment_for(spec, 0),
        np.random.default_rng(3),
        spec.reward.covariates["minutes_before"],
    )
    contexts = people.contexts(0, PEOPLE, rng)
    before = people.before(contexts, ("minutes_before",))
    assert before.mean() == pytest.approx(minutes_before.mean, abs=0.2)
    for arm, mean in ((0, 30.0), (1, 31.0)):
        rewards = people.rewards(contexts, Arms(np.full(PEOPLE, arm)), rng)
        assert rewards.mean() == pytest.approx(mean, abs=0.23)
        assert np.corrcoef(rewards, before[:, 0])[0, 1] == pytest.approx(minutes_before.correlation, abs=0.012)
        slope = np.polyfit(before[:, 0], rewards, 1)[0]
        assert slope == pytest.approx(minutes_before.slope, abs=0.01)
        adjusted = spec.reward.unscaled(scale_rewards(rewards, spec, before))
        assert adjusted.mean() == pytest.approx(mean, abs=0.23)
        assert adjusted.std() == pytest.approx(np.sqrt(1 - 0.7**2) * 20, rel=0.01)
    assert encode_contexts(contexts, spec).shape == (PEOPLE, 1)  # the number from before is no column


def test_a_simulation_finds_narrower_intervals() -> None:
    widths = []
    for slope in (0.0, 0.8):
        text = ADJUSTED.read_text().replace("slope = 0.8", f"slope = {slope}").replace("40000", "8000")
        spec = read_spec(text.replace('model = "central"\nepsilon = 1.0', 'model = "none"'))
        widths.append(simulate_without_path(spec, 1).facts["half_width"])
    assert widths[1] / widths[0] == pytest.approx(np.sqrt(1 - 0.7**2), rel=0.15)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"effects": {"a": 1.0}}, "population.effects"),
        ({"before": {}}, "reward.covariates.minutes"),
        ({"before": {"minutes": {"mean": 0.0, "deviation": 0.0, "correlation": 0.5}}}, "deviation"),
        ({"before": {n: {"mean": 0.0, "deviation": 1.0, "correlation": 0.8} for n in ("minutes", "b")}}, "before"),
    ],
)
def test_populations_that_are_refused(changes: dict[str, object], field: str) -> None:
    minutes = {"minutes": {"mean": 0.0, "deviation": 1.0, "correlation": 0.5}}
    population = {"name": "numbers", "mean": 0.5, "deviation": 0.1, "before": minutes} | changes
    sections = {
        "algorithm.name": "trial",
        "reward.covariates": {"minutes": {"mean": 0, "slope": 1}},
        "population": population,
    }
    spec = parse_spec(tables(sections))
    with pytest.raises(SpecError) as error:
        environment_for(spec, 0)
    assert field in str(error.value.field)
