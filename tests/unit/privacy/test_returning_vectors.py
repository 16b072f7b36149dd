"""Several vectors of a participant share a promise: the cost of each, and refused terms."""

from dataclasses import replace

import pytest
from msgspec.structs import replace as with_parameters

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Repeated
from privateer_core.algorithms import parse_spec
from privateer_core.errors import SpecError, TermsRefused
from privateer_core.mechanisms import CentralVectors, VectorSymbol
from privateer_core.mechanisms.vectors.running_vectors import RunningVectors
from privateer_core.privacy.terms import calibrate
from privateer_core.spec.spec import Spec
from privateer_server.rounds.loop import Schedule
from tests.support.linears import linear_spec
from tests.unit.privacy.test_returning_features import check_terms

MECHANISMS = {"shuffle": VectorSymbol, "central": CentralVectors}


def returning_spec(model: str, times: int = 5) -> Spec:
    """Return a linear spec with rounds of equal size and several reports per participant."""
    data = linear_spec(model).model_dump(mode="json", exclude_none=True)
    data["experiment"] |= {"min_round_fraction": 0.0, "reports_per_person": times}
    return parse_spec(data)


@pytest.mark.parametrize("model", MECHANISMS)
def test_every_vector_costs_its_share_and_all_together_the_promise(model: str) -> None:
    """Planted: a round that spends the whole promise at once."""
    spec = returning_spec(model)
    terms = Schedule(spec).open(3).policy.terms
    assert isinstance(terms.mechanism, MECHANISMS[model])
    assert terms.reports == 5
    check_terms(spec, terms)
    assert 0.9e-6 < terms.true_delta < 1e-6
    assert terms.event is not None
    assert account(Repeated(terms.event, 5)).delta(1.0) < 1e-6
    whole = replace(terms, mechanism=calibrate(spec.privacy, terms.batch_size, spec.typical_question()).mechanism)
    with pytest.raises(TermsRefused, match="more than its share of the promise for 5 reports"):
        check_terms(spec, whole)
    for weaker in (1.05, 1.5):
        assert not replace(terms, mechanism=terms.mechanism.with_less_noise(weaker)).keeps_promise


@pytest.mark.parametrize("times", [1, 5])
def test_a_device_computes_what_more_own_symbols_cost(times: int) -> None:
    """A mechanism with more chosen symbols at the same local epsilon has a smaller blanket, and is refused."""
    spec = returning_spec("shuffle", times)
    terms = Schedule(spec).open(3).policy.terms
    symbol = terms.mechanism
    assert isinstance(symbol, VectorSymbol)
    check_terms(spec, terms)
    more_symbols = with_parameters(symbol, chosen=symbol.directions)
    fewer_symbols = with_parameters(symbol, chosen=symbol.chosen - 1)
    with pytest.raises(TermsRefused) as refused:
        check_terms(spec, replace(terms, mechanism=more_symbols))
    assert refused.value.field == "delta"
    check_terms(spec, replace(terms, mechanism=fewer_symbols))


def test_running_sums_are_for_participants_who_report_once() -> None:
    """Several reports of a participant add up in all later sums, so that they are refused at any noise."""
    single_report, spec = returning_spec("central", 1), returning_spec("central")
    running = Schedule(single_report).open(3).policy.terms.mechanism
    assert isinstance(running, RunningVectors)
    terms = Schedule(spec).open(3).policy.terms
    loud = with_parameters(running, standard_deviation=100 * running.standard_deviation)
    for mechanism in (running, loud):
        with pytest.raises(TermsRefused, match="5 reports"):
            check_terms(spec, replace(terms, mechanism=mechanism))
    check_terms(single_report, Schedule(single_report).open(3).policy.terms)


def test_under_local_a_device_reports_one_time_of_several() -> None:
    terms = Schedule(returning_spec("local")).open(3).policy.terms
    assert (terms.reports, terms.mechanism.local_epsilon) == (1, 1.0)


def test_a_batch_too_small_for_so_many_reports_is_refused() -> None:
    data = returning_spec("shuffle").model_dump(mode="json", exclude_none=True)
    data["experiment"] |= {"round_size": 100, "reports_per_person": 1000}
    data["privacy"] |= {"min_batch": 100, "epsilon": 0.001, "delta": 1e-9}
    with pytest.raises(SpecError) as refused:
        Schedule(parse_spec(data)).open(3)
    assert refused.value.field == "privacy.min_batch"
    assert "reports_per_person" in str(refused.value.remedy)
