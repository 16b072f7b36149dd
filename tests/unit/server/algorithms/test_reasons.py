"""Why nothing is said of an effect: the rule that stops an answer, the arm, and its count."""

import numpy as np
import pytest

import privateer_lab as lab
from privateer_core.answer.estimates import Reason
from privateer_server.algorithms.trial.evidence.epochs import Epoch, TrialDesign
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence
from privateer_server.algorithms.trial.reasons import ReasonCode
from privateer_server.algorithms.trial.treatment_effects import compute_average_effects, compute_effects

DESIGN = TrialDesign(0.05, 1_000, np.full(2, 0.5), np.full(2, 0.5))


def rows(a: int, b: int, yes_of_a: int, yes_of_b: int) -> dict[str, list[object]]:
    outcomes = [1] * yes_of_a + [0] * (a - yes_of_a) + [1] * yes_of_b + [0] * (b - yes_of_b)
    return {"arm": ["a"] * a + ["b"] * b, "reward": outcomes}


@pytest.mark.parametrize(
    ("table", "reason", "remark"),
    [
        (rows(20, 4, 9, 2), Reason.FEW_PEOPLE, "b counts as 4 people, and an interval needs 5"),
        (rows(100, 300, 2, 1), Reason.RARE, "1 with b and 2 with a; an interval needs 2 in each at the rate of both"),
    ],
)
def test_a_reason_names_the_rule_the_arm_and_its_count(
    table: dict[str, list[object]], reason: Reason, remark: str
) -> None:
    effect = lab.analyze(table).answer.effects[0]
    assert (effect.reason, effect.remark) == (reason, remark)


def test_a_reason_with_noise_names_the_arm() -> None:
    counted = rows(2_000, 40, 500, 3)
    effect = lab.analyze(counted, shares={"a": 0.99, "b": 0.01}, epsilon=0.5).answer.effects[0]
    assert effect.reason in (Reason.NOISE, Reason.NOBODY)  # noise decides whether an outcome seems to count
    assert effect.remark.startswith("b counts as ")
    assert "an interval needs ten times the noise" in effect.remark


def release(noise: float, people: float) -> TrialEvidence:
    """Release half of the participants in each segment and each arm, of whom a third say yes."""
    hits = np.full((2, 2), people / 4)
    return TrialEvidence.begin(DESIGN).add(Epoch(people, hits / 3, hits, 1.0, 0.0, noise, np.full((2, 2), 0.5)))


@pytest.mark.parametrize("people", [8.0, 20.0, 44.0, 400.0])
def test_noise_is_a_reason_only_under_a_noisy_mechanism(people: float) -> None:
    of_noise = (ReasonCode.NOISE, ReasonCode.NOBODY)
    quiet, loud = release(0.0, people), release(1e4, people)
    for reasons in (compute_effects(quiet).reason, compute_average_effects(quiet).reason):
        assert not np.isin(reasons, of_noise).any()
    for reasons in (compute_effects(loud).reason, compute_average_effects(loud).reason):
        assert np.isin(reasons, of_noise).all()


def test_an_arm_without_valid_outcomes_has_its_own_reason() -> None:
    """Planted: outcomes are texts, which count nowhere under a promise, and noise seemed to hide the people."""
    words = {"arm": ["a", "b"] * 1_000, "outcome": ["cured", "ill", "ill", "ill"] * 500}
    shares = {"a": 0.5, "b": 0.5}
    effect = lab.analyze(words, reward="outcome", shares=shares, epsilon=1.0).answer.effects[0]
    assert effect.reason is Reason.NOBODY
    assert lab.analyze(words, reward="outcome", shares=shares, epsilon=1.0, yes="cured").answer.effects[0].is_decided
    # Of 30 people 7 to 8 deviations of their noise remain: few beside it, and not nobody.
    assert (compute_effects(release(1.0, 30.0)).reason == ReasonCode.NOISE).all()
