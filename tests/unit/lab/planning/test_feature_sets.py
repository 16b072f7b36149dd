"""The features that a promise can afford: precisions of cells, near-copies, and rewards without any effect."""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.additive.spec import AdditiveSpec
from privateer_core.privacy.cell_reports import CellReports
from privateer_lab.cli.input_files import load_spec
from privateer_lab.planning.feature_sets import selection
from privateer_lab.planning.feature_sets.afforded import build_affordable_specs, find_affordable_sets, select_noiseless
from privateer_lab.planning.feature_sets.budget import feature_budgets, find_budget
from privateer_lab.planning.feature_sets.outcomes import FeatureCodes, PotentialOutcomes, encode_cells
from privateer_lab.planning.feature_sets.selection import evaluate_set, rank_features
from privateer_lab.planning.plans import Variant, find_promises

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
    """Return estimates of a random binary log: the third option is better above an age, and a column copies the age."""
    age = rng.random(people)
    columns = {"age": age, "copy": np.clip(age + 0.02 * rng.standard_normal(people), 0, 1)}
    contexts = np.stack(
        [
            columns[name] if name in columns else rng.integers(0, 3, people) if name == "job" else rng.random(people)
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
    return PotentialOutcomes(encode_cells(spec.features, contexts), rewards, np.full(people, 0.4), 0.4, 0.24)


CENTRAL = {"model": "central", "epsilon": 1.0, "delta": 1e-6}


def test_one_of_two_near_copies_is_taken():
    potential = outcomes(np.random.default_rng(0), 0.3)
    assert set(rank_features(potential)[:2]) == {"age", "copy"}
    sets = find_affordable_sets(tables(CENTRAL), potential)
    assert sets.names in ([("age",)], [("copy",)])
    for differ, names in ((True, {(), *sets.names}), (False, {()})):
        specs = build_affordable_specs(tables(CENTRAL), potential, differ=differ)
        assert {tuple(spec.features) for spec in specs} == names
    assert len(select_noiseless(potential)) == 1


def test_participants_of_a_rare_cell_may_have_equal_gains():
    """Planted: two people of equal gains, whose mean had no error, so that no covariance was positive definite."""
    potential = outcomes(np.random.default_rng(0), 0.3, people=400, names=("age",))
    kernel = np.full((3, 3), 0.999) + 0.001 * np.eye(3)
    rare = FeatureCodes(np.where(np.arange(400) < 4, 2, np.arange(400) % 2), kernel)
    rewards = np.where(np.arange(400)[:, None] < 4, 0.4, potential.rewards)
    potential = replace(potential, cells={"rare": rare, **potential.cells}, rewards=rewards)
    runs = evaluate_set(potential, ("rare", "age"), None)
    assert np.isfinite(runs.by_person).all()
    assert runs.value > 0


def test_the_learner_is_chosen_with_the_features_where_no_set_pays_by_its_cells():
    """Planted: under local, `linear` was tried with all features alone, though a slope is learned from few reports."""
    potential = outcomes(np.random.default_rng(0), 0.1, people=3_000, names=("age", "days", "job"))
    sheet = tables({"model": "local", "epsilon": 1.0}, 3_000, ("age", "days", "job"))
    assert not find_affordable_sets(sheet, potential).names
    specs = build_affordable_specs(sheet, potential, differ=True)
    assert {spec.algorithm.name for spec in specs if [*spec.features] == ["age"]} == {"partition", "linear"}


def count_false_selections(count, names=("age", "days", "job")):
    """Return the number of logs with uninformative features in which a feature is selected."""
    rngs = map(np.random.default_rng, range(count))
    sets = (find_affordable_sets(tables(CENTRAL, names=names), outcomes(rng, 0.0, 1_000, names)) for rng in rngs)
    return sum(bool(affordable.names) for affordable in sets)


def test_rewards_independent_of_features_select_no_feature(monkeypatch):
    """Planted: a threshold of a standard error selects a feature far too often."""
    at_two = count_false_selections(20)
    monkeypatch.setattr(selection, "MIN_STANDARD_ERRORS", 1.0)
    assert at_two <= 2
    assert count_false_selections(20) >= 5


@pytest.mark.parametrize("algorithm", ["partition", "additive"])
def test_precisions_of_cells_rise_with_the_promise(algorithm):
    keys, arms, invited = np.array([0.25]), np.array([[0.5]]), np.ones(1)

    def cell_precision(promise):
        spec = parse_spec(tables(promise) | {"algorithm": {"name": algorithm}})
        return float(CellReports(spec, 0.5, 0.25).precisions([1000, 1000], keys, arms, invited)[0, 0])

    free = cell_precision({"model": "none"})
    assert free == pytest.approx(2000 * 0.25 * 0.5 / 0.25, rel=0.01)
    promised = [cell_precision({"model": "local", "epsilon": epsilon}) for epsilon in (1.0, 2.0, 4.0)]
    assert all(first < second < free for first, second in pairwise(promised))
    central = cell_precision(CENTRAL)
    assert promised[0] < central < free
    # What reports tell of a cell falls with its share: noise is that of all.
    spec = parse_spec(tables({"model": "local", "epsilon": 1.0}) | {"algorithm": {"name": algorithm}})
    precisions = CellReports(spec, 0.5, 0.25).precisions([1000], np.array([0.2, 0.1]), np.full((2, 1), 0.5), np.ones(2))
    assert precisions[0, 0] / precisions[1, 0] == pytest.approx(4, rel=0.05)


def test_reports_on_arms_that_coins_gave_tell_more(monkeypatch):
    """Where the arm is the coins', a report need not contain a random one."""
    spec = AdditiveSpec.instances()["local-coins"]
    arguments = [1000], np.array([0.25]), np.array([[0.5]]), np.ones(1)
    with_plan = CellReports(spec, 0.5, 0.25).precisions(*arguments)[0, 0]
    monkeypatch.setattr(AdditiveSpec, "has_coin_plan", False)
    assert with_plan > 1.5 * CellReports(spec, 0.5, 0.25).precisions(*arguments)[0, 0]


@pytest.mark.parametrize("promise", [{"model": "local", "epsilon": 1.0}, CENTRAL])
def test_precisions_of_cells_of_a_declared_rate_do_not_depend_on_other_cells(promise):
    """The variance of an estimated rate depends on the cell; a small cell has a far larger variance."""
    spec = parse_spec(tables(promise) | {"reward": {"base_rate": 0.05}})
    reports, keys = CellReports(spec, 0.05, 0.05), np.array([0.2, 0.02])

    def cell_precision(cells):
        return reports.precisions([1000], cells, np.full((len(cells), 1), 0.5), np.ones(len(cells)))[:, 0]

    assert cell_precision(keys) == pytest.approx([cell_precision(keys[:1])[0], cell_precision(keys[1:])[0]])
    assert cell_precision(keys)[0] > 5 * cell_precision(keys)[1]


def test_policies_change_as_more_people_have_reported():
    spec = parse_spec(tables(CENTRAL, 50_000))
    groups = list(CellReports(spec, 0.5, 0.25).batches_by_policy)
    assert sum(map(sum, groups)) == 50_000
    assert len(groups) < 20
    assert groups[0] == [1000]


def test_cells_are_numbered_by_the_levels_of_features():
    spec = parse_spec(tables({"model": "none"}))
    codes = FeatureCodes.from_feature(spec.features["age"], np.array([0.0, 0.13, 1.0, 7.0]))
    assert codes.codes.tolist() == [0, 1, 2, 2]
    assert codes.kernel[0, 1] > codes.kernel[0, 2]
    job = FeatureCodes.from_feature(spec.features["job"], np.array([0.0, 2.0, 1.0, math.nan]))
    assert len(set(job.codes.tolist())) == job.n_cells == len(job.kernel)
    assert np.linalg.eigvalsh(codes.kernel).min() > 0


@pytest.mark.parametrize("is_missing", [False, True])
def test_correlations_of_hours_are_a_covariance(is_missing):
    """With the length of the arc as distance the smallest eigenvalue was -.0098, and no draft had an hour."""
    hour = {"low": 0.0, "high": 24.0, "cyclic": True, "missing": is_missing}
    spec = parse_spec(tables({"model": "none"}) | {"context": {"features": {"hour": hour}}})
    hours = np.array([*range(24), *([math.nan] if is_missing else [])], dtype=float)
    codes = FeatureCodes.from_feature(spec.features["hour"], hours)
    assert codes.n_cells == 8 + is_missing
    assert codes.kernel[0, 7] == pytest.approx(codes.kernel[0, 1])
    assert np.linalg.eigvalsh(codes.kernel).min() > 0.01


def test_a_plan_says_which_features_pay_and_what_more_people_would_bring():
    """Only the first of two features decides anything, and the whole gain is known."""
    spec = load_spec(EXAMPLES / "peaks-shuffle.toml", [], 4000)
    shuffled, free = feature_budgets(spec, [Variant("shuffle", 1.0, spec), *find_promises(spec, ["none"], [1.0])[0]])
    assert shuffled.features == free.features == ("x1",)
    assert shuffled.single.value < shuffled.reward.value < free.reward.value
    assert shuffled.reward.value < shuffled.with_twice_people.value
    assert shuffled.reward.value < shuffled.with_twice_epsilon.value
    assert free.with_twice_epsilon is None
    assert all(estimate.margin > 0 for estimate in (shuffled.reward, shuffled.single, shuffled.with_twice_people))
    assert shuffled.another is None, "x2 alone tells nothing"
    (poor,) = feature_budgets(spec, find_promises(spec, ["local"], [0.02])[0])
    assert (poor.features, poor.algorithm, poor.another) == ((), "bandit", "x1")
    assert poor.reward == poor.single
    assert None not in (poor.with_another, poor.with_twice_people, poor.with_twice_epsilon)


def test_a_plan_says_what_another_feature_earns_wherever_another_tells():
    """Planted: a blank cell where `partition` with one feature earned most."""
    potential, spec = outcomes(np.random.default_rng(0), 0.3, 2_000), parse_spec(tables(CENTRAL, 4_000))
    budget = find_budget(Variant("central", 1.0, spec), potential)
    assert len(budget.features) == 1
    assert budget.another in {*NAMES} - {*budget.features}
    assert budget.with_another.value < budget.reward.value + budget.reward.margin
