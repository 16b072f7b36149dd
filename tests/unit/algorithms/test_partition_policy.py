"""The partition policy: bins tile and are found, arms follow coins, malformed policies are refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privateer_core.errors import Malformed
from privateer_core.primitives.public_coins import UNIT, Layout
from tests.support.partitions import local_terms, make_policy
from tests.support.specs import SHUFFLE, make_spec
from tests.support.statistics import is_compatible


def spec_of(dimension, arms, in_key=False):
    promise = SHUFFLE if in_key else {"privacy.model": "local"}
    return make_spec(promise, dimension=dimension, arms=arms)


shapes = st.tuples(st.integers(0, 2**32), st.integers(1, 5), st.integers(2, 16), st.integers(0, 60))


def contexts_of(policy, count=400, seed=0):
    """Random contexts and every corner of every bin, where rounding would show."""
    lower, upper = policy.edges()
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.random((count, policy.dimension)), lower, upper, np.nextafter(upper, 0.0)])


def inside(policy, contexts):
    """Bins that hold each context, by the corners; the last bin along a dimension holds its upper edge."""
    lower, upper = policy.edges()
    below = (contexts[:, None, :] < upper) | ((contexts[:, None, :] == 1.0) & (upper == 1.0))
    return ((contexts[:, None, :] >= lower) & below).all(axis=2)


@given(shapes)
def test_locate_agrees_with_edges(shape):
    seed, dimension, arms, splits = shape
    policy = make_policy(seed, dimension, arms, splits)
    policy.check(spec_of(dimension, arms))
    contexts = contexts_of(policy)
    holds = inside(policy, contexts)
    assert (holds.sum(axis=1) == 1).all()
    assert (holds.argmax(axis=1) == policy.locate(contexts)).all()


@given(shapes)
def test_bins_tile_the_space(shape):
    seed, dimension, arms, splits = shape
    lower, upper = make_policy(seed, dimension, arms, splits).edges()
    assert np.prod(upper - lower, axis=1).sum() == pytest.approx(1.0)
    assert ((lower >= 0) & (upper <= 1) & (lower < upper)).all()


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_the_deepest_bins_are_found(dimension):
    rng = np.random.default_rng(dimension)
    depths, paths = [], []
    path = 0
    for depth in range(1, 41):  # keep halving the lower half
        depths.append(depth)
        paths.append(1)
        path = depth
    depths, paths = np.array([path, *reversed(depths)]), np.array([0, *reversed(paths)])
    policy = make_policy(dimension=dimension)
    active = np.ones((len(depths), 3), bool)
    policy = replace(policy, depths=depths, paths=paths, active=active, bins=np.zeros(0, np.int64))
    policy = replace(policy, terms=local_terms(Layout(1, np.zeros((0, 2), np.uint32))))
    policy.check(spec_of(policy.dimension, 3))
    contexts = np.concatenate([contexts_of(policy), 2.0 ** -rng.uniform(0, 60, (500, dimension))])
    assert (inside(policy, contexts).argmax(axis=1) == policy.locate(contexts)).all()


@given(shapes)
def test_choose_plays_active_arms_and_contribute_agrees(shape):
    seed, dimension, arms, splits = shape
    policy = make_policy(seed, dimension, arms, splits)
    contexts = contexts_of(policy, 300, seed)
    coins = np.random.default_rng(seed).integers(0, 2**32, len(contexts), dtype=np.uint32)
    decisions = policy.decide(contexts, coins)
    chosen = decisions.arms
    bins = policy.locate(contexts)
    assert policy.active[bins, chosen].all()
    reports = policy.contribute(contexts, coins, decisions, np.zeros(len(contexts)))
    has_key = reports.keys >= 0
    assert (reports.groups == chosen).all()
    assert (has_key == (policy.active[bins].sum(axis=1) > 1)).all()
    assert (policy.bins[reports.keys[has_key]] == bins[has_key]).all()


@given(shapes)
def test_an_arm_in_the_key_does_not_depend_on_the_coins(shape):
    seed, dimension, arms, splits = shape
    policy = make_policy(seed, dimension, arms, splits, in_key=True)
    policy.check(spec_of(dimension, arms, in_key=True))
    contexts, rng = contexts_of(policy, 300, seed), np.random.default_rng(seed)
    coins, others = rng.integers(0, 2**32, (2, len(contexts)), dtype=np.uint32)
    decisions, bins = policy.decide(contexts, coins), policy.locate(contexts)
    chosen = decisions.arms
    reports = policy.contribute(contexts, others, decisions, np.zeros(len(contexts)))
    has_key = reports.keys >= 0
    assert (has_key == (policy.active[bins].sum(axis=1) > 1)).all()
    assert (policy.bins[policy.cells[reports.keys[has_key], 0]] == bins[has_key]).all()
    assert (policy.cells[reports.keys[has_key], 1] == chosen[has_key]).all()
    assert (reports.groups == 0).all()
    assert (policy.mechanism.layout.keys, policy.mechanism.layout.groups) == (len(policy.cells), 1)


def test_shares_match_the_layout():
    policy = make_policy(3, arms=4, splits=4)
    rng = np.random.default_rng(1)
    contexts, coins = rng.random((300_000, 2)), rng.integers(0, 2**32, 300_000, dtype=np.uint32)
    decisions, bins = policy.decide(contexts, coins), policy.locate(contexts)
    chosen = decisions.arms
    for key, bin_index in enumerate(policy.bins):
        counts = np.bincount(chosen[bins == bin_index], minlength=4)
        assert is_compatible(counts, counts.sum() * policy.layout.shares[key])


def test_a_view_has_bins_and_shares():
    policy = make_policy(3, arms=4, splits=4)
    view = policy.view(make_spec({"experiment.arms": ["a", "b", "c", "d"]}))
    assert (view.algorithm, view.version) == ("partition", policy.version)
    assert len(view.shows.bins) == len(policy.depths)
    for view_bin, active in zip(view.shows.bins, policy.active, strict=True):
        assert set(view_bin.arms) == {name for name, on in zip("abcd", active, strict=True) if on}
        assert sum(view_bin.arms.values()) == pytest.approx(1, abs=1e-3)


def terms(policy, edges):
    """Terms with other thresholds, of whatever kind."""
    layout = Layout(policy.layout.seed, np.zeros((0, 0), np.uint32))
    object.__setattr__(layout, "thresholds", edges)
    return local_terms(layout)


def with_value(values, at, value):
    values = values.copy()
    values[at] = value
    return values


def make_falling_thresholds(policy):
    """Thresholds that fall: the share of the first arm is -1 and it is dropped, yet every slot plays it."""
    active = with_value(policy.active, policy.bins[0], [False, True, True])
    edges = with_value(policy.layout.thresholds, 0, [UNIT, 0])
    return replace(policy, active=active, terms=terms(policy, edges))


BROKEN = {
    "no bins": lambda p: replace(
        p,
        depths=p.depths[:0],
        paths=p.paths[:0],
        active=p.active[:0],
        bins=p.bins[:0],
        terms=terms(p, p.layout.thresholds[:0]),
    ),
    "a bin is missing": lambda p: replace(p, depths=p.depths[1:], paths=p.paths[1:], active=p.active[1:]),
    "the last bin is missing": lambda p: replace(p, depths=p.depths[:-1], paths=p.paths[:-1], active=p.active[:-1]),
    "bins out of order": lambda p: replace(p, depths=p.depths[::-1], paths=p.paths[::-1]),
    "a bin twice": lambda p: replace(
        p,
        depths=p.depths[[0, *range(len(p.depths))]],
        paths=p.paths[[0, *range(len(p.paths))]],
        active=p.active[[0, *range(len(p.active))]],
    ),
    "too deep": lambda p: replace(p, depths=with_value(p.depths, 0, 41)),
    "negative depth": lambda p: replace(p, depths=with_value(p.depths, 0, -1)),
    "negative path": lambda p: replace(p, paths=with_value(p.paths, 0, -1)),
    "fewer paths than depths": lambda p: replace(p, paths=p.paths[:-1]),
    "depths of two dimensions": lambda p: replace(p, depths=p.depths[:, None]),
    "depths as floats": lambda p: replace(p, depths=p.depths.astype(float)),
    "paths as floats": lambda p: replace(p, paths=p.paths.astype(float)),
    "bins as floats": lambda p: replace(p, bins=p.bins.astype(float)),
    "active as floats": lambda p: replace(p, active=p.active.astype(float)),
    "active as integers": lambda p: replace(p, active=p.active.astype(np.int64) * 3),
    "thresholds as floats": lambda p: replace(p, terms=terms(p, p.layout.thresholds.astype(float) / 3)),
    "thresholds as dates": lambda p: replace(p, terms=terms(p, p.layout.thresholds.astype("<M8[s]"))),
    "depths as text": lambda p: replace(p, depths=p.depths.astype("U4")),
    "an arm too many": lambda p: replace(p, active=np.concatenate([p.active, p.active[:, :1]], axis=1)),
    "an arm too few": lambda p: replace(p, active=p.active[:, :-1]),
    "a bin without arms": lambda p: replace(p, active=with_value(p.active, 0, False)),
    "a key beyond the bins": lambda p: replace(p, bins=with_value(p.bins, -1, len(p.depths))),
    "a negative key": lambda p: replace(p, bins=with_value(p.bins, 0, -1)),
    "a key twice": lambda p: replace(p, bins=with_value(p.bins, 0, p.bins[1])),
    "more keys than thresholds": lambda p: replace(p, terms=terms(p, p.layout.thresholds[:-1])),
    "thresholds of another number of arms": lambda p: replace(p, terms=terms(p, p.layout.thresholds[:, :-1])),
    "a slot plays a dropped arm": lambda p: replace(p, active=with_value(p.active, p.bins[0], [True, False, False])),
    "falling thresholds": lambda p: replace(p, terms=terms(p, with_value(p.layout.thresholds, 0, [UNIT, 0]))),
    "thresholds above the unit": lambda p: replace(
        p, terms=terms(p, with_value(p.layout.thresholds, 0, [UNIT, 9 * UNIT]))
    ),
    "falling thresholds that steer": make_falling_thresholds,
    "a level too few": lambda p: replace(p, axes=p.axes[:-1]),
    "a level along no dimension": lambda p: replace(p, axes=with_value(p.axes, 39, 2)),
    "a level along a negative dimension": lambda p: replace(p, axes=with_value(p.axes, 0, -1)),
    "levels as floats": lambda p: replace(p, axes=p.axes.astype(float)),
    "dimension 0": lambda p: replace(p, dimension=0),
    "negative dimension": lambda p: replace(p, dimension=-2),
}


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_no_layout_has_a_seed_beyond_64_bits(seed):
    with pytest.raises(ValueError, match="64 bits"):
        Layout(seed, np.zeros((1, 1), np.uint32))


@pytest.mark.parametrize("name", BROKEN)
def test_malformed_policies_are_refused(name):
    policy = make_policy(5, splits=8)
    policy.check(spec_of(policy.dimension, 3))
    assert len(policy.bins) > 2
    with pytest.raises(Malformed):
        BROKEN[name](policy).check(spec_of(policy.dimension, 3))
