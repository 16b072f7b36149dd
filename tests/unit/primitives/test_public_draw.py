"""The public draw selects each participant once and uniformly, and is reproducible."""

import numpy as np
import pytest

from privateer_core.errors import SpecError
from privateer_core.primitives import public_coins
from privateer_core.primitives.public_coins import Draw
from tests.support.statistics import is_compatible


def select(seed, people, start, count):
    return Draw(seed, people, start, count).select_participants()


def test_draws_whose_places_do_not_overlap_have_nobody_in_common():
    parts = [select(11, 1000, start, count) for start, count in ((0, 3), (3, 400), (403, 597))]
    assert np.sort(np.concatenate(parts)).tolist() == list(range(1000))


def test_the_draw_is_a_function_of_its_seed():
    assert select(5, 100, 10, 20).tolist() == select(5, 100, 10, 20).tolist()
    assert select(5, 100, 10, 20).tolist() != select(6, 100, 10, 20).tolist()
    with pytest.raises(ValueError, match="read-only"):
        select(5, 100, 0, 10)[0] = 3


def test_participants_find_out_whether_they_are_invited(monkeypatch):
    monkeypatch.setattr(public_coins, "_PARTICIPANT_BLOCK", 7)
    for start, places in ((0, 1), (10, 15), (49, 1), (0, 50), (20, 0)):
        draw = Draw(9, 50, start, places)
        assert [number for number in range(50) if draw.is_invited(number)] == sorted(
            draw.select_participants().tolist()
        )


def test_selection_is_uniform():
    """The first two selected participants are uniform over 20,000 seeds; planted: a draw that favours small numbers."""
    firsts = [select(seed, 12, 0, 2) for seed in range(20_000)]
    pairs = np.zeros((12, 12))
    for first, second in firsts:
        pairs[first, second] += 1
    expected = (1 - np.eye(12)) * 20_000 / 132
    assert is_compatible(pairs, expected)
    biased = pairs.copy()
    biased[0] *= 1.3
    assert not is_compatible(biased, expected * biased.sum() / 20_000)


@pytest.mark.parametrize(("start", "count"), [(0, 11), (8, 3), (-1, 2), (3, -1)])
def test_draws_outside_of_the_participants_are_refused(start, count):
    with pytest.raises(SpecError, match="people"):
        select(1, 10, start, count)
