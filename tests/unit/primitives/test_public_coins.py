"""Public coins, and public draws of participants."""

import numpy as np
import pytest

from privateer_core.errors import SpecError
from privateer_core.mechanisms.signed_symbol import SignedSymbol
from privateer_core.primitives import public_coins
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import UNIT, Draw, Layout, hash_to_bucket, hash_to_sign
from privateer_lab.simulation.scores import SeededNoise
from tests.support.statistics import independent, is_compatible

MASK = (1 << 64) - 1
DRAWS = 100_000


def flat_layout(keys: int, groups: int, seed: int = 7) -> Layout:
    edges = np.arange(1, groups) * UNIT // groups
    return Layout(seed, np.tile(edges.astype(np.uint32), (keys, 1)))


def draw_coins(count: int = DRAWS, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**32, count, dtype=np.uint32)


def unshift(word: int, shift: int) -> int:
    """Inverse of word ^ (word >> shift)."""
    result = word
    for _ in range(64 // shift + 1):
        result = word ^ (result >> shift)
    return result


def unmix(word: int) -> int:
    word = unshift(word, 31)
    word = unshift(word * pow(0x94D049BB133111EB, -1, 1 << 64) & MASK, 27)
    return unshift(word * pow(0xBF58476D1CE4E5B9, -1, 1 << 64) & MASK, 30)


def test_mix_has_an_inverse():
    words = np.random.default_rng(0).integers(0, 2**64, 2000, dtype=np.uint64)
    words = np.concatenate([words, np.array([0, 1, MASK, 1 << 63, (1 << 63) - 1], np.uint64)])
    mixed = public_coins.mix_words(words)
    assert [unmix(int(word)) for word in mixed] == [int(word) for word in words]


def test_mix_flips_half_of_the_bits():
    words = np.random.default_rng(2).integers(0, 2**64, 4000, dtype=np.uint64)
    for bit in range(64):
        change = np.bitwise_count(public_coins.mix_words(words) ^ public_coins.mix_words(words ^ np.uint64(1 << bit)))
        assert abs(change.mean() - 32) < 5 * 4 / np.sqrt(4000)


@pytest.mark.parametrize("buckets", [1, 2, 3, 8, 100, 1024])
def test_buckets_are_uniform(buckets):
    layout = flat_layout(3, 2)
    chosen = hash_to_bucket(layout.hashes(draw_coins(), np.array([2])), buckets)
    assert is_compatible(np.bincount(chosen, minlength=buckets), np.full(buckets, DRAWS / buckets))


def test_signs_are_fair_at_every_key():
    layout = flat_layout(50, 2)
    signs = hash_to_sign(layout.hashes(draw_coins(20_000)[:, None], np.arange(50)[None, :]))
    assert set(np.unique(signs)) == {-1, 1}
    for column in signs.T:
        assert is_compatible([(column > 0).sum(), (column < 0).sum()], [10_000, 10_000])


def test_groups_follow_their_shares():
    edges = np.array([[0, 1000, 40_000], [65_536, 65_536, 65_536], [1, 2, 65_535]], np.uint32)
    layout = Layout(11, edges)
    keys = np.arange(3)
    groups = layout.find_groups(layout.hashes(draw_coins()[:, None], keys[None, :]), keys[None, :])
    for key in keys:
        assert is_compatible(np.bincount(groups[:, key], minlength=4), DRAWS * layout.shares[key])


def test_group_counts_every_hash_value_exactly():
    edges = np.array([[0, 1000, 40_000], [65_536, 65_536, 65_536], [1, 2, 65_535]], np.uint32)
    layout = Layout(0, edges)
    for key in range(3):
        groups = layout.find_groups(np.arange(UNIT, dtype=np.uint64), np.array([key]))
        assert (np.bincount(groups, minlength=4) == layout.shares[key] * UNIT).all()
        assert (np.diff(groups) >= 0).all()


def parts(hashes: np.ndarray, layout: Layout, key: int) -> dict[str, np.ndarray]:
    return {
        "sign": (hash_to_sign(hashes) + 1) // 2,
        "bucket": hash_to_bucket(hashes, 8),
        "group": layout.find_groups(hashes, np.array([key])),
        "bucket-sign": 2 * hash_to_bucket(hashes, 8) + (hash_to_sign(hashes) + 1) // 2,
    }


def test_parts_of_a_hash_are_independent():
    layout = flat_layout(4, 3)
    hash_parts = parts(layout.hashes(draw_coins(), np.array([3])), layout, 3)
    assert independent(hash_parts["sign"], hash_parts["bucket"])
    assert independent(hash_parts["sign"], hash_parts["group"])
    assert independent(hash_parts["bucket"], hash_parts["group"])


@pytest.mark.parametrize(("left", "right"), [(0, 1), (0, 2), (1, 1024), (5, 4101), (3, 131_071)])
def test_keys_are_independent(left, right):
    layout = flat_layout(131_072, 3)
    a = parts(layout.hashes(draw_coins(), np.array([left])), layout, left)
    b = parts(layout.hashes(draw_coins(), np.array([right])), layout, right)
    for part in a.values():
        for other in b.values():
            assert independent(part, other)


def test_products_of_signs_over_three_keys_are_fair():
    """Pairwise independence is not enough: the product of three keys' signs would show a linear mix."""
    layout = flat_layout(64, 2)
    signs = hash_to_sign(layout.hashes(draw_coins(50_000)[:, None], np.arange(64)[None, :]))
    rng = np.random.default_rng(3)
    for _ in range(200):
        chosen = rng.choice(64, 3, replace=False)
        up = int((signs[:, chosen].prod(axis=1) > 0).sum())
        assert is_compatible([up, 50_000 - up], [25_000, 25_000])


def test_seeds_are_independent():
    layouts = flat_layout(4, 3, seed=2**63), flat_layout(4, 3, seed=2**63 + 2**40)
    a, b = (parts(layout.hashes(draw_coins(), np.array([1])), layout, 1) for layout in layouts)
    assert all(independent(a[name], b[name]) for name in a)


def test_consecutive_coins_are_independent():
    layout = flat_layout(4, 3)
    hash_parts = parts(layout.hashes(np.arange(DRAWS, dtype=np.uint32), np.array([1])), layout, 1)
    assert all(independent(labels[:-1], labels[1:]) for labels in hash_parts.values())


def test_keys_that_share_a_hash_are_caught():
    """Planted: a hash that ignores the key."""
    layout = flat_layout(4, 3)
    hashes = layout.hashes(draw_coins(), np.array([1]))
    labels = parts(hashes, layout, 1)
    assert not independent(labels["sign"], labels["sign"])


def test_a_small_table_of_coins_is_caught():
    """Planted: 256 coins repeat their accidental correlations in every report."""
    layout = flat_layout(40, 2)
    repeated_coins = draw_coins() % np.uint32(256)
    signs = (hash_to_sign(layout.hashes(repeated_coins[:, None], np.arange(40)[None, :])) + 1) // 2
    assert not all(independent(signs[:, 0], signs[:, key]) for key in range(1, 40))


def test_the_whole_range_of_seeds_and_coins_works():
    for seed in (0, 1, 2**64 - 1):
        layout = flat_layout(2, 2, seed)
        hashes = layout.hashes(np.array([0, 2**32 - 1], np.uint32), np.array([0, 1]))
        assert hashes.dtype == np.uint64
        assert len(np.unique(hashes)) == 2


def _error_of_sums(bits: int) -> float:
    """Root mean square error of the sums of 64 keys, six layouts of 100,000 reports, in theory's deviations."""
    rng, keys_count, people = np.random.default_rng(0), 64, 100_000
    squares = []
    for _ in range(6):
        layout = Layout(int(rng.integers(2**63)), np.full((keys_count, 1), UNIT // 2, np.uint32))
        mechanism = SignedSymbol(layout, 4.0, 1, False)
        keys = rng.integers(0, keys_count, people)
        coins = rng.integers(0, 2**bits, people, dtype=np.uint32)
        groups = layout.find_groups(layout.hashes(coins, keys), keys)
        keyed_values = KeyedValues(coins, keys, groups, np.full(people, 0.8))
        reports = mechanism.randomize(keyed_values, SeededNoise(int(rng.integers(2**62))))
        release = mechanism.release(mechanism.add(mechanism.empty(), reports), SeededNoise(0))
        truth = np.bincount(keys, minlength=keys_count)[:, None] * 0.5 * 0.6
        squares.append(np.square(release.sums / release.gain - truth) / (people * 0.5 / release.gain**2))
    return float(np.sqrt(np.mean(squares)))


def test_fresh_coins_average_out_and_a_small_table_is_caught():
    """768 nearly independent squares: six standard errors (chance 1e-9) are 0.15; 256 coins are at 1.7."""
    assert abs(_error_of_sums(32) - 1) < 0.15
    assert _error_of_sums(8) > 1.5


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
