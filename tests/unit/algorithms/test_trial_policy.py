"""The policy of an A/B test: allocation, questions that coins choose, contributions, and refused policies."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from privateer_core.algorithms.trial import TrialPolicy, TrialSpec
from privateer_core.algorithms.trial.coin_questions import information_ratio, make_coin_layout, make_coin_questions
from privateer_core.errors import InputError, Malformed
from privateer_core.primitives.public_coins import SlotLayout
from privateer_core.spec.reward import append_numbers
from privateer_lab.simulation.simulation import Simulation
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.learner import TrialLearner
from privateer_server.algorithms.trial.state import build_epoch
from privateer_server.rounds.schedule import Schedule
from tests.support.statistics import centred, is_compatible

SPECS = {name: spec for name, spec in TrialSpec.instances().items() if spec.features and not spec.questions}
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
    if policy.has_fresh_coins:
        assert spec.has_arm_in_report
        assert (reports.keys == 2 * 3 + decided.arms).all()
    else:
        layout = policy.mechanism.layout
        assert (layout.find_groups(layout.hashes(COINS, reports.keys), reports.keys) == decided.arms).all()
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
    mixed = late.with_decision_policies([(early, 0.25), (late, 0.75)]).choice.shares
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
    """Turns are better with one guardrail below epsilon 1.34 for one segment, and below about 2 for four."""
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


def question_shares(
    segments: int, epsilon: float, declared: bool = False, facts: int = 1, explored: float = 1.0
) -> dict[str, float]:
    """Return the shares of participants by kind of question: on a segment's arms, on everybody's, or on membership."""
    shares = {"segment": 0.0, "everybody": 0.0, "member": 0.0}
    for question in make_coin_questions(segments, facts, epsilon, declared, explored):
        kind = "member" if question.fact is None else "everybody" if question.everybody else "segment"
        shares[kind] += question.share
    return {name: round(share, 6) for name, share in shares.items()}


ALONE, SHARES = {"segment": 0.0, "everybody": 0.0, "member": 0.0}, {"segment": 0.92, "everybody": 0.0, "member": 0.08}
ALL, DECLARED = {"segment": 0.72, "everybody": 0.2, "member": 0.08}, {"segment": 0.8, "everybody": 0.2, "member": 0.0}


@pytest.mark.parametrize(
    ("segments", "epsilon", "declared", "expected"),
    [
        (1, 1.0, False, ALONE),
        (3, 1.0, False, ALONE),
        (4, 1.0, True, ALONE),
        (4, 1.0, False, SHARES),
        (5, 1.0, False, SHARES),
        (6, 1.0, False, ALL),
        (6, 1.0, True, DECLARED),
        (8, 0.3, True, DECLARED),
        (8, 1.5, False, SHARES),
        (9, 1.5, False, ALL),
        (12, 2.0, False, SHARES),
        (13, 2.0, False, ALL),
        (9, 2.0, False, ALONE),
        (64, 3.0, False, ALL),
    ],
)
def test_question_shares(segments: int, epsilon: float, declared: bool, expected: dict[str, float]) -> None:
    """Ask for segments' shares unless declared, and about the average effect where that doubles its precision."""
    assert question_shares(segments, epsilon, declared) == expected


def test_questions_about_the_average_effect_are_limited_to_the_exploring_share() -> None:
    """Their arm is not their segment's best. With fewer of them it pays for more segments alone."""
    assert question_shares(8, 1.0, explored=0.147) == {"segment": 0.773, "everybody": 0.147, "member": 0.08}
    assert question_shares(7, 1.0, explored=0.147) == SHARES
    assert question_shares(16, 1.0, explored=0.0216)["everybody"] == 0
    assert question_shares(64, 1.0, explored=0.0216)["everybody"] == 0.022
    tables = TrialSpec.instances()["local-asked"].model_dump(exclude_none=True)
    for floor, expected in ((0.07, 0.2), (0.05, 0.0)):
        tables["algorithm"]["min_allocation"] = floor
        spec = TrialSpec.model_validate(tables)
        assert sum(question.share for question in spec.questions if question.everybody) == pytest.approx(expected)
    tables["algorithm"] |= {"allocation": "fixed", "allocation_ratio": [0.8, 0.1, 0.1]}
    assert TrialSpec.model_validate(tables).questions[1].share == 0.2


def test_guardrails_share_the_questions_equally() -> None:
    assert question_shares(8, 1.0, facts=3) == ALL
    questions = make_coin_questions(8, 3, 1.0, has_declared_shares=False)
    assert [(question.fact, question.everybody) for question in questions] == [
        *((fact, False) for fact in range(3)),
        *((fact, True) for fact in range(3)),
        (None, False),
    ]
    assert (
        len({question.share for question in questions[:3]}) == len({question.share for question in questions[3:6]}) == 1
    )


def test_with_one_bucket_each_segment_adds_a_fifth_of_what_its_sum_tells() -> None:
    for segments in (4, 8, 64):
        assert information_ratio(segments, 1.0, 0.2) == pytest.approx(0.2 * segments + 0.8)


def test_only_local_reports_have_questions() -> None:
    for name, spec in TrialSpec.instances().items():
        assert bool(spec.questions) is (name == "local-asked"), name


def test_coins_follow_the_stated_question_and_arm_shares() -> None:
    """False alarm 1e-6. Planted: the shares of another segment."""
    questions = make_coin_questions(6, 2, 1.0, has_declared_shares=False)
    shares = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], *[[0.4, 0.3, 0.3]] * 4, [0.2, 0.2, 0.6]])
    layout = make_coin_layout(5, shares, questions)
    coins = np.random.default_rng(3).integers(0, 2**32, 200_000, dtype=np.uint32)
    for row in (0, 1):
        groups = layout.find_groups(layout.hashes(coins, np.full(len(coins), row)), np.full(len(coins), row))
        counts = np.bincount(groups, minlength=15)
        expected = [question.share * shares[-1 if question.everybody else row] for question in questions]
        assert is_compatible(counts, len(coins) * np.ravel(expected))
        other = [question.share * shares[-1 if question.everybody else 1 - row] for question in questions]
        assert not is_compatible(counts, len(coins) * np.ravel(other))


def test_a_question_has_the_same_coins_in_every_segment_to_the_last() -> None:
    rng = np.random.default_rng(8)
    for facts in (1, 2, 3):
        questions = make_coin_questions(7, facts, 0.7, has_declared_shares=False)
        layout = make_coin_layout(5, rng.dirichlet(np.ones(3), 8), questions)
        assert (np.ptp(layout.thresholds[:, 2::3].astype(int), axis=0) == 0).all()
        about = np.array([question.everybody for question in questions]).repeat(3)[:-1]
        assert (np.ptp(layout.thresholds[:, about].astype(int), axis=0) == 0).all()
        assert (np.diff(layout.thresholds.astype(int), axis=1) >= 0).all()


@pytest.mark.parametrize("guardrails", [(), ("refund", "call")])
def test_learned_shares_pass_the_check_of_devices_however_they_round(guardrails: tuple[str, ...]) -> None:
    """Where rounding is coarsest too: in 64 segments, of which few are asked about everybody."""
    tables = TrialSpec.instances()["local-asked"].model_dump(exclude_none=True)
    tables["algorithm"] |= {"guardrails": guardrails, "min_allocation": 0.025}
    tables["experiment"]["horizon"] = 100_000
    tables["segments"]["cuts"]["x1"] = [cut / 64 for cut in range(1, 64)]
    spec, rng = TrialSpec.model_validate(tables), np.random.default_rng(2)
    schedule = Schedule(spec)
    state = schedule.open(5).state
    assert spec.share_rows == 65
    for _ in range(20):
        shares = spec.min_arm_share + (1 - 3 * spec.min_arm_share) * rng.dirichlet(np.full(3, 0.3), spec.share_rows)
        schedule.learner.open_next_round(replace(state, shares=shares), 2, 5).policy.check(spec)


def test_a_trial_that_is_over_has_no_questions() -> None:
    """The arm is then the segment's, whatever the coins."""
    spec = TrialSpec.instances()["local-asked"]
    schedule = Schedule(spec)
    last: Any = schedule.open_next_step(schedule.open(5).state, 2, 5, is_inviting=False).policy
    last.check(spec)
    coins = np.random.default_rng(4).integers(0, 2**32, 500, dtype=np.uint32)
    assert last.questions == ()
    assert len(set(last.decide(np.full((500, 2), 0.4), coins).arms.tolist())) == 1
