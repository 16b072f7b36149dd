"""What following a trial's recommendation loses: expected by the normal law, at most by the intervals."""

import numpy as np
import pytest

from privateer_core.answer.parts import Losses
from privateer_server.algorithms.trial.expected_loss import loss_of
from tests.unit.server.algorithms.test_trial_answer import SPECS, learned


def test_of_one_treatment_it_is_the_normal_loss() -> None:
    """Ahead by one deviation the other is better by .0833 deviations on average; at most what the interval leaves."""
    interval = np.array([[0.1, -0.1, 0.3]])
    assert loss_of(1, interval, np.array([0.1]), np.array([0.5])) == pytest.approx((0.00833, 0.1), abs=1e-5)
    assert loss_of(0, interval, np.array([0.1]), np.array([0.5])) == pytest.approx((0.10833, 0.3), abs=1e-5)
    assert loss_of(1, np.array([[0.3, 0.1, 0.5]]), np.array([0.1]), None)[1] == 0


def test_of_several_arms_it_is_no_less_than_the_best_of_them_is_ahead() -> None:
    """Against a million draws with a common control, which make effects correlate."""
    rng, deviation = np.random.default_rng(3), 0.1
    estimates = np.array([0.05, 0.12, 0.1])
    intervals = np.stack([estimates, estimates - 0.3, estimates + 0.3], axis=1)
    control, own = rng.normal(0, deviation / 2**0.5, (1_000_000, 1)), rng.normal(0, deviation / 2**0.5, (1_000_000, 3))
    effects = np.concatenate([np.zeros((1_000_000, 1)), estimates + own - control], axis=1)
    drawn = float((effects.max(axis=1) - effects[:, 2]).mean())
    expected, most = loss_of(2, intervals, np.full(3, deviation), np.full(3, 0.5))
    # Sums over arms bound the best of them; the control is one of three others here.
    assert drawn < expected < 1.7 * drawn
    directly = np.quantile(effects[:, 3] - effects[:, 2], 0.9987)
    assert most == pytest.approx(max(0.3 - 0.12, directly), abs=0.003)
    few = loss_of(2, intervals, np.full(3, deviation), np.full(3, 0.5), np.full(3, 1.1))[1]
    assert few == pytest.approx(max(0.3 - 0.12, 0.02 + 1.1 * (directly - 0.02)), abs=0.003)
    assert loss_of(2, intervals, np.full(3, deviation), None)[1] == pytest.approx(0.1 + 0.3 - (0.12 - 0.3))


def test_without_noise_it_is_what_was_seen() -> None:
    assert loss_of(1, np.array([[0.1, 0.1, 0.1], [0.3, 0.3, 0.3]]), np.zeros(2), np.zeros(2)) == pytest.approx(
        (0.2, 0.2)
    )


def test_what_intervals_leave_out_is_no_loss() -> None:
    """Planted: of +.3 (+.1 to +.5) .004 were expected, so that "at most" was .004 and not 0."""
    assert loss_of(1, np.array([[0.3, 0.1, 0.5]]), np.array([0.2]), None) == (0.0, 0.0)
    assert loss_of(0, np.array([[-0.3, -0.5, -0.1]]), np.array([0.2]), None) == (0.0, 0.0)
    rng = np.random.default_rng(5)
    for _ in range(200):
        values, half = rng.normal(0, 0.2, 3), rng.uniform(0, 0.5, 3)
        intervals = np.stack([values, values - half, values + half], axis=1)
        best, shared = int(rng.integers(0, 4)), rng.uniform(0, 1, 3) if rng.random() < 0.8 else None
        expected, most = loss_of(best, intervals, half / rng.uniform(0.5, 3), shared)
        assert 0 <= expected <= most <= 1


@pytest.mark.parametrize("name", SPECS)
def test_an_answer_has_it_for_each_segment(name: str) -> None:
    learner, state = learned(name)
    spec, found = learner.spec, learner.answer(state)
    said = found.first_of(Losses)
    whole = [
        group
        for group in spec.segment_names
        if all(one.value is not None for one in found.effects if one.group in (group, None))
    ]
    assert said is not None
    assert len(said.losses) == spec.segment_count, "also those of which nothing is decided"
    known = [one for one in said.losses if one.expected is not None]
    assert len(known) >= len(whole)
    assert all(0 <= one.expected <= one.most for one in known)
    assert all(one.most == spec.reward.span for one in said.losses if one.expected is None)
    assert all(one.name.split(":")[0] in spec.options for one in said.losses)
