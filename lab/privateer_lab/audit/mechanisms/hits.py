"""Attacks on hits of named keys: symbols alone and shuffled, a curator's pairs of sums, and each part by itself."""

import numpy as np

from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.mechanisms.cell_pairs import UNIT, CellPairs
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import SlotLayout
from privateer_core.primitives.questions import KeyedHits
from privateer_core.sampling.entropy import SecureNoise
from privateer_core.sampling.laplace import DiscreteLaplace
from privateer_lab.audit.case import Case, Integers, MechanismPart, Noise, noise_part
from privateer_lab.audit.law import LaplaceLaw
from privateer_lab.audit.mechanisms.keyed import COIN, PAIRS, maker, symbol_part
from privateer_lab.audit.views import Maker, Target, batches, mechanism_case, model_of, releases, reports

_SLOTS = SlotLayout.small()
_CELLS = SlotLayout.ungrouped(4, 5)
_DELTA, _BATCH, _LOCAL_MAX = 0.1, 100, 12.0
_COUNT = 4_000


def hit_cases(samples: int) -> list[Case]:
    """Return all attacks on mechanisms of hits."""
    return [*_symbol_cases(samples), *_pair_cases(samples), *_shuffled_cases(samples)]


def _neighbours(layout: SlotLayout, pair: str) -> tuple[Maker, Maker]:
    left, right = PAIRS[pair]
    return maker(left, layout), maker(right, layout)


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
    others, count = maker((2, 0.0), _CELLS), max(2000, samples // 4)
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


def hit_parts() -> list[MechanismPart]:
    """Return the parts of all mechanisms of hits."""
    layout = SlotLayout.small()
    return [
        symbol_part("a symbol of one's key", NamedSymbol(layout, 2.0, 4), ((0, 1.0), (1, 1.0))),
        symbol_part("a symbol of one's bucket", NamedSymbol(layout, 2.0, 2), ((0, 1.0), (0, 0.0))),
        symbol_part("the symbol of people without a key", NamedSymbol(layout, 1.0, 1), ((0, 1.0), (-1, 0.0))),
        _pair_part("sums of values", 0),
        _pair_part("sums of the rest", 1),
    ]


def _pair_part(name: str, own: int) -> MechanismPart:
    """Return one sum of a pair as a part; many people stand in one release, each with a key of their own."""
    mechanism = CellPairs(_keys(1), 0.5)

    def observe(who: int, count: int) -> Integers:
        wide = CellPairs(_keys(count), mechanism.scale)
        coins, none = np.full(count, COIN, np.uint32), np.zeros(count, np.int64)
        made = KeyedValues(coins, np.arange(count), none, np.full(count, 1.0 - who))
        release = wide.release(wide.add(wide.empty(), wide.randomize(made, SecureNoise())), SecureNoise())
        numbers = np.concatenate([release.positive, release.hits - release.positive], axis=1)
        return np.asarray(np.rint(UNIT * numbers), np.int64)

    law = LaplaceLaw(DiscreteLaplace.at_least(mechanism.scale * UNIT).scale)
    noise = Noise((law, law), (own,), UNIT * np.array([[1, 0], [0, 1]]))
    return noise_part(name, mechanism, model_of(releases), "DiscreteLaplace.draw", observe, noise, _COUNT)


def _keys(count: int) -> SlotLayout:
    return SlotLayout.ungrouped(count, 5)
