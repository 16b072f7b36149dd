"""Several reports of a person to an additive bandit share a promise: what each may cost, and what a device refuses."""

import math
from dataclasses import replace

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Repeated, Sequential
from privateer_core.algorithms.additive.spec import AdditiveSpec
from privateer_core.errors import SpecError, TermsRefused
from privateer_core.mechanisms import CentralVectors
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.privacy.terms import Terms, calibrate
from privateer_core.privacy.terms_verification import Limits, verify
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import Round
from privateer_server.rounds.loop import Schedule
from tests.unit.algorithms.test_additive import spec_of

WIDE = Limits(math.inf, 0.3, math.inf, honest_fraction=1.0, min_batch=1, arms="hidden", curator=True)
MECHANISMS = {"shuffle": NamedSymbol, "central": CentralVectors}
DELTA = 1e-6


def returning(model: str, times: int = 5, **privacy: object) -> AdditiveSpec:
    """People of four features who report several times."""
    spec = spec_of(model, experiment={"round_growth": 0.0, "reports_per_person": times}, privacy=privacy)
    assert isinstance(spec, AdditiveSpec)
    return spec


def checked(spec: Spec, terms: Terms) -> None:
    """What a device does with terms."""
    sizes = {"batch": terms.batch, "messages": terms.messages, "sealed_size": 64 + terms.mechanism.report_size}
    facts = Round(experiment=spec.name, version=1, model=terms.model, public_key=bytes(32), **sizes)
    verify(terms, spec, "", facts, WIDE)


@pytest.mark.parametrize("times", [5, pytest.param(20, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("model", MECHANISMS)
def test_every_report_costs_its_share_and_all_together_the_promise(model: str, times: int) -> None:
    """Planted: a round that spends the whole promise at once."""
    spec = returning(model, times)
    terms = Schedule(spec).open(3).policy.terms
    assert isinstance(terms.mechanism, MECHANISMS[model])
    assert terms.reports == times
    checked(spec, terms)
    assert 0.9 * DELTA < terms.true_delta < DELTA
    assert terms.event is not None
    assert account(Repeated(terms.event, times)).delta(1.0) < DELTA
    whole = replace(terms, mechanism=calibrate(spec.privacy, terms.batch, spec.usual_question()).mechanism)
    with pytest.raises(TermsRefused, match=f"more than its share of the promise for {times} reports"):
        checked(spec, whole)
    assert whole.event is not None
    assert account(Repeated(whole.event, times)).delta(1.0) > 10 * DELTA
    assert not replace(terms, mechanism=terms.mechanism.weaker(1.05)).holds


def test_rounds_of_other_sizes_and_questions_keep_the_promise_together() -> None:
    """Composed event by event: three rounds that grow, of which the last two ask twice."""
    spec = returning("shuffle")
    events = [
        calibrate(spec.privacy, people, spec.usual_question(), spec.fewest(people), 5).event
        for people in (1000, 2000, 5000)
    ]
    small, middle, large = (event for event in events if event)
    assert account(Sequential((small, middle, middle, large, large))).delta(1.0) < DELTA


@pytest.mark.parametrize("times", [2, 20])
def test_a_curators_releases_keep_the_promise_by_another_accountant(times: int) -> None:
    """Sums move by 2 at most; another accountant composes the noise of the releases. Planted: that of one release."""
    spec = returning("central", times)
    terms = Schedule(spec).open(3).policy.terms

    def composed(mechanism: CentralVectors) -> float:
        noise = mechanism.standard_deviation * mechanism.ball.step / (2 * math.sqrt(times))
        normal = pld.from_gaussian_mechanism(noise, value_discretization_interval=1e-4)
        return float(normal.get_delta_for_epsilon(1.0))

    assert isinstance(terms.mechanism, CentralVectors)
    assert 0.5 * DELTA < composed(terms.mechanism) <= DELTA
    alone = calibrate(spec.privacy, terms.batch, spec.usual_question()).mechanism
    assert isinstance(alone, CentralVectors)
    assert composed(alone) > 10 * DELTA


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_under_local_a_device_reports_one_time_of_several(epsilon: float) -> None:
    """Below 4 coins give arms, from 4 on the arm is in the symbol: either way one report has all of epsilon."""
    spec = returning("local", epsilon=epsilon)
    terms = Schedule(spec).open(3).policy.terms
    assert spec.starts_from_levels == (epsilon < 4)
    assert (terms.reports, terms.mechanism.local_epsilon) == (1, pytest.approx(epsilon))
    checked(spec, terms)


def test_reports_as_local_are_of_people_who_report_once() -> None:
    with pytest.raises(SpecError, match=r"privacy\.arms: 'as-local' needs experiment\.reports_per_person = 1"):
        returning("shuffle", arms="as-local")


def test_a_batch_too_small_for_so_many_reports_is_refused() -> None:
    spec = returning("shuffle", 1000, epsilon=0.001, delta=1e-9, min_batch=100)
    with pytest.raises(SpecError) as refused:
        calibrate(spec.privacy, 100, spec.usual_question(), 100, 1000)
    assert refused.value.field == "privacy.min_batch"
    assert "reports_per_person" in str(refused.value.remedy)
