"""What a device checks: honest terms of every trust model are accepted, and every lie is refused."""

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
    arms="hidden",
    curator=True,
)
"""The limits of a device that does not mind: the promise alone is checked."""


def facts_of(spec: Spec, terms: Terms, **changes: Any) -> Round:
    """The round that a server publishes with these terms."""
    told = {
        "experiment": spec.name,
        "version": 1,
        "model": spec.privacy.model,
        "batch": terms.batch,
        "sealed_size": 100,
        "public_key": bytes(32),
        "messages": terms.messages,
    }
    if spec.round_seconds:
        told |= {"least": spec.fewest(terms.batch), "deadline": 1_000_000}
    return Round(**(told | changes))


def terms_of(spec: Spec, cohort: str = "", batch: int | None = None) -> Terms:
    """The terms of a cohort's first round."""
    batch = spec.first_batch(cohort) if batch is None else batch
    return calibrate(spec.privacy_of(cohort), batch, spec.usual_question(), spec.fewest(batch), spec.reports)


def check(spec: Spec, limits: Limits = WIDE, cohort: str = "", **lies: Any) -> None:
    """Verify the terms of a cohort's first round, with lies about them; the round itself is honest."""
    honest = terms_of(spec, cohort)
    verify(replace(honest, **lies), spec, cohort, facts_of(spec, honest), limits)


def refused(*arguments: Any, **lies: Any) -> str | None:
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
    assert refused(SPECS[name]) == "calibration"


def test_a_promise_to_a_source_is_its_own() -> None:
    sources = SPECS["sources"]
    assert refused(sources, cohort="clinic", epsilon=1.0) == "epsilon"
    assert refused(sources, epsilon=2.0) == "epsilon"


@given(st.floats(0.01, 16), st.integers(1, 10**7), st.floats(0, 1), st.floats(0, 1))
def test_local_terms_verify(epsilon: float, batch: int, undecided: float, key_share: float) -> None:
    spec = make_spec({"privacy.epsilon": epsilon})
    terms = calibrate(spec.privacy, batch, KeyedMeans(Layout.small(), undecided, key_share))
    assert terms.local_epsilon <= epsilon
    verify(terms, spec, "", facts_of(spec, terms), WIDE)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-2])
@pytest.mark.parametrize("batch", [1000, 12_345])
@pytest.mark.parametrize("undecided", [1.0, 0.2])
def test_shuffle_terms_verify(epsilon: float, delta: float, batch: int, undecided: float) -> None:
    spec = make_spec({"privacy.model": "shuffle", "privacy.epsilon": epsilon, "privacy.delta": delta})
    terms = calibrate(spec.privacy, batch, KeyedMeans(Layout.small(), undecided, undecided / 4))
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
    ("local", {"batch": 999}, "batch"),
    ("local", {"honest": 1}, "honest"),
    ("local", {"calibration": "published"}, "calibration"),
    ("shuffle", {"model": "local"}, "model"),
    ("shuffle", {"epsilon": 0.5}, "epsilon"),
    ("shuffle", {"delta": 1e-7}, "delta"),
    ("shuffle", {"batch": 20_000}, "batch"),
    ("shuffle", {"honest": 1000}, "honest"),
    ("central", {"epsilon": 0.5}, "epsilon"),
    ("central", {"delta": 1e-5}, "delta"),
    ("central", {"model": "none"}, "model"),
    ("central", {"batch": 10}, "batch"),
    ("phased-shuffle", {"honest": 23}, "honest"),
    ("phased-reduced", {"honest": 13}, "honest"),
    ("phased-none", {"epsilon": 1.0}, "epsilon"),
]


@pytest.mark.parametrize(("name", "lies", "field"), LIES)
def test_lies_about_the_promise_are_refused(name: str, lies: dict[str, Any], field: str) -> None:
    assert refused(SPECS[name], **lies) == field


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
    assert refused(SPECS[name], mechanism=with_parameters(honest.mechanism, **parameters)) == "delta"


LAYOUT, BALL = Layout.small(), Ball("max", 1.0, 4)
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
    """One of another trust model, of the lab, or for another kind of report."""
    assert refused(SPECS[name], mechanism=other) == "mechanism"


NUMBERS = {"central-pure": "scale", "phased-normal": "standard_deviation", "phased-shuffle": "probability"}


@pytest.mark.parametrize("value", [math.nan, math.inf, -9.0, 0.0, 1e300])
@pytest.mark.parametrize(
    "name", ["local", "shuffle", "central-pure", "phased-local", "phased-normal", "phased-shuffle"]
)
def test_numbers_that_no_randomizer_has(name: str, value: float) -> None:
    """They fail in the decoder, or are refused."""
    terms = terms_of(SPECS[name])
    told = decode(encode(terms), dict)
    told["mechanism"][NUMBERS.get(name, "epsilon")] = value

    def taken() -> None:
        verify(decode(encode(told), Terms), SPECS[name], "", facts_of(SPECS[name], terms), WIDE)

    with pytest.raises(PrivateerError):
        taken()


TOO_MUCH: list[tuple[str, dict[str, Any], str]] = [
    ("phased-shuffle", {"bits": 1 << 40}, "messages"),
    ("phased-local", {"directions": 1025}, "directions"),
    ("phased-local", {"directions": 1 << 14, "chosen": 1}, "directions"),
    ("phased-local", {"seed": -1}, "seed"),
    ("phased-local", {"seed": 1 << 64}, "seed"),
]


@pytest.mark.parametrize(("name", "parameters", "field"), TOO_MUCH)
def test_what_a_device_cannot_work_with(name: str, parameters: dict[str, Any], field: str) -> None:
    """Refused before the accountant is asked, which could take long, and before the report is paid for."""
    honest = terms_of(SPECS[name])
    assert refused(SPECS[name], mechanism=with_parameters(honest.mechanism, **parameters)) == field


def test_a_local_epsilon_above_the_specs_is_refused() -> None:
    strict = make_spec(SHUFFLE | {"privacy.local_epsilon_max": 2.0})
    costly = terms_of(make_spec(SHUFFLE)).mechanism
    assert refused(strict, mechanism=costly) == "local_epsilon"


def test_a_round_that_may_close_with_fewer_than_the_spec_says() -> None:
    for name, least in (("phased-reduced", 10), ("phased-shuffle", 22), ("phased-local", 1), ("shuffle", 999)):
        spec = SPECS[name]
        honest = terms_of(spec)
        terms = calibrate(spec.privacy, honest.batch, spec.usual_question(), least)
        with pytest.raises(TermsRefused) as refusal:
            verify(terms, spec, "", facts_of(spec, terms, least=least, deadline=9), WIDE)
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
        (Limits(min_batch=1001), "batch"),
    ],
)
def test_the_devices_limits_hold(limits: Limits, field: str) -> None:
    check(make_spec(SHUFFLE), Limits())
    assert refused(make_spec(SHUFFLE), limits) == field


def test_a_batch_that_nobody_has_is_refused() -> None:
    spec = make_spec(SHUFFLE)
    terms = replace(terms_of(spec), batch=10**9, honest=9 * 10**8)
    with pytest.raises(TermsRefused) as refusal:
        verify(terms, spec, "", facts_of(spec, terms), Limits())
    assert refusal.value.field == "batch"


@pytest.mark.parametrize("name", ["central", "none", "phased-central", "phased-none"])
def test_records_go_to_a_server_only_if_the_application_says_so(name: str) -> None:
    assert refused(SPECS[name], Limits(epsilon=math.inf)) == "model"
    check(SPECS[name], Limits(epsilon=math.inf, curator=True))


@pytest.mark.parametrize("name", ["none", "phased-none"])
def test_no_promise_is_more_than_a_finite_budget(name: str) -> None:
    assert refused(SPECS[name], Limits(curator=True)) == "epsilon"


def test_vectors_that_a_shuffler_could_read_are_not_for_everybody() -> None:
    """Nothing is left of the promise if shuffler and server collude."""
    assert refused(SPECS["phased-shuffle"], Limits(epsilon=4.0)) == "local_epsilon"


@pytest.mark.parametrize("model", ["local", "shuffle", "central", "none"])
def test_promises_that_count_on_unseen_arms(model: str) -> None:
    privacy = {"local": {}, "shuffle": {"privacy.delta": 1e-6}, "central": {"privacy.delta": 1e-6}}.get(model)
    nothing = {"privacy.epsilon": None} if privacy is None else privacy
    spec = make_spec({"privacy.model": model, "privacy.arms": "hidden", **nothing})
    seen = Limits(epsilon=math.inf, curator=True)
    if model in ("shuffle", "central"):
        assert refused(spec, seen) == "arms"
    else:
        check(spec, seen)
    check(spec, Limits(epsilon=math.inf, curator=True, arms="hidden"))


def test_phases_of_other_sizes_verify() -> None:
    for trust in ("local", "shuffle", "central"):
        spec = phased_spec(SMALL | {"algorithm.clients": 700}, trust)
        check(spec)
