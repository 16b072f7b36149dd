"""Paper 3's support step costs far more than it states: who is a candidate is told exactly."""

import numpy as np

from privateer_lab.audit.suite import FALSE_ALARM, _attacked, attacks_of_algorithms, summary
from privateer_papers.paper_3.privatelasso import cases

ALARM = FALSE_ALARM / 60


def test_the_published_support_breaks_at_its_stated_promise() -> None:
    """A coordinate that is no candidate is never selected, and a candidate is every other time."""
    (case,) = cases(80_000)
    finding = _attacked(case, ALARM)
    assert not finding.holds
    assert finding.lower_bound is not None
    assert finding.lower_bound > 3
    assert 0.4 < np.mean(case.sample(0, 2_000)) < 0.6
    assert not case.sample(1, 2_000).any()


def test_the_same_attack_proves_nothing_where_nobody_decides_who_is_a_candidate() -> None:
    (case,) = cases(80_000, flips=False)
    finding = _attacked(case, ALARM)
    assert finding.holds
    assert finding.lower_bound is not None
    assert finding.lower_bound < 0.5


def test_the_audit_has_it_among_what_is_known_to_be_unsafe() -> None:
    (case,) = (one for one in attacks_of_algorithms(4_000) if one.unsafe and one.mechanism == "paper-3-privatelasso")
    found = summary([_attacked(case, ALARM)])
    assert (found["holds"], found["broken"], found["unsafe"]) == (True, [], ["paper-3-privatelasso"])
