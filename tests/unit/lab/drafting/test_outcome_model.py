"""The model of outcomes of a log, and whether features depend on the option that chance gave."""

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_lab.drafting import drawn_options, outcome_model
from privateer_lab.drafting.drawn_options import find_dependent_features, find_strong_features
from privateer_lab.drafting.outcome_model import ADDITIVE, BY_ARM, INTERACTIONS, LoggedRows, fit_outcome_model
from privateer_lab.planning.feature_sets.outcomes import encode_cells

PEOPLE = 2_000


def rows(seed: int, effect: float, *, base_slope: float = 0.0, binary: bool = True) -> LoggedRows:
    """People of two features: base rates follow the first, and which of two arms is better the second."""
    rng = np.random.default_rng(seed)
    contexts = np.column_stack([rng.random(PEOPLE), rng.integers(0, 3, PEOPLE)])
    arms = rng.integers(0, 2, PEOPLE)
    means = 0.2 + base_slope * contexts[:, 0] + effect * np.where(contexts[:, 1] == 0, 1 - arms, arms)
    rewards = (rng.random(PEOPLE) < means).astype(float) if binary else np.clip(rng.normal(means, 0.1), 0, 1)
    return LoggedRows(contexts, [False, True], arms, rewards, binary)


def gain(means: np.ndarray) -> float:
    """Return the mean gain of the best arm for each person over the best arm for all."""
    return float(means.max(axis=1).mean() - means.mean(axis=0).max())


@pytest.mark.parametrize("binary", [True, False])
def test_differences_are_found_and_not_made_larger(binary):
    """The best arm for each is worth .1 more than the best for all."""
    log = rows(0, 0.3, base_slope=0.2, binary=binary)
    model = fit_outcome_model(log, 2)
    assert model.kind == INTERACTIONS
    assert 0.05 < gain(model.means) < 0.125
    fitted = model.means[np.arange(PEOPLE), log.arms]
    assert fitted.mean() == pytest.approx(log.rewards.mean(), abs=1e-6)
    best = model.means.argmax(axis=1) == np.where(log.contexts[:, 1] == 0, 0, 1)
    assert best.mean() > 0.9


def test_options_without_differences_have_no_gain():
    """Four logs with fixed seeds: each has a false alarm of at most .025, that of 2 standard errors."""
    models = [fit_outcome_model(rows(seed, 0.0, base_slope=0.5), 2) for seed in range(4)]
    assert [model.kind for model in models] == [ADDITIVE] * 4
    assert max(gain(model.means) for model in models) < 1e-9


def test_a_model_that_accepts_every_improvement_is_caught(monkeypatch):
    """Planted: without standard errors and factors from unseen rows there is a gain in a log without differences."""
    monkeypatch.setattr(outcome_model, "_MIN_STANDARD_ERRORS", -50.0)
    monkeypatch.setattr(outcome_model, "_FACTORS", np.array([1.0]))
    fitted_model = fit_outcome_model(rows(3, 0.0, base_slope=0.5), 2)
    assert fitted_model.kind == INTERACTIONS
    assert gain(fitted_model.means) > 1e-4


def test_options_that_differ_by_chance_are_drawn_together():
    """Among 16 equal arms the best looks .04 better; shrinkage leaves little of the differences."""
    rng = np.random.default_rng(3)
    arms = rng.integers(0, 16, 3_200)
    rewards = (rng.random(3_200) < 0.2).astype(float)
    model = fit_outcome_model(LoggedRows(np.zeros((3_200, 0)), [], arms, rewards, True), 16)
    assert model.kind == BY_ARM
    plain = np.bincount(arms, rewards) / np.bincount(arms)
    assert plain.max() - plain.mean() > 0.03
    assert model.means.max() - model.means.mean() < 0.02


def test_few_rows_have_means_alone():
    log = rows(1, 0.3).select(np.arange(150))
    assert fit_outcome_model(log, 2).kind == BY_ARM


LOGS = 200
SPEC = {
    "experiment": {"name": "test", "arms": ["a", "b", "c"], "horizon": 5_000},
    "context": {"features": {"age": {"low": 0.0, "high": 1.0}, "job": {"levels": ["x", "y", "z"]}}},
    "privacy": {"model": "none"},
    "algorithm": {"name": "partition"},
}
FEATURES = dict(parse_spec(SPEC).features)


def log(rng, rows=1_500, clusters=None):
    """Return rows with missing values whose features are independent of the option; options differ in frequency."""
    age, job = rng.random(rows), rng.integers(0, 3, rows).astype(float)
    age[rng.random(rows) < 0.1] = job[rng.random(rows) < 0.1] = np.nan
    arms = rng.choice(3, rows, p=[0.6, 0.3, 0.1])
    if clusters is not None:
        arms, age = rng.integers(0, 3, clusters.max() + 1)[clusters], rng.random(clusters.max() + 1)[clusters]
    return LoggedRows(np.column_stack([age, job]), [False, True], arms, rng.random(rows), False, clusters)


def count_suspected(monkeypatch, rows, propensities=None):
    """Return the number of logs in which a feature is suspected at a false-alarm rate of a tenth."""
    monkeypatch.setattr(drawn_options, "_FALSE_ALARM_RATE", 0.1)
    return sum(bool(find_dependent_features(FEATURES, row, propensities)) for row in rows)


@pytest.mark.parametrize("clusters", [None, np.repeat(np.arange(300), 5)], ids=["rows", "clusters"])
def test_false_alarms_have_the_stated_rate(monkeypatch, clusters):
    """20 of 200 are expected, and more than 32 in one of 400 such tests."""
    rng = np.random.default_rng(0)
    assert 8 <= count_suspected(monkeypatch, [log(rng, clusters=clusters) for _ in range(LOGS)]) <= 32


def test_a_column_that_came_of_the_reward_is_suspected_and_a_strong_feature_is_not():
    """Planted: half of a column's variance is that of a reward, whose mean differs by .15 between options."""
    rng, rows = np.random.default_rng(1), 12_000
    age, arms = rng.random(rows), rng.integers(0, 3, rows)
    won = (rng.random(rows) < 0.2 + 0.15 * (arms == 1) + 0.5 * age).astype(float)
    job = np.where(rng.random(rows) < 0.5, won, rng.integers(0, 3, rows))
    after = LoggedRows(np.column_stack([age, job]), [False, True], arms, won, True)
    assert find_dependent_features(FEATURES, after, None) == ["job"]


@pytest.mark.parametrize("rows", [500, 5_000])
@pytest.mark.parametrize("binary", [False, True], ids=["numbers", "yes or no"])
def test_a_column_that_tells_more_of_rewards_than_a_context_can_is_named(rows, binary):
    """Planted: an R2 of about .5 beside features of about .2, where options are alike, so that shares cannot tell."""
    rng = np.random.default_rng(4)
    age, arms, job = rng.random(rows), rng.integers(0, 3, rows), rng.integers(0, 3, rows).astype(float)
    reward = np.clip(0.2 + 0.5 * age + 0.29 * rng.standard_normal(rows), 0, 1)
    reward = (rng.random(rows) < reward).astype(float) if binary else reward
    after = reward + reward.std() * rng.standard_normal(rows)
    before = LoggedRows(np.column_stack([age, job]), [False, True], arms, reward, binary)
    assert find_strong_features(encode_cells(FEATURES, before.contexts), before) == {}
    leak = LoggedRows(np.column_stack([after, job]), [False, True], arms, reward, binary)
    assert find_dependent_features(FEATURES, leak, None) == []
    strong = find_strong_features(encode_cells(FEATURES, leak.contexts), leak)
    assert list(strong) == ["age"]
    assert 0.35 < strong["age"] < 0.6
    same = LoggedRows(leak.contexts, [False, True], arms, np.full(rows, 0.3), False)
    assert find_strong_features(encode_cells(FEATURES, same.contexts), same) == {}


@pytest.mark.parametrize("is_late", [True, False])
def test_a_strong_feature_is_cleared_if_it_differs_less_between_options_than_rewards(is_late):
    """One in 741 late columns is cleared by chance, at three standard errors; means differ by .1 between options."""
    rng, rows = np.random.default_rng(5), 6_000
    age, arms = rng.random(rows), rng.integers(0, 3, rows)
    reward = 0.1 * arms + 0.5 * age + 0.05 * rng.standard_normal(rows)
    number = reward + 0.15 * rng.standard_normal(rows) if is_late else age
    log = LoggedRows(np.column_stack([number, rng.integers(0, 3, rows)]), [False, True], arms, reward, False)
    assert [*find_strong_features(encode_cells(FEATURES, log.contexts), log)] == ["age"] * is_late


@pytest.mark.parametrize("options", [2, 3])
@pytest.mark.parametrize("rows", [999, 1_000, 1_001])
def test_a_column_that_is_the_option_is_suspected_by_any_propensities(options, rows):
    """Sums by row are then equal, except for rounding."""
    arms = np.arange(rows) % options
    contexts = np.column_stack([np.random.default_rng(3).random(rows), arms])
    leak = LoggedRows(contexts, [False, True], arms, np.zeros(rows), True)
    for propensities in (None, np.full(rows, 1 / options)):
        assert find_dependent_features(FEATURES, leak, propensities) == ["job"]


def test_a_feature_that_logged_propensities_explain_is_not_suspected(monkeypatch):
    """Planted: the same log without propensities, and with the propensities of other rows."""
    rng, rows = np.random.default_rng(2), []
    for _ in range(LOGS // 4):
        age = rng.random(1_500)
        arms = (rng.random(1_500) < 0.2 + 0.6 * age).astype(np.int64)
        contexts = np.column_stack([age, rng.integers(0, 3, 1_500)])
        rows.append(LoggedRows(contexts, [False, True], arms, rng.random(1_500), False))

    def propensities_of(log):
        return np.abs(1 - log.arms - (0.2 + 0.6 * log.contexts[:, 0]))

    assert all(find_dependent_features(FEATURES, row, None) == ["age"] for row in rows)
    monkeypatch.setattr(drawn_options, "_FALSE_ALARM_RATE", 0.1)
    n_suspected = sum(bool(find_dependent_features(FEATURES, row, propensities_of(row))) for row in rows)
    assert n_suspected <= 11  # 5 are expected
    assert all(find_dependent_features(FEATURES, row, rng.permutation(propensities_of(row))) for row in rows)
