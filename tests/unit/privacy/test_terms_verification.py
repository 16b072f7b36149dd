"""A device accepts honest terms of every trust model, and refuses every changed term."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as with_parameters

from privateer_core.accounting.amplification import shuffled_delta
from privateer_core.codec import decode, encode
from privateer_core.errors import PrivateerError, TermsRefused
from privateer_core.mechanisms import (
    BitVectors,
    CentralSums,
    CentralVectors,
    GaussianVectors,
    Mechanism,
    SignedSymbol,
    VectorSymbol,
)
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.public_coins import Layout
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.privacy.terms import Terms, calibrate
from privateer_core.privacy.terms_verification import Limits, verify
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import Round
from privateer_papers.paper_1.laplace_cells import LaplaceCells
from tests.support.phased import phased_spec
from tests.support.records import SMALL, SPECS
from tests.support.specs import SHUFFLE, make_spec

WIDE = Limits(
    epsilon=math.inf,
    delta=0.5,
    local_epsilon=math.inf,
    honest_fraction=1.0,
    min_batch=1,
    arm_visibility="hidden",
    allow_central=True,
)
"""The limits of a device that does not mind: the promise alone is checked."""


def facts_of(spec: Spec, terms: Terms, **changes: Any) -> Round:
    """The round that a server publishes with these terms."""
    fields = {
        "experiment": spec.name,
        "version": 1,
        "model": spec.privacy.model,
        "batch_size": terms.batch_size,
        "sealed_size": 100,
        "public_key": bytes(32),
        "messages": terms.messages,
    }
    if spec.round_seconds:
        fields |= {"least": spec.min_reports(terms.batch_size), "deadline": 1_000_000}
    return Round(**(fields | changes))


def terms_of(spec: Spec, cohort: str = "", batch: int | None = None) -> Terms:
    """The terms of a cohort's first round."""
    batch = spec.first_batch(cohort) if batch is None else batch
    return calibrate(spec.cohort_privacy(cohort), batch, spec.typical_question(), spec.min_reports(batch), spec.reports)


def check(spec: Spec, limits: Limits = WIDE, cohort: str = "", **lies: Any) -> None:
    """Verify the terms of a cohort's first round, with lies about them; the round itself is honest."""
    honest = terms_of(spec, cohort)
    verify(replace(honest, **lies), spec, cohort, facts_of(spec, honest), limits)


def refused_field(*arguments: Any, **lies: Any) -> str | None:
    """The field that a refusal names."""
    with pytest.raises(TermsRefused) as refusal:
        check(*arguments, **lies)
    assert refusal.value.remedy
    return refusal.value.field


TIGHT = [name for name in SPECS if "published" not in name]


@pytest.mark.parametrize("name", TIGHT)
def test_honest_terms_are_accepted(name: str) -> None:
    for cohort in SPECS[name].cohorts:
        check(SPECS[name], cohort=cohort)


@pytest.mark.parametrize("name", ["published", "phased-published"])
def test_published_calibrations_are_for_the_lab(name: str) -> None:
    assert refused_field(SPECS[name]) == "calibration"


def test_a_promise_to_a_source_is_its_own() -> None:
    sources = SPECS["sources"]
    assert refused_field(sources, cohort="clinic", epsilon=1.0) == "epsilon"
    assert refused_field(sources, epsilon=2.0) == "epsilon"


@given(st.floats(0.01, 16), st.integers(1, 10**7), st.floats(0, 1), st.floats(0, 1))
def test_local_terms_verify(epsilon: float, batch: int, undecided: float, key_share: float) -> None:
    spec = make_spec({"privacy.epsilon": epsilon})
    terms = calibrate(spec.privacy, batch, KeyedMeans(Layout.example(), undecided, key_share))
    assert terms.local_epsilon <= epsilon
    verify(terms, spec, "", facts_of(spec, terms), WIDE)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-2])
@pytest.mark.parametrize("batch", [1000, 12_345])
@pytest.mark.parametrize("undecided", [1.0, 0.2])
def test_shuffle_terms_verify(epsilon: float, delta: float, batch: int, undecided: float) -> None:
    spec = make_spec({"privacy.model": "shuffle", "privacy.epsilon": epsilon, "privacy.delta": delta})
    terms = calibrate(spec.privacy, batch, KeyedMeans(Layout.example(), undecided, undecided / 4))
    verify(terms, spec, "", facts_of(spec, terms), WIDE)
    symbol = terms.mechanism
    assert isinstance(symbol, SignedSymbol)
    assert epsilon <= symbol.epsilon == terms.local_epsilon <= spec.privacy.local_epsilon_max
    assert terms.honest <= spec.privacy.honest_fraction * batch
    assert shuffled_delta(epsilon, symbol.epsilon, symbol.symbols, terms.honest) <= delta


LIES: list[tuple[str, dict[str, Any], str]] = [
    ("local", {"model": "shuffle"}, "model"),
    ("local", {"epsilon": 0.9}, "epsilon"),
    ("local", {"epsilon": math.nan}, "epsilon"),
    ("local", {"delta": 1e-9}, "delta"),
    ("local", {"batch_size": 999}, "batch_size"),
    ("local", {"honest": 1}, "honest"),
    ("local", {"calibration": "published"}, "calibration"),
    ("shuffle", {"model": "local"}, "model"),
    ("shuffle", {"epsilon": 0.5}, "epsilon"),
    ("shuffle", {"delta": 1e-7}, "delta"),
    ("shuffle", {"batch_size": 20_000}, "batch_size"),
    ("shuffle", {"honest": 1000}, "honest"),
    ("central", {"epsilon": 0.5}, "epsilon"),
    ("central", {"delta": 1e-5}, "delta"),
    ("central", {"model": "none"}, "model"),
    ("central", {"batch_size": 10}, "batch_size"),
    ("phased-shuffle", {"honest": 23}, "honest"),
    ("phased-reduced", {"honest": 13}, "honest"),
    ("phased-none", {"epsilon": 1.0}, "epsilon"),
]


@pytest.mark.parametrize(("name", "lies", "field"), LIES)
def test_lies_about_the_promise_are_refused(name: str, lies: dict[str, Any], field: str) -> None:
    assert refused_field(SPECS[name], **lies) == field


WEAKER: list[tuple[str, dict[str, Any]]] = [
    ("local", {"epsilon": 1.0001}),
    ("shuffle", {"epsilon": 3.5}),
    ("central", {"scale": 1.99}),
    ("central", {"scale": 0.0}),
    ("central-pure", {"scale": 1.99}),
    ("returning-central", {"standard_deviation": 8.4}),
    ("phased-local", {"epsilon": 4.0001}),
    ("phased-normal", {"standard_deviation": 4.9e4}),
    ("phased-shuffle", {"bits": 40}),
    ("phased-shuffle", {"probability": 0.2}),
    ("phased-shuffle", {"levels": 6}),
    ("phased-shuffle", {"ball": Ball("max", 1.0, 5)}),
    ("phased-central", {"standard_deviation": 7.8e4}),
    ("phased-central", {"standard_deviation": 0.0}),
]


@pytest.mark.parametrize(("name", "parameters"), WEAKER)
def test_mechanisms_that_do_not_keep_the_promise_are_refused(name: str, parameters: dict[str, Any]) -> None:
    honest = terms_of(SPECS[name])
    assert refused_field(SPECS[name], mechanism=with_parameters(honest.mechanism, **parameters)) == "delta"


LAYOUT, BALL = Layout.example(), Ball("max", 1.0, 4)
OTHERS: list[tuple[str, Mechanism]] = [
    ("local", LaplaceCells(LAYOUT, 1.0)),
    ("local", CentralSums(LAYOUT, 10.0)),
    ("local", VectorSymbol(BALL, 1.0, 2, 1, 3)),
    ("shuffle", BitVectors(BALL, 5, 4500, 0.5, 900)),
    ("shuffle", CentralSums(LAYOUT, 10.0)),
    ("central", SignedSymbol(LAYOUT, 1.0, 1, False)),
    ("central", CentralVectors(BALL, 1e6)),
    ("none", CentralVectors(BALL, 0.0)),
    ("none", SignedSymbol(LAYOUT, 1.0, 1, False)),
    ("phased-local", CentralVectors(BALL, 1e6)),
    ("phased-local", BitVectors(BALL, 5, 50, 0.5, 13)),
    ("phased-local", SignedSymbol(LAYOUT, 1.0, 1, False)),
    ("phased-shuffle", VectorSymbol(BALL, 1.0, 2, 1, 3)),
    ("phased-shuffle", CentralVectors(BALL, 1e6)),
    ("phased-none", GaussianVectors(BALL, 1e5)),
]


@pytest.mark.parametrize(("name", "other"), OTHERS)
def test_mechanisms_of_others_are_refused(name: str, other: Mechanism) -> None:
    """The mechanism is of another trust model, of the lab, or for another kind of report."""
    assert refused_field(SPECS[name], mechanism=other) == "mechanism"


NUMBERS = {"central-pure": "scale", "phased-normal": "standard_deviation", "phased-shuffle": "probability"}


@pytest.mark.parametrize("value", [math.nan, math.inf, -9.0, 0.0, 1e300])
@pytest.mark.parametrize(
    "name", ["local", "shuffle", "central-pure", "phased-local", "phased-normal", "phased-shuffle"]
)
def test_parameters_that_no_randomizer_has_are_refused(name: str, value: float) -> None:
    """They fail in the decoder, or are refused."""
    terms = terms_of(SPECS[name])
    fields = decode(encode(terms), dict)
    fields["mechanism"][NUMBERS.get(name, "epsilon")] = value

    def check_terms() -> None:
        verify(decode(encode(fields), Terms), SPECS[name], "", facts_of(SPECS[name], terms), WIDE)

    with pytest.raises(PrivateerError):
        check_terms()


TOO_MUCH: list[tuple[str, dict[str, Any], str]] = [
    ("phased-shuffle", {"bits": 1 << 40}, "messages"),
    ("phased-local", {"directions": 1025}, "directions"),
    ("phased-local", {"directions": 1 << 14, "chosen": 1}, "directions"),
    ("phased-local", {"seed": -1}, "seed"),
    ("phased-local", {"seed": 1 << 64}, "seed"),
]


@pytest.mark.parametrize(("name", "parameters", "field"), TOO_MUCH)
def test_parameters_too_large_for_a_device_are_refused(name: str, parameters: dict[str, Any], field: str) -> None:
    """Refused before the accountant is asked, which could take long, and before the report is paid for."""
    honest = terms_of(SPECS[name])
    assert refused_field(SPECS[name], mechanism=with_parameters(honest.mechanism, **parameters)) == field


def test_a_local_epsilon_above_the_specs_is_refused() -> None:
    strict = make_spec(SHUFFLE | {"privacy.local_epsilon_max": 2.0})
    costly = terms_of(make_spec(SHUFFLE)).mechanism
    assert refused_field(strict, mechanism=costly) == "local_epsilon"


def test_a_round_with_fewer_reports_than_the_specs_minimum_is_refused() -> None:
    for name, min_reports in (("phased-reduced", 10), ("phased-shuffle", 22), ("phased-local", 1), ("shuffle", 999)):
        spec = SPECS[name]
        honest = terms_of(spec)
        terms = calibrate(spec.privacy, honest.batch_size, spec.typical_question(), min_reports)
        with pytest.raises(TermsRefused) as refusal:
            verify(terms, spec, "", facts_of(spec, terms, least=min_reports, deadline=9), WIDE)
        assert refusal.value.field == "least"


def test_a_batch_below_min_batch_is_refused() -> None:
    spec = make_spec(SHUFFLE)
    terms = terms_of(spec, batch=900)
    with pytest.raises(TermsRefused) as refusal:
        verify(terms, spec, "", facts_of(spec, terms), WIDE)
    assert refusal.value.field == "least"


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        (Limits(epsilon=0.99), "epsilon"),
        (Limits(delta=1e-7), "delta"),
        (Limits(local_epsilon=3.0), "local_epsilon"),
        (Limits(epsilon=math.nan), "epsilon"),
        (Limits(honest_fraction=0.8), "honest_fraction"),
        (Limits(min_batch=1001), "batch_size"),
    ],
)
def test_the_devices_limits_hold(limits: Limits, field: str) -> None:
    check(make_spec(SHUFFLE), Limits())
    assert refused_field(make_spec(SHUFFLE), limits) == field


def test_a_batch_above_the_horizon_is_refused() -> None:
    spec = make_spec(SHUFFLE)
    terms = replace(terms_of(spec), batch_size=10**9, honest=9 * 10**8)
    with pytest.raises(TermsRefused) as refusal:
        verify(terms, spec, "", facts_of(spec, terms), Limits())
    assert refusal.value.field == "batch_size"


@pytest.mark.parametrize("name", ["central", "none", "phased-central", "phased-none"])
def test_records_go_to_a_server_only_if_the_application_says_so(name: str) -> None:
    assert refused_field(SPECS[name], Limits(epsilon=math.inf)) == "model"
    check(SPECS[name], Limits(epsilon=math.inf, allow_central=True))


@pytest.mark.parametrize("name", ["none", "phased-none"])
def test_no_promise_is_more_than_a_finite_budget(name: str) -> None:
    assert refused_field(SPECS[name], Limits(allow_central=True)) == "epsilon"


def test_vectors_that_a_shuffler_could_read_are_not_for_everybody() -> None:
    """The promise is void if shuffler and server collude."""
    assert refused_field(SPECS["phased-shuffle"], Limits(epsilon=4.0)) == "local_epsilon"


@pytest.mark.parametrize("model", ["local", "shuffle", "central", "none"])
def test_promises_that_depend_on_hidden_arms_need_consent(model: str) -> None:
    privacy = {"local": {}, "shuffle": {"privacy.delta": 1e-6}, "central": {"privacy.delta": 1e-6}}.get(model)
    changes = {"privacy.epsilon": None} if privacy is None else privacy
    spec = make_spec({"privacy.model": model, "privacy.arm_visibility": "hidden", **changes})
    limits = Limits(epsilon=math.inf, allow_central=True)
    if model in ("shuffle", "central"):
        assert refused_field(spec, limits) == "arm_visibility"
    else:
        check(spec, limits)
    check(spec, Limits(epsilon=math.inf, allow_central=True, arm_visibility="hidden"))


def test_phases_of_other_sizes_verify() -> None:
    for trust in ("local", "shuffle", "central"):
        spec = phased_spec(SMALL | {"algorithm.participants_factor": 700}, trust)
        check(spec)
