"""The loss that a trial's answer expects of its recommendation is the true one's on average, and is seldom exceeded."""

import numpy as np
import pytest

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.answer.parts import Losses
from privateer_server.algorithms.trial import expected_loss
from privateer_server.algorithms.trial.learner import TrialLearner
from tests.unit.server.algorithms.test_trial_answer import trial

RUNS = 800
PEOPLE = 4000
WIDEST = 0.08
"""Effects are uniform up to this, five standard deviations of an estimate, so that the flat prior is right within."""


def spec(model: str, undecided: str) -> TrialSpec:
    experiment = {"name": "test", "arms": ["a", "b"], "horizon": PEOPLE}
    return trial(model, {"stop": ["decided"], "undecided": undecided}, segments={}, experiment=experiment)


def losses(model: str, undecided: str) -> np.ndarray:
    """Return the expected, the largest and the true loss of every run that says one, shape (n, 3)."""
    learner, rng, rows = TrialLearner(spec(model, undecided)), np.random.default_rng(12), []
    for seed in range(RUNS):
        effect, state, version = float(rng.uniform(-WIDEST, WIDEST)), learner.start(seed), 1
        while batch := (step := learner.next(state, version, seed)).batch:
            contexts, coins = rng.random((batch, 2)), rng.integers(0, 2**32, batch, dtype=np.uint32)
            decided = step.policy.decide(contexts, coins)
            rewards = (rng.random(batch) < 0.4 + effect * (decided.arms == 1)).astype(float)
            fresh = rng.integers(0, 2**32, batch, dtype=np.uint32) if step.policy.fresh_coins else coins
            release = step.policy.mechanism.simulate(step.policy.contribute(contexts, fresh, decided, rewards), rng)
            state, version = learner.learn(state, step.policy, release), version + 1
        said = learner.answer(state).first_of(Losses)
        assert said is not None
        (one,) = said.losses
        if one.expected is not None:
            rows.append((one.expected, one.most, max(0.0, effect if one.name == "a" else -effect)))
    return np.array(rows)


@pytest.mark.nightly
@pytest.mark.parametrize(("model", "undecided"), [("none", "leading"), ("central", "leading"), ("none", "control")])
def test_it_is_the_true_loss_on_average(model: str, undecided: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Called wrong once in 10,000 runs of a true one (3.9 standard errors); the seed is fixed.

    The most is exceeded where an interval misses, in 1 of 20 runs at most. Planted: estimates that are taken for the
    truth expect no loss.
    """
    found = losses(model, undecided)
    assert len(found) > 0.9 * RUNS
    expected, most, true = found.T
    error = np.std(expected - true) / len(found) ** 0.5
    assert abs(np.mean(expected - true)) < 3.9 * error
    assert np.mean(true > most) < 0.05 + 3.9 * (0.05 * 0.95 / len(found)) ** 0.5
    if undecided == "control":
        return  # the control is not chosen by its estimate, so that estimates taken for the truth do not flatter it
    kept = expected_loss.loss_of
    monkeypatch.setattr(
        expected_loss, "loss_of", lambda best, ends, deviations, *more: kept(best, ends, 0 * deviations, *more)
    )
    planted = losses(model, undecided)
    assert np.mean(planted[:, 0] - planted[:, 2]) < -3.9 * np.std(planted[:, 0] - planted[:, 2]) / len(planted) ** 0.5
