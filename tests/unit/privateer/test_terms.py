"""Terms: what calibrate promises verifies, and every lie is refused."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privateer.accounting.amplification import shuffled_delta
from privateer.accounting.gaussian import gaussian_standard_deviation
from privateer.errors import SpecError, TermsRefused
from privateer.experiment import Privacy
from privateer.sampling.response import RandomizedResponse
from privateer.terms import calibrate, honest_count, information
from privateer.verification import Limits, verify
from tests.support.shuffling import sampled_blanket_delta

LOCAL = Privacy(model="local", epsilon=1.0)
SHUFFLE = Privacy(model="shuffle", epsilon=1.0, delta=1e-6)
WIDE = Limits(epsilon=16, delta=0.5, local_epsilon=16)


@given(st.floats(0.01, 16), st.integers(1, 10**7), st.floats(0, 1), st.floats(0, 1))
def test_local_terms_verify(epsilon, batch, undecided, key_share):
    privacy = Privacy(model="local", epsilon=epsilon)
    terms = calibrate(privacy, batch, undecided, key_share)
    assert terms.local_epsilon <= epsilon
    verify(terms, privacy, batch, WIDE)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-2])
@pytest.mark.parametrize("batch", [1000, 12_345])
@pytest.mark.parametrize("undecided", [1.0, 0.2])
def test_shuffle_terms_verify(epsilon, delta, batch, undecided):
    privacy = Privacy(model="shuffle", epsilon=epsilon, delta=delta, min_batch=batch)
    terms = calibrate(privacy, batch, undecided, undecided / 4)
    verify(terms, privacy, batch, WIDE)
    assert epsilon <= terms.local_epsilon <= privacy.local_epsilon_max
    assert terms.honest <= privacy.honest_fraction * batch
    assert shuffled_delta(epsilon, terms.local_epsilon, terms.symbols, terms.honest) <= delta


def test_calibrated_delta_holds_by_monte_carlo():
    """The lemma sampled at the calibrated parameters, delta 0.002: six standard errors, chance 1e-9."""
    privacy = Privacy(model="shuffle", epsilon=0.5, delta=2e-3, min_batch=1000)
    terms = calibrate(privacy, 1000, 1.0, 1.0)
    estimate, error = sampled_blanket_delta(0.5, terms.local_epsilon, terms.symbols, terms.honest, 1_000_000, 4)
    assert estimate - 6 * error <= 2e-3
    more, error = sampled_blanket_delta(0.5, 1.1 * terms.local_epsilon, terms.symbols, terms.honest, 1_000_000, 4)
    assert more - 6 * error > 2e-3, "planted: a local epsilon a tenth too large is caught"


def test_published_terms_verify():
    privacy = Privacy(model="local", epsilon=2.0, calibration="published")
    terms = calibrate(privacy, 100, 1.0, 1.0)
    assert (terms.mechanism, terms.local_epsilon) == ("laplace", 2.0)
    verify(terms, privacy, 100, WIDE)


LIES = {
    "model": {"model": "shuffle"},
    "epsilon": {"epsilon": 0.9},
    "delta": {"delta": 1e-9},
    "batch": {"batch": 999},
    "honest": {"honest": 1},
    "mechanism": {"mechanism": "laplace"},
    "local_epsilon": {"local_epsilon": 1.0001},
    "local_epsilon of 0": {"local_epsilon": 0.0},
    "negative local_epsilon": {"local_epsilon": -1.0},
    "nan local_epsilon": {"local_epsilon": math.nan},
    "infinite local_epsilon": {"local_epsilon": math.inf},
    "no buckets": {"buckets": 0},
    "negative buckets": {"buckets": -3},
    "too many buckets": {"buckets": 1 << 14, "elsewhere": True},
}


@pytest.mark.parametrize("lie", LIES)
def test_local_lies_are_refused(lie):
    terms = calibrate(LOCAL, 1000, 1.0, 1.0)
    verify(terms, LOCAL, 1000, Limits())
    with pytest.raises(TermsRefused) as refused:
        verify(replace(terms, **LIES[lie]), LOCAL, 1000, Limits())
    assert refused.value.field in {lie.split()[-1], lie.split()[0], "buckets"}


SHUFFLE_LIES = {
    "model": {"model": "local"},
    "epsilon": {"epsilon": 0.5},
    "delta": {"delta": 1e-7},
    "batch": {"batch": 20_000},
    "honest": {"honest": 10_000},
    "a higher local epsilon": {"local_epsilon": 5.8},
    "far too high a local epsilon": {"local_epsilon": 7.9},
    "nan": {"local_epsilon": math.nan},
}


@pytest.mark.parametrize("lie", SHUFFLE_LIES)
def test_shuffle_lies_are_refused(lie):
    terms = calibrate(SHUFFLE, 10_000, 1.0, 1.0)
    verify(terms, SHUFFLE, 10_000, Limits())
    with pytest.raises(TermsRefused) as refused:
        verify(replace(terms, **SHUFFLE_LIES[lie]), SHUFFLE, 10_000, Limits())
    assert refused.value.field


CENTRAL = Privacy(model="central", epsilon=1.0, delta=1e-6)
CURATED = Limits(curator=True)


def test_central_noise_is_the_analytic_gaussians_at_sensitivity_two():
    terms = calibrate(CENTRAL, 1000, 1.0, 1.0)
    assert terms.standard_deviation == pytest.approx(gaussian_standard_deviation(1.0, 1e-6, 2.0), rel=2e-3)
    verify(terms, CENTRAL, 1000, CURATED)


@pytest.mark.parametrize(
    ("lie", "field"),
    [
        ({"standard_deviation": 8.4}, "delta"),
        ({"standard_deviation": 0.0}, "standard_deviation"),
        ({"standard_deviation": -9.0}, "standard_deviation"),
        ({"standard_deviation": math.nan}, "standard_deviation"),
        ({"standard_deviation": math.inf}, "standard_deviation"),
        ({"epsilon": 0.5}, "epsilon"),
        ({"delta": 1e-5}, "delta"),
        ({"mechanism": "none"}, "mechanism"),
        ({"mechanism": "signed-symbol"}, "mechanism"),
        ({"model": "none"}, "model"),
        ({"batch": 10}, "batch"),
    ],
)
def test_central_lies_are_refused(lie, field):
    terms = calibrate(CENTRAL, 1000, 1.0, 1.0)
    with pytest.raises(TermsRefused) as refused:
        verify(replace(terms, **lie), CENTRAL, 1000, CURATED)
    assert refused.value.field == field


@pytest.mark.parametrize("privacy", [CENTRAL, Privacy(model="none")])
def test_records_go_to_a_server_only_if_the_application_says_so(privacy):
    terms = calibrate(privacy, 1000, 1.0, 1.0)
    with pytest.raises(TermsRefused) as refused:
        verify(terms, privacy, 1000, Limits(epsilon=math.inf))
    assert refused.value.field == "model"
    verify(terms, privacy, 1000, Limits(epsilon=math.inf, curator=True))


def test_no_promise_is_more_than_a_finite_budget():
    privacy = Privacy(model="none")
    with pytest.raises(TermsRefused) as refused:
        verify(calibrate(privacy, 10, 1.0, 1.0), privacy, 10, CURATED)
    assert refused.value.field == "epsilon"


def test_a_batch_below_min_batch_is_refused():
    terms = calibrate(SHUFFLE, 900, 1.0, 1.0)
    with pytest.raises(TermsRefused):
        verify(terms, SHUFFLE, 900, Limits())


def test_a_local_epsilon_above_the_specs_is_refused():
    terms = calibrate(SHUFFLE, 1000, 1.0, 1.0)
    strict = SHUFFLE.model_copy(update={"local_epsilon_max": 2.0})
    with pytest.raises(TermsRefused):
        verify(terms, strict, 1000, Limits())


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        (Limits(epsilon=0.99), "epsilon"),
        (Limits(delta=1e-7), "delta"),
        (Limits(local_epsilon=3.0), "local_epsilon"),
        (Limits(epsilon=math.nan), "epsilon"),
    ],
)
def test_the_devices_limits_hold(limits, field):
    terms = calibrate(SHUFFLE, 1000, 1.0, 1.0)
    with pytest.raises(TermsRefused) as refused:
        verify(terms, SHUFFLE, 1000, limits)
    assert refused.value.field == field
    assert refused.value.remedy


def test_no_honest_report_is_refused():
    privacy = Privacy(model="shuffle", epsilon=1.0, delta=1e-6, honest_fraction=0.01, min_batch=100)
    with pytest.raises(SpecError) as refused:
        calibrate(privacy, 99, 1.0, 1.0)
    assert refused.value.field == "privacy.honest_fraction"


@given(st.integers(1, 10**7), st.floats(0.01, 1))
def test_honest_count_rounds_down_by_little(batch, fraction):
    privacy = Privacy(model="shuffle", epsilon=1.0, delta=1e-6, honest_fraction=fraction)
    count, exact = honest_count(privacy, batch), fraction * batch
    assert 0 <= count <= exact
    assert count >= 0.9 * exact - 1


@pytest.mark.parametrize(
    ("epsilon", "buckets", "elsewhere"), [(1.0, 1, False), (1.0, 2, True), (4.0, 8, True), (4.0, 8, False)]
)
def test_information_is_squared_gain_over_variance(epsilon, buckets, elsewhere):
    """Against the law written out: a key's own person, another key's, and one without a key."""
    response = RandomizedResponse(epsilon, 2 * buckets + elsewhere)
    e = math.exp(epsilon)
    total = e + 2 * buckets + elsewhere - 1
    own, other = (e + 1) / total, ((e + 1) / buckets + 2 * (buckets - 1) / buckets) / total
    none = 2 / total if elsewhere else 1 / buckets
    expected = ((e - 1) / total) ** 2 / (0.1 * own + 0.5 * other + 0.4 * none)
    assert information(epsilon, buckets, elsewhere, 0.6, 0.1) == pytest.approx(expected)
    assert response.gain == pytest.approx((e - 1) / total)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0, 8.0])
@pytest.mark.parametrize("undecided", [1.0, 0.25])
def test_calibration_is_the_best_of_the_alphabets(epsilon, undecided):
    privacy = Privacy(model="local", epsilon=epsilon)
    terms = calibrate(privacy, 1000, undecided, undecided / 4)
    chosen = information(epsilon, terms.buckets, terms.elsewhere, undecided, undecided / 4)
    rivals = [
        information(epsilon, 2**b, elsewhere, undecided, undecided / 4)
        for b in range(11)
        for elsewhere in (False, True)
    ]
    assert chosen >= 0.999 * max(rivals)
