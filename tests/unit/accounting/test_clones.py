"""Shuffled batches by clones: events, groups of arms, and how tight the accounts are."""

import math
import random
from collections import defaultdict
from functools import cache
from itertools import combinations_with_replacement, permutations, product

import mpmath
import numpy as np
import pytest

from privateer_core.accounting.accountant import account
from privateer_core.accounting.amplification import clones_delta, clones_local_epsilon, shuffled_delta
from privateer_core.accounting.events import GroupedResponse, read_event
from privateer_core.accounting.grouped_bits import grouped_delta, grouped_local_epsilon
from privateer_core.errors import SpecError
from privateer_core.mechanisms.event_symbol import KEY_REPORT_CLASSES
from privateer_lab.audit.tightness import compare_local_epsilons, crowd_delta
from tests.support.shuffling import hockey_stick, response_law, shuffled_law

TABLE = {
    0.1: (0.65, 1.52, 3.12, 5.26),
    0.5: (1.90, 3.70, 5.92, 8.21),
    1.0: (2.72, 4.80, 7.07, 9.37),
    2.0: (3.45, 5.64, 7.93, 10.23),
}


@pytest.mark.parametrize("epsilon", TABLE)
def test_published_values(epsilon):
    for batch, expected in zip((10**3, 10**4, 10**5, 10**6), TABLE[epsilon], strict=True):
        assert clones_local_epsilon(epsilon, 1e-6, batch) == pytest.approx(expected, abs=0.01)


def test_the_bound_has_its_check_value():
    assert clones_delta(0.1698, 4.0, 10**5) == pytest.approx(1e-6, rel=0.01)


def shuffled_exactly(matrix: np.ndarray, epsilon: float, batch: int) -> float:
    """Return the largest delta of a shuffled batch over neighbours and all other inputs, by enumeration of counts."""
    inputs, symbols = matrix.shape

    def law(people: tuple[int, ...]) -> dict[tuple[int, ...], float]:
        counts = {(0,) * symbols: 1.0}
        for person in people:
            following: dict[tuple[int, ...], float] = {}
            for histogram, mass in counts.items():
                for symbol in range(symbols):
                    key = tuple(n + (i == symbol) for i, n in enumerate(histogram))
                    following[key] = following.get(key, 0.0) + mass * matrix[person, symbol]
            counts = following
        return counts

    worst = 0.0
    for others in product(range(inputs), repeat=batch - 1):
        laws = [law((indice, *others)) for indice in range(inputs)]
        for left, right in product(laws, laws):
            worst = max(worst, sum(max(0.0, left[k] - math.exp(epsilon) * right[k]) for k in left))
    return worst


def randomizers(local_epsilon: float) -> list[np.ndarray]:
    """Return randomized response, an unbalanced binary response, and a response with an improbable shared symbol."""
    e = math.exp(local_epsilon)
    unbalanced = np.array([[0.3, 0.7], [0.3 / e, 1 - 0.3 / e]])
    ternary = (np.ones((3, 3)) + (e - 1) * np.eye(3)) / (e + 2)
    rare = np.array([[e, 1, 1], [1, e, 1], [1, 1, e]]) * np.array([1, 1, 0.1])
    return [ternary, unbalanced, rare / rare.sum(axis=1, keepdims=True)]


@pytest.mark.parametrize("batch", [2, 3, 4])
@pytest.mark.parametrize(("epsilon", "local_epsilon"), [(0.2, 1.0), (0.5, 1.0), (0.5, 2.0), (1.0, 2.0)])
def test_the_bound_covers_small_batches_of_any_randomizer(epsilon, local_epsilon, batch):
    for matrix in randomizers(local_epsilon):
        ratio = (matrix[:, None, :] / matrix[None, :, :]).max()
        pure = math.log(ratio)
        assert clones_delta(epsilon, max(pure, 1e-6), batch) >= shuffled_exactly(matrix, epsilon, batch) * (1 - 1e-9)


def test_the_enumeration_catches_a_bound_that_is_too_small():
    """Planted: two more people than there are."""
    ternary = randomizers(2.0)[0]
    assert clones_delta(0.5, 2.0, 40) < shuffled_exactly(ternary, 0.5, 3)


@pytest.mark.parametrize("batch", [100, 1000, 10_000])
def test_a_bound_for_the_randomizer_itself_is_sharper(batch):
    assert shuffled_delta(1.0, 5.0, 2, batch) < clones_delta(1.0, 5.0, batch)


def test_curves_fall():
    assert all(np.diff([clones_delta(e, 4.0, 1000) for e in np.linspace(0.1, 4, 40)]) <= 0)
    assert all(np.diff([clones_delta(1.0, 4.0, n) for n in (10, 100, 1000, 10_000)]) < 0)


@pytest.mark.parametrize(
    "arguments", [(0.0, 1.0, 10), (1.0, 0.0, 10), (1.0, 31.0, 10), (1.0, 1.0, 0), (math.nan, 1, 1)]
)
def test_numbers_out_of_range_are_refused(arguments):
    with pytest.raises(SpecError):
        clones_delta(*arguments)
    with pytest.raises(SpecError):
        clones_local_epsilon(1.0, 0.0, 100)


def precise_delta(epsilon: float, local_epsilon: float, batch: int) -> mpmath.mpf:
    """The clones bound with forty digits; a lower bound, by counts of clones within ten deviations."""
    with mpmath.workdps(40):
        e, l = mpmath.exp(epsilon), mpmath.exp(local_epsilon)  # noqa: E741
        q, trials, probability = l / (1 + l), batch - 1, 1 / l
        width = 10 * mpmath.sqrt(trials * probability * (1 - probability)) + 10
        low, high = max(1, int(trials * probability - width)), min(trials, int(trials * probability + width))
        mass = mpmath.binomial(trials, low) * probability**low * (1 - probability) ** (trials - low)
        delta = mpmath.mpf(0)
        for clones in range(low, high + 1):
            share = (e * q - (1 - q)) / ((2 * q - 1) * (1 + e))
            threshold = int(mpmath.floor((clones + 1) * share)) + 1
            term = mpmath.binomial(clones, threshold - 1) / mpmath.mpf(2) ** clones
            tail, point, count = mpmath.mpf(0), term, threshold - 1
            while count <= clones and term > tail * mpmath.mpf(10) ** -30:
                tail, term, count = tail + term, term * (clones - count) / (count + 1), count + 1
            inner_tail = tail - point
            delta += mass * max(0, (q * tail + (1 - q) * inner_tail) - e * ((1 - q) * tail + q * inner_tail))
            mass *= probability / (1 - probability) * (trials - clones) / (clones + 1)
        return delta


@pytest.mark.parametrize(
    ("epsilon", "local_epsilon", "batch"),
    [(2e-10, 1e-7, 20_000), (3e-10, 1e-7, 20_000), (2e-7, 1e-4, 10_000), (1e-9, 1e-6, 100_000)],
)
def test_rounding_of_differences_of_tails_is_covered(epsilon, local_epsilon, batch):
    expected = precise_delta(epsilon, local_epsilon, batch)
    assert mpmath.mpf(clones_delta(epsilon, local_epsilon, batch)) >= expected
    assert clones_delta(epsilon, local_epsilon, batch) < 1.1 * float(expected)


@pytest.mark.parametrize("batch", [0, -5, 10**9 + 1, 10**23])
def test_a_batch_out_of_range_is_refused(batch):
    with pytest.raises(SpecError) as refused:
        clones_local_epsilon(1.0, 1e-6, batch)
    assert refused.value.field == "batch"
    assert "30" not in refused.value.remedy


KEYS = 2
RECORDS = [(-1, 0), *product(range(KEYS), (0, 1))]
"""Key, and whether there was an event."""
NEIGHBOURS = list(permutations(RECORDS, 2))


def law(record, local_epsilon, naming=None):
    """Return the probabilities of (question of the coins, symbol), for event coins and then key coins; (2 * symbols,).

    Written from the mechanism's description alone. ``naming`` is the local epsilon of coins that name the key.
    """
    (key, event), rows = record, []
    for share, symbol, epsilon in (
        (1 - 1 / KEY_REPORT_CLASSES, key + 1 if event else 0, local_epsilon),
        (1 / KEY_REPORT_CLASSES, key + 1, naming or local_epsilon),
    ):
        row = np.ones(KEYS + 1)
        row[symbol] = math.exp(epsilon)
        rows.append(share * row / row.sum())
    return np.concatenate(rows)


def batch_law(laws):
    """Probability of each multiset of messages."""
    probabilities = defaultdict(float)
    for messages in product(range(2 * (KEYS + 1)), repeat=len(laws)):
        probabilities[tuple(sorted(messages))] += math.prod(row[at] for row, at in zip(laws, messages, strict=True))
    return probabilities


def exact_delta(epsilon, local_epsilon, batch, naming=None):
    """Return the largest delta over neighbours and over the records of all others, which the adversary knows."""
    laws, worst = {record: law(record, local_epsilon, naming) for record in RECORDS}, 0.0
    for others in combinations_with_replacement(RECORDS, batch - 1):
        views = {record: batch_law([laws[record], *(laws[other] for other in others)]) for record in RECORDS}
        for left, right in NEIGHBOURS:
            gap = sum(max(0.0, p - math.exp(epsilon) * views[right][view]) for view, p in views[left].items())
            worst = max(worst, gap)
    return worst


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize(("epsilon", "local_epsilon"), [(0.1, 1.0), (0.5, 1.0), (1.0, 3.0)])
def test_the_bound_covers_both_kinds_of_coins(epsilon, local_epsilon, batch):
    exact = exact_delta(epsilon, local_epsilon, batch)
    assert 0 < exact <= shuffled_delta(epsilon, local_epsilon, KEYS + 1, batch) * (1 + 1e-9)


@pytest.mark.parametrize("batch", [1, 2])
def test_a_bound_that_forgets_the_coins_that_name_is_caught(batch):
    """Planted: reports that name the key have much more local epsilon."""
    assert exact_delta(1.0, 1.0, batch, naming=9.0) > shuffled_delta(1.0, 1.0, KEYS + 1, batch)


@pytest.mark.parametrize(("left", "right"), NEIGHBOURS)
def test_a_report_alone_costs_its_local_epsilon(left, right):
    ratio = law(left, 2.0) / law(right, 2.0)
    assert np.log(ratio).max() <= 2.0 + 1e-12


COINS = {3: (0, 1, 1), 5: (0, 1, 1, 1, 1)}
"""The arm of each value of the coins: arm 0 has a third of them, or a fifth."""
LOCAL = ((1.0, 1.0), (2.0, 1.5), (3.0, 4.0))
"""Local epsilons of both arms: they may differ, since arms are public."""


@cache
def views(coins, local, records):
    """Return the probability of each view: all arms, and the permuted messages (coins, symbol).

    ``records`` are everybody's rewards under each arm; coins choose the arm, and do not depend on records.
    """
    arms, probabilities = COINS[coins], defaultdict(float)
    for messages in product(product(range(coins), (0, 1)), repeat=len(records)):
        chance = 1.0
        for (coin, symbol), rewards in zip(messages, records, strict=True):
            arm = arms[coin]
            e = math.exp(local[arm])
            chance *= (e if symbol == rewards[arm] else 1.0) / (e + 1) / coins
        shown_arms = tuple(arms[coin] for coin, _ in messages)
        probabilities[shown_arms, tuple(sorted(messages))] += chance
    return probabilities


def arm_exact_delta(epsilon, local, coins, batch, arm):
    """Return the largest delta of a participant of an arm, over all records of the batch."""
    share, worst = COINS[coins].count(arm) / coins, 0.0
    for others in product(product((0, 1), repeat=2), repeat=batch - 1):
        left, right = (views(coins, local, ((record, record), *others)) for record in (0, 1))
        own_arm = [(view, p) for view, p in left.items() if view[0][0] == arm]
        gap = sum(max(0.0, p - math.exp(epsilon) * right[view]) for view, p in own_arm)
        worst = max(worst, gap / share)
    return worst


@pytest.mark.parametrize("arm", [0, 1])
@pytest.mark.parametrize(("coins", "batch"), [(3, 1), (3, 2), (3, 3), (5, 2), (5, 3)])
@pytest.mark.parametrize("local", LOCAL)
@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_the_bound_covers_batches_whose_arms_are_seen(epsilon, local, coins, batch, arm):
    exact = arm_exact_delta(epsilon, local, coins, batch, arm)
    share = COINS[coins].count(arm) / coins
    assert exact <= grouped_delta(epsilon, local[arm], batch, share) * (1 + 1e-9) + 1e-15
    assert exact > 1e-6 or local[arm] <= epsilon


def test_a_bound_without_the_arms_share_is_too_low():
    """Planted: the bound of the whole batch, which holds only where arms are hidden."""
    exact = arm_exact_delta(0.3, (1.0, 1.0), 5, 3, 0)
    assert grouped_delta(0.3, 1.0, 3) < exact <= grouped_delta(0.3, 1.0, 3, 0.2)


@pytest.mark.parametrize(
    ("epsilon", "batch", "expected"),
    [(1.0, 900, (3.35, 2.719, 1.484)), (1.0, 9000, (5.583, 4.899, 3.339)), (2.0, 900, (4.032, 3.343, 2.033))],
)
def test_smaller_shares_allow_less(epsilon, batch, expected):
    epsilons = [grouped_local_epsilon(epsilon, 1e-6, batch, 16.0, share) for share in (1.0, 0.5, 0.1)]
    assert epsilons == pytest.approx(expected, abs=2e-3)


def test_a_group_never_says_less_than_a_report_alone():
    for share in (1e-4, 1e-3, 0.01, 1.0):
        assert grouped_local_epsilon(1.0, 1e-6, 900, 4.0, share) >= 1.0
        assert grouped_local_epsilon(4.0, 1e-6, 900, 4.0, share) == 4.0


def test_a_group_costs_more_than_a_batch():
    whole, part = GroupedResponse(3.0, 900, 1.0), GroupedResponse(3.0, 900, 0.1)
    assert account(part).delta(1.0) > 100 * account(whole).delta(1.0)
    assert "arm group" in account(part).proof
    record = {"event": "grouped-response", "local_epsilon": 3.0, "honest": 900, "share": 0.1}
    assert read_event(record) == part


BATCHES, ALPHABETS = (90, 300, 900), (3, 9, 33)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_no_proof_could_save_a_hundredth_of_the_variance(epsilon, batch):
    """The bound is slightly looser for 90 participants, whose own reports hide a participant, too."""
    max_variance = 1.06 if batch < 300 else 1.01
    for symbols in ALPHABETS:
        gaps = compare_local_epsilons((epsilon, 1e-6), batch, symbols, 16.0)
        assert gaps["allowed"] <= gaps["never_above"]
        assert 1 <= gaps["variance"] <= max_variance


@pytest.mark.parametrize("batch", BATCHES)
def test_a_bit_could_be_a_twentieth_better(batch):
    """The worst crowd of bits is known, but coins that turn a bit are seen: the better bound is not proved then."""
    assert compare_local_epsilons((1.0, 1e-6), batch, 2, 16.0)["variance"] <= 1.05


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_no_proof_could_save_a_hundredth_of_the_variance_of_bits_in_groups(epsilon, batch):
    """Coins do not change them, so that the worst crowd is proved. Other epsilons are multiples of 0.001."""
    gaps = compare_local_epsilons((epsilon, 1e-6), batch, 2, 16.0)
    allowed, most = grouped_local_epsilon(epsilon, 1e-6, batch, 16.0), gaps["never_above"]
    assert gaps["allowed"] <= allowed < most + 0.001
    assert (math.tanh(most / 2) / math.tanh(allowed / 2)) ** 2 <= 1.01


@pytest.mark.parametrize("cases", [60, pytest.param(5000, marks=pytest.mark.nightly)])
def test_the_bound_is_never_below_a_crowds_delta(cases):
    """Exact sums on both sides: no chance is involved."""
    rng = random.Random(11)
    for _ in range(cases):
        epsilon, symbols, batch = 10 ** rng.uniform(-1.5, 0.7), rng.randint(2, 60), int(10 ** rng.uniform(0, 2.6))
        local_epsilon = epsilon * rng.uniform(1.05, 4)
        truth = crowd_delta(epsilon, local_epsilon, symbols, batch)
        assert shuffled_delta(epsilon, local_epsilon, symbols, batch) >= truth * (1 - 1e-7) - 1e-16


@pytest.mark.parametrize(("epsilon", "symbols", "batch"), [(2.0, 9, 90), (4.0, 9, 90), (1.0, 9, 300)])
def test_a_batch_shows_the_variation_ratio_to_be_too_small(epsilon, symbols, batch):
    """Planted: the local epsilons that the variation-ratio bound allows (arXiv 2304.05007), which is no bound here."""
    allowed = {(2.0, 90): 2.987, (4.0, 90): 4.583, (1.0, 300): 2.673}[epsilon, batch]
    assert crowd_delta(epsilon, allowed, symbols, batch) > 1.1e-6


@pytest.mark.parametrize(("symbols", "batch"), [(2, 2), (2, 4), (3, 3), (3, 4), (4, 3)])
@pytest.mark.parametrize(("epsilon", "local_epsilon"), [(0.1, 1.0), (1.0, 3.0)])
def test_a_crowds_delta_is_that_of_its_enumerated_batch(epsilon, local_epsilon, symbols, batch):
    others = [response_law(min(2, symbols - 1), symbols, local_epsilon)] * (batch - 1)
    left, right = (shuffled_law([response_law(symbol, symbols, local_epsilon), *others]) for symbol in (0, 1))
    exact, crowd = hockey_stick(left, right, epsilon), crowd_delta(epsilon, local_epsilon, symbols, batch)
    assert 0 < crowd <= exact * (1 + 1e-9)
    if symbols < 4:
        assert crowd == pytest.approx(exact, rel=1e-9)
