"""Attack reports of a lower tier, from a higher tier and from releases."""

import math
from itertools import product
from typing import Any

import msgspec
import numpy as np
import pytest

from privateer_core.mechanisms.signed_symbol import SignedSymbol
from privateer_core.mechanisms.tiered_symbol import Channel, TieredSymbol
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import Layout
from privateer_core.sampling.randomness import SecureNoise
from privateer_lab.audit.likelihoods import log_likelihood

LAYOUT = Layout.example()
CHANNELS = (Channel(1.0, 1, False, 0.5), Channel(4.0, 8, True, 0.5))
PEOPLE = [(key, value) for key in range(-1, LAYOUT.keys) for value in (0.0, 1.0)]
SLOTS = np.arange(50, dtype=np.uint32)


def contribution(key: int, value: float, coins: np.ndarray) -> KeyedValues:
    keys = np.full(len(coins), key)
    groups = LAYOUT.find_groups(LAYOUT.hashes(coins, keys), keys) if key >= 0 else np.zeros(len(coins), np.int64)
    return KeyedValues(coins, keys, groups, np.full(len(coins), value))


def largest_loss(mechanism: TieredSymbol) -> float:
    """The largest log ratio of a report's probabilities for any two people of the tier, by the exact law."""
    first, after = mechanism.first_symbols[mechanism.tier : mechanism.tier + 2].tolist()
    symbols, losses = np.arange(first, after), [0.0]
    for slot in SLOTS:
        rows = np.zeros(len(symbols), np.dtype([("slot", "<u4"), ("symbol", "<u2")]))
        rows["slot"], rows["symbol"] = slot, symbols
        coins = np.full(len(symbols), slot)
        laws = [log_likelihood(mechanism, contribution(*person, coins), rows) for person in PEOPLE]
        losses += [float(np.max(left - right)) for left, right in product(laws, laws)]
    return max(losses)


@pytest.mark.parametrize("tier", range(len(CHANNELS)))
def test_a_report_reveals_no_more_than_its_own_tier_promises(tier: int) -> None:
    mechanism = TieredSymbol(LAYOUT, CHANNELS, tier)
    assert largest_loss(mechanism) == pytest.approx(CHANNELS[tier].epsilon, abs=1e-9)
    assert mechanism.local_epsilon == CHANNELS[tier].epsilon


def test_a_report_that_another_tiers_channel_made_is_detected() -> None:
    """Planted: a device randomizes by the channel of the higher tier, and says that it is of the lower one."""
    symbols = SignedSymbol(LAYOUT, 4.0, 1, False)
    channels = (Channel(symbols.epsilon, 1, False, 0.5), CHANNELS[1])
    assert largest_loss(TieredSymbol(LAYOUT, channels, 0)) > 3 * CHANNELS[0].epsilon


def test_sampled_reports_have_the_law_of_their_tier() -> None:
    """Compare shares of symbols among 40,000 reports of each tier within 6 standard errors: one in 10 million fails."""
    count = 40_000
    coins = np.full(count, 7, np.uint32)
    for tier in range(len(CHANNELS)):
        mechanism = TieredSymbol(LAYOUT, CHANNELS, tier)
        first, after = mechanism.first_symbols[tier : tier + 2].tolist()
        rows = mechanism.randomize(contribution(0, 1.0, coins), SecureNoise())
        counts = np.bincount(rows["symbol"], minlength=mechanism.symbols)
        assert counts[:first].sum() + counts[after:].sum() == 0
        law_rows = np.zeros(after - first, rows.dtype)
        law_rows["slot"], law_rows["symbol"] = 7, np.arange(first, after)
        law = np.exp(log_likelihood(mechanism, contribution(0, 1.0, coins[: after - first]), law_rows))
        assert math.isclose(law.sum(), 1, rel_tol=1e-9)
        assert (np.abs(counts[first:after] - count * law) < 6 * np.sqrt(count * law * (1 - law))).all()


def test_what_one_tier_releases_does_not_depend_on_the_people_of_another() -> None:
    """Sums of the lower tier are the same whoever reports in the higher one: its release is about its own people."""
    rng, mechanism = np.random.default_rng(1), TieredSymbol(LAYOUT, CHANNELS)

    def reports(tier: int, value: float, count: int) -> Any:
        coins = rng.integers(0, 2**32, count, dtype=np.uint32)
        people = msgspec.structs.replace(contribution(0, value, coins), tiers=np.full(count, tier))
        return mechanism.parse(mechanism.randomize(people, SecureNoise()).tobytes())

    own_reports, releases = reports(0, 1.0, 300), []
    for value, count in ((0.0, 500), (1.0, 40)):
        total = mechanism.add(mechanism.empty(), np.concatenate([own_reports, reports(1, value, count)]))
        releases.append(mechanism.release(total, SecureNoise()).tiers)
    (lower, higher), (lower_again, higher_again) = releases
    assert all(np.array_equal(getattr(lower, name), getattr(lower_again, name)) for name in ("sums", "counts", "hits"))
    assert higher.reports != higher_again.reports


def test_a_total_of_mixed_tiers_is_that_of_each_tier_alone() -> None:
    rng, mechanism = np.random.default_rng(2), TieredSymbol(LAYOUT, CHANNELS)
    coins = rng.integers(0, 2**32, 400, dtype=np.uint32)
    people = msgspec.structs.replace(contribution(1, 1.0, coins), tiers=np.arange(400) % 2)
    rows = mechanism.randomize(people, SecureNoise())
    total = mechanism.add(mechanism.empty(), rows)
    for tier, symbol in enumerate(mechanism.tier_symbols):
        own_rows = rows[people.tiers == tier].copy()
        own_rows["symbol"] -= np.uint16(mechanism.first_symbols[tier])
        assert msgspec.to_builtins(total.tiers[tier].reports) == 200
        assert np.array_equal(total.tiers[tier].sums, symbol.add(symbol.empty(), own_rows).sums)
