"""Trials whose coins ask about the average effect or the own segment, from the exact laws of reports."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest

from privateer_core.algorithms.trial import TrialPolicy, TrialSpec
from privateer_core.answer.facts import Table
from privateer_core.answer.parts import GuardrailEffects, Intervals
from privateer_core.primitives.contributions import CellHits
from privateer_lab.simulation.simulation import Simulation
from privateer_server.algorithms.trial.decisions import TrialFindings
from privateer_server.algorithms.trial.evidence.epochs import stable_weights
from privateer_server.algorithms.trial.evidence.trial_evidence import Average, TrialEvidence
from privateer_server.algorithms.trial.evidence.weighted_sums import Sums
from privateer_server.algorithms.trial.group_sequential import critical_values
from privateer_server.algorithms.trial.learner import TrialLearner
from privateer_server.algorithms.trial.power.power_tables import build_power_tables
from privateer_server.algorithms.trial.reasons import ReasonCode
from privateer_server.algorithms.trial.state import (
    build_epoch,
    build_everybody_epoch,
    build_own_segment_epoch,
    compute_excess,
)
from privateer_server.algorithms.trial.treatment_effects import (
    combine_averages,
    combine_scores,
    compute_direct_weight,
    estimate_asked_shares,
)
from tests.support.statistics import centred

PEOPLE, RUNS = 3_000, 150
MEANS = np.array([[1, 9, 1], [3, 3, 3], [9, 1, 9], [4, 4, 8], [2, 6, 2], [5, 5, 5]]) / 10
ARMS = np.array([[4, 12, 4], [8, 6, 6], [14, 3, 3], [4, 4, 12], [4, 12, 4], [6, 8, 6]]) / 20
"""Shares of the arms in six segments, as different as learning makes them."""


@dataclass(frozen=True)
class Case:
    """Segments between cuts of a uniform number, and their mean rewards."""

    cuts: tuple[float, ...]
    epsilon: float

    @property
    def spec(self) -> TrialSpec:
        settings = TrialSpec.instances()["local-asked"].model_dump(exclude_none=True)
        settings["segments"]["cuts"]["x1"] = self.cuts
        settings["privacy"]["epsilon"] = self.epsilon
        return TrialSpec.model_validate(settings)

    @property
    def segments(self) -> np.ndarray:
        return np.diff([0, *self.cuts, 1])

    @property
    def means(self) -> np.ndarray:
        return np.resize(MEANS, (len(self.segments), 3))

    @property
    def truth(self) -> np.ndarray:
        """Average effects."""
        return np.asarray(self.segments @ (self.means[:, 1:] - self.means[:, :1]))

    def policy(self) -> TrialPolicy:
        """The policy of a round whose arms differ from segment to segment."""
        learner, shares = TrialLearner(self.spec), np.resize(ARMS, (len(self.segments) + 1, 3))
        shares[-1] = [0.3, 0.4, 0.3]
        policy = learner.open_next_round(replace(learner.start(5), shares=shares), 1, 5).policy
        policy.check(self.spec)
        return policy

    def release(self, policy: TrialPolicy, rng: np.random.Generator, dropout: float = 0.0) -> CellHits:
        """Draw what people send; a share of the last arm's people never reports."""
        contexts, coins = rng.random((PEOPLE, 2)), rng.integers(0, 2**32, PEOPLE, dtype=np.uint32)
        is_present = (policy.decide(contexts, coins).arms < 2) | (rng.random(PEOPLE) >= dropout)
        contexts, coins = contexts[is_present], coins[is_present]
        decided = policy.decide(contexts, coins)
        rewards = (rng.random(len(coins)) < self.means[policy.groups(contexts), decided.arms]).astype(float)
        return policy.mechanism.simulate(policy.contribute(contexts, coins, decided, rewards), rng)


CASES = {
    "one bit": Case((0.15, 0.3, 0.5, 0.7, 0.85), 0.8),
    "buckets": Case(tuple((np.arange(1, 12) / 12).tolist()), 1.6),
}


@dataclass(frozen=True)
class SimulatedAverages:
    """Average effects and segments' shares of every run, with the variances that are stated."""

    direct: list[Average]
    combined: list[Average]
    shares: np.ndarray
    stated: np.ndarray


def simulate_policy(case: Case, policy: TrialPolicy) -> SimulatedAverages:
    """Releases of one round each."""
    rng, plans, direct, combined, shares = np.random.default_rng(3), TrialLearner(case.spec).plans, [], [], []
    assert plans.everybody is not None
    for _ in range(RUNS):
        release = case.release(policy, rng)
        epoch = build_epoch(policy, release)
        everybody = TrialEvidence.begin(plans.everybody).add(build_everybody_epoch(policy, release))
        weights = stable_weights(plans.segments, epoch)
        members = Sums.empty(plans.segments).add(build_own_segment_epoch(policy, release), weights)
        direct.append(everybody.average)
        combined.append(combine_averages(TrialEvidence.begin(plans.segments).add(epoch), everybody))
        shares.append(estimate_asked_shares(members))
    estimates, variances = (np.array([getattr(share, name) for share in shares]) for name in ("estimate", "variance"))
    return SimulatedAverages(direct, combined, estimates, variances)


@cache
def simulate_case(name: str) -> SimulatedAverages:
    return simulate_policy(CASES[name], CASES[name].policy())


def estimates(averages: list[Average]) -> np.ndarray:
    return np.array([average.estimate for average in averages])


@pytest.mark.parametrize("name", CASES)
def test_the_average_effect_is_unbiased_with_the_stated_variance(name: str) -> None:
    """False alarms 1e-6; of a ratio of variances of 300 errors four standard errors are .33. Planted: another truth.

    For two buckets, q is .50 and an answer about everybody hits with v = .75: (.2/v) / (.2/v + 2 * .72/12) is .69.
    """
    runs, truth = simulate_case(name), CASES[name].truth
    for averages in (runs.direct, runs.combined):
        assert centred(estimates(averages), truth)
        assert not centred(estimates(averages), truth + 0.1)
        ratio = np.square(estimates(averages) - truth).mean() / np.mean([average.variance for average in averages])
        assert ratio == pytest.approx(1, abs=0.33)
    combined, direct = ([average.variance for average in averages] for averages in (runs.combined, runs.direct))
    assert np.mean(combined) / np.mean(direct) == pytest.approx({"one bit": 0.2 / 0.32, "buckets": 0.69}[name], abs=0.1)


def test_arms_by_segment_would_bias_the_average_effect() -> None:
    """Planted: a server that gives arms by segment where it asks about everybody, as devices refuse it."""
    case = CASES["one bit"]
    policy = case.policy()
    edges = policy.choice.thresholds.copy()
    start, end = edges[0, 2], edges[0, 5]
    edges[:6, 3:5] = start + (end - start) * np.cumsum(ARMS, axis=1)[:, :2]
    simulation = simulate_policy(case, replace(policy, choice=replace(policy.choice, thresholds=edges)))
    assert not centred(estimates(simulation.direct), case.truth)


def test_late_reports_count_for_the_arm_that_their_coins_chose() -> None:
    """People decided by an earlier policy. Planted: they are counted as if they decided by the round's own."""
    case, rng, late, wrong = CASES["one bit"], np.random.default_rng(8), [], []
    earlier, plan = case.policy(), TrialLearner(case.spec).plans.everybody
    assert plan is not None
    shares = np.concatenate([earlier.asked_arm_shares(0), [[0.7, 0.15, 0.15]]])
    new = replace(earlier, version=2, choice=case.spec.layout(earlier.choice.seed, shares))
    new = replace(new, terms=replace(new.terms, mechanism=msgspec.structs.replace(new.mechanism, layout=new.choice)))
    new.check(case.spec)
    for _ in range(RUNS):
        contexts, coins = rng.random((PEOPLE, 2)), rng.integers(0, 2**32, PEOPLE, dtype=np.uint32)
        decided = earlier.decide(contexts, coins)
        rewards = (rng.random(PEOPLE) < np.array([0.1, 0.9, 0.5])[decided.arms]).astype(float)
        values = new.contribute(contexts, coins, decided, rewards)
        counts = new.make_analyzer(earlier).simulate(new.mechanism, values, rng)
        epoch = build_everybody_epoch(new.with_decision_policies([(earlier, 1.0)]), counts)
        late.append(TrialEvidence.begin(plan).add(epoch).average)
        wrong.append(
            TrialEvidence.begin(plan).add(build_everybody_epoch(new, new.mechanism.simulate(values, rng))).average
        )
    assert centred(estimates(late), np.array([0.8, 0.4]))
    assert not centred(estimates(wrong), np.array([0.8, 0.4]))


def test_guardrails_have_unbiased_average_effects() -> None:
    """100,000 people in eight segments; b has .2 more refunds. Eight numbers: a false alarm in 18,000."""
    tables = CASES["one bit"].spec.model_dump(exclude_none=True)
    tables["segments"]["cuts"]["x1"] = [cut / 8 for cut in range(1, 8)]
    tables["experiment"]["horizon"] = 100_000
    tables["algorithm"] |= {"guardrails": ["refund"], "allocation": "fixed"}
    guardrails = {"refund": {"base": 0.3, "effects": {"b": 0.2}}}
    tables["population"] = {"name": "effects", "base": 0.4, "effects": {"c": 0.1}, "guardrails": guardrails}
    spec = TrialSpec.model_validate(tables)
    run = Simulation(spec, 1)
    while run.step.batch_size:
        run.close_round()
    state = run.step.state
    facts = (state.evidence, *state.guardrails)
    for segments, everybody, truth in zip(facts, state.everybody, ([0.0, 0.1], [0.2, 0.0]), strict=True):
        assert everybody.people[-1] == pytest.approx(10_000, rel=0.05)
        assert segments.people[-1] == pytest.approx(36_000, rel=0.05)
        for effect in (everybody.average, combine_averages(segments, everybody)):
            assert np.abs((effect.estimate - truth) / np.sqrt(effect.variance)).max() < 4.5
    (watched,) = run.schedule.answer(run.step).all_of(GuardrailEffects)
    assert watched.name == "refund"
    b = next(effect for effect in watched.effects if (effect.group, effect.arm) == (None, "b"))
    combined = combine_averages(state.guardrails[0], state.everybody[1])
    assert b.value == pytest.approx(combined.estimate[0], abs=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_segment_shares_are_unbiased_with_the_stated_variance(name: str) -> None:
    """Planted: shares of equal segments, where they are not. Four standard errors of the ratio are at most .19."""
    simulation, segments = simulate_case(name), CASES[name].segments
    assert centred(simulation.shares, segments)
    assert not centred(simulation.shares, np.roll(segments, 1) + 0.05)
    ratio = np.square(simulation.shares - segments).mean() / simulation.stated.mean()
    assert ratio == pytest.approx(1, abs=0.19)


def test_the_sample_ratio_test_counts_all_questions() -> None:
    """Scores are standard normal without dropout; planted: a quarter of one arm's participants never report."""
    case, rng = CASES["one bit"], np.random.default_rng(4)
    policy = case.policy()

    def scores(dropout: float) -> np.ndarray:
        excesses = [compute_excess(policy, case.release(policy, rng, dropout)) for _ in range(60)]
        return np.array([excess / np.sqrt(variance) for excess, variance in excesses])

    fair = scores(0.0)
    assert centred(fair, np.zeros(3))
    assert 0.7 < fair.std() < 1.2
    assert scores(0.25)[:, 2].mean() < -2


def run_trial(case: Case, contexts_up_to: float = 1.0) -> tuple[TrialLearner, object, TrialFindings]:
    """All looks of a trial whose people are in the first part of the number's range."""
    learner, rng = TrialLearner(case.spec), np.random.default_rng(6)
    state, version = learner.start(5), 1
    while batch := (step := learner.open_next_round(state, version, 5)).batch_size:
        contexts, coins = rng.random((batch, 2)) * contexts_up_to, rng.integers(0, 2**32, batch, dtype=np.uint32)
        decided = step.policy.decide(contexts, coins)
        policy: Any = step.policy
        rewards = (rng.random(batch) < case.means[policy.groups(contexts), decided.arms]).astype(float)
        release = policy.mechanism.simulate(policy.contribute(contexts, coins, decided, rewards), rng)
        state, version = learner.learn(state, step.policy, release), version + 1
    return learner, state, TrialFindings.from_state(state, case.spec)


def test_a_segment_share_not_distinct_from_0_removes_the_effect_alone() -> None:
    """The last three segments are empty: their effects are unbounded, and their contributions are near 0."""
    learner, state, findings = run_trial(CASES["one bit"], 0.45)
    unknown = findings.effects.reason == ReasonCode.SHARE
    assert unknown[3:].all()
    assert not unknown[2].any()
    assert np.isinf(findings.effects.low[unknown]).all()
    assert np.isfinite(findings.effects.contribution_low[unknown]).all()
    share = np.asarray(state.asked_shares.estimate)[:3]  # type: ignore[attr-defined]
    assert share == pytest.approx(np.full(3, 1 / 3), abs=0.25)
    answer = learner.answer(state)  # type: ignore[arg-type]
    reasons = {effect.group: effect.reason for effect in answer.effects}
    assert "not told from 0" in reasons["x1>=0.85"]
    (coin_table,), (shares, *_) = answer.all_of(Table), answer.all_of(Intervals)
    assert (coin_table.title, shares.title, shares.of) == ("what coins ask", "shares of people", "share")
    assert [row[:2] for row in coin_table.rows] == [
        ("the reward", "a segment"),
        ("the reward", "everybody"),
        ("being in the segment", "a segment"),
    ]
    low, high = np.array([(effect.low, effect.high) for effect in shares.estimates]).T
    truth = np.array([1 / 3, 1 / 3, 1 / 3, 0, 0, 0])
    assert ((low <= truth) & (truth <= high)).all()


def test_scores_add_up_with_public_weights_to_the_estimate() -> None:
    """One bit, six segments: .2 of the participants about the average, .72 by segment with a sixth of their weight."""
    _, state, findings = run_trial(CASES["one bit"])
    segments, everybody = state.evidence, state.everybody[0]  # type: ignore[attr-defined]
    weight = compute_direct_weight(segments, everybody)
    assert weight == pytest.approx(0.2 / 0.32)
    scores = combine_scores(segments, everybody)
    assert scores.shape == (segments.looks, 2)
    last = combine_averages(segments, everybody)
    assert scores[-1] == pytest.approx(last.estimate / np.sqrt(last.variance))
    critical = critical_values(tuple(np.minimum(1, segments.people / segments.design.people)), 0.05)[-1]
    # Half-widths are by each arm's own rates, which hardly differ here.
    half_width = findings.average.high - findings.average.estimate
    assert half_width == pytest.approx(critical * np.sqrt(last.variance), rel=0.005)


def test_questions_about_the_average_effect_have_their_own_allocation() -> None:
    """Where c is far ahead in each segment, matching gives it to everybody, and no arm falls below the floor."""
    case = CASES["one bit"]
    _, state, _ = run_trial(replace(case, epsilon=1.2))
    shares = state.shares  # type: ignore[attr-defined]
    assert shares.shape == (7, 3)
    assert shares.sum(axis=1) == pytest.approx(np.ones(7))
    assert (shares >= case.spec.min_arm_share - 1e-9).all()
    best = state.everybody[0].average.estimate  # type: ignore[attr-defined]
    assert shares[6].argmax() == np.argmax([0, *best])


def test_a_plan_combines_average_and_segment_questions() -> None:
    """By hand: the average is told by .2 of the people, and with a sixth of their weight by .72 of them."""
    spec = CASES["one bit"].spec
    spec = spec.model_copy(update={"algorithm": spec.algorithm.model_copy(update={"allocation": "fixed"})})
    plans = TrialLearner(spec).plans
    rows = {row[0]: row[2] for row in build_power_tables(spec, plans)[0].rows}
    segment, everybody = float(rows["x1<0.15"]), float(rows["everybody"])  # type: ignore[arg-type]
    assert everybody / segment == pytest.approx(np.sqrt(0.72 / (0.2 + 0.72 / 6)) / 6, rel=5e-3)
