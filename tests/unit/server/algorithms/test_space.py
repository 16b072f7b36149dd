"""Columns that are levels: which are in a bin, how many people, and how alike bins are."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privateer_core.algorithms.partition import DEPTH_MAX
from privateer_server.algorithms.partition.bin_tree import Space, level_membership
from privateer_server.algorithms.partition.kernel import LENGTHS, Kernel, usual_lengths
from privateer_server.rounds.loop import Schedule
from tests.support.specs import make_spec

FEATURES = {
    "kind": {"levels": ["a", "b", "c", "d", "e"]},
    "x": {"low": 0, "high": 1, "missing": True},
    "plan": {"levels": ["free", "basic", "pro"], "ordered": True},
    "premium": {"boolean": True},
}
SPEC = make_spec({"context.features": FEATURES})
SPACE = Space(SPEC.blocks)


def boxes(seed: int, count: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Bins as halving makes them, each column no more often than it may be."""
    rng = np.random.default_rng(seed)
    depth = rng.integers(0, np.minimum(SPACE.halvings, 3) + 1, (count, len(SPACE.halvings)))
    width = 0.5**depth
    lower = np.floor(rng.random(width.shape) / width) * width
    return lower, lower + width


def test_the_columns_of_a_spec() -> None:
    assert SPEC.dimension == 7
    assert SPACE.halvings[:3].tolist() == [1, 1, 1]
    assert SPACE.halvings[4:].tolist() == [1, 2, 1]
    assert Space.numbers(3).column_of_level_in_turn().tolist() == (np.arange(DEPTH_MAX) % 3).tolist()


def test_columns_alternate_while_they_divide_participants() -> None:
    turns = SPACE.column_of_level_in_turn()
    assert len(turns) == DEPTH_MAX
    assert turns[:8].tolist() == [0, 1, 2, 3, 4, 5, 6, 3]
    counts = np.bincount(turns[: SPACE.depth], minlength=7)
    assert (counts <= SPACE.halvings).all()
    assert Space(make_spec({"context.features": {"b": {"boolean": True}}}).blocks).depth == 1


def test_the_tree_begins_with_a_bin_for_each_level() -> None:
    """Six levels have three bits, and yes or no has one: codes without a level have no bin."""
    assert SPACE.columns_of_levels(16) == [6, 0, 1, 2]
    assert SPACE.columns_of_levels(8) == [6]
    kind, *_, premium = SPACE.parts
    policy: Any = Schedule(SPEC).open(0).policy
    lower, upper = policy.edges()
    inside = np.concatenate([level_membership(kind, lower, upper), level_membership(premium, lower, upper)], axis=1)
    assert sorted(inside.tolist()) == sorted(np.hstack([a, b]).tolist() for a in np.eye(6) for b in np.eye(2))
    plain: Any = Schedule(make_spec({})).open(0).policy
    assert plain.edges()[0].shape == (1, 2)


@given(st.integers(0, 2**32))
def test_shares_of_halves_sum_to_that_of_the_bin(seed: int) -> None:
    lower, upper = boxes(seed)
    for column in range(len(SPACE.halvings)):
        whole = (upper - lower)[:, column] == 1
        first, second = upper.copy(), lower.copy()
        first[:, column] = second[:, column] = (lower + upper)[:, column] / 2
        parts = SPACE.expected_shares(lower, first) + SPACE.expected_shares(second, upper)
        assert parts[whole] == pytest.approx(SPACE.expected_shares(lower, upper)[whole])
    assert SPACE.expected_shares(np.zeros((1, 7)), np.ones((1, 7))) == pytest.approx(1.0)


def test_missing_numbers_have_one_place() -> None:
    lower, upper = np.zeros((2, 7)), np.ones((2, 7))
    lower[:, 4] = 0.5
    upper[0, 3], lower[1, 3] = 0.5, 0.5
    assert SPACE.expected_shares(lower, upper).tolist() == [0.0, 0.5]


def test_numbers_alone_have_the_shares_of_their_widths() -> None:
    lower, upper = np.zeros((1, 3)), np.array([[0.5, 0.25, 1.0]])
    assert Space.numbers(3).expected_shares(lower, upper).tolist() == [0.125]


@given(st.integers(0, 2**32))
def test_covariances_of_levels_are_averages_over_pairs_of_them(seed: int) -> None:
    lower, upper = boxes(seed, 6)
    lower[:, 3:], upper[:, 3:] = 0.0, 1.0
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, len(LENGTHS), len(SPACE.blocks))
    covariance = Kernel(lengths, 1, SPACE).covariance(lower, upper)
    inside = level_membership(SPACE.parts[0], lower, upper)
    rate = np.sqrt(3) / LENGTHS[lengths[0]]
    across = (1 + rate) * np.exp(-rate)
    whole = Kernel(lengths, 1, SPACE).covariance(np.zeros((1, 7)), np.ones((1, 7)))[0, 0] - 0.25 - 1e-6
    whole /= np.mean([[1 if a == b else across for a in range(6)] for b in range(6)])
    for i, j in itertools.product(range(6), repeat=2):
        pairs = itertools.product(np.flatnonzero(inside[i]), np.flatnonzero(inside[j]))
        values = [1.0 if a == b else across for a, b in pairs]
        if values:
            assert covariance[i, j] == pytest.approx(0.25 + whole * np.mean(values) + 1e-6 * (i == j), rel=1e-6)
    assert np.linalg.eigvalsh(covariance).min() > 0


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_halves_differ_by_their_covariance(seed: int) -> None:
    lower, upper = boxes(seed, 30)
    levels = [level_membership(part, lower, upper).any(axis=1) for part in SPACE.parts if part.block.codes]
    lower, upper = lower[np.all(levels, axis=0)], upper[np.all(levels, axis=0)]
    smoothness = Kernel(np.random.default_rng(seed).integers(0, len(LENGTHS), len(SPACE.blocks)), 2, SPACE)
    variances = smoothness.half_difference_variances(lower, upper)
    for column in range(7):
        first, second = upper.copy(), lower.copy()
        first[:, column] = second[:, column] = (lower + upper)[:, column] / 2
        for i in range(len(lower)):
            part = next(part for part in SPACE.parts if part.columns.start <= column < part.columns.stop)
            halves = np.stack([lower[i], second[i]]), np.stack([first[i], upper[i]])
            if part.block.codes and not level_membership(part, *halves).any(axis=1).all():
                assert variances[i, column] == 0
            elif not part.block.codes or (upper - lower)[i, column] == 1:
                pair = smoothness.covariance(*halves) - 1e-6 * np.eye(2)
                assert variances[i, column] == pytest.approx((pair[0, 0] + pair[1, 1] - 2 * pair[0, 1]) / 4, abs=1e-9)


def test_lengths_are_longer_where_there_are_many_features() -> None:
    assert set(LENGTHS[usual_lengths(Space.numbers(5).parts)]) == {0.5}
    assert set(LENGTHS[usual_lengths(Space.numbers(6).parts)]) == {1.5}
