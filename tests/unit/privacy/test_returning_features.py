"""Several reports of a participant to an additive bandit share a promise: the cost of each, and refused terms."""

import math
from dataclasses import replace

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Repeated, Sequential
from privateer_core.algorithms.additive.spec import AdditiveSpec
from privateer_core.errors import SpecError, TermsRefused
from privateer_core.mechanisms import FeatureSums
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.privacy.terms import Terms, calibrate
from privateer_core.privacy.terms_verification import Limits, verify
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import Round
from privateer_server.rounds.loop import Schedule
from tests.unit.algorithms.test_additive import spec_of

WIDE = Limits(math.inf, 0.3, math.inf, honest_fraction=1.0, min_batch=1, arm_visibility="hidden", allow_central=True)
MECHANISMS = {"shuffle": NamedSymbol, "central": FeatureSums}
DELTA = 1e-6


def returning_spec(model: str, times: int = 5, **privacy: object) -> AdditiveSpec:
    """Return a spec of four features with several reports per participant."""
    spec = spec_of(model, experiment={"min_round_fraction": 0.0, "reports_per_person": times}, privacy=privacy)
    assert isinstance(spec, AdditiveSpec)
    return spec


def check_terms(spec: Spec, terms: Terms) -> None:
    """Verify terms as a device does."""
    sizes = {
        "batch_size": terms.batch_size,
        "messages": terms.messages,
        "sealed_size": 64 + terms.mechanism.report_size,
    }
    facts = Round(experiment=spec.name, version=1, model=terms.model, public_key=bytes(32), **sizes)
    verify(terms, spec, "", facts, WIDE)


@pytest.mark.parametrize("times", [5, pytest.param(20, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("model", MECHANISMS)
def test_every_report_costs_its_share_and_all_together_the_promise(model: str, times: int) -> None:
    """Planted: a round that spends the whole promise at once."""
    spec = returning_spec(model, times)
    terms = Schedule(spec).open(3).policy.terms
    assert isinstance(terms.mechanism, MECHANISMS[model])
    assert terms.reports == times
    check_terms(spec, terms)
    assert 0.9 * DELTA < terms.true_delta < DELTA
    assert terms.event is not None
    assert account(Repeated(terms.event, times)).delta(1.0) < DELTA
    whole = replace(terms, mechanism=calibrate(spec.privacy, terms.batch_size, spec.typical_question()).mechanism)
    with pytest.raises(TermsRefused, match=f"more than its share of the promise for {times} reports"):
        check_terms(spec, whole)
    assert whole.event is not None
    assert account(Repeated(whole.event, times)).delta(1.0) > 10 * DELTA
    assert not replace(terms, mechanism=terms.mechanism.with_less_noise(1.05)).keeps_promise


def test_rounds_of_other_sizes_and_questions_keep_the_promise_together() -> None:
    """Composed event by event: three rounds that grow, of which the last two ask twice."""
    spec = returning_spec("shuffle")
    events = [
        calibrate(spec.privacy, people, spec.typical_question(), spec.min_reports(people), 5).event
        for people in (1000, 2000, 5000)
    ]
    small, middle, large = (event for event in events if event)
    assert account(Sequential((small, middle, middle, large, large))).delta(1.0) < DELTA


@pytest.mark.parametrize("times", [2, 20])
def test_a_curators_releases_keep_the_promise_by_another_accountant(times: int) -> None:
    """Another accountant composes the noise of the releases. Planted: that of one release."""
    spec = returning_spec("central", times)
    terms = Schedule(spec).open(3).policy.terms

    def composed_delta(mechanism: FeatureSums) -> float:
        noise = mechanism.standard_deviation / (mechanism.sensitivity * math.sqrt(times))
        normal = pld.from_gaussian_mechanism(noise, value_discretization_interval=1e-4)
        return float(normal.get_delta_for_epsilon(1.0))

    assert isinstance(terms.mechanism, FeatureSums)
    assert 0.5 * DELTA < composed_delta(terms.mechanism) <= DELTA
    single_mechanism = calibrate(spec.privacy, terms.batch_size, spec.typical_question()).mechanism
    assert isinstance(single_mechanism, FeatureSums)
    assert composed_delta(single_mechanism) > 10 * DELTA


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_under_local_a_device_reports_one_time_of_several(epsilon: float) -> None:
    """Below epsilon 4 coins give arms, above the arm is in the symbol: in both cases a report has all of epsilon."""
    spec = returning_spec("local", epsilon=epsilon)
    terms = Schedule(spec).open(3).policy.terms
    assert spec.has_coin_plan == (epsilon < 4)
    assert (terms.reports, terms.mechanism.local_epsilon) == (1, pytest.approx(epsilon))
    check_terms(spec, terms)


def test_reports_as_local_are_of_people_who_report_once() -> None:
    with pytest.raises(
        SpecError, match=r"privacy\.arm_visibility: 'as-local' needs experiment\.reports_per_person = 1"
    ):
        returning_spec("shuffle", arm_visibility="as-local")


def test_a_batch_too_small_for_so_many_reports_is_refused() -> None:
    spec = returning_spec("shuffle", 1000, epsilon=0.001, delta=1e-9, min_batch=100)
    with pytest.raises(SpecError) as refused:
        calibrate(spec.privacy, 100, spec.typical_question(), 100, 1000)
    assert refused.value.field == "privacy.min_batch"
    assert "reports_per_person" in str(refused.value.remedy)
