"""The bound of a bit in a public group against sums over all crowds, from both sides."""

import inspect
import math
import random
import textwrap
from functools import cache

import mpmath
import numpy as np
import pytest
from scipy import stats

from privateer_core.accounting import grouped_bits
from privateer_core.accounting.accountant import account
from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.accounting.events import GroupedResponse
from privateer_core.accounting.grouped_bits import grouped_delta, grouped_local_epsilon


@cache
def crowd_delta(epsilon: float, local_epsilon: float, ones: int, zeros: int) -> float:
    """Sum delta over all counts of a crowd, given its numbers of bits 1 and 0, in the worse direction."""
    p, e = 1 / (1 + math.exp(-local_epsilon)), math.exp(epsilon)
    others = np.convolve(
        stats.binom.pmf(np.arange(ones + 1), ones, p), stats.binom.pmf(np.arange(zeros + 1), zeros, 1 - p)
    )
    left, right = (np.convolve(others, own) for own in ((1 - p, p), (p, 1 - p)))
    return max(np.maximum(left - e * right, 0).sum(), np.maximum(right - e * left, 0).sum())


@cache
def worst_delta(epsilon: float, local_epsilon: float, others: int) -> float:
    """Delta of the worst of all crowds of a group of this size."""
    return max(crowd_delta(epsilon, local_epsilon, ones, others - ones) for ones in range(others + 1))


def mean_delta(epsilon: float, local_epsilon: float, batch: int, share: float) -> float:
    """The mean of the worst deltas over the sizes of a group."""
    masses = stats.binom.pmf(np.arange(batch), batch - 1, share)
    return sum(m * worst_delta(epsilon, local_epsilon, k) for k, m in enumerate(masses) if m > 1e-17)


def random_bit(rng: random.Random, batch_max: float) -> tuple[float, float, int]:
    epsilon = 10 ** rng.uniform(-1.5, 0.7)
    return epsilon, epsilon * rng.uniform(1.05, 4), int(10 ** rng.uniform(0, batch_max))


def wrong_bounds(seed: int, cases: int, batch_max: float) -> list[tuple[float, ...]]:
    """Return random batches whose bound is below the worst crowd, or more than a twentieth above."""
    rng, wrong = random.Random(seed), []
    for _ in range(cases):
        epsilon, local_epsilon, batch = random_bit(rng, batch_max)
        truth = worst_delta(epsilon, local_epsilon, batch - 1)
        bound = grouped_delta.__wrapped__(epsilon, local_epsilon, batch)
        if not truth * (1 - 1e-9) - 1e-16 <= bound <= 1.05 * truth + 1e-16:
            wrong.append((epsilon, local_epsilon, batch, truth, bound))
    return wrong


@pytest.mark.parametrize(
    ("cases", "batch_max"), [(300, 1.8), (20, 2.5), pytest.param(5000, 2.2, marks=pytest.mark.nightly)]
)
def test_the_bound_is_that_of_the_worst_crowd(cases, batch_max):
    assert not wrong_bounds(5, cases, batch_max)


@pytest.mark.parametrize("cases", [60, pytest.param(1000, marks=pytest.mark.nightly)])
def test_the_bound_covers_the_mean_over_sizes_of_groups(cases):
    rng = random.Random(6)
    for _ in range(cases):
        epsilon, local_epsilon, batch = random_bit(rng, 1.8)
        share = rng.choice((0.5, 1 / 3, 0.1, 0.01))
        truth = mean_delta(epsilon, local_epsilon, batch, share)
        assert grouped_delta(epsilon, local_epsilon, batch, share) >= truth * (1 - 1e-9) - 1e-16


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("while True", "return self.delta(others, 0)\n    while True"), ("others - end", "others - start")],
    ids=["all others with one bit alone", "the first crowd of an interval for all"],
)
def test_a_search_that_misses_the_worst_crowd_is_caught(right, wrong, monkeypatch):
    source, planted = textwrap.dedent(inspect.getsource(grouped_bits._Crowds.worst_delta)), {}
    assert right in source
    exec(source.replace(right, wrong), vars(grouped_bits).copy(), planted)
    monkeypatch.setattr(grouped_bits._Crowds, "worst_delta", planted["worst_delta"])
    assert any(bound < truth * (1 - 1e-4) for *_, truth, bound in wrong_bounds(5, 300, 1.8))


def test_sizes_that_are_rounded_up_are_caught(monkeypatch):
    """Planted: three people more in each group."""
    round_down = grouped_bits._round_down
    monkeypatch.setattr(grouped_bits, "_round_down", lambda *law: [(size + 3, mass) for size, mass in round_down(*law)])
    assert grouped_delta.__wrapped__(0.5, 1.5, 60, 0.5) < mean_delta(0.5, 1.5, 60, 0.5)


@pytest.mark.parametrize(
    ("epsilon", "local_epsilon", "ones", "zeros"),
    [(1.0, 5.0, 90_000, 5), (0.05, 1.0, 4_000, 2_000), (1e-3, 0.1, 500, 0)],
)
def test_large_crowds_keep_their_digits(epsilon, local_epsilon, ones, zeros):
    """The difference of two tails, in 40 digits."""
    delta = grouped_bits._Crowds(epsilon, local_epsilon).delta(ones, zeros)
    with mpmath.workdps(40):
        p, e = 1 / (1 + mpmath.exp(-mpmath.mpf(local_epsilon))), mpmath.exp(mpmath.mpf(epsilon))
        masses = [list(precise_masses(trials, 1 - p)) for trials in (ones, zeros)]
        flipped, gained = (dict(pairs) for pairs in masses)
        law: dict[int, mpmath.mpf] = {}
        for u, left in flipped.items():
            for y, right in gained.items():
                law[y - u] = law.get(y - u, 0) + left * right
        none = mpmath.mpf(0)
        terms = [(p - e * (1 - p)) * law[d] - (e * p - 1 + p) * law.get(d + 1, none) for d in law]
        truth = sum(max(none, term) for term in terms)
        assert abs(delta / truth - 1) < 1e-7


def precise_masses(trials: int, probability: mpmath.mpf):
    """Points within 9 standard deviations and 30 of the mean of a binomial, and their probabilities."""
    mean = float(trials * probability)
    width = 30 + 9 * math.sqrt(mean)
    for k in range(max(0, int(mean - width)), min(trials, int(mean + width)) + 1):
        yield k, mpmath.binomial(trials, k) * probability**k * (1 - probability) ** (trials - k)


@pytest.mark.parametrize(
    ("epsilon", "batch", "share", "least"),
    [
        (1.0, 90, 1.0, 1.526),
        (1.0, 900, 1.0, 3.349),
        (0.5, 900, 1.0, 2.477),
        (0.2, 9000, 1.0, 3.167),
        (1.0, 900, 1 / 3, 2.365),
        (0.5, 900, 0.5, 1.915),
        (1.0, 9000, 0.1, 3.335),
    ],
)
def test_a_bit_allows_more_than_by_the_blanket(epsilon, batch, share, least):
    """The local epsilons of the exact curve, of which rounding of sizes may cost a hundredth."""
    allowed = grouped_local_epsilon(epsilon, 1e-6, batch, 16.0, share)
    assert least <= allowed
    assert allowed > amplified_local_epsilon(epsilon, 1e-6, 2, math.floor(batch * share), 16.0)
    assert grouped_delta(epsilon, allowed, batch, share) <= 1e-6 < grouped_delta(epsilon, allowed + 0.005, batch, share)


@pytest.mark.parametrize(
    ("epsilon", "delta", "honest"),
    [
        (0.5925621542900236, 8.516572034911249e-05, 373),
        (2.96587563683351, 1.8283737267933817e-09, 1433),
        (2.8031518169052725, 4.6162043399082913e-07, 916),
    ],
    ids=["the bound rises with epsilon", "a wide tolerance", "a coarse step"],
)
def test_the_accountant_finds_the_calibrated_epsilon(epsilon, delta, honest):
    local_epsilon = grouped_local_epsilon(epsilon, delta, honest, 16.0)
    found = account(GroupedResponse(local_epsilon, honest, 1.0)).epsilon(delta)
    assert 0.99 * epsilon <= found <= epsilon * (1 + 1e-6)


def test_a_bound_that_rises_with_epsilon_is_stepped_below(monkeypatch):
    """Planted: the bound is a twentieth larger above the promised epsilon."""
    epsilon, delta, honest = 0.6, 1e-6, 900
    rising = lambda e, *event: grouped_delta(e, *event) * (1.05 if e > epsilon else 1.0)  # noqa: E731
    straight = grouped_local_epsilon(epsilon, delta, honest, 16.0)
    monkeypatch.setattr(grouped_bits, "grouped_delta", rising)
    stepped = grouped_local_epsilon.__wrapped__(epsilon, delta, honest, 16.0)
    assert stepped < straight
    assert rising(epsilon * (1 + 1e-7), stepped, honest) <= delta < rising(epsilon * (1 + 1e-7), straight, honest)
