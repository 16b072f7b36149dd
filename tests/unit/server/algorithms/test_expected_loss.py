"""What following a trial's recommendation loses: expected by the normal law, at most by the intervals."""

import numpy as np
import pytest

from privateer_core.answer.parts import Losses
from privateer_server.algorithms.trial.trial_answer import bound_loss
from tests.unit.server.algorithms.test_trial_answer import SPECS, simulate_trial


def test_the_expected_loss_of_one_treatment_is_that_of_the_normal_law() -> None:
    """With a lead of one deviation the expected loss is .0833 deviations, and the interval bounds it."""
    interval = np.array([[0.1, -0.1, 0.3]])
    assert bound_loss(1, interval, np.array([0.1]), np.array([0.5])) == pytest.approx((0.00833, 0.1), abs=1e-5)
    assert bound_loss(0, interval, np.array([0.1]), np.array([0.5])) == pytest.approx((0.10833, 0.3), abs=1e-5)
    assert bound_loss(1, np.array([[0.3, 0.1, 0.5]]), np.array([0.1]), None)[1] == 0


def test_the_expected_loss_of_several_arms_bounds_the_simulated_loss() -> None:
    """Against a million draws with a common control, which make effects correlate."""
    rng, deviation = np.random.default_rng(3), 0.1
    estimates = np.array([0.05, 0.12, 0.1])
    intervals = np.stack([estimates, estimates - 0.3, estimates + 0.3], axis=1)
    control, treatments = (rng.normal(0, deviation / 2**0.5, (1_000_000, columns)) for columns in (1, 3))
    effects = np.concatenate([np.zeros((1_000_000, 1)), estimates + treatments - control], axis=1)
    simulated = float((effects.max(axis=1) - effects[:, 2]).mean())
    expected, bound = bound_loss(2, intervals, np.full(3, deviation), np.full(3, 0.5))
    # Sums over arms bound the best of them; the control is one of three others here.
    assert simulated < expected < 1.7 * simulated
    directly = np.quantile(effects[:, 3] - effects[:, 2], 0.9987)
    assert bound == pytest.approx(max(0.3 - 0.12, directly), abs=0.003)
    rare_bound = bound_loss(2, intervals, np.full(3, deviation), np.full(3, 0.5), np.full(3, 1.1))[1]
    assert rare_bound == pytest.approx(max(0.3 - 0.12, 0.02 + 1.1 * (directly - 0.02)), abs=0.003)
    assert bound_loss(2, intervals, np.full(3, deviation), None)[1] == pytest.approx(0.1 + 0.3 - (0.12 - 0.3))


def test_without_noise_the_loss_is_the_observed_difference() -> None:
    assert bound_loss(1, np.array([[0.1, 0.1, 0.1], [0.3, 0.3, 0.3]]), np.zeros(2), np.zeros(2)) == pytest.approx(
        (0.2, 0.2)
    )


def test_the_loss_is_within_the_intervals() -> None:
    """Planted: of +.3 (+.1 to +.5) .004 were expected, so that "at most" was .004 and not 0."""
    assert bound_loss(1, np.array([[0.3, 0.1, 0.5]]), np.array([0.2]), None) == (0.0, 0.0)
    assert bound_loss(0, np.array([[-0.3, -0.5, -0.1]]), np.array([0.2]), None) == (0.0, 0.0)
    rng = np.random.default_rng(5)
    for _ in range(200):
        values, half = rng.normal(0, 0.2, 3), rng.uniform(0, 0.5, 3)
        intervals = np.stack([values, values - half, values + half], axis=1)
        best, shared = int(rng.integers(0, 4)), rng.uniform(0, 1, 3) if rng.random() < 0.8 else None
        expected, bound = bound_loss(best, intervals, half / rng.uniform(0.5, 3), shared)
        assert 0 <= expected <= bound <= 1


@pytest.mark.parametrize("name", SPECS)
def test_an_answer_has_the_expected_loss_of_each_segment(name: str) -> None:
    learner, state = simulate_trial(name)
    spec, answer = learner.spec, learner.answer(state)
    first = answer.first_of(Losses)
    whole = [
        group
        for group in spec.segment_names
        if all(effect.value is not None for effect in answer.effects if effect.group in (group, None))
    ]
    assert first is not None
    assert len(first.expected_losses) == spec.segment_count, "also those of which nothing is decided"
    estimated = [loss for loss in first.expected_losses if loss.expected is not None]
    assert len(estimated) >= len(whole)
    assert all(0 <= loss.expected <= loss.most for loss in estimated)
    assert all(loss.most == spec.reward.span for loss in first.expected_losses if loss.expected is None)
    assert all(loss.name.split(":")[0] in spec.options for loss in first.expected_losses)
