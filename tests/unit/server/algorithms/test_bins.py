"""Bins: their columns, their tree, and the kernel by which their values resemble each other."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privateer_core.algorithms.partition import DEPTH_MAX
from privateer_server.algorithms.partition.bin_tree import (
    BinTree,
    Space,
    group_by_ancestor,
    halve_bins,
    level_membership,
)
from privateer_server.algorithms.partition.kernel import LENGTHS, SPREADS, Kernel, interval_covariance, usual_lengths
from privateer_server.algorithms.partition.splitting import SplittingRule, is_undecided
from privateer_server.rounds.schedule import Schedule
from tests.support.partitions import random_bins
from tests.support.specs import SHUFFLE, make_spec

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
    assert Space.numbers(3).columns_in_turn().tolist() == (np.arange(DEPTH_MAX) % 3).tolist()


def test_columns_alternate_while_they_divide_participants() -> None:
    turns = SPACE.columns_in_turn()
    assert len(turns) == DEPTH_MAX
    assert turns[:8].tolist() == [0, 1, 2, 3, 4, 5, 6, 3]
    counts = np.bincount(turns[: SPACE.depth], minlength=7)
    assert (counts <= SPACE.halvings).all()
    assert Space(make_spec({"context.features": {"b": {"boolean": True}}}).blocks).depth == 1


def test_the_tree_begins_with_a_bin_for_each_level() -> None:
    """Six levels have three bits, and yes or no has one: codes without a level have no bin."""
    assert SPACE.select_level_columns(16) == [6, 0, 1, 2]
    assert SPACE.select_level_columns(8) == [6]
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


def names(depths, paths):
    return list(zip(depths.tolist(), paths.tolist(), strict=True))


@given(st.integers(0, 2**32), st.integers(0, 60))
def test_halves_replace_their_bins_in_order(seed, splits):
    rng = np.random.default_rng(seed)
    depths, paths = random_bins(rng, splits, 39)
    ready = rng.random(len(depths)) < 0.5
    copies, fresh, new_depths, new_paths = halve_bins(depths, paths, ready)
    expected = []
    for (depth, path), cut in zip(names(depths, paths), ready, strict=True):
        expected += [(depth + 1, 2 * path), (depth + 1, 2 * path + 1)] if cut else [(depth, path)]
    assert names(new_depths, new_paths) == expected
    assert (fresh == ready[copies]).all()
    assert (np.bincount(copies) == 1 + ready).all()


def ancestors(depths, paths):
    """All bins that were halved on the way."""
    return sorted({(up, path >> (depth - up)) for depth, path in names(depths, paths) for up in range(depth)})


@given(st.integers(0, 2**32), st.integers(0, 60), st.integers(1, 20))
def test_groups_share_an_ancestor_and_the_past_bins_within_it(seed, splits, limit):
    depths, paths = random_bins(np.random.default_rng(seed), splits, 40)
    past = np.array(ancestors(depths, paths), np.int64).reshape(-1, 2)
    bins = names(depths, paths)
    covered = []
    for group, past_rows, inside in group_by_ancestor(depths, paths, past[:, 0], past[:, 1], limit):
        members = range(len(bins))[group]
        covered += members
        assert len(members) <= limit
        assert inside.shape == (len(past_rows), len(members))
        for row, index in enumerate(past_rows):
            up, path = past[index]
            holds = [bins[b][0] >= up and bins[b][1] >> (bins[b][0] - up) == path for b in range(len(bins))]
            assert [holds[b] for b in members] == inside[row].tolist()
            assert sum(holds) == inside[row].sum(), "a past bin counts only where all that it held is in the group"
    assert covered == list(range(len(bins)))


def test_a_single_group_has_all_past_bins():
    depths, paths = random_bins(np.random.default_rng(3), 30, 40)
    past = np.array(ancestors(depths, paths), np.int64)
    [(group, past_rows, _)] = group_by_ancestor(depths, paths, past[:, 0], past[:, 1], 31)
    assert group == slice(0, 31)
    assert len(past_rows) == len(past) == 30


def rule(changes=None):
    spec = make_spec(changes or {})
    return SplittingRule(spec, Space(spec.blocks))


def quarters():
    """Four bins, of which the second half was split."""
    tree, _ = BinTree.root().with_level(0).split(np.array([True]))
    tree, _ = tree.with_level(1).split(np.array([False, True]))
    return tree


def test_a_tree_keeps_its_split_bins():
    tree = quarters()
    assert names(tree.depths, tree.paths) == [(1, 0), (2, 2), (2, 3)]
    assert names(tree.past_depths, tree.past_paths) == [(0, 0), (1, 1)]
    lower, upper = tree.corners(2)
    assert lower.tolist() == [[0, 0], [0.5, 0], [0.5, 0.5]]
    assert upper.tolist() == [[0.5, 1], [1, 0.5], [1, 1]]
    assert tree.all_axes(2)[:4].tolist() == [0, 1, 0, 1]
    assert tree.expected_shares(Space.numbers(2)).tolist() == [0.5, 0.25, 0.25]


@pytest.mark.parametrize(("changes", "second"), [({}, False), (SHUFFLE, True)], ids=["best arm", "any arm"])
def test_bins_are_split_whose_error_is_below_the_difference_of_halves(changes, second):
    """The first bin by its best arm, the second by another; the third has one arm, the last is as deep as may be."""
    tree = BinTree(
        np.zeros(3, np.int64), np.array([1, 2, 2, 3]), np.arange(4), np.zeros(0, np.int64), np.zeros(0, np.int64)
    )
    active = np.array([[True] * 3, [True] * 3, [True, False, False], [True] * 3])
    variance = np.array([[0.04, 1, 1], [1, 0.04, 1], [0.04, 0.04, 0.04], [0.04, 0.04, 0.04]])
    mean, differences = np.tile([0.3, 0.1, 0.0], (4, 1)), np.full((4, 2), 0.1)
    assert rule(changes).is_ready(tree, active, mean, variance, differences, 3).tolist() == [True, second, False, False]
    assert not rule(changes).is_ready(tree, active, mean, 10 * variance, differences, 3).any()
    assert is_undecided(tree, active, 3).tolist() == [True, True, False, False]


def test_a_level_is_added_where_the_deepest_bins_are_split():
    tree, differences = quarters(), np.array([[0.9, 0.1], [0.1, 0.3], [0.1, 0.3]])
    columns = np.arange(2)
    assert rule().add_level(tree, np.array([True, False, False]), differences, columns).axes.tolist() == [0, 1]
    assert rule().add_level(tree, np.array([True, True, False]), differences, columns).axes.tolist() == [0, 1, 1]


def covariance(t, rate):
    return (1 + rate * t) * np.exp(-rate * t)


@given(st.integers(0, 2**32), st.sampled_from(LENGTHS.tolist()))
@settings(max_examples=30)
def test_overlap_is_the_average_over_both_intervals(seed, length):
    """Against 400 midpoints a side; the kink of the covariance is in its third derivative."""
    rng = np.random.default_rng(seed)
    lower = rng.random(3)
    upper = lower + 10 ** rng.uniform(-5, 0, 3)
    rate = np.sqrt(3) / length
    share = (np.arange(400) + 0.5) / 400
    places = lower[:, None] + (upper - lower)[:, None] * share
    gaps = np.abs(places[:, None, :, None] - places[None, :, None, :])
    assert interval_covariance(lower, upper, rate) == pytest.approx(covariance(gaps, rate).mean(axis=(2, 3)), abs=2e-4)


@pytest.mark.parametrize("width", [2.0**-k for k in (1, 6, 9, 10, 11, 14, 20, 30, 40)])
def test_narrow_intervals_count_as_points(width):
    lower = np.array([0.0, width, 0.5, 1 - width])
    overlaps = interval_covariance(lower, lower + width, 10.0)
    middle = lower + width / 2
    expected = covariance(np.abs(middle[:, None] - middle[None, :]), 10.0)
    assert overlaps == pytest.approx(expected, abs=20 * width**2 + 1e-8)


def unit_boxes(rng, count, dimension):
    lower = rng.random((count, dimension)) * 0.5
    return lower, lower + rng.choice([0.5, 0.25, 0.125], (count, dimension))


@given(st.integers(0, 2**32), st.integers(1, 5))
def test_covariances_are_positive_definite(seed, dimension):
    rng = np.random.default_rng(seed)
    smoothness = Kernel(rng.integers(0, len(LENGTHS), dimension), int(rng.integers(len(SPREADS))))
    covariance = smoothness.covariance(*unit_boxes(rng, 30, dimension))
    assert covariance == pytest.approx(covariance.T)
    assert np.linalg.eigvalsh(covariance).min() > 0


@given(st.integers(0, 2**32), st.integers(1, 4))
def test_variances_within_bins_follow_from_the_covariance(seed, dimension):
    """A bin's halves: half their difference; and a place's value less the average, from a grid of small boxes."""
    rng = np.random.default_rng(seed)
    smoothness = Kernel(rng.integers(3, len(LENGTHS), dimension), int(rng.integers(len(SPREADS))))
    lower, upper = unit_boxes(rng, 1, dimension)
    for j in range(dimension):
        middle = (lower[0, j] + upper[0, j]) / 2
        cut = np.repeat(lower, 2, axis=0), np.repeat(upper, 2, axis=0)
        cut[1][0, j] = cut[0][1, j] = middle
        halves = smoothness.covariance(*cut)
        expected = (halves[0, 0] + halves[1, 1] - 2 * halves[0, 1]) / 4
        assert smoothness.half_difference_variances(lower, upper)[0, j] == pytest.approx(expected, abs=2e-6)
    whole = smoothness.covariance(lower, upper)[0, 0]
    point = smoothness.covariance(lower, lower + 1e-9)[0, 0]
    assert smoothness.within_bin_variances(lower, upper)[0] == pytest.approx(point - whole, abs=2e-6)


def test_a_long_length_scale_makes_bins_correlated():
    lower = np.array([[0.0, 0.0], [0.0, 0.5]])
    covariance = Kernel(np.array([3, len(LENGTHS) - 1]), 1).covariance(lower, lower + 0.5)
    assert covariance[0, 1] / covariance[0, 0] > 0.99
    other = Kernel(np.array([3, 3]), 1).covariance(lower, lower + 0.5)
    assert other[0, 1] / other[0, 0] < 0.8
