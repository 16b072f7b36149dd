"""People with features of every kind and numeric rewards: distributions, effects, and refused sections."""

from pathlib import Path

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec, read_spec
from privateer_core.errors import SpecError
from privateer_core.policies.policy import Arms
from privateer_core.spec.context import encode_features
from privateer_lab.environments import environment_for
from privateer_lab.simulation.simulate import simulate_without_path
from tests.support.specs import make_spec, tables

FEATURES = {
    "country": {"levels": ["NL", "DE", "FR"]},
    "hours": {"low": 0, "high": 80, "missing": True},
    "income": {"quantiles": [0, 10, 1000]},
    "plan": {"levels": ["free", "basic", "pro"], "ordered": True},
    "premium": {"boolean": True},
}
SPEC = make_spec({"context.features": FEATURES})


def people(count: int = 20_000, **keys: object):
    environment = environment_for(SPEC, 0, {"name": "mixed", **keys})
    return environment, environment.contexts(0, count, np.random.default_rng(0))


def test_features_are_uniform_over_levels_and_ranges():
    """20,000 people: shares within .015, which is 4 standard deviations."""
    environment, contexts = people()
    gaps = np.isnan(contexts)
    assert gaps.mean(axis=0) == pytest.approx([0, 0.3, 0, 0, 0], abs=0.015)
    columns = encode_features(SPEC.features, contexts)
    assert ((columns >= 0) & (columns <= 1)).all()
    assert [np.mean(contexts[:, 0] == level) for level in range(3)] == pytest.approx([1 / 3] * 3, abs=0.015)
    assert np.mean(contexts[:, 2] < 10) == pytest.approx(0.5, abs=0.015)
    assert np.nanmean(contexts[:, 1]) == pytest.approx(40, abs=1)
    means = environment.means(contexts)
    assert means.shape == (20_000, 3)
    assert ((means > 0) & (means < 1)).all()


def test_the_share_who_have_no_value_is_that_of_the_section():
    assert np.isnan(people(missing=0)[1]).sum() == 0
    assert np.isnan(people(missing=0.8)[1][:, 1]).mean() == pytest.approx(0.8, abs=0.015)


def test_levels_are_as_alike_as_the_section_says():
    """Mean rewards at two levels, over 60 functions of one yes or no: correlations within 4 of their deviations."""

    def by_level(alike: float) -> np.ndarray:
        spec = make_spec({"context.features": {"premium": {"boolean": True}}})
        environments = [environment_for(spec, 0, {"name": "mixed", "function": f, "alike": alike}) for f in range(60)]
        return np.concatenate([environment.means(np.array([[0.0], [1.0]])).T for environment in environments])

    assert (by_level(1.0)[:, 0] == by_level(1.0)[:, 1]).all()
    # 180 pairs: the deviation of a correlation r is (1 - r^2) / sqrt(180).
    assert np.corrcoef(by_level(0.8).T)[0, 1] == pytest.approx(0.8, abs=0.11)
    assert np.corrcoef(by_level(0.2).T)[0, 1] == pytest.approx(0.2, abs=0.29)


@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_matters_if_the_section_says_so(name):
    index = list(FEATURES).index(name)
    environment, contexts = people(500, relevant=[name])
    others = contexts.copy()
    for j in range(len(FEATURES)):
        if j != index:
            others[:, j] = np.random.default_rng(1).permutation(others[:, j])
    assert environment.means(others) == pytest.approx(environment.means(contexts))
    changed = contexts.copy()
    changed[:, index] = np.random.default_rng(1).permutation(changed[:, index])
    assert np.abs(environment.means(changed) - environment.means(contexts)).max() > 0.05


def test_a_function_is_the_same_in_every_run_and_differs_by_number():
    contexts = people(100)[1]
    first, repeated, other = (people(1, function=number)[0].means(contexts) for number in (3, 3, 4))
    assert (first == repeated).all()
    assert not np.allclose(first, other)


def test_who_has_no_value_does_not_depend_on_one():
    environment, contexts = people(100)
    contexts[:, 1] = np.nan
    assert np.isfinite(environment.means(contexts)).all()


def test_an_unknown_feature_is_named():
    with pytest.raises(SpecError, match=r"population\.relevant\.age: .*choose from country"):
        people(relevant=["age"])
    with pytest.raises(SpecError, match=r"population: no feature is 'age' \(see context.features\)"):
        environment_for(SPEC, 0, {"name": "effects", "shares": {"age": [0.5, 0.5]}})


def test_people_of_formulas_on_the_cube_have_numbers_alone():
    for name in ("country", "hours", "plan", "premium"):
        spec = make_spec({"context.features": {"x1": {"low": 0, "high": 1}, name: FEATURES[name]}})
        with pytest.raises(SpecError, match=rf"context\.features\.{name}: .*numbers only.*mixed"):
            environment_for(spec, 0, {"name": "peaks"})


def test_base_rates_and_lifts_are_those_of_the_section():
    """50,000 people: means within .02 of themselves, since a lift is an average over people."""
    environment, contexts = people(50_000, base=0.05, lift=0.1)
    means = environment.means(contexts)
    assert means.mean() == pytest.approx(0.05, rel=0.02)
    assert means.max(axis=1).mean() / means.mean() == pytest.approx(1.1, abs=0.005)
    rewards = environment.rewards(contexts, Arms(np.zeros(50_000, np.int64)), np.random.default_rng(1))
    assert set(rewards.tolist()) == {0.0, 1.0}
    assert rewards.mean() == pytest.approx(means[:, 0].mean(), abs=0.004)  # 4 deviations


def test_numbers_have_the_noise_of_the_section():
    spec = make_spec({"context.features": FEATURES, "reward": {"kind": "numeric", "low": 0, "high": 100}})
    environment = environment_for(spec, 0, {"name": "mixed", "base": 50, "lift": 0.05, "noise": 3})
    contexts = environment.contexts(0, 20_000, np.random.default_rng(0))
    means = environment.means(contexts)
    assert means.mean() == pytest.approx(50, rel=0.02)
    rewards = environment.rewards(contexts, Arms(np.zeros(20_000, np.int64)), np.random.default_rng(1))
    assert (rewards - means[:, 0]).std() == pytest.approx(3, rel=0.03)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"base": 1.0}, r"population.base: must be between reward.low = 0 and reward.high = 1"),
        ({"base": 0.9, "lift": 0.5}, r"population.lift: must be at most 0\.\d+ at this base"),
        ({"noise": 0.1}, r"population.noise: is for rewards that are numbers"),
        ({"lift": 0}, r"population.lift: must be greater than 0"),
    ],
)
def test_people_that_are_not_possible_are_refused(keys, message):
    with pytest.raises(SpecError, match=message):
        people(10, **keys)


ADJUSTED = Path(__file__).parents[4] / "examples" / "adjusted.toml"


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
