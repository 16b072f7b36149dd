"""Which features a promise can afford: what reports tell of cells, near-copies, and rewards that mean nothing."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.privacy.cell_reports import CellReports
from privateer_lab.cli.input_files import load_spec
from privateer_lab.planning.feature_sets import selection
from privateer_lab.planning.feature_sets.afforded import affordable, afforded, unnoised
from privateer_lab.planning.feature_sets.budget import feature_budgets
from privateer_lab.planning.feature_sets.outcomes import FeatureCodes, PotentialOutcomes
from privateer_lab.planning.feature_sets.selection import most_telling
from privateer_lab.planning.plans import Variant, possible

EXAMPLES = Path(__file__).parents[4] / "examples"
UNIT = {"low": 0.0, "high": 1.0}
NAMES = ("age", "days", "copy", "job")


def tables(promise, people=20_000, names=NAMES):
    experiment = {"name": "test", "arms": ["a", "b", "c"], "horizon": people}
    features = {name: {"levels": ["x", "y", "z"]} if name == "job" else UNIT for name in names}
    return {
        "experiment": experiment,
        "context": {"features": features},
        "privacy": promise,
        "algorithm": {"name": "partition"},
    }


def outcomes(rng, effect, people=3_000, names=NAMES):
    """Estimates as of a random log of yes and no: the third option is better from some age on, and the copy says so."""
    age = rng.random(people)
    known = {"age": age, "copy": np.clip(age + 0.02 * rng.standard_normal(people), 0, 1)}
    contexts = np.stack(
        [
            known[name] if name in known else rng.integers(0, 3, people) if name == "job" else rng.random(people)
            for name in names
        ],
        axis=1,
    )
    means = 0.4 + np.stack([np.zeros(people), np.zeros(people), effect * np.sign(age - 0.5)], axis=1)
    arms = rng.integers(0, 3, people)
    won = (rng.random(people) < means[np.arange(people), arms]).astype(float)
    rewards = np.full((people, 3), 0.4)
    rewards[np.arange(people), arms] += 3 * (won - 0.4)
    spec = parse_spec(tables({"model": "none"}, names=names))
    return PotentialOutcomes(spec.features, contexts, rewards, np.full(people, 0.4), 0.4, 0.24)


CENTRAL = {"model": "central", "epsilon": 1.0, "delta": 1e-6}


def test_one_of_two_near_copies_is_taken():
    known = outcomes(np.random.default_rng(0), 0.3)
    assert set(most_telling(known)[:2]) == {"age", "copy"}
    sets = afforded(tables(CENTRAL), known)
    assert sets.names in ([("age",)], [("copy",)])
    assert {names for _, names in affordable(tables(CENTRAL), known, differ=True)} == {(), *sets.names}
    assert {names for _, names in affordable(tables(CENTRAL), known, differ=False)} == {()}
    assert unnoised(tables(CENTRAL), known) == 1


def taken(count, names=("age", "days", "job")):
    """In how many of some logs whose rewards have nothing to do with features any is taken."""
    rngs = map(np.random.default_rng, range(count))
    some = [afforded(tables(CENTRAL, names=names), outcomes(rng, 0.0, 1_000, names)).names for rng in rngs]
    return sum(bool(one) for one in some)


def test_rewards_that_mean_nothing_take_no_feature(monkeypatch):
    """Planted: one standard error takes a feature far too often."""
    at_two = taken(20)
    monkeypatch.setattr(selection, "CLEARLY", 1.0)
    assert at_two <= 2
    assert taken(20) >= 5


@pytest.mark.parametrize("algorithm", ["partition", "additive"])
def test_reports_tell_of_cells_what_the_promise_lets_them(algorithm):
    keys, arms, asked = np.array([0.25]), np.array([[0.5]]), np.ones(1)

    def told(promise):
        spec = parse_spec(tables(promise) | {"algorithm": {"name": algorithm}})
        return float(CellReports(spec, 0.5, 0.25).precisions([1000, 1000], keys, arms, asked)[0, 0])

    free = told({"model": "none"})
    assert free == pytest.approx(2000 * 0.25 * 0.5 / 0.25, rel=0.01)
    promised = [told({"model": "local", "epsilon": epsilon}) for epsilon in (1.0, 2.0, 4.0)]
    assert all(first < then < free for first, then in pairwise(promised))
    central = told(CENTRAL)
    assert promised[0] < central < free
    # What reports tell of a cell falls with its share: noise is that of all.
    spec = parse_spec(tables({"model": "local", "epsilon": 1.0}) | {"algorithm": {"name": algorithm}})
    some = CellReports(spec, 0.5, 0.25).precisions([1000], np.array([0.2, 0.1]), np.full((2, 1), 0.5), np.ones(2))
    assert some[0, 0] / some[1, 0] == pytest.approx(4, rel=0.05)


def test_policies_change_as_more_people_have_reported():
    spec = parse_spec(tables(CENTRAL, 50_000))
    groups = list(CellReports(spec, 0.5, 0.25).policies)
    assert sum(map(sum, groups)) == 50_000
    assert len(groups) < 20
    assert groups[0] == [1000]


def test_cells_are_those_of_places():
    spec = parse_spec(tables({"model": "none"}))
    codes = FeatureCodes.of(spec.features["age"], np.array([0.0, 0.13, 1.0, 7.0]))
    assert codes.codes.tolist() == [0, 1, 2, 2]
    assert codes.kernel[0, 1] > codes.kernel[0, 2]
    job = FeatureCodes.of(spec.features["job"], np.array([0.0, 2.0, 1.0, math.nan]))
    assert len(set(job.codes.tolist())) == job.count == len(job.kernel)
    assert np.linalg.eigvalsh(codes.kernel).min() > 0


def test_a_plan_says_which_features_pay_and_what_more_people_would_bring():
    """Only the first of two features decides anything, and the whole gain is known."""
    spec = load_spec(EXAMPLES / "peaks-shuffle.toml", [], 4000)
    own, free = feature_budgets(spec, [Variant("shuffle", 1.0, spec), *possible(spec, ["none"], [1.0])[0]])
    assert own.features == free.features == ("x1",)
    assert own.single < own.value < free.value
    assert own.value < own.with_twice_people
    assert own.value < own.with_twice_epsilon
    assert free.with_twice_epsilon is None
    assert own.another is None, "x2 alone tells nothing"
