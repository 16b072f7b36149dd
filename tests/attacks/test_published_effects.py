"""Paper 4's DP-ConSE costs more than it states, and the audit says so; the product's releases do not."""

import json

import pytest

from privateer_lab.audit import whole_experiments as experiments
from privateer_lab.audit.attacks.releases import segment_cases
from privateer_lab.audit.suite import FALSE_ALARM, _attacked
from tests.unit.lab.cli.test_command_line import run

ALARM = FALSE_ALARM / 60


def test_the_audit_breaks_dp_conse_at_its_nominal_epsilon(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two segments' effects alone prove it; lengths of epochs would add to it. No claim of the product breaks."""
    monkeypatch.setattr(experiments, "ALGORITHMS", ())
    code, out, _ = run(capsys, "audit", "--mechanism", "paper-4-dp-conse", "--samples", "4000", "--json")
    found = json.loads(out)
    assert (code, found["holds"], found["broken"], found["unsafe"]) == (0, True, [], ["paper-4-dp-conse"])
    (theirs,) = (one for one in found["findings"] if one["calibration"] == "published")
    assert theirs["unsafe"]
    assert theirs["verdict"] == "broken"
    assert 1.2 < theirs["lower_bound"] < 3


def test_a_claim_that_the_product_makes_is_not_excused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Were published terms to hold by the accountant, the same attack would fail the audit."""
    monkeypatch.setattr(experiments, "ALGORITHMS", ())
    monkeypatch.setattr("privateer_core.privacy.terms.Terms.holds", property(lambda _: True))
    code, out, _ = run(capsys, "audit", "--mechanism", "paper-4-dp-conse", "--samples", "4000", "--json")
    assert (code, json.loads(out)["broken"]) == (1, ["paper-4-dp-conse"])


def test_the_same_attack_does_not_break_the_curators_release() -> None:
    (ours,) = segment_cases(80_000)
    finding = _attacked(ours, ALARM)
    assert finding.holds
    assert finding.lower_bound is not None
    assert finding.lower_bound > 0.5  # and it is not a weak one
