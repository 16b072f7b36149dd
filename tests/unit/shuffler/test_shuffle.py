"""The permutation is uniform: chi-square with a false-alarm rate of 1e-6, since the system's randomness has no seed."""

import itertools
import os
import secrets
import struct
from collections import Counter

import pytest

from privateer_shuffler.shuffle import Groups, RandomBelow, ShuffledPlaces
from tests.support.statistics import is_compatible

ORDERS = list(itertools.permutations(range(4)))
DRAWS = 500 * len(ORDERS)


def is_uniform(below) -> bool:
    """Whether 4 places come in all 24 orders equally often."""
    counter = Counter()
    for _ in range(DRAWS):
        places = ShuffledPlaces(range(4), below)
        counter[tuple(places.draw() for _ in range(4))] += 1
    return is_compatible([counter[order] for order in ORDERS], [DRAWS / len(ORDERS)] * len(ORDERS))


def test_all_orders_are_equally_likely():
    assert is_uniform(RandomBelow())


@pytest.mark.parametrize("count", [1, 2, 3, 1000, (1 << 63) + 1])
def test_all_numbers_are_equally_likely(count):
    """In ten intervals of equal length; half of the words are beyond the last whole multiple of the largest count."""
    below, bins = RandomBelow(), min(count, 10)
    counter = Counter(below(count) * bins // count for _ in range(5000))
    expected = [
        len(range(-(-indice * count // bins), -(-(indice + 1) * count // bins))) / count for indice in range(bins)
    ]
    assert is_compatible([counter[indice] for indice in range(bins)], [5000 * share for share in expected])


def test_random_words_are_used_once(monkeypatch):
    blocks = [struct.pack("<256Q", *range(start, start + 256)) for start in (0, 256, 512)]
    monkeypatch.setattr(os, "urandom", lambda count: blocks.pop() if count == 8 * 256 else None)
    below = RandomBelow()
    assert sorted(below(1 << 32) for _ in range(3 * 256)) == list(range(3 * 256))
    assert not blocks


def test_words_beyond_a_whole_multiple_are_not_used(monkeypatch):
    monkeypatch.setattr(os, "urandom", lambda count: bytes(8) + b"\xff" * (count - 8))
    below = RandomBelow()
    assert [below(3), below(1 << 63)] == [0, (1 << 63) - 1]


@pytest.mark.parametrize(
    "defect",
    [
        lambda n: n - 1,  # always the last: one fixed order
        lambda n: 0,
        lambda n: secrets.randbelow(max(1, n - 1)),  # Sattolo's mistake: cycles only
    ],
)
def test_a_defective_source_is_caught(defect):
    assert not is_uniform(defect)


def test_every_place_is_drawn_once():
    places = ShuffledPlaces([7, 3, 9], RandomBelow())
    assert len(places) == 3
    assert sorted(places.draw() for _ in range(3)) == [3, 7, 9]
    assert len(places) == 0


def test_message_kinds_are_shuffled_separately():
    counter = Counter()
    for _ in range(DRAWS):
        groups = Groups(range(12), 4, 1, 3, RandomBelow())
        places = groups.draw(4)
        orders = [tuple(place - 4 * kind for place in places[kind::3]) for kind in range(3)]
        assert groups.capacity == 0
        counter[orders[1]] += 1
    assert is_compatible([counter[order] for order in ORDERS], [DRAWS / len(ORDERS)] * len(ORDERS))
    groups = Groups([0, 5, 9], 4, 1, 3, RandomBelow())
    assert groups.capacity == 1
    assert groups.draw(1) == [0, 5, 9]
    assert groups.capacity == 0


def test_messages_of_each_kind_are_sent_together():
    groups = Groups(range(12), 3, 2, 2, RandomBelow())
    places = [place for _ in range(3) for place in groups.draw(1)]
    assert [place // 6 for place in places] == [0, 0, 1, 1] * 3
    assert sorted(places) == list(range(12))


def test_returned_places_are_drawn_again_within_their_kind():
    groups = Groups([0, 5, 9], 4, 1, 3, RandomBelow())
    groups.draw(1)
    for place in (9, 5, 0):
        groups.give_back(place)
    assert groups.draw(1) == [0, 5, 9]
