"""The policy of an A/B test: allocation, contributions, and policies that a device refuses."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from privateer_core.algorithms.trial import TrialPolicy, TrialSpec
from privateer_core.errors import InputError, Malformed
from privateer_core.primitives.public_coins import SlotLayout
from privateer_core.spec.reward import append_numbers
from privateer_lab.simulation.simulation import Simulation
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.learner import TrialLearner
from privateer_server.algorithms.trial.state import build_epoch
from privateer_server.rounds.loop import Schedule
from tests.support.statistics import centred

SPECS = {name: spec for name, spec in TrialSpec.instances().items() if not spec.questions}
COINS = np.random.default_rng(4).integers(0, 2**32, 40_000, dtype=np.uint32)


@pytest.fixture(params=SPECS)
def spec(request) -> TrialSpec:
    return SPECS[request.param]


@pytest.fixture
def policy(spec) -> TrialPolicy:
    return Schedule(spec).open(5).policy


def with_allocation(policy: TrialPolicy, shares: list[list[float]]) -> TrialPolicy:
    edges = np.rint(np.cumsum(shares, axis=1)[:, :-1] * 65536).astype(np.uint32)
    return replace(policy, choice=replace(policy.choice, thresholds=edges))


def arms_of(policy: TrialPolicy, place: float):
    return policy.decide(np.full((len(COINS), 2), place), COINS).arms


def test_arms_are_as_often_as_their_shares(spec, policy) -> None:
    """Planted: a share that is off by .02. False alarms of each comparison: 1e-6."""
    shares = np.array([0.6, 0.15, 0.25])
    played = np.eye(3)[arms_of(with_allocation(policy, [shares.tolist()] * 4), 0.1)]
    assert centred(played, shares)
    assert not centred(played, shares + np.array([0.02, -0.02, 0.0]))


def test_one_hash_gives_the_arm_in_all_segments(spec, policy) -> None:
    """Planted: another seed gives other arms."""
    assert (arms_of(policy, 0.1) == arms_of(policy, 0.9)).all()
    other = replace(policy, choice=replace(policy.choice, seed=policy.choice.seed ^ 1))
    assert (arms_of(policy, 0.1) != arms_of(other, 0.1)).mean() > 0.5


def test_coins_in_a_report_reveal_the_arm_and_other_coins_reveal_nothing(spec, policy) -> None:
    """Where somebody may see arms, a report's coins are its own and its key is the segment by arm."""
    contexts = np.full((len(COINS), 2), 0.6)
    decided = policy.decide(contexts, COINS)
    rewards = append_numbers(np.ones(len(COINS)), np.full((len(COINS), len(spec.learned_adjustments)), 0.5))
    reports = policy.contribute(contexts, COINS, decided, rewards)
    if policy.fresh_coins:
        assert spec.has_arm_in_report
        assert (reports.keys == 2 * 3 + decided.arms).all()
    else:
        layout = policy.mechanism.layout
        assert (layout.group(layout.hashes(COINS, reports.keys), reports.keys) == decided.arms).all()
        assert (reports.keys == 2).all()


def malformed_policies(policy: TrialPolicy) -> dict[str, TrialPolicy]:
    """Policies that no learner makes."""
    factor = policy.segments.factors[0]
    moved = replace(policy.segments, factors=(replace(factor, cuts=factor.cuts + 0.1),))
    return {
        "an arm that singles a segment out": with_allocation(policy, [[0, 0.5, 0.5], *[[0.4, 0.3, 0.3]] * 3]),
        "other segments": replace(policy, segments=moved),
        "fewer segments": replace(policy, segments=replace(policy.segments, factors=())),
        "coins that mean something else": replace(policy, choice=replace(policy.choice, seed=policy.choice.seed ^ 1)),
        "thresholds that fall": replace(
            policy, choice=SlotLayout(policy.choice.seed, np.array([[40_000, 20_000]] * 4, np.uint32))
        ),
    }


def test_a_policy_that_no_learner_makes_is_refused(spec, policy) -> None:
    policy.check(spec)
    for bad in malformed_policies(policy).values():
        with pytest.raises(Malformed):
            bad.check(spec)


def test_shares_of_several_policies_are_mixed_by_their_reports(policy) -> None:
    early, late = with_allocation(policy, [[0.5, 0.25, 0.25]] * 4), with_allocation(policy, [[0.1, 0.45, 0.45]] * 4)
    late = replace(late, version=2)
    mixed = late.with_deciders([(early, 0.25), (late, 0.75)]).choice.shares
    assert mixed[0] == pytest.approx([0.2, 0.4, 0.4], abs=1e-4)


GUARDED = {
    "none": {},
    "central": {"epsilon": 1.0},
    "shuffle": {"epsilon": 1.0, "delta": 1e-6},
    "local": {"epsilon": 5.0},
    "local by turns": {"epsilon": 3.0},
    "local by turns, one bit": {"epsilon": 1.0},
    "local by turns, buckets": {"epsilon": 1.3},
}


def make_guardrail_spec(model: str) -> TrialSpec:
    """Four segments; at epsilon 1.3 they are too many to be named, too, and dealt to buckets."""
    spec = SPECS["none"].model_dump(exclude_none=True)
    spec["privacy"] = {"model": model.split(maxsplit=1)[0], **GUARDED[model]}
    spec["algorithm"] |= {"guardrails": ["refund", "call"], "allocation": "fixed"}
    return TrialSpec.model_validate(spec)


@pytest.mark.parametrize("model", GUARDED)
def test_hits_of_a_guardrail_do_not_depend_on_the_reward(model: str) -> None:
    spec = make_guardrail_spec(model)
    policy: Any = Schedule(spec).open(5).policy
    policy.check(spec)
    facts = {question.fact for question in policy.questions} - {None}
    assert facts == ({0, 1, 2} if "turns" in model else set())
    contexts = np.full((len(COINS), 2), 0.6)
    decided = policy.decide(contexts, COINS)
    rewards = np.column_stack([np.zeros(len(COINS)), np.ones(len(COINS)), COINS % 2])
    reports = policy.contribute(contexts, COINS, decided, rewards)
    release = policy.mechanism.simulate(reports, np.random.default_rng(1))
    for fact, (least, most) in enumerate([(0.0, 0.1), (0.9, 1.0), (0.4, 0.6)]):
        sums = TrialEvidence.begin(TrialLearner(spec).design).add(build_epoch(policy, release, fact)).stable
        people, keep = sums.people[2, 0], sums.keep[2, 0] / sums.people[2, 0]
        rate = ((sums.num - sums.den / 2).sum(axis=-1)[2, 0] / (2 * keep * people)) + 0.5
        assert least - 0.05 < rate < most + 0.05, (fact, rate)


def test_guardrail_values_beside_the_reward_are_read_or_refused() -> None:
    spec = make_guardrail_spec("none")
    policy = Schedule(spec).open(5).policy
    assert policy.read(spec, {"reward": 0.25, "refund": True, "call": 0})[0].tolist() == [[0.25, 1.0, 0.0]]
    assert policy.read(spec, 0.25)[0].tolist() == [[0.25, 0.0, 0.0]]
    for bad in (
        {"reward": 1.0},
        {"reward": 1.0, "refund": "0.123", "call": False},
        {"reward": None, "refund": 1, "call": 1},
    ):
        with pytest.raises(InputError) as refused:
            policy.read(spec, bad)
        assert "0.123" not in str(refused.value)


def test_coins_ask_every_arm_and_segment_as_often(policy: TrialPolicy) -> None:
    """A guardrail question for one arm or segment alone would reveal who has it."""
    spec = make_guardrail_spec("local by turns")
    policy = Schedule(spec).open(5).policy
    policy.check(spec)
    for at in (0, 3):
        edges = policy.choice.thresholds.copy()
        edges[1, at] += 300
        choice = replace(policy.choice, thresholds=edges)
        mechanism = msgspec.structs.replace(policy.mechanism, layout=choice)
        bad = replace(policy, choice=choice, terms=replace(policy.terms, mechanism=mechanism))
        with pytest.raises(Malformed):
            bad.check(spec)
    with pytest.raises(Malformed):
        replace(policy, questions=()).check(spec)


@pytest.mark.parametrize(
    ("segments", "epsilon", "turns"),
    [
        (1, 1.0, True),
        (1, 1.25, True),
        (1, 1.45, False),
        (1, 4.0, False),
        (4, 1.0, True),
        (4, 1.6, True),
        (4, 4.0, False),
    ],
)
def test_reports_answer_all_questions_where_that_has_less_variance(segments: int, epsilon: float, turns: bool) -> None:
    """With one guardrail, turns are better below an epsilon of 1.34 for one segment, and of about 2 for four."""
    spec = SPECS["none"].model_dump(exclude_none=True)
    spec["privacy"] = {"model": "local", "epsilon": epsilon}
    spec["algorithm"] |= {"guardrails": ["refund"]}
    if segments == 1:
        del spec["segments"]
    assert bool(TrialSpec.model_validate(spec).questions) is turns


def test_guardrail_questions_by_turns_have_unbiased_effects() -> None:
    """Ask a third of 100,000 participants at epsilon 3 about refunds: .2 of them, and .2 more under c."""
    spec = make_guardrail_spec("local by turns")
    people = {"base": 0.4, "effects": {"b": 0.1}, "guardrails": {"refund": {"base": 0.2, "effects": {"c": 0.2}}}}
    people["guardrails"]["call"] = {"base": 0.5}  # type: ignore[index]
    horizon = spec.experiment.model_copy(update={"horizon": 100_000})
    run = Simulation(spec.model_copy(update={"population": {"name": "effects", **people}, "experiment": horizon}), 1)
    while run.step.batch_size:
        run.close_round()
    state, truth = run.step.state, {None: (0.1, 0.0), 0: (0.0, 0.2), 1: (0.0, 0.0)}
    for evidence, effects in zip((state.evidence, *state.guardrails), truth.values(), strict=True):
        assert evidence.people[-1] == pytest.approx(100_000 / 3, rel=0.02)
        z = (evidence.average.estimate - np.array(effects)) / np.sqrt(evidence.average.variance)
        assert np.abs(z).max() < 4.5  # six numbers: a false alarm in 24,000 runs
    assert sum(state.ratio.people[-1:]) == 100_000
    assert state.guardrails[0].average.scores[1] > 4
