"""Opened reports of every algorithm: true claims stand, and a device with half the noise is caught."""

import numpy as np
import pytest

from privateer_core.algorithms import ALGORITHMS
from privateer_core.privacy.trust import TIGHT
from privateer_lab.audit import whole_experiments as experiments
from privateer_lab.audit.case import Case
from privateer_lab.audit.law import bound_losses
from privateer_lab.audit.sealed_reports import path_cases
from tests.privacy.planted import a_device_with_half_the_noise

ALARM = 1e-6
"""Chance that one true claim is called broken, over the choice of the seed."""
SAMPLES = 60_000
"""Samples of an audit in which each neighbour sends 3,000 reports."""

pytestmark = pytest.mark.battery(of="opened reports")


def cases_of(name: str, samples: int) -> list[Case]:
    """Return the attacks on one algorithm, and calibrate no experiment of another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiments, "ALGORITHMS", (name,))
        return path_cases(samples, {name})


def is_claim_consistent(case: Case) -> bool:
    """Whether an attack proves neither more than the claimed epsilon nor more than the claimed curve."""
    left, right = (case.sample(neighbour, case.count) for neighbour in (0, 1))
    return bound_losses(left, right, case.event, case.epsilon, case.delta, ALARM).is_consistent_with(case.epsilon)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_half_the_noise_of_a_device_is_caught_where_a_report_has_a_claim(name, monkeypatch):
    """The proofs exceed the claims by at least 4 % with an alarm of 1e-7."""
    monkeypatch.setattr("os.urandom", np.random.default_rng(37).bytes)
    for case in cases_of(name, 5000):
        assert case.calibration == TIGHT
        assert is_claim_consistent(case), case.name
    a_device_with_half_the_noise(monkeypatch)
    assert [case.name for case in cases_of(name, SAMPLES) if is_claim_consistent(case)] == []
