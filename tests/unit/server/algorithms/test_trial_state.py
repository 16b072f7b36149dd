"""Releases of every trust model as evidence: unbiased for the same effects, with the variance that is said."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.answer.estimates import Reason
from privateer_core.primitives.contributions import CellHits, KeyedValues
from privateer_core.spec.reward import append_numbers
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.learner import TrialLearner
from privateer_server.algorithms.trial.state import SampleRatio, build_epoch, compute_excess
from privateer_server.rounds.schedule import Schedule
from tests.support.statistics import centred

SPECS = TrialSpec.instances()
PEOPLE, RUNS = 4000, 150
MEANS = np.array([[0.3, 0.5, 0.2], [0.3, 0.3, 0.3], [0.6, 0.6, 0.9], [0.4, 0.4, 0.4]])


def releases(spec: TrialSpec, dropout: float = 0.0) -> list[tuple[CellHits, object]]:
    """Draw releases of the first round, with unequal shares of arms; a share of the last arm's people never reports."""
    learner, rng = TrialLearner(spec), np.random.default_rng(3)
    state = learner.start(5)
    shares = np.tile([0.5, 0.3, 0.2], (4, 1))
    policy: Any = learner.open_next_round(replace(state, shares=shares), 1, 5).policy
    pairs = []
    for _ in range(RUNS):
        contexts, coins = rng.random((PEOPLE, 2)), rng.integers(0, 2**32, PEOPLE, dtype=np.uint32)
        decided = policy.decide(contexts, coins)
        segments = policy.groups(contexts)
        rewards = draw_rewards(MEANS[segments, decided.arms], rng, spec.is_numeric)
        fresh = rng.integers(0, 2**32, PEOPLE, dtype=np.uint32) if policy.has_fresh_coins else coins
        values = policy.contribute(contexts, fresh, decided, rewards)
        is_present = (decided.arms < 2) | (rng.random(PEOPLE) >= dropout)
        columns = (values.coins, values.keys, values.groups, values.values)
        keyed_values = KeyedValues(*(column[is_present] for column in columns))
        pairs.append((policy.mechanism.simulate(keyed_values, rng), policy))
    return pairs


def draw_rewards(means: np.ndarray, rng: np.random.Generator, numeric: bool) -> np.ndarray:
    """Rewards of no or yes; or numbers on either side of the mean, which vary far less."""
    if not numeric:
        return np.asarray(rng.random(len(means)) < means, float)
    aside = np.minimum(0.2, np.minimum(means, 1 - means))
    return np.asarray(means + aside * rng.choice([-1.0, 1.0], len(means)))


NUMERIC = ["none-numeric", "central-numeric", "shuffle-numeric", "local-numeric"]


@pytest.mark.parametrize("name", ["none", "central", "shuffle", "shuffle-hidden", "local", "local-one-bit", *NUMERIC])
def test_effects_are_unbiased_with_the_stated_variance(name: str) -> None:
    """Planted: effects half as large, and variances twice as large. False alarms of each comparison: 1e-6."""
    spec = SPECS[name]
    design, scaled, deviations = TrialLearner(spec).design, [], []
    for release, policy in releases(spec):
        sums = TrialEvidence.begin(design).add(build_epoch(policy, release)).stable
        rate = sums.hits / sums.people
        scaled.append((rate / (sums.keep / sums.people) * sums.difference).ravel())
        deviations.append((np.square(rate / (sums.keep / sums.people)) * sums.variance).ravel())
    sample, stated = np.array(scaled), np.array(deviations)
    truth = ((MEANS[:, 1:] - MEANS[:, :1]) / 4).ravel()
    assert centred(sample, truth)
    assert not centred(sample, truth / 2 + 0.02)
    quiet = truth == 0
    squares = np.square(sample - truth)[:, quiet]
    ratio = squares.mean() / stated[:, quiet].mean()
    assert 0.8 < ratio < 1.2, ratio


@pytest.mark.parametrize("name", ["none", "central", "shuffle", "shuffle-hidden", "local"])
def test_dropout_of_one_arm_shows_in_the_sample_ratio(name: str) -> None:
    """Scores are standard normal without dropout; planted: a quarter of one arm's participants never report."""
    spec = SPECS[name]

    def scores(dropout: float) -> np.ndarray:
        excesses = [compute_excess(policy, release) for release, policy in releases(spec, dropout)]
        return np.array([excess / np.sqrt(variance) for excess, variance in excesses])

    fair, short = scores(0.0), scores(0.25)
    assert centred(fair, np.zeros(3))
    assert 0.8 < fair.std() < 1.2
    assert short[:, 2].mean() < -2


def test_the_sample_ratio_test_detects_dropout_with_few_false_alarms() -> None:
    """800 sound trials: more than 4 alerts come once in 500. Of trials that lose 5 % of an arm all are found."""
    rng, shares = np.random.default_rng(4), np.array([0.5, 0.5])

    def alerts(response_rate: float, trials: int) -> float:
        n_alerts = 0
        for _ in range(trials):
            check = SampleRatio.begin(1e5, 2)
            for _ in range(5):
                slots = rng.binomial(20_000, 0.5)
                counts = np.array([rng.binomial(slots, response_rate), 20_000 - slots])
                people = counts.sum()
                check = check.add(people, counts - people * shares, people * shares * (1 - shares))
            n_alerts += check.has_alert
        return n_alerts / trials

    assert alerts(1.0, 800) <= 0.005
    assert alerts(0.95, 50) == 1.0


def test_the_answer_after_one_round_has_effects_without_a_recommendation() -> None:
    """After one round there are ten effects with intervals and adapted shares, and no recommendation."""
    spec = SPECS["none"]
    schedule, rng = Schedule(spec), np.random.default_rng(5)
    step: Any = schedule.open(5)
    contexts, coins = rng.random((step.batch_size, 2)), rng.integers(0, 2**32, step.batch_size, dtype=np.uint32)
    decided = step.policy.decide(contexts, coins)
    rewards = (rng.random(step.batch_size) < MEANS[step.policy.groups(contexts), decided.arms]).astype(float)
    release = step.policy.mechanism.simulate(step.policy.contribute(contexts, coins, decided, rewards), rng)
    step = schedule.advance(step, release, 6)
    result = schedule.answer(step)
    assert (result.recommended, result.stage) == (None, "learning")
    truth = {name: MEANS[k, a] - MEANS[k, 0] for k, a, name in spec.effects()}
    truth |= {name: (MEANS[:, a] - MEANS[:, 0]).mean() for a, name in spec.average_effects()}
    assert len(result.estimates) == len(truth) == 10
    assert sum(estimate.low <= truth[estimate.name] <= estimate.high for estimate in result.estimates) >= 9
    shares = step.policy.choice.shares
    assert shares[0, 1] > shares[0, 0]
    assert (shares >= spec.min_arm_share - 1e-3).all()


@pytest.mark.parametrize("name", [name for name, spec in SPECS.items() if spec.segments.features])
def test_an_empty_segment_is_too_small(name: str) -> None:
    spec = SPECS[name]
    schedule, rng = Schedule(spec), np.random.default_rng(5)
    step: Any = schedule.open(5)
    contexts, coins = np.full((step.batch_size, 2), 0.1), rng.integers(0, 2**32, step.batch_size, dtype=np.uint32)
    decided = step.policy.decide(contexts, coins)
    rewards = (rng.random(step.batch_size) < MEANS[0, decided.arms]).astype(float)
    rewards = append_numbers(rewards, np.full((step.batch_size, len(spec.learned_adjustments)), 0.5))
    release = step.policy.mechanism.simulate(step.policy.contribute(contexts, coins, decided, rewards), rng)
    step = schedule.advance(step, release, 6)
    effects = schedule.answer(step).effects
    if TrialLearner(spec).design.counted:
        causes = {effect.reason for effect in effects if effect.group == "x1>=0.75"}
        assert causes <= {Reason.NOBODY, Reason.FEW_PEOPLE, Reason.NOISE, Reason.SHARE}
        assert bool(causes) == spec.privacy.trust.promises  # without noise nobody is known to be there
    assert schedule.open_next_step(step.state, 9, 9, is_inviting=False).batch_size == 0


def test_a_p_value_is_never_0() -> None:
    spec = SPECS["none"]
    schedule, rng = Schedule(spec), np.random.default_rng(5)
    step: Any = schedule.open(5)
    contexts, coins = rng.random((step.batch_size, 2)), rng.integers(0, 2**32, step.batch_size, dtype=np.uint32)
    decided = step.policy.decide(contexts, coins)
    rewards = (rng.random(step.batch_size) < np.where(decided.arms == 1, 0.9, 0.1)).astype(float)
    release = step.policy.mechanism.simulate(step.policy.contribute(contexts, coins, decided, rewards), rng)
    answer = schedule.answer(schedule.advance(step, release, 6))
    assert min(effect.p_value for effect in answer.effects if effect.p_value is not None) == 1e-6
