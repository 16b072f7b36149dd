"""People whose log odds are linear in numbers at each level, with a given scale."""

import numpy as np
import pytest
from scipy.special import logit

from privateer_core.errors import SpecError
from privateer_lab.environments import environment_for
from tests.support.specs import make_spec

NUMBERS = {"x1": {"low": 0, "high": 10}, "x2": {"low": -1, "high": 1}}
KIND = {"kind": {"levels": ["a", "b", "c", "d"]}}
SPEC = make_spec({"context.features": KIND | NUMBERS})


def people(seed=0, count=2000, spec=SPEC, **keys):
    environment = environment_for(spec, seed, {"name": "slopes", **keys})
    return environment, environment.contexts(0, count, np.random.default_rng(0))


def effects(seed, spec=SPEC, **keys):
    environment, contexts = people(seed, 400, spec, **keys)
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
    environment, contexts = people(1, common=1)
    others = contexts.copy()
    others[:, 0] = (others[:, 0] + 1) % 4
    assert environment.means(others) == pytest.approx(environment.means(contexts))
    environment = people(1, common=0)[0]
    assert np.abs(environment.means(others) - environment.means(contexts)).mean() > 0.1


def test_every_seed_has_a_function_of_its_own_unless_one_is_named():
    contexts = people()[1]
    first, repeated, other = (people(seed, 1)[0].means(contexts) for seed in (0, 0, 1))
    assert (first == repeated).all()
    assert np.abs(first - other).max() > 0.05
    named = [people(seed, 1, function=1)[0].means(contexts) for seed in (0, 5)]
    assert (named[0] == named[1]).all()
    assert (named[0] == other).all()


def test_who_has_no_number_is_taken_for_average_and_who_has_no_level_has_one_of_their_own():
    gaps = {"kind": KIND["kind"] | {"missing": True}, "x1": NUMBERS["x1"] | {"missing": True}}
    environment, contexts = people(spec=make_spec({"context.features": gaps}))
    assert np.isnan(contexts).mean(axis=0) == pytest.approx([0.3, 0.3], abs=0.05)
    assert np.isfinite(environment.means(contexts)).all()
    average = environment.means(np.array([[0, np.nan], [0, 5.0], [np.nan, 5.0], [1, 5.0]]))
    assert average[0] == pytest.approx(average[1])
    assert np.abs(average[2] - average[1]).max() > 0.01
    assert np.abs(average[2] - average[3]).max() > 0.01


@pytest.mark.parametrize(("key", "value"), [("scale", 0), ("common", 1.1), ("missing", 1), ("function", -1)])
def test_parameters_out_of_range_are_named(key, value):
    with pytest.raises(SpecError, match=rf"population\.{key}: "):
        people(**{key: value})
