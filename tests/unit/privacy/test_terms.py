"""Terms for keyed means: calibrated terms keep their promise, and have the most information."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privateer_core.accounting.gaussian import gaussian_standard_deviation
from privateer_core.codec import decode, encode
from privateer_core.errors import SpecError
from privateer_core.mechanisms import CentralSums, Mechanism, SignedSymbol
from privateer_core.mechanisms.signed_symbol import key_information
from privateer_core.primitives.public_coins import Layout
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.privacy.terms import Terms, calibrate
from privateer_core.privacy.trust import count_honest
from privateer_core.sampling.randomness import RandomizedResponse
from privateer_core.spec.privacy import Privacy
from privateer_lab.audit.tightness import lemma_delta
from privateer_papers.paper_1.laplace_cells import LaplaceCells
from privateer_papers.published_trust import PublishedPrivacy

CENTRAL = Privacy(model="central", epsilon=1.0, delta=1e-6)


def terms_of(privacy: Privacy, batch: int, undecided: float = 1.0, key_share: float = 1.0) -> Terms:
    return calibrate(privacy, batch, KeyedMeans(Layout.example(), undecided, key_share))


def mechanism_of(privacy: Privacy, batch: int, undecided: float = 1.0, key_share: float = 1.0) -> Mechanism:
    return terms_of(privacy, batch, undecided, key_share).mechanism


def test_calibrated_delta_is_that_of_the_lemma():
    terms = terms_of(Privacy(model="shuffle", epsilon=0.5, delta=2e-3), 1000)
    symbol = terms.mechanism
    assert 1.9e-3 < lemma_delta(0.5, symbol.epsilon, symbol.symbols, terms.honest) <= 2e-3
    planted = lemma_delta(0.5, 1.01 * symbol.epsilon, symbol.symbols, terms.honest)
    assert planted > 2e-3, "planted: a local epsilon a hundredth too large is caught"


def test_published_terms_have_their_true_delta():
    terms = terms_of(PublishedPrivacy(model="local", epsilon=2.0), 100)
    assert isinstance(terms.mechanism, LaplaceCells)
    assert (terms.local_epsilon, terms.honest, terms.keeps_promise) == (2.0, 0, True)


def test_central_noise_is_the_analytic_gaussians_at_sensitivity_two():
    terms = terms_of(CENTRAL, 1000)
    assert isinstance(terms.mechanism, CentralSums)
    assert terms.mechanism.standard_deviation == pytest.approx(gaussian_standard_deviation(1.0, 1e-6, 2.0), rel=2e-3)
    assert terms.keeps_promise
    assert math.isinf(terms.local_epsilon)


def test_a_delta_of_0_takes_laplace_noise():
    terms = terms_of(Privacy(model="central", epsilon=1.0), 1000)
    assert terms.mechanism.scale == pytest.approx(4.0)
    assert (terms.keeps_promise, terms.true_delta, terms.mechanism.sampling) == (True, 0.0, 0.0)


@pytest.mark.parametrize(
    "privacy", [Privacy(model="local", epsilon=1.0), Privacy(model="none"), Privacy(model="central", epsilon=1.0)]
)
def test_no_honest_participants_are_needed_without_a_batch(privacy):
    assert count_honest(privacy, 1000) == 0


def test_terms_survive_encoding():
    for privacy in (Privacy(model="local", epsilon=1.0), CENTRAL, Privacy(model="none")):
        terms = terms_of(privacy, 1000)
        assert encode(decode(encode(terms), Terms)) == encode(terms)


def test_no_honest_report_is_refused():
    privacy = Privacy(model="shuffle", epsilon=1.0, delta=1e-6, honest_fraction=0.01, min_batch=100)
    with pytest.raises(SpecError) as refused:
        terms_of(privacy, 99)
    assert refused.value.field == "privacy.honest_fraction"


@given(st.integers(1, 10**7), st.floats(0.01, 1))
def test_honest_people_are_rounded_down_by_little(batch, fraction):
    privacy = Privacy(model="shuffle", epsilon=1.0, delta=1e-6, honest_fraction=fraction)
    count, exact = count_honest(privacy, batch), fraction * batch
    assert 0 <= count <= exact
    assert count >= 0.9 * exact - 1


@pytest.mark.parametrize(
    ("epsilon", "buckets", "elsewhere"), [(1.0, 1, False), (1.0, 2, True), (4.0, 8, True), (4.0, 8, False)]
)
def test_information_is_squared_gain_over_variance(epsilon, buckets, elsewhere):
    """Compared with the explicit law of participants with the key, with another key, and without a key."""
    response = RandomizedResponse(epsilon, 2 * buckets + elsewhere)
    e = math.exp(epsilon)
    total = e + 2 * buckets + elsewhere - 1
    hit_of_key, other = (e + 1) / total, ((e + 1) / buckets + 2 * (buckets - 1) / buckets) / total
    none = 2 / total if elsewhere else 1 / buckets
    expected = ((e - 1) / total) ** 2 / (0.1 * hit_of_key + 0.5 * other + 0.4 * none)
    assert key_information(epsilon, buckets, elsewhere, 0.6, 0.1) == pytest.approx(expected)
    assert response.gain == pytest.approx((e - 1) / total)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0, 8.0])
@pytest.mark.parametrize("undecided", [1.0, 0.25])
def test_calibration_is_the_best_of_the_alphabets(epsilon, undecided):
    privacy = Privacy(model="local", epsilon=epsilon)
    symbol = mechanism_of(privacy, 1000, undecided, undecided / 4)
    assert isinstance(symbol, SignedSymbol)
    chosen = key_information(epsilon, symbol.buckets, symbol.elsewhere, undecided, undecided / 4)
    rivals = [
        key_information(epsilon, 2**b, elsewhere, undecided, undecided / 4)
        for b in range(11)
        for elsewhere in (False, True)
    ]
    assert chosen >= 0.999 * max(rivals)
