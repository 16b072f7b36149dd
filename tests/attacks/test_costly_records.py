"""Strangers who ask for a privacy record, or its risks, again and again: the server reckons each round once."""

import pytest

from privateer_core.accounting import amplification
from privateer_core.algorithms import parse_spec
from privateer_core.privacy.certificate import certify
from privateer_core.privacy.risk import risks
from privateer_core.privacy.terms import Terms, calibrate

SPEC = parse_spec(
    {
        "experiment": {"name": "test", "arms": ["a", "b"], "horizon": 90_000, "reports_per_person": 4},
        "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
        "privacy": {"model": "shuffle", "epsilon": 1.0, "delta": 1e-6},
        "algorithm": {"name": "linear"},
    }
)
FEW = 300
"""A curve on its grid needs about a thousand sums over a batch, which take a tenth of a second a round."""


@pytest.fixture(scope="module")
def terms() -> list[Terms]:
    """Those of three rounds."""
    batches = (1001, 1303, 1707)
    return [calibrate(SPEC.privacy, batch, SPEC.usual_question(), reports=SPEC.reports) for batch in batches]


@pytest.fixture
def summed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The batches over which something was summed."""
    amplification.shuffled_delta.cache_clear()
    found: list[int] = []
    real = amplification.binomial_range

    def counted(trials: int, probability: float, tail: float) -> tuple[int, int]:
        found.append(trials)
        return real(trials, probability, tail)

    monkeypatch.setattr(amplification, "binomial_range", counted)
    return found


def test_a_record_that_is_asked_for_again_costs_nothing(summed: list[int], terms: list[Terms]) -> None:
    first = certify("test", SPEC.privacy, terms)
    assert len(summed) > FEW, "planted: the first who asks has the server reckon"
    risks(first)
    summed.clear()
    again = certify("test", SPEC.privacy, list(terms))
    assert (again, risks(again)) == (first, risks(first))
    assert not summed


def test_a_round_that_is_added_leaves_the_others_as_they_are(summed: list[int], terms: list[Terms]) -> None:
    certify("test", SPEC.privacy, terms)
    more = calibrate(SPEC.privacy, 1999, SPEC.usual_question(), reports=SPEC.reports)
    summed.clear()
    certify("test", SPEC.privacy, [*terms, more])
    assert not {one.honest - 1 for one in terms} & set(summed)
