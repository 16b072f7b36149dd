"""Mean rewards: by formula, by shape functions, by slopes, as amounts, and as they move."""

from pathlib import Path

import numpy as np
import pytest
from scipy.special import logit

from privateer_core.algorithms import read_spec
from privateer_core.errors import SpecError
from privateer_core.policies.policy import Arms
from privateer_core.spec.reward import Reward
from privateer_lab.environments import environment_for
from privateer_lab.environments.effects import Amounts
from privateer_lab.environments.functions import PeaksSection
from privateer_lab.environments.synthetic import (
    ShiftedDensity,
    SlideDrift,
    SwapDrift,
    Synthetic,
    UniformDensity,
)
from tests.support.specs import make_spec


def test_regret_of_the_uniform_policy():
    """Midpoints of a 1000 x 1000 grid: the error of the integral is far below the tolerance."""
    side = (np.arange(1000) + 0.5) / 1000
    means = PeaksSection().means(np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2), 3)
    assert (means.max(axis=1) - means.mean(axis=1)).mean() == pytest.approx(0.41388, abs=2e-5)
    assert means.min() >= 0
    assert means.max() <= 1


def test_rewards_have_their_means():
    """400,000 coins; a false alarm at 5 standard deviations, below 1e-6."""
    rng = np.random.default_rng(0)
    people = Synthetic(PeaksSection(), 3, 2)
    contexts = people.contexts(0, 400_000, rng)
    arms = rng.integers(0, 3, 400_000)
    rewards = people.rewards(contexts, Arms(arms), rng)
    expected = people.means(contexts)[np.arange(400_000), arms]
    assert abs((rewards - expected).mean()) < 5 * 0.5 / 400_000**0.5


EXAMPLE = Path(__file__).parents[4] / "examples" / "additive-shuffle.toml"


def people(height="0.25"):
    spec = read_spec(EXAMPLE.read_text().replace("height = 0.25", f"height = {height}"))
    environment = environment_for(spec, 0)
    return environment, environment.contexts(0, 400, np.random.default_rng(1))


def test_effects_of_a_feature_do_not_depend_on_other_features():
    """Planted: a product of two features. At a small height no sum is beyond the bounds of rewards."""
    environment, contexts = people("0.02")
    changed, elsewhere = contexts.copy(), contexts[::-1].copy()
    changed[:, 0] = 40.0
    both_changed = elsewhere.copy()
    both_changed[:, 0], elsewhere[:, 0] = 40.0, contexts[:, 0]
    effect = environment.means(changed) - environment.means(contexts)
    effect_elsewhere = environment.means(both_changed) - environment.means(elsewhere)
    assert np.allclose(effect, effect_elsewhere)
    assert np.abs(effect).max() > 0.005
    product = effect * (1 + 0.1 * contexts[:, 3:4] / 40) - effect_elsewhere * (1 + 0.1 * elsewhere[:, 3:4] / 40)
    assert not np.allclose(product, 0)


def test_means_are_within_bounds_the_same_in_every_run_and_about_as_high_as_asked():
    environment, contexts = people()
    repeated, _ = people()
    means = environment.means(contexts)
    assert means.shape == (400, 4)
    assert (means == repeated.means(contexts)).all()
    assert ((means >= 0) & (means <= 1)).all()
    assert 0.1 < means.std() < 0.4
    assert np.isnan(contexts[:, 2]).any()


NUMBERS = {"x1": {"low": 0, "high": 10}, "x2": {"low": -1, "high": 1}}
KIND = {"kind": {"levels": ["a", "b", "c", "d"]}}
SPEC = make_spec({"context.features": KIND | NUMBERS})


def slope_people(seed=0, count=2000, spec=SPEC, **keys):
    environment = environment_for(spec, seed, {"name": "slopes", **keys})
    return environment, environment.contexts(0, count, np.random.default_rng(0))


def effects(seed, spec=SPEC, **keys):
    environment, contexts = slope_people(seed, 400, spec, **keys)
    return contexts, logit(environment.means(contexts))


@pytest.mark.parametrize("features", [KIND | NUMBERS, NUMBERS, KIND, KIND | NUMBERS | {"premium": {"boolean": True}}])
def test_log_odds_vary_by_the_scale(features):
    """600 functions: the deviation is within .03 of 1/2 (a planted root of 2 more is not)."""
    spec = make_spec({"context.features": features})
    deviation = np.std([effects(seed, spec, scale=0.5)[1] for seed in range(600)])
    assert deviation == pytest.approx(0.5, abs=0.03)


def test_log_odds_are_linear_in_numbers_at_each_level():
    contexts, log_odds = effects(3)
    for level in range(4):
        is_level = contexts[:, 0] == level
        design = np.column_stack([np.ones(is_level.sum()), contexts[is_level, 1:]])
        residuals = np.linalg.lstsq(design, log_odds[is_level], rcond=None)[1]
        assert residuals == pytest.approx([0, 0, 0], abs=1e-20)
    everybody = np.column_stack([np.ones(len(contexts)), contexts[:, 1:]])
    assert (np.linalg.lstsq(everybody, log_odds, rcond=None)[1] > 1).all()


def test_the_common_slopes_are_equal_at_every_level():
    environment, contexts = slope_people(1, common=1)
    others = contexts.copy()
    others[:, 0] = (others[:, 0] + 1) % 4
    assert environment.means(others) == pytest.approx(environment.means(contexts))
    environment = slope_people(1, common=0)[0]
    assert np.abs(environment.means(others) - environment.means(contexts)).mean() > 0.1


def test_every_seed_has_a_function_of_its_own_unless_one_is_named():
    contexts = slope_people()[1]
    first, repeated, other = (slope_people(seed, 1)[0].means(contexts) for seed in (0, 0, 1))
    assert (first == repeated).all()
    assert np.abs(first - other).max() > 0.05
    named = [slope_people(seed, 1, function=1)[0].means(contexts) for seed in (0, 5)]
    assert (named[0] == named[1]).all()
    assert (named[0] == other).all()


def test_who_has_no_number_is_taken_for_average_and_who_has_no_level_has_one_of_their_own():
    gaps = {"kind": KIND["kind"] | {"missing": True}, "x1": NUMBERS["x1"] | {"missing": True}}
    environment, contexts = slope_people(spec=make_spec({"context.features": gaps}))
    assert np.isnan(contexts).mean(axis=0) == pytest.approx([0.3, 0.3], abs=0.05)
    assert np.isfinite(environment.means(contexts)).all()
    average = environment.means(np.array([[0, np.nan], [0, 5.0], [np.nan, 5.0], [1, 5.0]]))
    assert average[0] == pytest.approx(average[1])
    assert np.abs(average[2] - average[1]).max() > 0.01
    assert np.abs(average[2] - average[3]).max() > 0.01


@pytest.mark.parametrize(("key", "value"), [("scale", 0), ("common", 1.1), ("missing", 1), ("function", -1)])
def test_parameters_out_of_range_are_named(key, value):
    with pytest.raises(SpecError, match=rf"population\.{key}: "):
        slope_people(**{key: value})


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


def test_factors_of_arms_that_are_not_there_are_refused() -> None:
    spec = read_spec(REVENUE.read_text())
    spec.population["amounts"]["factors"] = {"now": 1.1}  # type: ignore[index]
    with pytest.raises(SpecError):
        environment_for(spec, 0)


SWAP = SwapDrift(name="swap", period=10)


def drift_people(drift):
    return Synthetic(PeaksSection(drift=drift), 3, 2)


def initial_means(contexts):
    return PeaksSection().means(contexts, 3)


def test_swap_turns_the_arms():
    population = drift_people(SWAP)
    contexts = population.contexts(5, 40, np.random.default_rng(0))
    assert contexts[:, 2].tolist() == [0] * 5 + [1] * 10 + [2] * 10 + [3] * 10 + [4] * 5
    truth = initial_means(contexts[:, :2])
    means = population.means(contexts)
    assert (means[:5] == truth[:5]).all()
    assert (means[5:15] == truth[5:15][:, [1, 2, 0]]).all()
    assert (means[15:25] == truth[15:25][:, [2, 0, 1]]).all()
    assert (means[25:35] == truth[25:35]).all()


def test_slide_moves_what_is_learned_along_the_first_feature():
    population = drift_people(SlideDrift(name="slide", period=100, step=0.25))
    places = np.array([[0.5, 0.1], [0.75, 0.1], [0.1, 0.1]])
    later = np.column_stack([places, np.ones(3)])
    expected = initial_means(np.array([[0.25, 0.1], [0.5, 0.1], [0.15, 0.1]]))
    assert population.means(later) == pytest.approx(expected, abs=1e-12)
    there_and_back = np.column_stack([places, np.full(3, 8)])
    assert population.means(there_and_back) == pytest.approx(initial_means(places), abs=1e-12)


DENSITY_PEOPLE = 200_000


def share_near_the_middle(contexts):
    return float((np.abs(contexts - 0.5).max(axis=1) < 0.25).mean())


@pytest.mark.parametrize("features", [1, 2, 5])
@pytest.mark.parametrize("gamma", [0.0, 0.2, 2.0, 5.5])
def test_shifted_people_are_as_far_from_the_middle_as_the_density_says(gamma, features):
    """Within r of the middle are (2 r)^(d + gamma). Planted: the authors' sampler has that of gamma d."""
    density = UniformDensity() if gamma == 0 else ShiftedDensity(gamma=gamma)
    contexts = density.sample(DENSITY_PEOPLE, features, np.random.default_rng(3))
    assert contexts.shape == (DENSITY_PEOPLE, features)
    assert 0 <= contexts.min() <= contexts.max() <= 1
    assert contexts.mean(axis=0) == pytest.approx(np.full(features, 0.5), abs=0.006)
    truth = 0.5 ** (features + gamma)
    error = 5 * (truth * (1 - truth) / DENSITY_PEOPLE) ** 0.5
    assert share_near_the_middle(contexts) == pytest.approx(truth, abs=error)
    authors_share = 0.5 ** (features * (gamma + 1))
    assert (gamma == 0 or features == 1) or abs(authors_share - truth) > error
