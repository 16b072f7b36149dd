"""Subset selection in a shuffled batch, against enumerated batches, the blanket lemma's own sum and the sampler."""

import math
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, pairwise

import mpmath
import numpy as np
import pytest

from privateer_core.accounting.accountant import account
from privateer_core.accounting.amplification import clones_delta, clones_local_epsilon, shuffled_delta
from privateer_core.accounting.events import Pure, ShuffledResponse, ShuffledSubset, read_event
from privateer_core.errors import SpecError
from privateer_core.mechanisms.vectors.vector_symbol import VectorSymbol
from privateer_core.primitives.clipping import Ball
from privateer_core.sampling.randomness import SubsetResponse
from privateer_lab.audit.tightness import lemma_delta
from tests.support.shuffling import exact_delta, hockey_stick, shuffled_law

LOSSES = [(0.1, 1.0), (0.5, 2.0), (1.0, 3.0), (2.0, 4.5)]


def subset_law(chosen: tuple[int, ...], symbols: int, local_epsilon: float) -> np.ndarray:
    """Return the probability of each symbol for a participant with these chosen symbols."""
    law = np.ones(symbols)
    law[list(chosen)] = math.exp(local_epsilon)
    return law / law.sum()


def enumerate_delta(epsilon: float, local_epsilon: float, symbols: int, chosen: int, batch: int) -> float:
    """Return delta of a small batch for the worst sets of the neighbours and of all others, overlapping or not."""
    sets = list(combinations(range(symbols), chosen))
    worst = 0.0
    for others in combinations_with_replacement(sets, batch - 1):
        rest = [subset_law(symbol_set, symbols, local_epsilon) for symbol_set in others]
        laws = [shuffled_law([subset_law(symbol_set, symbols, local_epsilon), *rest]) for symbol_set in sets]
        worst = max(worst, *(hockey_stick(laws[0], law, epsilon) for law in laws[1:]))
    return worst


@pytest.mark.parametrize(("epsilon", "local_epsilon"), LOSSES)
@pytest.mark.parametrize(
    ("symbols", "chosen", "batch"), [(4, 2, 1), (4, 2, 2), (4, 2, 3), (4, 2, 4), (5, 2, 3), (6, 2, 2), (6, 3, 2)]
)
def test_the_bound_covers_all_sets_of_small_batches(epsilon, local_epsilon, symbols, chosen, batch):
    exact = enumerate_delta(epsilon, local_epsilon, symbols, chosen, batch)
    assert exact > 0
    assert shuffled_delta(epsilon, local_epsilon, symbols / chosen, batch) >= exact * (1 - 1e-9)


def test_the_enumeration_catches_bounds_that_are_too_small():
    """Planted: twice as many symbols per chosen symbol as there are, and two participants too many."""
    exact = enumerate_delta(0.5, 2.0, 4, 2, 4)
    assert lemma_delta(0.5, 2.0, 4.0, 4) < exact
    assert lemma_delta(0.5, 2.0, 2.0, 6) < exact
    assert lemma_delta(0.5, 2.0, 2.0, 4) >= exact


def test_overlapping_and_random_sets_are_below_disjoint_ones():
    """The bound does not hold where two sets must overlap, so such an event is refused."""
    laws, rest = [subset_law(s, 5, 2.0) for s in ((0, 1), (2, 3), (1, 2))], [subset_law((2, 4), 5, 2.0)] * 3
    first, second, third = (shuffled_law([law, *rest]) for law in laws)
    disjoint, overlapping = hockey_stick(first, second, 0.5), hockey_stick(first, third, 0.5)
    mixed = hockey_stick(first, shuffled_law([(laws[1] + laws[2]) / 2, *rest]), 0.5)
    assert max(overlapping, mixed) < disjoint <= shuffled_delta(0.5, 2.0, 2.5, 4)
    for event in (ShuffledSubset(2.0, 4, 3, 100), ShuffledSubset(2.0, 4, 0, 100), ShuffledSubset(2.0, 1, 1, 100)):
        with pytest.raises(SpecError) as refused:
            account(event)
        assert refused.value.field in ("own_symbols", "symbols")


@pytest.mark.parametrize(("epsilon", "local_epsilon"), LOSSES)
@pytest.mark.parametrize("batch", [1, 7, 60, 300])
@pytest.mark.parametrize("symbols", [2.0, 2.5, 64 / 11, 256 / 12])
@pytest.mark.battery
def test_the_bound_is_above_the_lemma(symbols, batch, epsilon, local_epsilon):
    """The bound equals a sum in another order. Rounding loses nothing for two symbols."""
    expected = lemma_delta(epsilon, local_epsilon, symbols, batch)
    bound = shuffled_delta(epsilon, local_epsilon, symbols, batch)
    assert bound >= expected * (1 - 1e-9)
    if symbols == 2:
        assert bound == pytest.approx(expected, rel=2e-5, abs=1e-17)


@pytest.mark.parametrize(("directions", "chosen", "local"), [(64, 21, 3.0), (256, 12, 4.5)])
def test_the_bound_is_tight_against_monte_carlo(directions, chosen, local):
    """At most six standard errors below (chance 1e-9); rounding up costs at most 7 % of the local epsilon."""
    symbols, batch = 2 * directions / chosen, 1000
    rng = np.random.default_rng(5)
    l, e = math.exp(local), math.exp(0.5)  # noqa: E741
    p = 1 / (l + symbols - 1)
    counts = rng.multinomial(batch, [p, p, 1 - (l + 1) * p, (l - 1) * p], 1_000_000)
    excess = np.maximum(counts @ np.array([l - e, 1 - e * l, 1 - e, 0.0]), 0) / batch
    estimate, error = excess.mean(), excess.std() / 1000
    assert estimate > 20 * error
    assert shuffled_delta(0.5, local, symbols, batch) >= estimate - 6 * error
    assert shuffled_delta(0.5, 0.93 * local, symbols, batch) < estimate + 6 * error


@pytest.mark.parametrize("batch", [2, 40])
@pytest.mark.parametrize(("epsilon", "local_epsilon"), LOSSES)
def test_the_fewer_symbols_for_each_own_one_the_larger_the_bound(epsilon, local_epsilon, batch):
    """The proof needs this order for a sampler with rounded probabilities; planted: the reversed order."""
    deltas = [lemma_delta(epsilon, local_epsilon, symbols, batch) for symbols in (2.0, 2.1, 3.3, 9.0, 60.0)]
    assert all(larger > smaller for larger, smaller in pairwise(deltas))
    assert not all(larger > smaller for larger, smaller in pairwise(deltas[::-1]))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.361, 8.0, 15.0])
@pytest.mark.parametrize(("symbols", "n_chosen"), [(2, 1), (6, 3), (64, 21), (128, 26), (2048, 9)])
def test_the_samplers_own_probabilities_are_within_the_proof(symbols, n_chosen, epsilon):
    """In exact fractions: the share of the blanket, and how much likelier an own symbol makes a message."""
    word, keep = 1 << 64, Fraction(SubsetResponse(epsilon, symbols, n_chosen).threshold, 1 << 64)
    with mpmath.workdps(60):
        digits = mpmath.exp(mpmath.mpf(epsilon)) - 1
        fraction = Fraction(int(mpmath.floor(digits * 10**40)), 10**40)
    blanket_share, picked = Fraction(word // symbols, word), Fraction(-(-word // n_chosen), word)
    assert keep * picked <= fraction * (1 - keep) * blanket_share
    assert keep * symbols <= fraction * (1 - keep) * n_chosen
    assert float(keep * symbols / ((1 - keep) * n_chosen)) == pytest.approx(math.expm1(epsilon), rel=1e-9)


def test_one_own_symbol_is_randomized_response():
    for epsilon in (0.0, 0.3, 1.0, 2.5):
        subset, response = (
            account(event).delta(epsilon) for event in (ShuffledSubset(3.0, 9, 1, 500), ShuffledResponse(3.0, 9, 500))
        )
        assert subset == response
    record = {"event": "shuffled-subset", "local_epsilon": 3.0, "symbols": 128, "own_symbols": 26, "honest": 900}
    assert read_event(record) == ShuffledSubset(3.0, 128, 26, 900)
    assert account(ShuffledSubset(0.4, 128, 26, 900)).delta(0.3) <= account(Pure(0.4)).delta(0.3)
    assert exact_delta(0.5, 2.0, 3, 3) <= account(ShuffledSubset(2.0, 6, 2, 3)).delta(0.5)


@pytest.mark.parametrize(("epsilon", "honest"), [(2.0, 900), (1.0, 9000), (0.5, 900), (1.0, 90), (4.0, 900)])
@pytest.mark.parametrize("coordinates", [5, 21])
def test_a_calibrated_symbol_keeps_its_promise_and_beats_the_bound_for_any_message(coordinates, epsilon, honest):
    """Planted: a hundredth more of local epsilon."""
    ball = Ball("l2", 1.0, coordinates)
    amplified = VectorSymbol.amplified(ball, (epsilon, 1e-6), honest, 10.0, None, 3)
    assert account(amplified.batch_event(honest)).delta(epsilon) <= 1e-6
    assert account(amplified.with_less_noise(1 + 0.01 / amplified.epsilon).batch_event(honest)).delta(epsilon) > 1e-6
    other = VectorSymbol.calibrated(ball, clones_local_epsilon(epsilon, 1e-6, honest, 10.0), 3)
    assert amplified.error < 0.9 * other.error
    assert clones_delta(epsilon, amplified.epsilon, honest) > 1e-6


def test_hardly_another_symbol_has_less_error():
    """The error is within 4 % of the least over all numbers of chosen directions, each with its own local epsilon."""
    ball, promise = Ball("l2", 1.0, 9), (1.0, 1e-6)
    amplified = VectorSymbol.amplified(ball, promise, 900, 10.0, None, 0)
    errors = []
    for directions in (32, amplified.directions, 512):
        for chosen in range(1, directions // 2, max(1, directions // 64)):
            low, high = 1.0, 8.0
            while high - low > 1e-3:
                middle = (low + high) / 2
                is_private = shuffled_delta(1.0, middle, 2 * directions / chosen, 900) <= 1e-6
                low, high = (middle, high) if is_private else (low, middle)
            errors.append(VectorSymbol(ball, low, directions, chosen, 0).error)
    assert amplified.error <= 1.04 * min(errors)
    assert amplified.error < 0.5 * max(errors)


@pytest.mark.parametrize("limit", [1.5, 2.5])
def test_the_limit_on_local_epsilon_holds(limit):
    amplified = VectorSymbol.amplified(Ball("l2", 1.0, 5), (1.0, 1e-6), 900, limit, None, 0)
    assert amplified.epsilon == limit
    assert (amplified.directions, amplified.chosen) == (
        VectorSymbol.amplified(Ball("l2", 1.0, 5), (1.0, 1e-6), 10**6, limit, None, 0).directions,
        VectorSymbol.amplified(Ball("l2", 1.0, 5), (1.0, 1e-6), 10**6, limit, None, 0).chosen,
    )
