"""Every effect has a decision and a reason, and decisions on a dropped arm stay."""

from dataclasses import replace

import numpy as np
import pytest

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.answer.estimates import Reason
from privateer_lab.audit.whole_experiments import make_contributions
from privateer_server.algorithms.trial.decisions import (
    StandingDecisions,
    TrialFindings,
    build_effects,
    choose_overall_basis,
    choose_segment_basis,
)
from privateer_server.algorithms.trial.state import TrialState
from privateer_server.rounds.loop import Schedule

NAN = (np.nan, np.nan, np.nan)
ABOVE, BELOW, AROUND = (0.3, 0.1, 0.5), (-0.3, -0.5, -0.1), (0.1, -0.1, 0.3)
CORRECTED: Reason = "its interval excludes 0, but not after the correction for several effects"
AGAIN: Reason = "its test decided at an earlier look, but its interval holds 0 again"
FEW: Reason = Reason.FEW_PEOPLE


def decide_looks(*looks: tuple[float, float, float], tested: bool) -> StandingDecisions:
    """Return the decisions on one effect after looks with these intervals."""
    path, none = np.array(looks).reshape(len(looks), 1, 3), np.full(1, np.nan)
    return StandingDecisions.from_path(path, np.arange(1.0, len(looks) + 1) * 1000, np.array([tested]), (none, none))


@pytest.mark.parametrize(
    ("looks", "tested", "decided", "people"),
    [
        ((ABOVE,), True, True, 1000),
        ((ABOVE,), False, False, 1000),
        ((BELOW, NAN, NAN), True, True, 1000),
        ((ABOVE, AROUND), True, False, 2000),
        ((ABOVE, AROUND, NAN), True, False, 2000),
        ((NAN, NAN), True, False, 2000),
    ],
)
def test_a_decision_stays_with_its_last_interval(
    looks: tuple[tuple[float, float, float], ...], tested: bool, decided: bool, people: int
) -> None:
    standing_decisions = decide_looks(*looks, tested=tested)
    assert (standing_decisions.decided.tolist(), standing_decisions.people.tolist()) == ([decided], [people])


def run_one_look() -> tuple[TrialSpec, TrialState, TrialFindings]:
    """A trial of two segments and two treatments after a round, with known averages."""
    spec = TrialSpec.instances()["none"]
    schedule = Schedule(spec)
    step = schedule.open(7)
    contexts = np.random.default_rng(5).random((step.batch_size, spec.dimension))
    coins = np.random.default_rng(6).integers(0, 2**32, step.batch_size, dtype=np.uint32)
    reports = make_contributions(spec, step.policy, contexts, coins, 0.0)
    release = step.policy.terms.mechanism.simulate(reports, np.random.default_rng(7))
    state = schedule.close(step, release, 7).state
    return spec, state, TrialFindings.from_state(state, spec)


@pytest.mark.parametrize(
    ("interval", "tested", "reason"),
    [
        (ABOVE, True, "decided better"),
        (BELOW, True, "decided worse"),
        (ABOVE, False, CORRECTED),
        (AROUND, True, AGAIN),
        (AROUND, False, "its interval holds 0"),
        (NAN, False, FEW),
    ],
)
def test_an_average_is_decided_only_where_its_interval_leaves_0_out(
    interval: tuple[float, float, float], tested: bool, reason: Reason
) -> None:
    spec, state, findings = run_one_look()
    treatments = spec.arm_count - 1
    assert findings.average is not None
    path, calls = np.tile(interval, (1, treatments, 1)), np.full(treatments, tested)
    averages = StandingDecisions.from_path(path, np.array([1000.0]), calls, (np.full(treatments, np.nan),) * 2)
    average = replace(findings.average, estimate=path[0, :, 0], low=path[0, :, 1], high=path[0, :, 2])
    effects = build_effects(state, replace(findings, average=average, average_decisions=averages), spec)
    averages_shown = [effect for effect in effects if effect.group is None]
    assert [effect.reason for effect in averages_shown] == [reason] * treatments
    assert all((effect.value is None) == (reason == FEW) for effect in averages_shown)


def test_a_recommendation_has_the_ground_of_its_decisions() -> None:
    _, _, findings = run_one_look()
    assert findings.average_decisions is not None
    segments, treatments = findings.decisions.decided.shape
    none, all_ = np.zeros((segments, treatments), bool), np.ones((segments, treatments), bool)
    worse, better = np.tile(BELOW, (segments, treatments, 1)), np.tile(ABOVE, (segments, treatments, 1))

    def of(best: int, intervals: np.ndarray, decided: np.ndarray) -> str:
        people = np.full(decided.shape, 1000)
        whole = StandingDecisions(intervals, people, decided, decided, decided & (intervals[..., 1] > 0))
        return choose_segment_basis(
            replace(findings, decisions=whole, segment_arms=np.full(segments, best), is_best=np.zeros(segments, bool)),
            0,
        )

    assert of(0, worse, all_) == "decided against all other options"
    assert of(1, better, all_) == "decided against the control alone"
    assert of(1, worse, all_) == "ahead, and not decided"
    assert of(0, worse, none) in ("ahead, and not decided", "too few people to say")
    assert choose_overall_basis(findings) in ("ahead, and not decided", "too few people to say")
