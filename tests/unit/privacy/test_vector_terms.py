"""Terms for vectors: the promise recomputed, and errors within the stated spread; false alarms as in the support."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from msgspec.structs import replace as with_parameters
from scipy import stats

from privateer_core.accounting.accountant import account
from privateer_core.accounting.gaussian import gaussian_standard_deviation
from privateer_core.codec import decode, encode
from privateer_core.errors import SpecError
from privateer_core.mechanisms import BitVectors, VectorSymbol
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.questions import VectorSum
from privateer_core.privacy.terms import Terms, calibrate, uninvited_terms
from privateer_core.spec.privacy import Privacy
from privateer_papers.published_trust import PublishedPrivacy
from tests.support.phased import TRUST
from tests.support.statistics import FALSE_ALARM

PEOPLE = 60
DRAWS = 1500


def privacy_of(trust):
    kind = PublishedPrivacy if trust.endswith("-published") else Privacy
    return kind.model_validate(TRUST[trust] or {"model": "none"})


def terms_of(trust, people=PEOPLE, coordinates=4, bound=0.5):
    return calibrate(privacy_of(trust), people, VectorSum(Ball("max", bound, coordinates), 9))


@pytest.mark.parametrize("trust", [trust for trust in TRUST if "published" not in trust and trust != "none"])
@pytest.mark.parametrize("people", [2, 60, 5000])
def test_tight_terms_keep_the_promise_and_not_much_more(trust, people):
    terms = terms_of(trust, people)
    assert terms.keeps_promise
    assert terms.true_delta <= terms.delta
    if not isinstance(terms.mechanism, VectorSymbol):
        factor = 1.03 if trust != "shuffle" else 1.12
        weak = terms.mechanism.with_less_noise(factor)
        assert not replace(terms, mechanism=weak).keeps_promise, "planted: a little less noise"


def test_published_terms_and_their_true_delta():
    """Paper 5's normal noise at (4, 1e-6) in truth; its bits are hundreds of times too many."""
    for trust in ("central-published", "local-published"):
        terms = terms_of(trust)
        diameter, deviation = terms.mechanism.ball.sensitivity, terms.mechanism.standard_deviation
        half, slope = diameter / deviation / 2, terms.epsilon * deviation / diameter
        exact = stats.norm.cdf(half - slope) - math.exp(terms.epsilon) * stats.norm.cdf(-half - slope)
        assert terms.true_delta == pytest.approx(exact + terms.mechanism.sampling, rel=1e-6)
        assert terms.keeps_promise == (exact <= 1e-6)
    classic = terms_of("central-published").mechanism
    deviation = classic.ball.sensitivity * math.sqrt(2 * math.log(1.25 / 0.25)) / 10
    mechanism = with_parameters(classic, standard_deviation=deviation)
    loose = replace(terms_of("central-published"), epsilon=10.0, delta=0.25, mechanism=mechanism)
    assert loose.true_delta == pytest.approx(0.789, abs=0.001)
    assert not loose.keeps_promise
    assert terms_of("shuffle-published").true_delta < 1e-12


def test_terms_of_an_empty_round_and_without_privacy():
    for trust in TRUST:
        assert uninvited_terms(privacy_of(trust), VectorSum(Ball("max", 1.0, 3))).batch_size == 0
    terms = terms_of("none")
    assert (terms.event, terms.true_delta, terms.keeps_promise) == (None, 1.0, True)


@pytest.mark.parametrize("trust", TRUST)
def test_terms_survive_encoding(trust):
    terms = terms_of(trust)
    read = decode(encode(terms), Terms)
    assert encode(read) == encode(terms)
    assert type(read.mechanism) is type(terms.mechanism)
    assert terms.messages >= 1
    assert terms.mechanism.message_bits == (1 if trust.startswith("shuffle") else 8 * terms.mechanism.report_size)


def test_too_few_honest_participants_are_refused():
    with pytest.raises(SpecError, match="honest"):
        terms_of("shuffle", 1)


@cache
def errors(trust):
    """Errors of released averages along the diagonal, (vectors, DRAWS): the vectors for which they are largest.

    Tests look at other figures of the same draws; each has its own rate of false alarms.
    """
    rng = np.random.default_rng(31)
    mechanism = terms_of(trust).mechanism
    coordinates = mechanism.ball.coordinates
    direction = np.ones(coordinates) / math.sqrt(coordinates)
    corner = mechanism.ball.bound * np.ones(coordinates)
    deviations = []
    for share in (0.0, 0.37, 1.0):
        people = np.tile(share * corner, (PEOPLE, 1))
        for _ in range(DRAWS):
            slots = rng.integers(0, 2**32, PEOPLE, dtype=np.uint32)
            release = mechanism.simulate(BoundedVectors(slots, people), rng)
            deviations.append((release.sums / PEOPLE - share * corner) @ direction)
    return np.array(deviations).reshape(3, DRAWS)


@pytest.mark.parametrize("trust", [trust for trust in TRUST if trust != "none"])
def test_errors_are_within_the_stated_spread(trust):
    """Variances are at most the stated one, and near it for a vector; planted: four fifths of the variance."""
    terms = terms_of(trust)
    variance, scale = terms.mechanism.error_bounds(PEOPLE)
    deviations = errors(trust)
    limit = stats.chi2.isf(FALSE_ALARM / 3, DRAWS) / DRAWS
    low = stats.chi2.ppf(FALSE_ALARM / 3, DRAWS) / DRAWS
    ratio = (deviations**2).mean(axis=1) / variance
    assert (ratio <= limit * 1.02).all()
    assert ratio.max() >= low * 0.93
    assert (ratio / 0.8).max() > limit
    assert (scale > 0) == isinstance(terms.mechanism, VectorSymbol)


@pytest.mark.parametrize("trust", [trust for trust in TRUST if trust != "none"])
@pytest.mark.parametrize("beta", [0.1, 0.01])
def test_errors_beyond_the_width_are_as_rare_as_stated(trust, beta):
    """Planted: half the width."""
    terms = terms_of(trust)
    variance, scale = terms.mechanism.error_bounds(PEOPLE)
    width = math.sqrt(2 * variance * math.log(1 / beta)) + scale * math.log(1 / beta)
    deviations = errors(trust).ravel()
    for sign in (1, -1):
        assert stats.binom.sf((sign * deviations > width).sum() - 1, deviations.size, beta) > FALSE_ALARM
    assert stats.binom.sf((np.abs(deviations) > width / 3).sum() - 1, deviations.size, 2 * beta) < FALSE_ALARM


@pytest.mark.parametrize("probability", [0.05, 0.2, 0.4])
def test_unfair_bits_have_kearns_and_sauls_spread(probability):
    """The logarithm of the mean of exp(l (bit - chance)) is at most l^2/2 times the variance, and touches it."""
    unit, fair = (BitVectors(Ball("max", 0.5, 4), 5, 1, p, 13) for p in (probability, 0.5))
    variance = unit.error_bounds(1)[0] / unit.unit**2 - 0.25
    assert fair.error_bounds(1)[0] / unit.unit**2 - 0.25 == pytest.approx(0.25)
    rates = np.linspace(-8, 8, 4001)
    cumulant = np.log1p(probability * np.expm1(rates)) - rates * probability
    excess = cumulant - rates**2 / 2 * variance
    assert excess.max() <= 1e-12
    assert (cumulant - rates**2 / 2 * 0.97 * variance).max() > 0


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (10.0, 0.25), (5.0, 1e-6)])
@pytest.mark.parametrize("people", [2, 49, 1352])
def test_bits_hide_as_a_curator_does(epsilon, delta, people):
    ball = Ball("max", 1.0, 25)
    vectors = BitVectors.calibrated(ball, epsilon, delta, people)
    noise = math.sqrt(people * vectors.bits / 4) * vectors.unit
    rounding = people * vectors.unit**2 / 4
    assert noise <= 1.03 * 2 * math.sqrt(25) * gaussian_standard_deviation(epsilon, delta)
    assert rounding <= noise**2 / 32 or vectors.levels == 4
    assert account(vectors.batch_event(people)).delta(epsilon) <= delta


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 10.0])
@pytest.mark.parametrize("coordinates", [1, 3, 20])
def test_the_worst_projection_of_a_symbol(epsilon, coordinates):
    """Between the mean over directions and the whole of the error."""
    symbol = VectorSymbol(Ball("l2", 2.0, coordinates), epsilon, 8, 2, 1)
    assert symbol.error / coordinates <= symbol.worst_projection * (1 + 1e-12)
    assert symbol.worst_projection <= symbol.error * (1 + 1e-12) + (coordinates == 1) * symbol.error
