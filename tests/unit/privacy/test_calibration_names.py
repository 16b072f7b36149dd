"""A tighter accountant accepts terms and records of earlier ones, which the calibration's name tells apart.

Planted: an earlier accountant, whose delta is a thousand times the present one's, beside the present one.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace as with_parameters

from privateer_core.accounting.accountant import event_delta
from privateer_core.accounting.events import Event
from privateer_core.errors import SpecError, TermsRefused
from privateer_core.privacy import terms as round_terms
from privateer_core.privacy.certificate import recompute
from privateer_core.privacy.record import Row, describe_terms, make_record
from privateer_core.privacy.record_verification import read_certificates
from privateer_core.privacy.terms import Terms
from privateer_core.privacy.terms_verification import verify
from privateer_core.privacy.trust import CALIBRATIONS, TIGHT
from tests.support.records import SPECS
from tests.unit.privacy.test_terms_verification import WIDE, facts_of, terms_of

SPEC = SPECS["shuffle"]
LOOSENESS = 1000.0
Accountant = Callable[[Event, float], float]


def earlier_delta(event: Event, epsilon: float) -> float:
    return min(1.0, LOOSENESS * event_delta(event, epsilon))


def use(accountant: Accountant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let devices and servers compute delta by this accountant."""
    monkeypatch.setattr(round_terms, "event_delta", accountant)


def with_local_epsilon(terms: Terms, epsilon: float) -> Terms:
    return replace(terms, mechanism=with_parameters(terms.mechanism, epsilon=epsilon))


def calibrate_earlier() -> Terms:
    """Return a round's terms as a server with the earlier accountant calibrates them, in steps of a thousandth."""
    present: Any = terms_of(SPEC)
    steps = (present.mechanism.epsilon - step / 1000 for step in range(4000))
    candidates = (with_local_epsilon(present, epsilon) for epsilon in steps)
    return next(terms for terms in candidates if earlier_delta(terms.event, terms.epsilon) <= terms.delta)


PRESENT, EARLIER = terms_of(SPEC), calibrate_earlier()


def record_with(terms: Terms) -> dict[str, Any]:
    """Return the record of an experiment with a released round of these terms, as JSON brings it."""
    planned = msgspec.structs.asdict(describe_terms(terms))
    row = Row(version=1, received=terms.batch_size, released=True, **planned)
    return dict(json.loads(msgspec.json.encode(make_record(SPEC, {"": [row]}))))


def refuse(terms: Terms) -> TermsRefused:
    with pytest.raises(TermsRefused) as refusal:
        verify(terms, SPEC, "", facts_of(SPEC, PRESENT), WIDE)
    return refusal.value


def test_a_device_accepts_terms_by_an_earlier_accountant(monkeypatch: pytest.MonkeyPatch) -> None:
    verify(EARLIER, SPEC, "", facts_of(SPEC, PRESENT), WIDE)
    use(earlier_delta, monkeypatch)
    verify(EARLIER, SPEC, "", facts_of(SPEC, PRESENT), WIDE)


def test_an_earlier_device_refuses_terms_by_a_tighter_accountant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever they are called: it trusts no name, but what it computes."""
    use(earlier_delta, monkeypatch)
    assert refuse(PRESENT).field == "delta"
    refusal = refuse(replace(PRESENT, calibration="tighter"))
    assert refusal.field == "calibration"
    assert "update the application" in str(refusal)


def test_a_device_that_knows_a_calibration_still_computes_its_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CALIBRATIONS, "tighter", 1.1)
    named = replace(PRESENT, calibration="tighter")
    verify(named, SPEC, "", facts_of(SPEC, PRESENT), WIDE)
    assert refuse(with_local_epsilon(named, 1.01 * PRESENT.mechanism.local_epsilon)).field == "delta"


def test_records_by_an_earlier_accountant_verify_by_a_tighter_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tighter accountant allows more; its factor for the earlier calibration says how much."""
    record = record_with(EARLIER)
    ratio = PRESENT.mechanism.local_epsilon / EARLIER.mechanism.local_epsilon
    assert ratio > CALIBRATIONS[TIGHT], "the planted accountant is clearly looser"
    with pytest.raises(SpecError, match="might cost more"):
        read_certificates(record)
    monkeypatch.setitem(CALIBRATIONS, TIGHT, 1.01 * ratio)
    (certificate,) = read_certificates(record).values()
    verdicts = recompute(certificate)
    assert all(verdict.holds for verdict in verdicts)
    assert verdicts[0].recomputed_delta < verdicts[0].delta / LOOSENESS * 1.1


def test_a_record_that_overstates_its_rounds_fails_recomputation(monkeypatch: pytest.MonkeyPatch) -> None:
    too_large = record_with(with_local_epsilon(PRESENT, 1.01 * PRESENT.mechanism.local_epsilon))
    monkeypatch.setitem(CALIBRATIONS, TIGHT, 2.0)
    (certificate,) = read_certificates(too_large).values()
    assert not all(verdict.holds for verdict in recompute(certificate))
