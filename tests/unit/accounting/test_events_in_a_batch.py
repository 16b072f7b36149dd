"""The privacy loss of a shuffled batch of event symbols, enumerated for every record, is within the bound."""

import math
from collections import defaultdict
from itertools import combinations_with_replacement, permutations, product

import numpy as np
import pytest

from privateer_core.accounting.amplification import shuffled_delta
from privateer_core.mechanisms.event_symbol import KEY_REPORT_CLASSES

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
