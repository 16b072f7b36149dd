"""No effect, and rewards that are small beside their bounds: tests decide as often as they say, or say why not."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from privateer_core.algorithms import parse_spec
from privateer_core.answer import Answer
from privateer_core.mechanisms.cell_pairs import CellTriples
from privateer_core.mechanisms.mechanism import UNIT
from privateer_core.spec.reward import append_numbers
from privateer_lab.simulation.scores import SeededNoise
from privateer_lab.simulation.simulation import draw_coins
from privateer_server.rounds.schedule import Schedule
from tests.support.aa_tests import SEGMENTS, Outcomes, play_analyzed, play_served

DEVIATIONS = (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003)
WAYS = {"analyze": play_analyzed, "service": play_served}
CASES = [
    ("analyze", "none"),
    ("analyze", "central"),
    ("service", "none"),
    ("service", "central"),
    ("service", "shuffle"),
]
TESTS = 200
FALSE_ALARM = 1e-4


def rounds_squares_down(self: CellTriples, values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Planted: squares on the grid of values, as if privacy's grid were good enough for statistics."""
    none, all_ = np.square(UNIT - values) // UNIT, np.square(values) // UNIT
    return UNIT * np.stack([none, UNIT - none - all_, all_])


def max_decided(tests: int) -> int:
    """The most of so many tests that decide where .05 do, with a false alarm of 1e-4."""
    return int(binom.isf(FALSE_ALARM, tests, 0.05))


def check(outcomes: Outcomes, *, exact: bool) -> None:
    assert outcomes.decided <= max_decided(outcomes.tests)
    assert outcomes.any_segment <= max_decided(outcomes.tests)
    if exact:
        assert outcomes.with_interval == outcomes.tests
        assert outcomes.decided >= binom.ppf(FALSE_ALARM, outcomes.tests, 0.05)
        assert 0.98 < outcomes.width < 1.03


def test_an_analysis_and_a_service_hold_their_level_at_rewards_of_three_ten_thousandths_of_the_range() -> None:
    """25 tests and 15: so many decide by chance with probability 1e-4. By night there are more, of all kinds."""
    check(play_analyzed("none", 0.0003, "90/5/5", 25, 1), exact=True)
    check(play_served("none", 0.0003, "equal", 15, 2), exact=True)


def test_squares_on_the_grid_of_values_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CellTriples, "split_values", rounds_squares_down)
    outcomes = play_served("none", 0.003, "equal", 15, 2)
    assert outcomes.width < 0.8


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("way", "promise"), CASES)
def test_tests_without_an_effect(way: str, promise: str) -> None:
    """2,400 tests of a way and a promise: the share that decides has a standard error of .0045.

    Where noise is most of an interval, it is wider than it need be: then that is said, and fewer decide.
    """
    outcomes = {
        (deviation, segments): WAYS[way](promise, deviation, segments, TESTS, 100 * place + len(segments))
        for place, deviation in enumerate(DEVIATIONS)
        for segments in SEGMENTS
    }
    for tests in outcomes.values():
        check(tests, exact=promise == "none")
        resolved = tests.unresolved < 0.1 * tests.tests
        assert not resolved or tests.decided >= binom.ppf(FALSE_ALARM, tests.tests, 0.05), outcomes
    told_apart = [tests for tests in outcomes.values() if tests.unresolved < 0.1 * tests.tests]
    assert 0.03 < sum(case.decided for case in told_apart) / sum(case.tests for case in told_apart) < 0.07, outcomes


def adjusted_trial(rng: np.random.Generator) -> tuple[Answer, float]:
    """Play a trial that learns a slope; rewards of a deviation of 1/1500 of the range go with the number at .8."""
    number = {"low": -5.0, "high": 5.0}
    spec: Any = parse_spec(
        {
            "experiment": {"name": "aa", "arms": ["a", "b"], "horizon": 4_000, "round_size": 1_000},
            "context": {"features": {"x": number}},
            "reward": {"kind": "numeric", "low": 0.0, "high": 1.0, "covariates": {"x": number}},
            "privacy": {"model": "none"},
            "algorithm": {"name": "trial", "allocation": "fixed", "looks": 2},
        }
    )
    schedule = Schedule(spec)
    step, people = schedule.open(int(rng.integers(2**63))), 0
    while step.batch_size:
        policy: Any = step.policy
        mechanism, noise, coins = policy.terms.mechanism, SeededNoise(rng), draw_coins(rng, step.batch_size)
        x, rest = rng.standard_normal((2, step.batch_size)).clip(-5, 5)
        numbers = (x[:, None] + 5) / 10
        rewards = 0.5 + (0.8 * x + 0.6 * rest) / 1_500
        batch = policy.contribute(numbers, coins, policy.decide(numbers, coins), append_numbers(rewards, numbers))
        records = mechanism.parse(mechanism.randomize(batch, noise).tobytes())
        people += step.batch_size
        step = schedule.advance(step, mechanism.release(mechanism.add(mechanism.empty(), records), noise), 1)
    return schedule.answer(step), 4 * 1.96 / 1_500 / people**0.5


@pytest.mark.parametrize("tests", [12, pytest.param(400, marks=pytest.mark.nightly)])
def test_adjusted_intervals_are_true_at_a_fifteen_hundredth_of_the_range(tests: int) -> None:
    """So many tests without an effect decide by chance with probability 1e-4, and the number narrows intervals.

    The second look, a third of the people, has .6 of the deviation: .89 of the width, times 1.02 for two looks.
    """
    played = [adjusted_trial(np.random.default_rng([7, seed])) for seed in range(tests)]
    effects = [answer.effects[0] for answer, _ in played]
    assert sum(effect.is_decided for effect in effects) <= max_decided(tests)
    width = np.mean(
        [effect.high - effect.low for effect in effects if effect.high is not None and effect.low is not None]
    )
    assert 0.87 < width / np.mean([plain for _, plain in played]) < 0.96
