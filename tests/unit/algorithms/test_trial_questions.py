"""The questions that coins choose: their shares, the arms they are about, and where asking has less variance."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.algorithms.trial.coin_questions import information_ratio, make_coin_layout, make_coin_questions
from privateer_server.rounds.loop import Schedule
from tests.support.statistics import is_compatible


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
        groups = layout.group(layout.hashes(coins, np.full(len(coins), row)), np.full(len(coins), row))
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
