"""Terms of vectors: the promise recomputed, and errors within the stated spread; false alarms as in the support."""

import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from scipy import stats

from privateer.accounting.accountant import account
from privateer.accounting.gaussian import gaussian_standard_deviation
from privateer.certificate import read_certificate, recompute
from privateer.codec import decode, encode
from privateer.contributions import BoundedVectors
from privateer.errors import SpecError
from privateer.mechanisms.vector_bits import fine_plan
from privateer.mechanisms.vector_certificate import certify_vectors
from privateer.mechanisms.vector_symbol import VectorSymbol
from privateer.mechanisms.vector_terms import VectorTerms, calibrate_vectors
from privateer.phased import VectorPrivacy
from privateer.vectors import Ball
from tests.support.phased import TRUST
from tests.support.statistics import FALSE_ALARM

PEOPLE = 60


def terms_of(trust, people=PEOPLE, coordinates=4, bound=0.5):
    privacy = VectorPrivacy.model_validate(TRUST[trust] or {"model": "none"})
    return calibrate_vectors(privacy, people, coordinates, bound, 9)


@pytest.mark.parametrize("trust", [trust for trust in TRUST if "published" not in trust and trust != "none"])
@pytest.mark.parametrize("people", [2, 60, 5000])
def test_tight_terms_keep_the_promise_and_not_much_more(trust, people):
    terms = terms_of(trust, people)
    assert terms.holds
    assert terms.true_delta <= terms.delta
    if terms.mechanism != "symbol":
        weaker = replace(terms, standard_deviation=0.97 * terms.standard_deviation, bits=math.floor(0.9 * terms.bits))
        assert not weaker.holds, "planted: a little less noise"


def test_published_terms_and_their_true_delta():
    """Paper 5's normal noise at (4, 1e-6) in truth; its bits are hundreds of times too many."""
    for trust in ("central-published", "local-published"):
        terms = terms_of(trust)
        half, slope = (
            terms.ball.diameter / terms.standard_deviation / 2,
            terms.epsilon * terms.standard_deviation / terms.ball.diameter,
        )
        exact = stats.norm.cdf(half - slope) - math.exp(terms.epsilon) * stats.norm.cdf(-half - slope)
        assert terms.true_delta == pytest.approx(exact + terms.sampling, rel=1e-6)
        assert terms.holds == (exact <= 1e-6)
    classic = replace(terms_of("central-published"), epsilon=10.0, delta=0.25)
    standard_deviation = classic.ball.diameter * math.sqrt(2 * math.log(1.25 / 0.25)) / 10
    loose = replace(classic, standard_deviation=standard_deviation)
    assert loose.true_delta == pytest.approx(0.789, abs=0.001)
    assert not loose.holds
    assert terms_of("shuffle-published").true_delta < 1e-12


def test_terms_of_nobody_and_of_no_privacy():
    for trust in TRUST:
        privacy = VectorPrivacy.model_validate(TRUST[trust] or {"model": "none"})
        assert VectorTerms.nobody(privacy, 3, 1.0).batch == 0
    terms = terms_of("none")
    assert (terms.event, terms.true_delta, terms.holds) == (None, 1.0, True)


@pytest.mark.parametrize("trust", TRUST)
def test_terms_travel(trust):
    terms = terms_of(trust)
    assert decode(encode(terms), VectorTerms) == terms
    assert terms.mechanism() == decode(encode(terms), VectorTerms).mechanism()
    assert terms.messages >= 1
    assert terms.message_bits in (1, 8 * terms.mechanism().report_size)


def test_too_few_honest_people():
    with pytest.raises(SpecError, match="honest"):
        terms_of("shuffle", 1)


def errors(terms, draws, seed):
    """Errors of released averages along the diagonal, for the vectors for which they are largest."""
    rng = np.random.default_rng(seed)
    mechanism = terms.mechanism()
    direction = np.ones(terms.coordinates) / math.sqrt(terms.coordinates)
    corner = terms.bound * np.ones(terms.coordinates)
    found = []
    for share in (0.0, 0.37, 1.0):
        people = np.tile(share * corner, (PEOPLE, 1))
        for _ in range(draws):
            slots = rng.integers(0, 2**32, PEOPLE, dtype=np.uint32)
            release = mechanism.simulate(BoundedVectors(slots, people), rng)
            found.append((release.sums / PEOPLE - share * corner) @ direction)
    return np.array(found).reshape(3, draws)


@pytest.mark.parametrize("trust", [trust for trust in TRUST if trust != "none"])
def test_errors_are_within_the_stated_spread(trust):
    """Variances at most as stated, and close to it for some vector; planted: four fifths of the variance."""
    draws = 1500
    terms = terms_of(trust)
    variance, scale = terms.spread(PEOPLE)
    found = errors(terms, draws, 31)
    limit = stats.chi2.isf(FALSE_ALARM / 3, draws) / draws
    low = stats.chi2.ppf(FALSE_ALARM / 3, draws) / draws
    ratio = (found**2).mean(axis=1) / variance
    assert (ratio <= limit * 1.02).all()
    assert ratio.max() >= low * 0.93
    assert (ratio / 0.8).max() > limit
    assert (scale > 0) == (terms.mechanism == "symbol")


@pytest.mark.parametrize("trust", [trust for trust in TRUST if trust != "none"])
@pytest.mark.parametrize("beta", [0.1, 0.01])
def test_errors_beyond_the_width_are_as_rare_as_stated(trust, beta):
    """Planted: half the width."""
    draws = 1500
    terms = terms_of(trust)
    variance, scale = terms.spread(PEOPLE)
    width = math.sqrt(2 * variance * math.log(1 / beta)) + scale * math.log(1 / beta)
    found = errors(terms, draws, 32).ravel()
    for sign in (1, -1):
        assert stats.binom.sf((sign * found > width).sum() - 1, found.size, beta) > FALSE_ALARM
    assert stats.binom.sf((np.abs(found) > width / 3).sum() - 1, found.size, 2 * beta) < FALSE_ALARM


@pytest.mark.parametrize("probability", [0.05, 0.2, 0.4])
def test_unfair_bits_have_kearns_and_sauls_spread(probability):
    """The logarithm of the mean of exp(l (bit - chance)) is at most l^2/2 times the variance, and touches it."""
    unit = replace(terms_of("shuffle"), bits=1, probability=probability)
    fair = replace(terms_of("shuffle"), bits=1, probability=0.5)
    step = (2 * unit.bound / unit.levels) ** 2
    variance = unit.spread(1)[0] / step - 0.25
    assert fair.spread(1)[0] / step - 0.25 == pytest.approx(0.25)
    rates = np.linspace(-8, 8, 4001)
    cumulant = np.log1p(probability * np.expm1(rates)) - rates * probability
    excess = cumulant - rates**2 / 2 * variance
    assert excess.max() <= 1e-12
    assert (cumulant - rates**2 / 2 * 0.97 * variance).max() > 0


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (10.0, 0.25), (5.0, 1e-6)])
@pytest.mark.parametrize("people", [2, 49, 1352])
def test_fine_plans_hide_as_a_curator_does(epsilon, delta, people):
    ball = Ball("max", 1.0, 25)
    made = fine_plan(ball, epsilon, delta, people)
    noise = math.sqrt(people * made.bits / 4) * made.unit
    rounding = people * made.unit**2 / 4
    assert noise <= 1.03 * 2 * math.sqrt(25) * gaussian_standard_deviation(epsilon, delta)
    assert rounding <= noise**2 / 32 or made.levels == 4
    event = replace(
        terms_of("shuffle", people), coordinates=25, honest=people, levels=made.levels, bits=made.bits
    ).event
    assert account(event).delta(epsilon) <= delta


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 10.0])
@pytest.mark.parametrize("coordinates", [1, 3, 20])
def test_the_worst_projection_of_a_symbol(epsilon, coordinates):
    """Between the mean over directions and the whole of the error."""
    symbol = VectorSymbol(Ball("l2", 2.0, coordinates), epsilon, 8, 2, 1)
    assert symbol.error / coordinates <= symbol.worst_projection * (1 + 1e-12)
    assert symbol.worst_projection <= symbol.error * (1 + 1e-12) + (coordinates == 1) * symbol.error


@pytest.mark.parametrize("trust", TRUST)
def test_certificates_hold_and_say_what_is_true(trust):
    terms = [terms_of(trust, people) for people in (40, 60, 300)]
    certificate = certify_vectors("test", terms)
    read = read_certificate(msgspec.json.decode(msgspec.json.encode(certificate)))
    assert read == certificate
    assert all(verdict.holds for verdict in recompute(certificate))
    first = certificate.claims[0]
    if trust == "none":
        assert first.epsilon is None
    else:
        assert first.epsilon == terms[0].epsilon
        assert first.delta == terms[0].delta or "published" in trust
        assert first.delta >= max(one.true_delta for one in terms) * (1 - 1e-6)
    assert [claim.against for claim in certificate.claims[1:]] == {
        "local": [],
        "shuffle": ["server and shuffler"],
    }.get(terms[0].model, ["the server"])


def test_a_certificate_of_more_than_is_true_does_not_hold():
    """Planted: the noise of a weaker promise."""
    weak = replace(terms_of("central"), standard_deviation=0.9 * terms_of("central").standard_deviation)
    claims = certify_vectors("test", [replace(terms_of("central"), standard_deviation=weak.standard_deviation)]).claims
    assert claims[0].delta > terms_of("central").delta
    forged = replace_claim(certify_vectors("test", [weak]), terms_of("central").delta)
    assert not recompute(forged)[0].holds


def replace_claim(certificate, delta):
    first = msgspec.structs.replace(certificate.claims[0], delta=delta)
    return msgspec.structs.replace(certificate, claims=(first, *certificate.claims[1:]))
