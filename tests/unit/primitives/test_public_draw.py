"""The public draw: everybody once, nobody favoured, the same for everyone who repeats it."""

import numpy as np
import pytest

from privateer_core.errors import SpecError
from privateer_core.primitives import public_coins
from privateer_core.primitives.public_coins import Draw
from tests.support.statistics import fits


def drawn(seed, people, start, count):
    return Draw(seed, people, start, count).asked()


def test_draws_whose_places_do_not_overlap_have_nobody_in_common():
    parts = [drawn(11, 1000, start, count) for start, count in ((0, 3), (3, 400), (403, 597))]
    assert np.sort(np.concatenate(parts)).tolist() == list(range(1000))


def test_the_draw_is_a_function_of_its_seed():
    assert drawn(5, 100, 10, 20).tolist() == drawn(5, 100, 10, 20).tolist()
    assert drawn(5, 100, 10, 20).tolist() != drawn(6, 100, 10, 20).tolist()
    with pytest.raises(ValueError, match="read-only"):
        drawn(5, 100, 0, 10)[0] = 3


def test_everybody_finds_out_whether_a_round_asks_them(monkeypatch):
    monkeypatch.setattr(public_coins, "_PEOPLE_BLOCK", 7)
    for start, places in ((0, 1), (10, 15), (49, 1), (0, 50), (20, 0)):
        asked = Draw(9, 50, start, places)
        assert [number for number in range(50) if asked.asks(number)] == sorted(asked.asked().tolist())


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
