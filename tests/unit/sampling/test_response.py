"""Randomized response: its realised ratio in exact arithmetic, its frequencies, its limits."""

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from privateer_core.errors import SpecError
from privateer_core.sampling.randomness import RandomizedResponse, SubsetResponse, scale_words_below
from privateer_lab.simulation.scores import SeededNoise
from tests.support.statistics import is_compatible

WORD = 1 << 64
EPSILONS = (1e-9, 1e-3, 0.1, 0.5, 1.0, math.log(2), 2.0, 3.7, 4.8, 8.0, 16.0, 30.0)
SYMBOLS = (2, 3, 4, 5, 7, 16, 17, 1000, 2048, 2049, 32_768)


def exp_below(epsilon: float) -> Fraction:
    """A rational just below e^epsilon, by 80-digit decimals."""
    with localcontext() as context:
        context.prec = 80
        return Fraction(Decimal(epsilon).exp()) * (1 - Fraction(1, 10**70))


@cache
def uniform_chances(symbols: int) -> tuple[Fraction, Fraction]:
    """Least and largest chance of a symbol when words map to symbols by multiplication."""
    edges = [-(-s * WORD // symbols) for s in range(symbols + 1)]
    sizes = {b - a for a, b in itertools.pairwise(edges)}
    return Fraction(min(sizes), WORD), Fraction(max(sizes), WORD)


def realised_ratio(keep_words: int, symbols: int) -> Fraction:
    """Largest ratio of a symbol's chances over any two true symbols, none included."""
    keep = Fraction(keep_words, WORD)
    least, most = uniform_chances(symbols)
    ratio = Fraction(0)
    for uniform in (least, most):
        probabilities = (keep + (1 - keep) * uniform, (1 - keep) * uniform, uniform)
        ratio = max(ratio, max(probabilities) / min(probabilities))
    return ratio


@pytest.mark.parametrize("symbols", SYMBOLS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_realised_ratio_is_certified(epsilon, symbols):
    threshold = RandomizedResponse(epsilon, symbols).threshold
    assert 0 <= threshold < WORD
    if threshold:
        assert realised_ratio(threshold, symbols) <= exp_below(epsilon)


@pytest.mark.parametrize("symbols", SYMBOLS)
@pytest.mark.parametrize("epsilon", [e for e in EPSILONS if e > 0.01])
def test_the_threshold_is_tight(epsilon, symbols):
    threshold = RandomizedResponse(epsilon, symbols).threshold
    # The certificate concedes a relative 2^-50 of e^epsilon and one word of rounding either way.
    planted = threshold + math.ceil(threshold * 2.0**-46) + 4 * symbols
    assert planted >= WORD or realised_ratio(planted, symbols) > exp_below(epsilon)


def test_a_threshold_above_the_certificate_is_caught():
    """Planted: the ideal probability rounded up by 2^-40."""
    threshold = RandomizedResponse(1.0, 3).threshold
    assert realised_ratio(threshold + (1 << 24), 3) > exp_below(1.0)


@pytest.mark.parametrize(("epsilon", "symbols"), [(0.5, 2), (1.0, 3), (4.0, 17)])
def test_probabilities_are_those_of_randomized_response(epsilon, symbols):
    response = RandomizedResponse(epsilon, symbols)
    assert response.truth == pytest.approx(math.exp(epsilon) / (math.exp(epsilon) + symbols - 1), rel=1e-12)
    assert response.other == pytest.approx(1 / (math.exp(epsilon) + symbols - 1), rel=1e-12)
    assert response.truth + (symbols - 1) * response.other == pytest.approx(1, rel=1e-12)
    assert response.gain == pytest.approx(response.truth - response.other, rel=1e-12)


@pytest.mark.parametrize(("epsilon", "symbols"), [(0.5, 2), (1.0, 3), (2.0, 8), (6.0, 33)])
@pytest.mark.parametrize("truth", [0, 1, -1])
def test_reports_have_the_probabilities_of_randomized_response(epsilon, symbols, truth):
    response, n = RandomizedResponse(epsilon, symbols), 200_000
    symbols_sent = response.randomize(np.full(n, truth), SeededNoise(symbols + truth))
    expected = np.full(symbols, n * response.other if truth >= 0 else n / symbols)
    if truth >= 0:
        expected[truth] = n * response.truth
    assert symbols_sent.dtype == np.uint16
    assert is_compatible(np.bincount(symbols_sent, minlength=symbols), expected)


def test_wrong_frequencies_are_caught():
    """Planted: noise for epsilon 2 where 1.9 is claimed."""
    n = 200_000
    reports = RandomizedResponse(2.0, 4).randomize(np.zeros(n, np.int64), SeededNoise(4))
    claimed = RandomizedResponse(1.9, 4)
    expected = n * np.array([claimed.truth] + 3 * [claimed.other])
    assert not is_compatible(np.bincount(reports, minlength=4), expected)


def test_uniform_below_is_exact_multiplication():
    words = [0, 1, WORD - 1, WORD // 2, WORD // 3, (1 << 32) - 1, 1 << 32]
    words += [int(w) for w in SeededNoise(5).words(500)]
    for limit in SYMBOLS:
        numbers = scale_words_below(limit, np.array(words, np.uint64))
        assert numbers.tolist() == [word * limit >> 64 for word in words]


@pytest.mark.parametrize("epsilon", [0.0, -1.0, 30.5, math.inf, math.nan])
def test_epsilon_out_of_range_is_refused(epsilon):
    with pytest.raises(SpecError) as refused:
        RandomizedResponse(epsilon, 2)
    assert refused.value.field == "epsilon"
    assert refused.value.remedy


@pytest.mark.parametrize("symbols", [-1, 0, 1, 32_769])
def test_symbols_out_of_range_are_refused(symbols):
    with pytest.raises(SpecError) as refused:
        RandomizedResponse(1.0, symbols)
    assert refused.value.field == "symbols"


OWN = [(2, 1), (8, 3), (64, 27), (1000, 999), (2048, 7)]


def realised_subset_ratio(keep_words: int, symbols: int, n_chosen: int) -> Fraction:
    """Largest ratio of a symbol's chances, being a person's own or not."""
    keep = Fraction(keep_words, WORD)
    least, most = uniform_chances(symbols)
    picked = uniform_chances(n_chosen)[1] if n_chosen > 1 else Fraction(1)
    return (keep * picked + (1 - keep) * most) / ((1 - keep) * least)


@pytest.mark.parametrize(("symbols", "n_chosen"), OWN)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0, 8.0, 30.0])
def test_the_ratio_of_subset_selection_is_certified_and_used(epsilon, symbols, n_chosen):
    """Planted: the probability rounded up by 2^-40 of it."""
    threshold = SubsetResponse(epsilon, symbols, n_chosen).threshold
    assert realised_subset_ratio(threshold, symbols, n_chosen) <= exp_below(epsilon)
    planted = threshold + max(threshold >> 40, 1 << 20)
    assert planted >= WORD or realised_subset_ratio(planted, symbols, n_chosen) > exp_below(epsilon)


def test_subset_selection_of_one_is_randomized_response():
    for epsilon, symbols in ((0.5, 2), (3.0, 17)):
        assert SubsetResponse(epsilon, symbols, 1).threshold == RandomizedResponse(epsilon, symbols).threshold


@pytest.mark.parametrize(("epsilon", "symbols", "chosen"), [(1.0, 8, [1, 4, 6]), (3.0, 5, [0])])
def test_frequencies_of_subset_selection(epsilon, symbols, chosen):
    response, n = SubsetResponse(epsilon, symbols, len(chosen)), 200_000
    reports = response.randomize(np.tile(chosen, (n, 1)), SeededNoise(3))
    expected = np.full(symbols, n * (1 - response.gain) / symbols)
    expected[chosen] += n * response.gain / len(chosen)
    assert reports.dtype == np.uint16
    assert is_compatible(np.bincount(reports, minlength=symbols), expected)
    assert expected.max() / expected.min() == pytest.approx(math.exp(epsilon), rel=1e-9)
    expected[chosen[0]] *= 1.1
    assert not is_compatible(np.bincount(reports, minlength=symbols), expected), "planted: a symbol preferred"


@pytest.mark.parametrize("n_chosen", [0, -1, 8, 9])
def test_own_symbols_that_are_none_or_all_are_refused(n_chosen):
    with pytest.raises(SpecError) as refused:
        SubsetResponse(1.0, 8, n_chosen)
    assert refused.value.field == "n_own"
