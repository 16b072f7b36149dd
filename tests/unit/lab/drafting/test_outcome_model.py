"""The model of outcomes finds differences between options, and none in logs without differences."""

import numpy as np
import pytest

from privateer_lab.drafting import outcome_model
from privateer_lab.drafting.outcome_model import ADDITIVE, BY_ARM, INTERACTIONS, LoggedRows, fit_outcome_model

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
