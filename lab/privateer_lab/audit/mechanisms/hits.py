"""Attacks on hits of named keys: symbols alone and shuffled, and a curator's pairs of sums."""

import numpy as np

from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import SlotLayout
from privateer_core.primitives.questions import KeyedHits
from privateer_lab.audit.case import Case
from privateer_lab.audit.mechanisms.keyed import PAIRS, Person
from privateer_lab.audit.views import Coins, Maker, Target, batches, mechanism_case, releases, reports

_SLOTS = SlotLayout.small()
_CELLS = SlotLayout.ungrouped(4, 5)
_DELTA, _BATCH, _LOCAL_MAX = 0.1, 100, 12.0


def hit_cases(samples: int) -> list[Case]:
    """Return all attacks on mechanisms of hits."""
    return [*_symbol_cases(samples), *_pair_cases(samples), *_shuffled_cases(samples)]


def _maker(layout: SlotLayout, person: Person) -> Maker:
    key, value = person

    def make(coins: Coins) -> KeyedValues:
        keys = np.full(len(coins), key)
        groups = layout.group(layout.hashes(coins, keys), keys) if key >= 0 else np.zeros(len(coins), np.int64)
        return KeyedValues(coins, keys, groups, np.full(len(coins), value))

    return make


def _neighbours(layout: SlotLayout, pair: str) -> tuple[Maker, Maker]:
    left, right = PAIRS[pair]
    return _maker(layout, left), _maker(layout, right)


def _symbol_cases(samples: int) -> list[Case]:
    return [
        mechanism_case(
            f"{mechanism.buckets} buckets of {mechanism.layout.keys} keys, {pair}",
            reports,
            Target(mechanism, _neighbours(_SLOTS, pair)),
            (mechanism.epsilon, 0.0),
            samples,
        )
        for mechanism in NamedSymbol.instances().values()
        for pair in PAIRS
    ]


def _pair_cases(samples: int) -> list[Case]:
    mechanism = CellPairs.calibrated(KeyedHits(_CELLS), 1.0)
    return [
        mechanism_case(f"release, {pair}", releases, Target(mechanism, _neighbours(_CELLS, pair)), (1.0, 0.0), samples)
        for pair in PAIRS
    ]


def _shuffled_cases(samples: int) -> list[Case]:
    local_epsilon = amplified_local_epsilon(1.0, _DELTA, 2 * _CELLS.keys, _BATCH, _LOCAL_MAX)
    mechanism = NamedSymbol(_CELLS, local_epsilon, _CELLS.keys)
    others, count = _maker(_CELLS, (2, 0.0)), max(2000, samples // 4)
    return [
        mechanism_case(
            f"batches, {pair}",
            batches,
            Target(mechanism, _neighbours(_CELLS, pair), others, _BATCH),
            (1.0, _DELTA),
            count,
        )
        for pair in PAIRS
    ]
