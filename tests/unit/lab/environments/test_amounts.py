"""People whose rewards are amounts: the true mean is that of the drawn amounts, clipped to the bounds."""

from pathlib import Path

import numpy as np
import pytest

from privateer_core.algorithms import read_spec
from privateer_core.errors import SpecError
from privateer_core.policies.policy import Arms
from privateer_core.spec.reward import Reward
from privateer_lab.environments import environment_for
from privateer_lab.environments.effects import Amounts

REVENUE = Path(__file__).parents[4] / "examples" / "revenue.toml"
PEOPLE = 400_000


@pytest.mark.parametrize("bounds", [(0.0, 200.0), (10.0, 50.0), (-5.0, 40.0), (-9.0, -1.0)])
def test_the_mean_amount_is_that_of_drawn_amounts(bounds: tuple[float, float]) -> None:
    """Four hundred thousand people are drawn; bounds are five standard errors."""
    reward, amounts = Reward(low=bounds[0], high=bounds[1]), Amounts(median=30.0, spread=0.8, factors={"b": 1.5})
    sample = amounts.draw(np.full(PEOPLE, 1.5), reward, np.random.default_rng(1))
    assert sample.min() >= bounds[0]
    assert sample.max() <= bounds[1]
    assert amounts.mean("b", reward) == pytest.approx(sample.mean(), abs=5 * sample.std() / PEOPLE**0.5 + 1e-9)


def test_the_example_tells_what_its_people_spend() -> None:
    """The bounds are five standard errors of either arm's mean, as the example states it."""
    spec = read_spec(REVENUE.read_text())
    people = environment_for(spec, 0)
    rng = np.random.default_rng(2)
    contexts = people.contexts(0, PEOPLE, rng)
    means = people.means(contexts).mean(axis=0)
    for arm in (0, 1):
        rewards = people.rewards(contexts, Arms(np.full(PEOPLE, arm)), rng)
        assert rewards.mean() == pytest.approx(means[arm], abs=5 * rewards.std() / PEOPLE**0.5)
        assert (rewards > 0).mean() == pytest.approx((0.05, 0.055)[arm], abs=0.002)
    assert means[0] == pytest.approx(spec.reward.base_rate, rel=0.05)
    control = people.rewards(contexts, Arms(np.zeros(PEOPLE, np.int64)), rng)
    assert control.std() == pytest.approx(spec.reward.standard_deviation, rel=0.05)


def test_factors_of_arms_that_are_not_there_are_refused() -> None:
    spec = read_spec(REVENUE.read_text())
    spec.population["amounts"]["factors"] = {"now": 1.1}  # type: ignore[index]
    with pytest.raises(SpecError):
        environment_for(spec, 0)
