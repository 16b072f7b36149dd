"""What a policy of an A/B test gives people, what they tell, and what a device refuses to follow."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from privateer_core.algorithms.trial import TrialPolicy, TrialSpec
from privateer_core.errors import InputError, Malformed
from privateer_core.primitives.public_coins import SlotLayout
from privateer_core.spec.adjustment import with_numbers
from privateer_lab.simulation.simulate import Simulation
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.learner import TrialLearner
from privateer_server.algorithms.trial.state import epoch_of
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


def skewed(policy: TrialPolicy, shares: list[list[float]]) -> TrialPolicy:
    edges = np.rint(np.cumsum(shares, axis=1)[:, :-1] * 65536).astype(np.uint32)
    return replace(policy, choice=replace(policy.choice, thresholds=edges))


def arms_of(policy: TrialPolicy, place: float):
    return policy.decide(np.full((len(COINS), 2), place), COINS).arms


def test_arms_are_as_often_as_their_shares(spec, policy) -> None:
    """Planted: a share that is off by .02. False alarms of each comparison: 1e-6."""
    wanted = np.array([0.6, 0.15, 0.25])
    played = np.eye(3)[arms_of(skewed(policy, [wanted.tolist()] * 4), 0.1)]
    assert centred(played, wanted)
    assert not centred(played, wanted + np.array([0.02, -0.02, 0.0]))


def test_one_hash_gives_the_arm_in_all_segments(spec, policy) -> None:
    """Planted: another seed gives other arms."""
    assert (arms_of(policy, 0.1) == arms_of(policy, 0.9)).all()
    other = replace(policy, choice=replace(policy.choice, seed=policy.choice.seed ^ 1))
    assert (arms_of(policy, 0.1) != arms_of(other, 0.1)).mean() > 0.5


def test_coins_that_travel_say_what_was_played_and_others_say_nothing(spec, policy) -> None:
    """Where somebody may see arms, a report's coins are its own and its key is the segment by arm."""
    contexts = np.full((len(COINS), 2), 0.6)
    decided = policy.decide(contexts, COINS)
    rewards = with_numbers(np.ones(len(COINS)), np.full((len(COINS), len(spec.learned)), 0.5))
    made = policy.contribute(contexts, COINS, decided, rewards)
    if policy.fresh_coins:
        assert spec.names_arms
        assert (made.keys == 2 * 3 + decided.arms).all()
    else:
        layout = policy.mechanism.layout
        assert (layout.group(layout.hashes(COINS, made.keys), made.keys) == decided.arms).all()
        assert (made.keys == 2).all()


def spoiled(policy: TrialPolicy) -> dict[str, TrialPolicy]:
    """Policies that no learner makes."""
    factor = policy.segments.factors[0]
    moved = replace(policy.segments, factors=(replace(factor, cuts=factor.cuts + 0.1),))
    return {
        "an arm that singles a segment out": skewed(policy, [[0, 0.5, 0.5], *[[0.4, 0.3, 0.3]] * 3]),
        "other segments": replace(policy, segments=moved),
        "fewer segments": replace(policy, segments=replace(policy.segments, factors=())),
        "coins that mean something else": replace(policy, choice=replace(policy.choice, seed=policy.choice.seed ^ 1)),
        "thresholds that fall": replace(
            policy, choice=SlotLayout(policy.choice.seed, np.array([[40_000, 20_000]] * 4, np.uint32))
        ),
    }


def test_a_policy_that_no_learner_makes_is_refused(spec, policy) -> None:
    policy.check(spec)
    for bad in spoiled(policy).values():
        with pytest.raises(Malformed):
            bad.check(spec)


def test_shares_of_several_policies_are_mixed_by_their_reports(policy) -> None:
    early, late = skewed(policy, [[0.5, 0.25, 0.25]] * 4), skewed(policy, [[0.1, 0.45, 0.45]] * 4)
    late = replace(late, version=2)
    mixed = late.followed([(early, 0.25), (late, 0.75)]).choice.shares
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


def guarded(model: str) -> TrialSpec:
    """Four segments; at epsilon 1.3 they are too many to be named, too, and dealt to buckets."""
    spec = SPECS["none"].model_dump(exclude_none=True)
    spec["privacy"] = {"model": model.split(maxsplit=1)[0], **GUARDED[model]}
    spec["algorithm"] |= {"guardrails": ["refund", "call"], "allocation": "fixed"}
    return TrialSpec.model_validate(spec)


@pytest.mark.parametrize("model", GUARDED)
def test_hits_of_a_guardrail_are_those_of_people_who_said_yes_whatever_their_reward(model: str) -> None:
    spec = guarded(model)
    policy = Schedule(spec).open(5).policy
    policy.check(spec)
    facts = {question.fact for question in policy.questions} - {None}
    assert facts == ({0, 1, 2} if "turns" in model else set())
    contexts = np.full((len(COINS), 2), 0.6)
    decided = policy.decide(contexts, COINS)
    rewards = np.column_stack([np.zeros(len(COINS)), np.ones(len(COINS)), COINS % 2])
    made = policy.contribute(contexts, COINS, decided, rewards)
    release = policy.mechanism.simulate(made, np.random.default_rng(1))
    for fact, (least, most) in enumerate([(0.0, 0.1), (0.9, 1.0), (0.4, 0.6)]):
        sums = TrialEvidence.begin(TrialLearner(spec).design).add(epoch_of(policy, release, fact)).stable
        people, keep = sums.people[2, 0], sums.keep[2, 0] / sums.people[2, 0]
        rate = ((sums.num - sums.den / 2).sum(axis=-1)[2, 0] / (2 * keep * people)) + 0.5
        assert least - 0.05 < rate < most + 0.05, (fact, rate)


def test_what_is_told_beside_the_reward_is_read_or_refused() -> None:
    spec = guarded("none")
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
    """A server that asked one arm, or one segment, about a guardrail alone would learn who has it."""
    spec = guarded("local by turns")
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
def test_reports_have_all_answers_where_that_tells_more(segments: int, epsilon: float, turns: bool) -> None:
    """One guardrail: by turns below an epsilon of 1.34 for one segment, and of about 2 for four."""
    spec = SPECS["none"].model_dump(exclude_none=True)
    spec["privacy"] = {"model": "local", "epsilon": epsilon}
    spec["algorithm"] |= {"guardrails": ["refund"]}
    if segments == 1:
        del spec["segments"]
    assert bool(TrialSpec.model_validate(spec).questions) is turns


def test_questions_by_turns_share_the_people_and_find_their_effects() -> None:
    """100,000 people at epsilon 3, of whom a third are asked about refunds: .2 of them, and .2 more under c."""
    spec = guarded("local by turns")
    people = {"base": 0.4, "effects": {"b": 0.1}, "guardrails": {"refund": {"base": 0.2, "effects": {"c": 0.2}}}}
    people["guardrails"]["call"] = {"base": 0.5}  # type: ignore[index]
    horizon = spec.experiment.model_copy(update={"horizon": 100_000})
    run = Simulation(spec.model_copy(update={"population": {"name": "effects", **people}, "experiment": horizon}), 1)
    while run.step.batch:
        run.close_round()
    state, truth = run.step.state, {None: (0.1, 0.0), 0: (0.0, 0.2), 1: (0.0, 0.0)}
    for evidence, effects in zip((state.evidence, *state.guardrails), truth.values(), strict=True):
        assert evidence.people[-1] == pytest.approx(100_000 / 3, rel=0.02)
        z = (evidence.average.estimate - np.array(effects)) / np.sqrt(evidence.average.variance)
        assert np.abs(z).max() < 4.5  # six numbers: a false alarm in 24,000 runs
    assert sum(state.ratio.people[-1:]) == 100_000
    assert state.guardrails[0].average.scores[1] > 4
