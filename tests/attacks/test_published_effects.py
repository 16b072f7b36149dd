"""Paper 4's DP-ConSE costs more than it states; the product's releases do not."""

from privateer_lab.audit.attacks.trial import cases
from privateer_lab.audit.run import FALSE_ALARM, _attacked

ALARM = FALSE_ALARM / 60


def test_dp_conse_breaks_at_its_nominal_epsilon() -> None:
    """Two segments' effects alone prove it; lengths of epochs would add to it."""
    (case,) = cases(32_000, published=True)
    finding = _attacked(case, ALARM)
    assert not finding.holds
    assert finding.lower_bound is not None
    assert finding.lower_bound > 1.2


def test_the_same_attack_does_not_break_the_curators_release() -> None:
    (case,) = cases(80_000)
    finding = _attacked(case, ALARM)
    assert finding.holds
    assert finding.lower_bound is not None
    assert finding.lower_bound > 0.5  # and it is not a weak one
