"""The public draw: everybody once, nobody favoured, the same for everyone who repeats it."""

import numpy as np
import pytest

from privateer import draw
from privateer.draw import Draw, drawn, place
from privateer.errors import SpecError
from tests.support.statistics import fits


def test_places_apart_have_nobody_in_common():
    parts = [drawn(11, 1000, start, count) for start, count in ((0, 3), (3, 400), (403, 597))]
    assert np.sort(np.concatenate(parts)).tolist() == list(range(1000))


def test_the_draw_is_a_function_of_its_seed():
    assert drawn(5, 100, 10, 20).tolist() == drawn(5, 100, 10, 20).tolist()
    assert drawn(5, 100, 10, 20).tolist() != drawn(6, 100, 10, 20).tolist()
    with pytest.raises(ValueError, match="read-only"):
        drawn(5, 100, 0, 10)[0] = 3


def test_everybody_finds_their_own_place(monkeypatch):
    monkeypatch.setattr(draw, "_BLOCK", 7)
    order = drawn(9, 50, 0, 50).tolist()
    assert [order[place(9, 50, number)] for number in range(50)] == list(range(50))


def test_nobody_is_favoured():
    """Who is drawn first, and second after it, over 20,000 seeds; planted: a draw that favours small numbers."""
    firsts = [drawn(seed, 12, 0, 2) for seed in range(20_000)]
    pairs = np.zeros((12, 12))
    for first, second in firsts:
        pairs[first, second] += 1
    expected = (1 - np.eye(12)) * 20_000 / 132
    assert fits(pairs, expected)
    biased = pairs.copy()
    biased[0] *= 1.3
    assert not fits(biased, expected * biased.sum() / 20_000)


@pytest.mark.parametrize(("start", "count"), [(0, 11), (8, 3), (-1, 2), (3, -1)])
def test_more_people_than_there_are(start, count):
    with pytest.raises(SpecError, match="people"):
        drawn(1, 10, start, count)


def test_a_round_asks_the_people_of_its_places():
    draw_of_round = Draw(seed=9, people=50, start=10, places=15)
    asked = draw_of_round.asked().tolist()
    assert asked == drawn(9, 50, 10, 15).tolist()
    assert [number for number in range(50) if draw_of_round.asks(number)] == sorted(asked)
