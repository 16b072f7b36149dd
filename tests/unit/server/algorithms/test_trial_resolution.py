"""Rewards that vary too little for their bounds: no effect is stated, and better bounds are named."""

from typing import Any

import numpy as np
import pytest

import privateer_lab as lab
from privateer_core.answer.estimates import Effect
from privateer_server.algorithms.trial.decisions import round_figure, round_interval

VARY = "rewards vary too little for their bounds"
ARMS = np.repeat(["a", "b"], 2_000)


def analyze_effect(rewards: np.ndarray, bounds: tuple[float, float] | None, **options: Any) -> Effect:
    rows = {"arm": np.repeat(["a", "b"], len(rewards) // 2), "reward": rewards}
    [effect] = lab.analyze(rows, bounds=bounds, **options).answer.effects
    return effect


@pytest.mark.parametrize("bounds", [None, (0.0, 10.0), (0.0, 1e6)])
def test_rewards_that_do_not_vary_decide_nothing(bounds: tuple[float, float] | None) -> None:
    """200 rewards of 5 beside 200 of 6: an interval of width 0 would be taken for knowledge."""
    effect = analyze_effect(np.repeat([5.0, 6.0], 200), bounds)
    assert (effect.value, effect.low, effect.high, effect.reason) == (None, None, None, VARY)
    assert not effect.is_decided
    assert ("bounds of" in effect.remark) == (bounds is not None), "narrower ones than those of the rows are none"


def test_the_named_bounds_resolve_the_variation() -> None:
    rewards = 500 + 0.3 * np.random.default_rng(1).standard_normal(4_000)
    hidden = analyze_effect(rewards, (0.0, 1e6))
    assert hidden.reason == VARY
    assert hidden.remark == "if they vary at all, bounds of 492 to 508 tell by how much"
    effect = analyze_effect(rewards, (492.0, 508.0))
    plain = 2 * 1.96 * 0.3 / 1_000**0.5
    assert effect.low is not None
    assert effect.high is not None
    assert effect.high - effect.low == pytest.approx(plain, rel=0.05)


def test_a_curator_names_bounds_with_less_noise() -> None:
    rewards = 500 + 0.3 * np.random.default_rng(1).standard_normal(4_000)
    promise = {"epsilon": 4.0, "shares": {"a": 0.5, "b": 0.5}}
    wide = analyze_effect(rewards, (0.0, 1000.0), **promise)
    assert wide.remark.startswith("noise hides how much rewards vary: bounds of ")
    low, high = (float(word) for word in wide.remark.split("bounds of ")[1].split(" need")[0].split(" to "))
    assert 0 < low < 499
    assert 501 < high < 1000
    near = analyze_effect(rewards, (499.0, 501.0), **promise)
    assert near.remark == ""
    assert near.low is not None
    assert wide.low is not None
    assert near.low > wide.low


@pytest.mark.parametrize(("width", "digits"), [(1.0, 6), (0.01, 6), (3e-5, 8), (2e-9, 12)])
def test_an_interval_keeps_its_width_however_narrow(width: float, digits: int) -> None:
    figures = np.array([width / 3, 0.0, width])
    assert round_interval(figures) == tuple(round(figure, digits) for figure in figures.tolist())
    value, low, high = round_interval(figures)
    assert low is not None
    assert high is not None
    assert value is not None
    assert low < value < high
    assert round_figure(float("nan"), width) is None
