"""Whole phased experiments under attack: true claims stand; the same people asked again, or unclipped, are caught."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privateer import sampling
from privateer.algorithms import phased
from privateer.mechanisms import vector_bits
from privateer.vectors import Ball
from privateer_lab.audit import phased as audited
from privateer_lab.audit.evidence import Evidence, attack
from privateer_lab.audit.phased import phased_cases
from privateer_lab.audit.run import audit
from privateer_lab.noise import SeededNoise

Patch = Callable[[pytest.MonkeyPatch], None]
TIGHT = {("local", 0.0), ("local", 0.25), ("central", 1e-6), ("shuffle", 0.01)}
ALARM = 1e-6
"""Chance that one true claim is called broken."""


@pytest.fixture(autouse=True)
def _seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same noise in every run of the tests; what is attacked by the command has the operating system's."""
    noise = SeededNoise(17)
    monkeypatch.setattr(audited, "SecureNoise", lambda: noise)


def attacked() -> dict[tuple[str, float], tuple[Evidence, bool]]:
    """What attacks on the tight claims prove, and whether the claims stand."""
    found = {}
    for case in phased_cases(20_000):
        if case.calibration == "tight":
            scores = (case.sample(who, case.count) for who in (0, 1))
            proved = attack(*scores, case.event, case.epsilon, case.delta, ALARM)
            found[case.model, case.delta] = proved, proved.excess <= 0 and proved.lower_bound <= case.epsilon
    return found


def test_every_model_with_a_claim_is_attacked_in_both_calibrations() -> None:
    kinds = {(case.model, case.calibration) for case in phased_cases(1000)}
    assert kinds == {(m, c) for m in ("local", "central", "shuffle") for c in ("tight", "published")}


def test_the_audit_has_these_attacks() -> None:
    total, found = audit(1000, {"PhasedPolicy"})
    assert [one.holds for one in found] == [True] * total
    assert total == len(phased_cases(1000))


def test_true_claims_stand_and_proofs_come_close() -> None:
    found = attacked()
    assert set(found) == TIGHT
    assert all(stands for _, stands in found.values())
    assert found["local", 0.0][0].lower_bound > 0.8
    assert found["local", 0.25][0].lower_bound > 0.7
    assert found["central", 1e-6][0].lower_bound > 0.15


def the_same_people_in_every_phase(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(phased, "drawn", lambda _seed, _people, _start, count: np.arange(count))


def sampling_with_replacement(patch: pytest.MonkeyPatch) -> None:
    """Every phase draws anew from the whole population."""
    patch.setattr(phased, "drawn", lambda seed, people, start, count: sampling.drawn(seed + start, people, 0, count))


def unclipped_rewards(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ball, "clip", lambda _, vectors: vectors)


def bits_that_everybody_can_subtract(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(vector_bits, "binomial", lambda count, trials, _chance, _noise: np.full(count, trials // 2))


@pytest.mark.parametrize(
    ("fault", "breaks"),
    [
        (the_same_people_in_every_phase, TIGHT),
        (sampling_with_replacement, TIGHT),
        # A symbol is as private whatever it is made of.
        (unclipped_rewards, TIGHT - {("local", 0.0)}),
        (bits_that_everybody_can_subtract, {("shuffle", 0.01)}),
    ],
)
def test_planted_faults_are_caught(fault: Patch, breaks: set[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    assert {claim for claim, (_, stands) in attacked().items() if not stands} == breaks
