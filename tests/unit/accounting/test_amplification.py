"""Amplification by shuffling against exact enumeration, the blanket lemma and published anchor values."""

import inspect
import math
import random

import mpmath
import pytest

from privateer_core.accounting import amplification
from privateer_core.accounting.accountant import account
from privateer_core.accounting.amplification import amplified_local_epsilon, shuffled_delta
from privateer_core.accounting.events import ShuffledResponse
from privateer_core.accounting.special_functions import binomial_tails
from privateer_core.errors import SpecError
from privateer_lab.audit.tightness import lemma_delta
from tests.support.shuffling import blanket_delta, exact_delta

ANCHORS = [
    (0.1, {1000: 0.73, 10_000: 1.83, 100_000: 3.71, 1_000_000: 5.94}),
    (0.5, {1000: 2.30, 10_000: 4.34, 100_000: 6.60, 1_000_000: 8.90}),
    (1.0, {1000: 3.27, 3000: 4.29, 10_000: 5.47, 100_000: 7.76, 1_000_000: 10.06}),
    (2.0, {1000: 4.07, 10_000: 6.32, 100_000: 8.62, 1_000_000: 10.92}),
]


@pytest.mark.parametrize(
    ("epsilon", "batch", "expected"), [(e, n, value) for e, row in ANCHORS for n, value in row.items()]
)
def test_two_symbols_have_the_published_amplification(epsilon, batch, expected):
    assert amplified_local_epsilon(epsilon, 1e-6, 2, batch, 16.0) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize(
    ("batch", "symbols"), [(2, 2), (3, 2), (4, 2), (5, 2), (2, 3), (3, 3), (4, 3), (5, 3), (2, 4), (3, 4), (4, 4)]
)
@pytest.mark.parametrize(("epsilon", "local_epsilon"), [(0.1, 1.0), (0.5, 1.0), (1.0, 1.5), (1.0, 3.0), (2.0, 5.0)])
def test_bound_covers_small_batches_exactly(epsilon, local_epsilon, symbols, batch, slots):
    if slots * symbols > 6 and batch > 3:
        batch = 3
    exact = exact_delta(epsilon, local_epsilon, symbols, batch, slots)
    assert shuffled_delta(epsilon, local_epsilon, symbols, batch) >= exact * (1 - 1e-9)


@pytest.mark.parametrize("half", [10, 1000, 10**5, 5 * 10**6, 10**8, 4 * 10**9])
def test_tails_keep_their_digits_at_the_centre(half):
    """By symmetry the tail there is 1/2 and half the central binomial term, which Stirling's series gives."""
    term = (1 - 1 / (8 * half) + 1 / (128 * half**2)) / math.sqrt(math.pi * half)
    tail = binomial_tails([half, half + 1.0], 2.0 * half, 0.5).at_least
    assert tail == pytest.approx([(1 + term) / 2, (1 - term) / 2], rel=1e-9 if half > 10 else 1e-5)


def test_the_enumeration_catches_a_bound_that_is_too_small():
    """Planted: counting on two people more than there are."""
    assert shuffled_delta(0.5, 2.0, 2, 6) < exact_delta(0.5, 2.0, 2, 4)


@pytest.mark.parametrize("batch", [1, 2, 3, 10, 40])
@pytest.mark.parametrize(("epsilon", "local_epsilon"), [(0.1, 0.5), (0.5, 2.0), (1.0, 4.0), (2.0, 7.0)])
def test_two_symbols_equal_the_blanket_lemma(epsilon, local_epsilon, batch):
    expected = blanket_delta(epsilon, local_epsilon, 2, batch)
    delta = shuffled_delta(epsilon, local_epsilon, 2, batch)
    assert expected <= delta == pytest.approx(expected, rel=2e-5, abs=1e-18)


@pytest.mark.parametrize(("epsilon", "local_epsilon", "batch"), [(1e-12, 1e-11, 30), (1e-12, 1e-9, 20)])
def test_tiny_promises_keep_their_digits(epsilon, local_epsilon, batch):
    """e^epsilon - 1 by subtraction lost four digits here, towards a smaller delta."""
    with mpmath.workdps(50):
        e, gain = mpmath.exp(epsilon), mpmath.expm1(local_epsilon)
        blanket, lemma = 2 / (gain + 2), mpmath.mpf(0)
        for others in range(batch):
            probability = mpmath.binomial(batch - 1, others) * blanket**others * (1 - blanket) ** (batch - 1 - others)
            m = others + 1
            excess = [max(0, gain * (a - e * (m - a)) / m - (e - 1)) for a in range(m + 1)]
            lemma += (
                probability
                * blanket
                * sum(mpmath.binomial(m, a) / mpmath.mpf(2) ** m * x for a, x in enumerate(excess))
            )
        assert lemma <= mpmath.mpf(shuffled_delta(epsilon, local_epsilon, 2, batch)) <= lemma * (1 + mpmath.mpf("2e-5"))


def test_two_symbols_are_an_upper_bound_and_say_so():
    """The lemma gives the adversary more information than a batch."""
    assert shuffled_delta(0.1, 1.0, 2, 5) > 1.1 * exact_delta(0.1, 1.0, 2, 5, 1)
    assert not account(ShuffledResponse(1.0, 2, 5)).exact


@pytest.mark.parametrize("batch", [1, 2, 5, 20, 40])
@pytest.mark.parametrize("symbols", [3, 4, 9])
@pytest.mark.parametrize(("epsilon", "local_epsilon"), [(0.1, 0.5), (0.5, 2.0), (1.0, 4.0)])
def test_more_symbols_are_above_the_blanket_lemma(epsilon, local_epsilon, symbols, batch):
    expected = blanket_delta(epsilon, local_epsilon, symbols, batch)
    assert shuffled_delta(epsilon, local_epsilon, symbols, batch) >= expected * (1 - 1e-9)


def random_batch(rng: random.Random) -> tuple[float, float, float, int]:
    """Draw arguments of `shuffled_delta`: small batches and small blankets are as frequent as large ones."""
    epsilon, batch = 10 ** rng.uniform(-1.5, 0.7), int(10 ** rng.uniform(0, 3.2))
    symbols = rng.choice((2, 3, 5, 17, 64 / 11, rng.uniform(2, 200)))
    return epsilon, epsilon * rng.uniform(1.05, 4), symbols, batch


def below_the_lemma(seed: int, cases: int) -> list[tuple[float, ...]]:
    """Return the random batches whose bound is below the lemma's sum, of which at most 1e-18 is left out."""
    rng = random.Random(seed)
    batches = (random_batch(rng) for _ in range(cases))
    return [batch for batch in batches if shuffled_delta.__wrapped__(*batch) < lemma_delta(*batch) - 1e-17]


@pytest.mark.parametrize("cases", [400, pytest.param(5000, marks=pytest.mark.nightly)])
def test_bound_is_never_below_the_lemma_in_random_batches(cases):
    """Exact sums, so that no chance is involved."""
    assert not below_the_lemma(5, cases)


@pytest.fixture
def plant(monkeypatch):
    """Return a function that replaces code of the rounding by wrong code; nothing computed with it stays."""

    def replace(right: str, wrong: str) -> None:
        source, planted = inspect.getsource(amplification._move_to_nodes), {}
        assert right in source
        exec(source.replace(right, wrong), vars(amplification).copy(), planted)
        monkeypatch.setattr(amplification, "_move_to_nodes", planted["_move_to_nodes"])
        forget()

    def forget() -> None:
        shuffled_delta.cache_clear()
        amplified_local_epsilon.cache_clear()

    yield replace
    forget()


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("spacing + 1", "3 * spacing"),
        ("trials[start", "trials[0] + 0 * trials[start"),
        ("(points - low) / spacing - nodes", "(points > low)"),
    ],
    ids=["a block wider than the gap between nodes", "the first binomial for all", "masses on the node above"],
)
def test_random_batches_catch_a_rounding_that_lowers_the_bound(right, wrong, plant):
    plant(right, wrong)
    assert below_the_lemma(5, 400)


def above_the_lemma(seed: int, cases: int) -> list[tuple[float, ...]]:
    """Return random promises at whose local epsilon the bound needs 1.01 times the epsilon that the lemma needs."""
    rng, loose = random.Random(seed), []
    for _ in range(cases):
        epsilon, _, *batch = random_batch(rng)
        local_epsilon = amplified_local_epsilon(epsilon, 10 ** rng.uniform(-9, -4), *batch, 16.0)
        is_amplified = local_epsilon > 1.02 * epsilon
        lemma = lemma_delta(epsilon, local_epsilon, *batch)
        if is_amplified and shuffled_delta(1.01 * epsilon, local_epsilon, *batch) > lemma:
            loose.append((epsilon, local_epsilon, *batch))
    return loose


@pytest.mark.parametrize("cases", [200, pytest.param(2000, marks=pytest.mark.nightly)])
def test_rounding_costs_less_than_a_hundredth_of_epsilon(cases):
    assert not above_the_lemma(3, cases)


def test_random_promises_catch_a_rounding_that_costs_more(plant):
    """Planted: a third of the nodes."""
    plant("min(_NODES_MAX,", "min(32,")
    assert above_the_lemma(3, 100)


@pytest.mark.parametrize("batch", [30, 90, 900, 9000])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
def test_more_symbols_never_allow_less(epsilon, batch):
    sizes = (2, 2.5, 3, 4, 5, 8, 17, 33, 65, 128, 512, 1024)
    allowed = [amplified_local_epsilon(epsilon, 1e-6, symbols, batch, 16.0) for symbols in sizes]
    assert allowed == sorted(allowed)


@pytest.mark.parametrize("symbols", [2, 3, 9])
def test_delta_falls_with_the_batch_and_rises_with_the_local_epsilon(symbols):
    by_batch = [shuffled_delta(1.0, 3.0, symbols, n) for n in (10, 50, 200, 1000, 5000)]
    assert by_batch == sorted(by_batch, reverse=True)
    by_epsilon = [shuffled_delta(1.0, e, symbols, 1000) for e in (1.0, 1.1, 2.0, 3.0, 4.0, 6.0, 8.0)]
    assert by_epsilon == sorted(by_epsilon)


@pytest.mark.parametrize("symbols", [2, 3, 8, 33])
def test_amplified_epsilon_is_the_largest_on_its_grid(symbols):
    amplified = amplified_local_epsilon(0.5, 1e-6, symbols, 2000, 16.0)
    assert shuffled_delta(0.5, amplified, symbols, 2000) <= 1e-6
    assert shuffled_delta(0.5, amplified + 0.001, symbols, 2000) > 1e-6
    assert amplified * 1000 == pytest.approx(round(amplified * 1000), abs=1e-6)


def test_a_larger_batch_allows_a_larger_local_epsilon():
    epsilons = [amplified_local_epsilon(1.0, 1e-6, 3, n, 16.0) for n in (10, 100, 1000, 10_000, 100_000)]
    assert epsilons == sorted(epsilons)
    assert epsilons[0] >= 1.0


def test_amplified_epsilon_is_at_most_its_limit():
    assert amplified_local_epsilon(1.0, 1e-6, 2, 1_000_000, 8.0) == 8.0
    assert amplified_local_epsilon(4.0, 1e-6, 2, 1000, 2.0) == 2.0


@pytest.mark.parametrize("batch", [1, 2, 10])
@pytest.mark.parametrize("delta", [1e-6, 1e-10, 1e-25, 1e-300])
def test_a_hopeless_batch_falls_back_to_the_local_promise(batch, delta):
    assert amplified_local_epsilon(1.0, delta, 2, batch, 8.0) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("epsilon", [1e-300, 1e-17, 1e-9, 1e-3])
def test_a_tiny_promise_is_kept(epsilon):
    local_epsilon = amplified_local_epsilon(epsilon, 1e-6, 2, 1000, 8.0)
    assert local_epsilon >= epsilon
    assert math.isfinite(local_epsilon)


def test_no_honest_report_is_refused():
    with pytest.raises(SpecError) as refused:
        amplified_local_epsilon(1.0, 1e-6, 2, 0, 8.0)
    assert refused.value.field == "privacy.honest_fraction"
    assert refused.value.remedy


@pytest.mark.parametrize("nearness", [1e-14, 1e-12, 1e-10, 1e-8, 1e-6])
@pytest.mark.parametrize(("epsilon", "symbols"), [(3.297384976, 3), (0.01, 2), (1.0, 16)])
def test_a_local_epsilon_next_to_epsilon(epsilon: float, symbols: int, nearness: float) -> None:
    """Alone, a report has delta (l - e) / (l + symbols - 1), which no rounding may undercut."""
    local_epsilon = epsilon * (1 + nearness)
    with mpmath.workdps(50):
        e, local = mpmath.exp(mpmath.mpf(epsilon)), mpmath.exp(mpmath.mpf(local_epsilon))
        assert shuffled_delta(epsilon, local_epsilon, symbols, 1) >= (local - e) / (local + symbols - 1)
