"""Releases of every trust model as evidence: unbiased for the same effects, with the variance that is said."""

from dataclasses import replace

import numpy as np
import pytest

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.contributions import CellHits, KeyedValues
from privateer_server.algorithms.trial.evidence import begin
from privateer_server.algorithms.trial.learner import TrialLearner
from privateer_server.algorithms.trial.release import epoch_of, excess_of
from privateer_server.rounds.loop import Schedule
from tests.support.statistics import centred

SPECS = {name: spec for name, spec in TrialSpec.instances().items() if not spec.published}
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
        rewards = (rng.random(PEOPLE) < MEANS[where, decided.arms]).astype(float)
        fresh = rng.integers(0, 2**32, PEOPLE, dtype=np.uint32) if policy.fresh_coins else coins
        told = policy.contribute(contexts, fresh, decided, rewards)
        here = (decided.arms < 2) | (rng.random(PEOPLE) >= lost)
        some = KeyedValues(told.coins[here], told.keys[here], told.groups[here], told.values[here])
        made.append((policy.mechanism.simulate(some, rng), policy))
    return made


@pytest.mark.parametrize("name", ["none", "central", "shuffle", "shuffle-hidden", "local", "local-one-bit"])
def test_differences_are_unbiased_and_vary_as_said(name: str) -> None:
    """Planted: effects half as large, and variances twice as large. False alarms of each comparison: 1e-6."""
    spec = SPECS[name]
    design, scaled, deviations = TrialLearner(spec).design, [], []
    for release, policy in releases(spec):
        sums = begin(design).add(epoch_of(policy, release)).stable
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
    result = schedule.result(step)
    assert result is not None
    assert (result.recommended, result.stopped) == (None, False)
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
    release = step.policy.mechanism.simulate(step.policy.contribute(contexts, coins, decided, rewards), rng)
    step = schedule.close(step, release, 6)
    result = schedule.result(step)
    assert result is not None
    table = next(table for table in result.tables if table.title.startswith("effects"))
    notes = {(row[0], row[1]): row[-1] for row in table.rows}
    if TrialLearner(spec).design.counted:
        assert all("too" in str(note) for (segment, _), note in notes.items() if segment == "x1>=0.75")
    assert schedule.follow(step.state, 9, 9, asks=False).batch == 0


def test_a_p_value_is_never_0() -> None:
    spec = SPECS["none"]
    schedule, rng = Schedule(spec), np.random.default_rng(5)
    step = schedule.open(5)
    contexts, coins = rng.random((step.batch, 2)), rng.integers(0, 2**32, step.batch, dtype=np.uint32)
    decided = step.policy.decide(contexts, coins)
    rewards = (rng.random(step.batch) < np.where(decided.arms == 1, 0.9, 0.1)).astype(float)
    release = step.policy.mechanism.simulate(step.policy.contribute(contexts, coins, decided, rewards), rng)
    result = schedule.result(schedule.close(step, release, 6))
    assert result is not None
    found = [row[table.columns.index("p")] for table in result.tables if "p" in table.columns for row in table.rows]
    assert min(found) == 1e-6
