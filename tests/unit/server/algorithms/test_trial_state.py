"""Releases of every trust model as evidence: unbiased for the same effects, with the variance that is said."""

from dataclasses import replace

import numpy as np
import pytest

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.answer.estimates import Reason
from privateer_core.primitives.contributions import CellHits, KeyedValues
from privateer_core.spec.adjustment import with_numbers
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.learner import TrialLearner
from privateer_server.algorithms.trial.state import SampleRatio, epoch_of, excess_of
from privateer_server.rounds.loop import Schedule
from tests.support.statistics import centred

SPECS = TrialSpec.instances()
PEOPLE, RUNS = 4000, 150
MEANS = np.array([[0.3, 0.5, 0.2], [0.3, 0.3, 0.3], [0.6, 0.6, 0.9], [0.4, 0.4, 0.4]])


def releases(spec: TrialSpec, lost: float = 0.0) -> list[tuple[CellHits, object]]:
    """Draw releases of the first round, with unequal shares of arms; a share of the last arm's people never reports."""
    learner, rng = TrialLearner(spec), np.random.default_rng(3)
    state = learner.start(5)
    shares = np.tile([0.5, 0.3, 0.2], (4, 1))
    policy = learner.next(replace(state, shares=shares), 1, 5).policy
    made = []
    for _ in range(RUNS):
        contexts, coins = rng.random((PEOPLE, 2)), rng.integers(0, 2**32, PEOPLE, dtype=np.uint32)
        decided = policy.decide(contexts, coins)
        where = policy.groups(contexts)
        rewards = drawn(MEANS[where, decided.arms], rng, spec.numeric)
        fresh = rng.integers(0, 2**32, PEOPLE, dtype=np.uint32) if policy.fresh_coins else coins
        told = policy.contribute(contexts, fresh, decided, rewards)
        here = (decided.arms < 2) | (rng.random(PEOPLE) >= lost)
        some = KeyedValues(told.coins[here], told.keys[here], told.groups[here], told.values[here])
        made.append((policy.mechanism.simulate(some, rng), policy))
    return made


def drawn(means: np.ndarray, rng: np.random.Generator, numeric: bool) -> np.ndarray:
    """Rewards of no or yes; or numbers on either side of the mean, which vary far less."""
    if not numeric:
        return np.asarray(rng.random(len(means)) < means, float)
    aside = np.minimum(0.2, np.minimum(means, 1 - means))
    return np.asarray(means + aside * rng.choice([-1.0, 1.0], len(means)))


NUMERIC = ["none-numeric", "central-numeric", "shuffle-numeric", "local-numeric"]


@pytest.mark.parametrize("name", ["none", "central", "shuffle", "shuffle-hidden", "local", "local-one-bit", *NUMERIC])
def test_differences_are_unbiased_and_vary_as_said(name: str) -> None:
    """Planted: effects half as large, and variances twice as large. False alarms of each comparison: 1e-6."""
    spec = SPECS[name]
    design, scaled, deviations = TrialLearner(spec).design, [], []
    for release, policy in releases(spec):
        sums = TrialEvidence.begin(design).add(epoch_of(policy, release)).stable
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
def test_people_who_are_lost_show_in_the_sample_ratio(name: str) -> None:
    """Scores are standard normal if nobody is lost; planted: a quarter of one arm's people never report."""
    spec = SPECS[name]

    def scores(lost: float) -> np.ndarray:
        found = [excess_of(policy, release) for release, policy in releases(spec, lost)]
        return np.array([excess / np.sqrt(variance) for excess, variance in found])

    fair, short = scores(0.0), scores(0.25)
    assert centred(fair, np.zeros(3))
    assert 0.8 < fair.std() < 1.2
    assert short[:, 2].mean() < -2


def test_lost_reports_of_an_arm_are_found_and_none_are_not() -> None:
    """800 sound trials: more than 4 alerts come once in 500. Of trials that lose 5 % of an arm all are found."""
    rng, shares = np.random.default_rng(4), np.array([0.5, 0.5])

    def alerts(kept: float, trials: int) -> float:
        found = 0
        for _ in range(trials):
            check = SampleRatio.begin(1e5, 2)
            for _ in range(5):
                slots = rng.binomial(20_000, 0.5)
                counts = np.array([rng.binomial(slots, kept), 20_000 - slots])
                people = counts.sum()
                check = check.add(people, counts - people * shares, people * shares * (1 - shares))
            found += check.alert
        return found / trials

    assert alerts(1.0, 800) <= 0.005
    assert alerts(0.95, 50) == 1.0


def test_evidence_of_a_round_stands_in_the_result() -> None:
    """After one round there are ten effects with intervals, shares of arms follow them, and nothing is recommended."""
    spec = SPECS["none"]
    schedule, rng = Schedule(spec), np.random.default_rng(5)
    step = schedule.open(5)
    contexts, coins = rng.random((step.batch, 2)), rng.integers(0, 2**32, step.batch, dtype=np.uint32)
    decided = step.policy.decide(contexts, coins)
    rewards = (rng.random(step.batch) < MEANS[step.policy.groups(contexts), decided.arms]).astype(float)
    release = step.policy.mechanism.simulate(step.policy.contribute(contexts, coins, decided, rewards), rng)
    step = schedule.close(step, release, 6)
    result = schedule.answer(step)
    assert (result.recommended, result.status) == (None, "learning")
    truth = {name: MEANS[k, a] - MEANS[k, 0] for k, a, name in spec.effects()}
    truth |= {name: (MEANS[:, a] - MEANS[:, 0]).mean() for a, name in spec.average_effects()}
    assert len(result.estimates) == len(truth) == 10
    assert sum(one.low <= truth[one.name] <= one.high for one in result.estimates) >= 9
    shares = step.policy.choice.shares
    assert shares[0, 1] > shares[0, 0]
    assert (shares >= spec.floor - 1e-3).all()


@pytest.mark.parametrize("name", SPECS)
def test_a_segment_that_nobody_has_is_said_to_be_too_small(name: str) -> None:
    spec = SPECS[name]
    schedule, rng = Schedule(spec), np.random.default_rng(5)
    step = schedule.open(5)
    contexts, coins = np.full((step.batch, 2), 0.1), rng.integers(0, 2**32, step.batch, dtype=np.uint32)
    decided = step.policy.decide(contexts, coins)
    rewards = (rng.random(step.batch) < MEANS[0, decided.arms]).astype(float)
    rewards = with_numbers(rewards, np.full((step.batch, len(spec.learned)), 0.5))
    release = step.policy.mechanism.simulate(step.policy.contribute(contexts, coins, decided, rewards), rng)
    step = schedule.close(step, release, 6)
    effects = schedule.answer(step).effects
    if TrialLearner(spec).design.counted:
        causes = {one.reason for one in effects if one.group == "x1>=0.75"}
        assert causes <= {Reason.NOBODY, Reason.FEW_PEOPLE, Reason.NOISE, Reason.SHARE}
        assert bool(causes) == spec.privacy.trust.promises  # without noise nobody is known to be there
    assert schedule.follow(step.state, 9, 9, asks=False).batch == 0


def test_a_p_value_is_never_0() -> None:
    spec = SPECS["none"]
    schedule, rng = Schedule(spec), np.random.default_rng(5)
    step = schedule.open(5)
    contexts, coins = rng.random((step.batch, 2)), rng.integers(0, 2**32, step.batch, dtype=np.uint32)
    decided = step.policy.decide(contexts, coins)
    rewards = (rng.random(step.batch) < np.where(decided.arms == 1, 0.9, 0.1)).astype(float)
    release = step.policy.mechanism.simulate(step.policy.contribute(contexts, coins, decided, rewards), rng)
    answer = schedule.answer(schedule.close(step, release, 6))
    assert min(one.p_value for one in answer.effects if one.p_value is not None) == 1e-6
