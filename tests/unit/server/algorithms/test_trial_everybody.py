"""What people tell who are asked about everybody, or for their segment alone, from the exact laws of reports."""

from dataclasses import dataclass, replace
from functools import cache

import msgspec
import numpy as np
import pytest

from privateer_core.algorithms.trial import TrialPolicy, TrialSpec
from privateer_core.answer.facts import Table
from privateer_core.answer.parts import GuardrailEffects, Intervals
from privateer_core.primitives.contributions import CellHits
from privateer_lab.simulation.simulate import Simulation
from privateer_server.algorithms.trial.confidence_sequence import asked_limits
from privateer_server.algorithms.trial.decisions import TrialFindings
from privateer_server.algorithms.trial.evidence.averages import Average
from privateer_server.algorithms.trial.evidence.epochs import stable_weights
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.evidence.weighted_sums import Sums
from privateer_server.algorithms.trial.group_sequential import critical_values
from privateer_server.algorithms.trial.learner import TrialLearner
from privateer_server.algorithms.trial.power.power_tables import power_tables
from privateer_server.algorithms.trial.reasons import ReasonCode
from privateer_server.algorithms.trial.state import epoch_of, everybody_of, excess_of, members_of
from privateer_server.algorithms.trial.treatment_effects import (
    asked_shares,
    combined,
    combined_scores,
    effects,
    weight_of,
)
from tests.support.statistics import centred

PEOPLE, RUNS = 3_000, 150
MEANS = np.array([[1, 9, 1], [3, 3, 3], [9, 1, 9], [4, 4, 8], [2, 6, 2], [5, 5, 5]]) / 10
ARMS = np.array([[4, 12, 4], [8, 6, 6], [14, 3, 3], [4, 4, 12], [4, 12, 4], [6, 8, 6]]) / 20
"""Shares of the arms in six segments, as different as learning makes them."""


@dataclass(frozen=True)
class Case:
    """Segments between cuts of a number that is uniform, and what people in them earn."""

    cuts: tuple[float, ...]
    epsilon: float
    strict: bool = False

    @property
    def spec(self) -> TrialSpec:
        told = TrialSpec.instances()["local-asked"].model_dump(exclude_none=True)
        told["segments"]["cuts"]["x1"] = self.cuts
        told["privacy"]["epsilon"] = self.epsilon
        if self.strict:
            told["algorithm"] |= {"allocation": "fixed", "intervals": "strict"}
        return TrialSpec.model_validate(told)

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
        made = learner.next(replace(learner.start(5), shares=shares), 1, 5).policy
        made.check(self.spec)
        return made

    def release(self, policy: TrialPolicy, rng: np.random.Generator, lost: float = 0.0) -> CellHits:
        """Draw what people send; a share of the last arm's people never reports."""
        contexts, coins = rng.random((PEOPLE, 2)), rng.integers(0, 2**32, PEOPLE, dtype=np.uint32)
        here = (policy.decide(contexts, coins).arms < 2) | (rng.random(PEOPLE) >= lost)
        contexts, coins = contexts[here], coins[here]
        decided = policy.decide(contexts, coins)
        rewards = (rng.random(len(coins)) < self.means[policy.groups(contexts), decided.arms]).astype(float)
        return policy.mechanism.simulate(policy.contribute(contexts, coins, decided, rewards), rng)


CASES = {
    "one bit": Case((0.15, 0.3, 0.5, 0.7, 0.85), 0.8),
    "buckets": Case(tuple((np.arange(1, 12) / 12).tolist()), 1.6),
}


@dataclass(frozen=True)
class Told:
    """Average effects and segments' shares of every run, with the variances that are stated."""

    direct: list[Average]
    both: list[Average]
    shares: np.ndarray
    stated: np.ndarray


def told_by(case: Case, policy: TrialPolicy) -> Told:
    """Releases of one round each."""
    rng, plans, direct, both, shares = np.random.default_rng(3), TrialLearner(case.spec).plans, [], [], []
    assert plans.everybody is not None
    for _ in range(RUNS):
        drawn = case.release(policy, rng)
        epoch = epoch_of(policy, drawn)
        everybody = TrialEvidence.begin(plans.everybody).add(everybody_of(policy, drawn))
        members = Sums.none(plans.segments).add(members_of(policy, drawn), stable_weights(plans.segments, epoch))
        direct.append(everybody.average)
        both.append(combined(TrialEvidence.begin(plans.segments).add(epoch), everybody))
        shares.append(asked_shares(members))
    return Told(direct, both, np.array([one.estimate for one in shares]), np.array([one.variance for one in shares]))


@cache
def told(name: str) -> Told:
    return told_by(CASES[name], CASES[name].policy())


def estimates(averages: list[Average]) -> np.ndarray:
    return np.array([one.estimate for one in averages])


@pytest.mark.parametrize("name", CASES)
def test_the_average_is_unbiased_whatever_the_arms_of_segments_and_varies_as_said(name: str) -> None:
    """False alarms 1e-6; of a ratio of variances of 300 errors four standard errors are .33. Planted: another truth.

    For two buckets, q is .50 and an answer about everybody hits with v = .75: (.2/v) / (.2/v + 2 * .72/12) is .69.
    """
    found, truth = told(name), CASES[name].truth
    for averages in (found.direct, found.both):
        assert centred(estimates(averages), truth)
        assert not centred(estimates(averages), truth + 0.1)
        ratio = np.square(estimates(averages) - truth).mean() / np.mean([one.variance for one in averages])
        assert ratio == pytest.approx(1, abs=0.33)
    narrower = np.mean([one.variance for one in found.both]) / np.mean([one.variance for one in found.direct])
    assert narrower == pytest.approx({"one bit": 0.2 / 0.32, "buckets": 0.69}[name], abs=0.1)


def test_arms_of_a_segments_own_would_bias_it() -> None:
    """Planted: a server that gives arms by segment where it asks about everybody, as devices refuse it."""
    case = CASES["one bit"]
    policy = case.policy()
    edges = policy.choice.thresholds.copy()
    start, end = edges[0, 2], edges[0, 5]
    edges[:6, 3:5] = start + (end - start) * np.cumsum(ARMS, axis=1)[:, :2]
    found = told_by(case, replace(policy, choice=replace(policy.choice, thresholds=edges)))
    assert not centred(estimates(found.direct), case.truth)


def test_late_reports_count_for_the_arm_that_their_coins_chose() -> None:
    """People decided by an earlier policy. Planted: they are counted as if they decided by the round's own."""
    case, rng, late, wrong = CASES["one bit"], np.random.default_rng(8), [], []
    earlier, plan = case.policy(), TrialLearner(case.spec).plans.everybody
    assert plan is not None
    shares = np.concatenate([earlier.arms_asked(0), [[0.7, 0.15, 0.15]]])
    own = replace(earlier, version=2, choice=case.spec.layout(earlier.choice.seed, shares))
    own = replace(own, terms=replace(own.terms, mechanism=msgspec.structs.replace(own.mechanism, layout=own.choice)))
    own.check(case.spec)
    for _ in range(RUNS):
        contexts, coins = rng.random((PEOPLE, 2)), rng.integers(0, 2**32, PEOPLE, dtype=np.uint32)
        decided = earlier.decide(contexts, coins)
        rewards = (rng.random(PEOPLE) < np.array([0.1, 0.9, 0.5])[decided.arms]).astype(float)
        told = own.contribute(contexts, coins, decided, rewards)
        drawn = own.analyzer(earlier).simulate(own.mechanism, told, rng)
        late.append(TrialEvidence.begin(plan).add(everybody_of(own.followed([(earlier, 1.0)]), drawn)).average)
        wrong.append(TrialEvidence.begin(plan).add(everybody_of(own, own.mechanism.simulate(told, rng))).average)
    assert centred(estimates(late), np.array([0.8, 0.4]))
    assert not centred(estimates(wrong), np.array([0.8, 0.4]))


def test_guardrails_are_asked_about_everybody_too() -> None:
    """100,000 people in eight segments; b has .2 more refunds. Eight numbers: a false alarm in 18,000."""
    tables = CASES["one bit"].spec.model_dump(exclude_none=True)
    tables["segments"]["cuts"]["x1"] = [cut / 8 for cut in range(1, 8)]
    tables["experiment"]["horizon"] = 100_000
    tables["algorithm"] |= {"guardrails": ["refund"], "allocation": "fixed"}
    guardrails = {"refund": {"base": 0.3, "effects": {"b": 0.2}}}
    tables["population"] = {"name": "effects", "base": 0.4, "effects": {"c": 0.1}, "guardrails": guardrails}
    spec = TrialSpec.model_validate(tables)
    run = Simulation(spec, 1)
    while run.step.batch:
        run.close_round()
    state = run.step.state
    facts = (state.evidence, *state.guardrails)
    for segments, everybody, truth in zip(facts, state.everybody, ([0.0, 0.1], [0.2, 0.0]), strict=True):
        assert everybody.people[-1] == pytest.approx(10_000, rel=0.05)
        assert segments.people[-1] == pytest.approx(36_000, rel=0.05)
        for one in (everybody.average, combined(segments, everybody)):
            assert np.abs((one.estimate - truth) / np.sqrt(one.variance)).max() < 4.5
    (watched,) = run.schedule.answer(run.step).all_of(GuardrailEffects)
    assert watched.name == "refund"
    b = next(one for one in watched.effects if (one.group, one.option) == (None, "b"))
    both = combined(state.guardrails[0], state.everybody[1])
    assert b.value == pytest.approx(both.estimate[0], abs=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_segments_shares_are_unbiased_and_vary_as_said(name: str) -> None:
    """Planted: shares of equal segments, where they are not. Four standard errors of the ratio are at most .19."""
    found, segments = told(name), CASES[name].segments
    assert centred(found.shares, segments)
    assert not centred(found.shares, np.roll(segments, 1) + 0.05)
    ratio = np.square(found.shares - segments).mean() / found.stated.mean()
    assert ratio == pytest.approx(1, abs=0.19)


def test_the_sample_ratio_counts_people_of_all_questions() -> None:
    """Standard normal if nobody is lost; planted: a quarter of one arm's people never report."""
    case, rng = CASES["one bit"], np.random.default_rng(4)
    policy = case.policy()

    def scores(lost: float) -> np.ndarray:
        found = [excess_of(policy, case.release(policy, rng, lost)) for _ in range(60)]
        return np.array([excess / np.sqrt(variance) for excess, variance in found])

    fair = scores(0.0)
    assert centred(fair, np.zeros(3))
    assert 0.7 < fair.std() < 1.2
    assert scores(0.25)[:, 2].mean() < -2


def learned(case: Case, contexts_up_to: float = 1.0) -> tuple[TrialLearner, object, TrialFindings]:
    """All looks of a trial whose people are in the first part of the number's range."""
    learner, rng = TrialLearner(case.spec), np.random.default_rng(6)
    state, version = learner.start(5), 1
    while batch := (step := learner.next(state, version, 5)).batch:
        contexts, coins = rng.random((batch, 2)) * contexts_up_to, rng.integers(0, 2**32, batch, dtype=np.uint32)
        decided = step.policy.decide(contexts, coins)
        rewards = (rng.random(batch) < case.means[step.policy.groups(contexts), decided.arms]).astype(float)
        drawn = step.policy.mechanism.simulate(step.policy.contribute(contexts, coins, decided, rewards), rng)
        state, version = learner.learn(state, step.policy, drawn), version + 1
    return learner, state, TrialFindings.of(state, case.spec)


def test_a_share_that_is_not_told_from_0_leaves_the_contribution_alone() -> None:
    """Nobody is in the last three segments: their effects are unbounded, and what they add is near 0."""
    learner, state, found = learned(CASES["one bit"], 0.45)
    unknown = found.effects.reason == ReasonCode.SHARE
    assert unknown[3:].all()
    assert not unknown[2].any()
    assert np.isinf(found.effects.low[unknown]).all()
    assert np.isfinite(found.effects.contribution_low[unknown]).all()
    share = np.asarray(state.asked.estimate)[:3]  # type: ignore[attr-defined]
    assert share == pytest.approx(np.full(3, 1 / 3), abs=0.25)
    answer = learner.answer(state)  # type: ignore[arg-type]
    reasons = {one.group: one.reason for one in answer.effects}
    assert "not told from 0" in reasons["x1>=0.85"]
    (asked,), (shares, *_) = answer.all_of(Table), answer.all_of(Intervals)
    assert (asked.title, shares.title, shares.of) == ("what coins ask", "shares of people", "share")
    assert [row[:2] for row in asked.rows] == [
        ("the reward", "a segment"),
        ("the reward", "everybody"),
        ("being in the segment", "a segment"),
    ]
    low, high = np.array([(one.low, one.high) for one in shares.estimates]).T
    truth = np.array([1 / 3, 1 / 3, 1 / 3, 0, 0, 0])
    assert ((low <= truth) & (truth <= high)).all()


def test_scores_add_with_public_weights_and_are_those_of_the_estimate() -> None:
    """One bit, six segments: .2 of the people about everybody, and .72 by segment, which tell an average with .12."""
    _, state, found = learned(CASES["one bit"])
    segments, everybody = state.evidence, state.everybody[0]  # type: ignore[attr-defined]
    weight = weight_of(segments, everybody)
    assert weight == pytest.approx(0.2 / 0.32)
    scores = combined_scores(segments, everybody)
    assert scores.shape == (segments.looks, 2)
    last = combined(segments, everybody)
    assert scores[-1] == pytest.approx(last.estimate / np.sqrt(last.variance))
    assert found.average is not None
    critical = critical_values(tuple(np.minimum(1, segments.people / segments.design.people)), 0.05)[-1]
    # Half-widths are by each arm's own rates, which hardly differ here.
    assert found.average.high - found.average.estimate == pytest.approx(critical * np.sqrt(last.variance), rel=0.005)


def test_everybody_has_arms_as_one_segment_of_their_own() -> None:
    """Where c is far ahead in each segment, matching gives it to everybody, and no arm falls below the floor."""
    case = CASES["one bit"]
    _, state, _ = learned(replace(case, epsilon=1.2))
    shares = state.shares  # type: ignore[attr-defined]
    assert shares.shape == (7, 3)
    assert shares.sum(axis=1) == pytest.approx(np.ones(7))
    assert (shares >= case.spec.floor - 1e-9).all()
    best = state.everybody[0].average.estimate  # type: ignore[attr-defined]
    assert shares[6].argmax() == np.argmax([0, *best])


def test_a_plan_says_what_both_tell_together() -> None:
    """By hand: the average is told by .2 of the people, and with a sixth of their weight by .72 of them."""
    spec = CASES["one bit"].spec
    spec = spec.model_copy(update={"algorithm": spec.algorithm.model_copy(update={"allocation": "fixed"})})
    plans = TrialLearner(spec).plans
    rows = {row[0]: row[2] for row in power_tables(spec, plans)[0].rows}
    segment, everybody = float(rows["x1<0.15"]), float(rows["everybody"])  # type: ignore[arg-type]
    assert everybody / segment == pytest.approx(np.sqrt(0.72 / (0.2 + 0.72 / 6)) / 6, rel=5e-3)


def test_strict_limits_of_asked_shares_are_crossed_no_more_often_than_said() -> None:
    """2,000 shares at 30 looks: at most .05, and the line is known to spend much of it at even odds."""
    rng, people, share, keep = np.random.default_rng(9), 8_000, 0.02, 0.46
    plans = TrialLearner(CASES["one bit"].spec).plans.segments
    design = replace(plans, segments=np.ones(2_000), arms=np.array([0.5, 0.5]))
    sums, missed = Sums.none(design), np.zeros(2_000, bool)
    for _ in range(30):
        yes = rng.binomial(people // 30, 0.5 + keep * share / 2, (2_000, 1)).astype(float)
        sums = replace(
            sums,
            num=sums.num + yes[..., None],
            den=sums.den + people // 30,
            keep=sums.keep + keep * (people // 30),
            people=sums.people + people // 30,
        )
        found = asked_limits(sums, 0.05, people)
        missed |= (found.low > share) | (found.high < share)
    assert 0.005 < missed.mean() <= 0.05
    assert found.estimate.mean() == pytest.approx(share, abs=4 / (keep * np.sqrt(people * 2_000)))


@pytest.mark.parametrize("name", CASES)
def test_strict_contributions_are_those_of_the_evidence_and_strict_limits_are_wider(name: str) -> None:
    """Of several buckets a segment is in one report of so many; twelve or six effects, of which none is missed."""
    case = replace(CASES[name], strict=True)
    _, state, found = learned(case)
    evidence = state.evidence  # type: ignore[attr-defined]
    assert found.effects.contribution == pytest.approx(evidence.average.contributions, abs=0.01)
    sequential = effects(evidence, state.asked)  # type: ignore[attr-defined]
    half = found.effects.contribution_high - found.effects.contribution
    assert (half > sequential.contribution_high - sequential.contribution).all()
    truth = case.means[:, 1:] - case.means[:, :1]
    assert ((found.effects.low <= truth) & (truth <= found.effects.high)).all()
    told = np.isfinite(found.effects.low)
    assert told.any()
    assert (found.effects.high - found.effects.low)[told].min() > 0
