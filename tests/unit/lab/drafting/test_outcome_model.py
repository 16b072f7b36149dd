"""The model of outcomes: what it finds, and that it finds nothing where nothing is."""

import numpy as np
import pytest

from privateer_lab.drafting import outcome_model
from privateer_lab.drafting.outcome_model import BESIDE, BY_ARM, TOGETHER, LoggedRows, fitted

PEOPLE = 2_000


def rows(seed: int, effect: float, *, own: float = 0.0, binary: bool = True) -> LoggedRows:
    """People of two features: base rates follow the first, and which of two arms is better the second."""
    rng = np.random.default_rng(seed)
    contexts = np.column_stack([rng.random(PEOPLE), rng.integers(0, 3, PEOPLE)])
    arms = rng.integers(0, 2, PEOPLE)
    means = 0.2 + own * contexts[:, 0] + effect * np.where(contexts[:, 1] == 0, 1 - arms, arms)
    rewards = (rng.random(PEOPLE) < means).astype(float) if binary else np.clip(rng.normal(means, 0.1), 0, 1)
    return LoggedRows(contexts, [False, True], arms, rewards, binary)


def gain(means: np.ndarray) -> float:
    """What the best arm for each person earns above the best arm for all."""
    return float(means.max(axis=1).mean() - means.mean(axis=0).max())


@pytest.mark.parametrize("binary", [True, False])
def test_differences_are_found_and_not_made_larger(binary):
    """The best arm for each is worth .1 more than the best for all."""
    log = rows(0, 0.3, own=0.2, binary=binary)
    model = fitted(log, 2)
    assert model.kind == TOGETHER
    assert 0.05 < gain(model.means) < 0.125
    got = model.means[np.arange(PEOPLE), log.arms]
    assert got.mean() == pytest.approx(log.rewards.mean(), abs=1e-6)
    best = model.means.argmax(axis=1) == np.where(log.contexts[:, 1] == 0, 0, 1)
    assert best.mean() > 0.9


def test_where_options_differ_for_nobody_nobody_gains():
    """Four logs: each finds some with a probability of at most .025, that of 2 standard errors; seeds are fixed."""
    found = [fitted(rows(seed, 0.0, own=0.5), 2) for seed in range(4)]
    assert [one.kind for one in found] == [BESIDE] * 4
    assert max(gain(one.means) for one in found) < 1e-9


def test_a_model_that_believes_every_improvement_is_found_out(monkeypatch):
    """The planted defect: without standard errors and factors from unseen rows people gain where nobody does."""
    monkeypatch.setattr(outcome_model, "_CLEARLY", -50.0)
    monkeypatch.setattr(outcome_model, "_FACTORS", np.array([1.0]))
    found = fitted(rows(3, 0.0, own=0.5), 2)
    assert found.kind == TOGETHER
    assert gain(found.means) > 1e-4


def test_options_that_differ_by_chance_are_drawn_together():
    """Among 16 arms that are alike the best looks .04 better; as a share of what means differ little is left."""
    rng = np.random.default_rng(3)
    arms = rng.integers(0, 16, 3_200)
    rewards = (rng.random(3_200) < 0.2).astype(float)
    model = fitted(LoggedRows(np.zeros((3_200, 0)), [], arms, rewards, True), 16)
    assert model.kind == BY_ARM
    plain = np.bincount(arms, rewards) / np.bincount(arms)
    assert plain.max() - plain.mean() > 0.03
    assert model.means.max() - model.means.mean() < 0.02


def test_few_rows_have_means_alone():
    log = rows(1, 0.3).of(np.arange(150))
    assert fitted(log, 2).kind == BY_ARM
