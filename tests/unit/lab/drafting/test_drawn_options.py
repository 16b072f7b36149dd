"""Whether features depend on the option that chance gave: at the stated rate by chance, and planted both ways."""

import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_lab.drafting import drawn_options
from privateer_lab.drafting.drawn_options import find_dependent_features, find_strong_features
from privateer_lab.drafting.outcome_model import LoggedRows
from privateer_lab.planning.feature_sets.outcomes import encode_cells

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
