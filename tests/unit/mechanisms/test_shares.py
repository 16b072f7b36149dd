"""Split and mix: its statistical distance by exact enumeration, what it costs, sums that do not fit."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy.signal import fftconvolve
from scipy.stats import binom

from privateer.accounting.accountant import account
from privateer.accounting.events import ShuffledBits
from privateer.contributions import BoundedVectors
from privateer.errors import BatchRefused, SpecError
from privateer.mechanisms.vector_bits import BinomialPlan, BitVectors, plan
from privateer.mechanisms.vector_shares import ShareVectors, share_vectors, shares_needed
from privateer.vectors import Ball, VectorTotal
from privateer_lab.noise import SeededNoise


def convolved(law: np.ndarray, times: int) -> np.ndarray:
    result = np.ones((1,) * law.ndim)
    for _ in range(times):
        result = fftconvolve(result, law)
    return result


def views_of_bits(people: int, shares: int) -> dict[int, list[np.ndarray]]:
    """Modulo 2 a view is the number of ones among all shares: its law by total, for the most different inputs."""
    ones = np.arange(shares + 1)
    mass = 2 * binom.pmf(ones, shares, 0.5)
    laws = [np.where(ones % 2 == value, mass, 0.0) for value in (0, 1)]
    halves = people // 4 * 2
    return {
        total: [
            fftconvolve(convolved(laws[1], n), convolved(laws[0], people - n))
            for n in (total, total + 2, halves + total, (people - total) // 2 * 2 + total)
        ]
        for total in (0, 1)
    }


def views_of_trits(people: int, shares: int) -> dict[int, list[np.ndarray]]:
    """Modulo 3 a view is the numbers of zeros and ones among all shares."""
    laws = np.zeros((3, shares + 1, shares + 1))
    for zeros in range(shares + 1):
        for ones in range(shares + 1 - zeros):
            twos = shares - zeros - ones
            ways = math.factorial(shares) / math.factorial(zeros) / math.factorial(ones) / math.factorial(twos)
            laws[(ones + 2 * twos) % 3, zeros, ones] = ways / 3 ** (shares - 1)
    views: dict[int, list[np.ndarray]] = {}
    for ones, twos in ((0, 0), (3, 0), (1, 1), (0, 3), (people // 3 * 3, 0), (0, people // 3 * 3)):
        parts = [convolved(laws[i], n) for i, n in enumerate((people - ones - twos, ones, twos))]
        view = fftconvolve(fftconvolve(parts[0], parts[1]), parts[2])
        views.setdefault((ones + 2 * twos) % 3, []).append(view)
    return views


def distance(views: dict[int, list[np.ndarray]]) -> float:
    """Largest statistical distance of two inputs of one total."""
    return max(0.5 * float(np.abs(a - b).sum()) for same in views.values() for a, b in combinations(same, 2))


def bound(people: int, shares: int, modulus: int) -> float:
    """What `shares_needed` relies on: twice the mean distance at one share less."""
    return 2 * 2 ** -(((shares - 2) * (math.log2(people) - math.log2(math.e)) - math.log2(modulus)) / 2)


@pytest.mark.parametrize("shares", [4, 5, 6, 8])
@pytest.mark.parametrize("people", [19, 50, 200])
def test_the_distance_of_bits_is_within_the_bound(people, shares):
    assert 1e-12 < distance(views_of_bits(people, shares)) <= bound(people, shares, 2)


@pytest.mark.parametrize("shares", [4, 5])
@pytest.mark.parametrize("people", [19, 41])
def test_the_distance_of_trits_is_within_the_bound(people, shares):
    assert 1e-12 < distance(views_of_trits(people, shares)) <= bound(people, shares, 3)


def test_a_share_less_is_caught():
    """Planted: the mean bound taken for that of the worst inputs. It fails by more, the more people there are."""
    for people in (1000, 3000):
        mean_bound = 2 ** -((2 * (math.log2(people) - math.log2(math.e)) - 1) / 2)
        assert distance(views_of_bits(people, 3)) > mean_bound


def test_the_split_that_is_sent_is_the_one_that_is_analysed():
    """All shares but one uniform, the last what is missing: totals of shares modulo 2^32 are the integers."""
    made = ShareVectors(BinomialPlan(Ball("max", 1.0, 2), 6, 10, 0.5, 1), 4)
    told = BoundedVectors(np.zeros(500, np.uint32), np.full((500, 2), 1.0))
    rows = made.randomize(told, SeededNoise(3)).reshape(500, 2, 4)
    integers = rows["share"].sum(axis=2, dtype=np.uint32)
    assert integers.min() >= 6
    assert integers.max() <= 16
    tops = rows["share"] >> 28
    assert np.bincount(tops[:, :, 1:].ravel(), minlength=16).min() > 100


@pytest.mark.parametrize(("epsilon", "delta", "coordinates", "least"), [(1, 1e-6, 40, 2353), (8, 1e-9, 20, 100)])
def test_splitting_costs_one_percent_of_delta(epsilon, delta, coordinates, least):
    def cost(shares: int) -> float:
        return coordinates * (1 + math.exp(epsilon)) * bound(least, shares, 1 << 32)

    shares = shares_needed(epsilon, delta, coordinates, least)
    assert cost(shares) <= 0.01 * delta < cost(shares - 1)


def test_noise_and_splitting_together_keep_the_promise():
    made = share_vectors(Ball("max", 1.0, 20), 1.0, 1e-6, 1000)
    event = ShuffledBits(made.plan.trials, made.plan.probability, made.plan.levels, 20)
    splitting = 20 * (1 + math.e) * bound(1000, made.shares, 1 << 32)
    assert account(event).delta(1.0) + splitting <= 1e-6
    whole = plan(Ball("max", 1.0, 20), 1.0, 1e-6, 1000)
    assert made.plan.trials <= 1.01 * whole.trials


def test_too_few_people_to_split_among_are_refused():
    with pytest.raises(SpecError) as refused:
        shares_needed(1.0, 1e-6, 40, 18)
    assert refused.value.field == "min_batch"


def test_a_sum_beyond_the_modulus_is_refused():
    """Silently it would wrap around."""
    ball = Ball("max", 1.0, 1)
    with pytest.raises(SpecError):
        ShareVectors(BinomialPlan(ball, 6, 1 << 22, 0.5, 1 << 10), 3)
    made = ShareVectors(BinomialPlan(ball, 6, 1 << 22, 0.5, 1000), 3)
    assert made.people_most * (6 + (1 << 22)) < 1 << 32 <= (made.people_most + 1) * (6 + (1 << 22))
    with pytest.raises(BatchRefused):
        made.release(VectorTotal(3 * (made.people_most + 1), np.zeros(1, np.int64)), SeededNoise(1))
    assert made.release(VectorTotal(3 * made.people_most, np.zeros(1, np.int64)), SeededNoise(1)).reports == 1023


SIX = BinomialPlan(Ball("max", 1.0, 2), 6, 10, 0.5, 5)
NOTHING = BoundedVectors(np.zeros(6, np.uint32), np.zeros((6, 2)))


def test_without_a_share_there_is_no_sum():
    one = ShareVectors(SIX, 3)
    rows = one.randomize(NOTHING, SeededNoise(1)).ravel()
    assert one.release(one.add(one.empty(), rows), SeededNoise(1)).reports == 6
    with pytest.raises(BatchRefused):
        one.release(one.add(one.empty(), rows[:-1]), SeededNoise(1))


def test_a_missing_bit_counts_as_zero():
    """It moves a sum by a bit at most; only who is missing altogether is not counted."""
    one = BitVectors(SIX)
    rows = one.randomize(NOTHING, SeededNoise(1)).ravel()
    whole = one.release(one.add(one.empty(), rows), SeededNoise(1))
    less = one.release(one.add(one.empty(), rows[:-1]), SeededNoise(1))
    assert whole.reports == less.reports == 6
    assert np.abs(whole.sums - less.sums).max() <= SIX.unit
    assert one.release(one.add(one.empty(), rows[: -one.messages]), SeededNoise(1)).reports == 5
    with pytest.raises(BatchRefused):
        one.release(one.add(one.empty(), rows[: -2 * one.messages]), SeededNoise(1))


def test_a_single_share_is_no_split():
    with pytest.raises(SpecError):
        ShareVectors(BinomialPlan(Ball("max", 1.0, 1), 6, 10, 0.5, 5), 1)
