"""Several vectors of a person share a promise: what each may cost, and what a device refuses."""

import math
from dataclasses import replace

import pytest
from msgspec.structs import replace as with_parameters

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Repeated
from privateer_core.algorithms import parse_spec
from privateer_core.errors import SpecError, TermsRefused
from privateer_core.mechanisms import CentralVectors, VectorSymbol
from privateer_core.mechanisms.vectors.running_vectors import RunningVectors
from privateer_core.privacy.terms import Terms, calibrate
from privateer_core.privacy.terms_verification import Limits, verify
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import Round
from privateer_server.rounds.loop import Schedule
from tests.support.linears import linear_spec

WIDE = Limits(math.inf, 0.3, math.inf, honest_fraction=1.0, min_batch=1, arms="hidden", curator=True)
MECHANISMS = {"shuffle": VectorSymbol, "central": CentralVectors}


def returning(model: str, times: int = 5) -> Spec:
    """Linear rewards, rounds of one size, and people who report several times."""
    data = linear_spec(model).model_dump(mode="json", exclude_none=True)
    data["experiment"] |= {"round_growth": 0.0, "reports_per_person": times}
    return parse_spec(data)


def checked(spec: Spec, terms: Terms) -> None:
    """What a device does with terms."""
    sizes = {"batch": terms.batch, "messages": terms.messages, "sealed_size": 64 + terms.mechanism.report_size}
    facts = Round(experiment=spec.name, version=1, model=terms.model, public_key=bytes(32), **sizes)
    verify(terms, spec, "", facts, WIDE)


@pytest.mark.parametrize("model", MECHANISMS)
def test_every_vector_costs_its_share_and_all_together_the_promise(model: str) -> None:
    """Planted: a round that spends the whole promise at once."""
    spec = returning(model)
    terms = Schedule(spec).open(3).policy.terms
    assert isinstance(terms.mechanism, MECHANISMS[model])
    assert terms.reports == 5
    checked(spec, terms)
    assert 0.9e-6 < terms.true_delta < 1e-6
    assert terms.event is not None
    assert account(Repeated(terms.event, 5)).delta(1.0) < 1e-6
    whole = replace(terms, mechanism=calibrate(spec.privacy, terms.batch, spec.usual_question()).mechanism)
    with pytest.raises(TermsRefused, match="more than its share of the promise for 5 reports"):
        checked(spec, whole)
    for weaker in (1.05, 1.5):
        assert not replace(terms, mechanism=terms.mechanism.weaker(weaker)).holds


@pytest.mark.parametrize("times", [1, 5])
def test_a_device_computes_what_more_own_symbols_cost(times: int) -> None:
    """A server that tells of more own symbols at the same local epsilon has a smaller blanket, and is refused."""
    spec = returning("shuffle", times)
    terms = Schedule(spec).open(3).policy.terms
    symbol = terms.mechanism
    assert isinstance(symbol, VectorSymbol)
    checked(spec, terms)
    more = with_parameters(symbol, chosen=symbol.directions)
    fewer = with_parameters(symbol, chosen=symbol.chosen - 1)
    with pytest.raises(TermsRefused) as refused:
        checked(spec, replace(terms, mechanism=more))
    assert refused.value.field == "delta"
    checked(spec, replace(terms, mechanism=fewer))


def test_sums_told_again_and_again_are_of_people_who_report_once() -> None:
    """What a person says in several rounds adds up in all later sums: however much noise, it is refused."""
    alone, spec = returning("central", 1), returning("central")
    running = Schedule(alone).open(3).policy.terms.mechanism
    assert isinstance(running, RunningVectors)
    terms = Schedule(spec).open(3).policy.terms
    loud = with_parameters(running, standard_deviation=100 * running.standard_deviation)
    for mechanism in (running, loud):
        with pytest.raises(TermsRefused, match="5 reports"):
            checked(spec, replace(terms, mechanism=mechanism))
    checked(alone, Schedule(alone).open(3).policy.terms)


def test_under_local_a_device_reports_one_time_of_several() -> None:
    terms = Schedule(returning("local")).open(3).policy.terms
    assert (terms.reports, terms.mechanism.local_epsilon) == (1, 1.0)


def test_a_batch_too_small_for_so_many_reports_is_refused() -> None:
    data = returning("shuffle").model_dump(mode="json", exclude_none=True)
    data["experiment"] |= {"round_size": 100, "reports_per_person": 1000}
    data["privacy"] |= {"min_batch": 100, "epsilon": 0.001, "delta": 1e-9}
    with pytest.raises(SpecError) as refused:
        Schedule(parse_spec(data)).open(3)
    assert refused.value.field == "privacy.min_batch"
    assert "reports_per_person" in str(refused.value.remedy)
