"""People who return: what features and vectors of several reports reveal, and what features need."""

import math
from dataclasses import replace

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from msgspec.structs import replace as with_parameters

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Repeated, Sequential
from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.additive.spec import AdditiveSpec
from privateer_core.errors import SpecError, TermsRefused
from privateer_core.mechanisms import FeatureSums, RowSums, VectorSymbol
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.mechanisms.vectors.running_vectors import RunningVectors
from privateer_core.privacy.cell_reports import describe_horizon_concerns, required_participants
from privateer_core.privacy.order import list_concerns
from privateer_core.privacy.terms import Terms, calibrate
from privateer_core.privacy.terms_verification import Limits, verify
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import Round
from privateer_server.rounds.schedule import Schedule
from tests.support.specs import linear_spec
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


VECTOR_MECHANISMS = {"shuffle": VectorSymbol, "central": RowSums}


def vector_returning_spec(model: str, times: int = 5) -> Spec:
    """Return a linear spec with rounds of equal size and several reports per participant."""
    data = linear_spec(model).model_dump(mode="json", exclude_none=True)
    data["experiment"] |= {"min_round_fraction": 0.0, "reports_per_person": times}
    return parse_spec(data)


@pytest.mark.parametrize("model", VECTOR_MECHANISMS)
def test_every_vector_costs_its_share_and_all_together_the_promise(model: str) -> None:
    """Planted: a round that spends the whole promise at once."""
    spec = vector_returning_spec(model)
    terms = Schedule(spec).open(3).policy.terms
    assert isinstance(terms.mechanism, VECTOR_MECHANISMS[model])
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
    spec = vector_returning_spec("shuffle", times)
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
    single_report, spec = vector_returning_spec("central", 1), vector_returning_spec("central")
    running = Schedule(single_report).open(3).policy.terms.mechanism
    assert isinstance(running, RunningVectors)
    terms = Schedule(spec).open(3).policy.terms
    loud = with_parameters(running, standard_deviation=100 * running.standard_deviation)
    for mechanism in (running, loud):
        with pytest.raises(TermsRefused, match="5 reports"):
            check_terms(spec, replace(terms, mechanism=mechanism))
    check_terms(single_report, Schedule(single_report).open(3).policy.terms)


def test_under_local_a_device_reports_a_vector_once_of_several_times() -> None:
    terms = Schedule(vector_returning_spec("local")).open(3).policy.terms
    assert (terms.reports, terms.mechanism.local_epsilon) == (1, 1.0)


def test_a_batch_too_small_for_so_many_vectors_is_refused() -> None:
    data = vector_returning_spec("shuffle").model_dump(mode="json", exclude_none=True)
    data["experiment"] |= {"round_size": 100, "reports_per_person": 1000}
    data["privacy"] |= {"min_batch": 100, "epsilon": 0.001, "delta": 1e-9}
    with pytest.raises(SpecError) as refused:
        Schedule(parse_spec(data)).open(3)
    assert refused.value.field == "privacy.min_batch"
    assert "reports_per_person" in str(refused.value.remedy)


LOCAL = {"model": "local", "epsilon": 1.0}
CENTRAL = {"model": "central", "epsilon": 1.0, "delta": 1e-6}


def spec(promise, features=19, people=15_000, algorithm="partition"):
    return parse_spec(
        {
            "experiment": {"name": "test", "arms": list("abcdef"), "horizon": people},
            "context": {"features": {f"x{j}": {"low": 0.0, "high": 1.0} for j in range(features)}},
            "privacy": promise,
            "algorithm": {"name": algorithm, **({"bins": 8} if algorithm == "additive" else {})},
        }
    )


@pytest.mark.parametrize("algorithm", ["partition", "additive"])
def test_more_features_and_more_noise_take_more_people(algorithm):
    for promise in (LOCAL, CENTRAL):
        n1, n3, n19 = (required_participants(spec(promise, algorithm=algorithm), count) for count in (1, 3, 19))
        assert n1 < n3 < n19
    shuffled = {"model": "shuffle", "epsilon": 1.0, "delta": 1e-6}
    needs = [required_participants(spec(promise, algorithm=algorithm), 3) for promise in (CENTRAL, shuffled, LOCAL)]
    assert needs == sorted(needs)
    twice_epsilon = required_participants(spec({"model": "local", "epsilon": 2.0}, algorithm=algorithm), 3)
    assert twice_epsilon < 0.5 * required_participants(spec(LOCAL, algorithm=algorithm), 3)


def test_too_many_features_are_a_concern_with_the_number_of_people_required():
    """Planted: enough people, a spec without a promise, and a spec without features have no concern."""
    (concern,) = describe_horizon_concerns(spec(LOCAL))
    n_required = required_participants(spec(LOCAL), 19)
    assert f"15,000 people tell little of 19 features under this promise: it takes about {n_required:,} " in concern
    assert concern in list_concerns(spec(LOCAL))
    n_alone = required_participants(spec(LOCAL), 1)
    assert n_alone > 15_000
    assert f"Name one, which alone takes about {n_alone:,}, or run" in concern, "one feature is too many, too"
    assert not list(describe_horizon_concerns(spec(LOCAL, people=2 * n_required)))
    assert not list(describe_horizon_concerns(spec({"model": "none"})))
    from_log = spec(LOCAL).model_copy(update={"population": {"name": "rows", "path": "a.people.parquet"}})
    assert not list(describe_horizon_concerns(from_log))
    n_features = next(indice for indice in range(19, 0, -1) if required_participants(spec(CENTRAL), indice) <= 15_000)
    assert f"Name {n_features} at most" in next(describe_horizon_concerns(spec(CENTRAL)))
    assert not list(describe_horizon_concerns(spec(CENTRAL, features=n_features)))
