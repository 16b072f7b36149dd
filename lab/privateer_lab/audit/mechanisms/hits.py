"""Attacks on hits of named keys: symbols alone and shuffled, a curator's pairs of sums, and each part by itself."""

from dataclasses import replace
from typing import Final

import msgspec
import numpy as np

from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.mechanisms.cell_pairs import CellPairs, CellTriples
from privateer_core.mechanisms.cell_products import CellProducts
from privateer_core.mechanisms.mechanism import UNIT
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import SlotLayout
from privateer_core.primitives.questions import KeyedHits
from privateer_core.sampling.entropy import SecureNoise
from privateer_core.sampling.laplace import DiscreteLaplace
from privateer_lab.audit.case import Case, Integers, MechanismPart, Noise, noise_part
from privateer_lab.audit.law import LaplaceLaw
from privateer_lab.audit.mechanisms.keyed import COIN, PAIRS, maker, symbol_part
from privateer_lab.audit.views import Maker, Target, batches, mechanism_case, model_of, releases, reports, sums_of_parts

_SLOTS = SlotLayout.small()
_CELLS = SlotLayout.ungrouped(4, 5)
_DELTA, _BATCH, _LOCAL_MAX = 0.1, 100, 12.0
_COUNT = 4_000
_NUMBERS: Final = (0.0, 1.0)
"""Numbers beside the values of two people who differ in nothing else, or in both."""
PRODUCTS: Final = tuple(
    f"sums of {of_number} of numbers, {of_value} of values"
    for of_number in ("rests squared", "products", "squares")
    for of_value in ("rests squared", "products", "squares")
)
"""The nine sums of `CellProducts`, in order."""


def hit_cases(samples: int) -> list[Case]:
    """Return all attacks on mechanisms of hits."""
    return [*_symbol_cases(samples), *_pair_cases(samples), *_shuffled_cases(samples)]


def _neighbours(layout: SlotLayout, pair: str) -> tuple[Maker, Maker]:
    left, right = PAIRS[pair]
    return maker(left, layout), maker(right, layout)


def _symbol_cases(samples: int) -> list[Case]:
    return [
        mechanism_case(
            f"{mechanism.buckets} buckets of {mechanism.layout.keys} keys, {_leveled(mechanism)}{pair}",
            reports,
            Target(mechanism, _neighbours(_SLOTS, pair)),
            (mechanism.epsilon, 0.0),
            samples,
        )
        for mechanism in NamedSymbol.instances().values()
        for pair in PAIRS
    ]


def _leveled(mechanism: NamedSymbol) -> str:
    return f"{mechanism.levels} levels, " if mechanism.levels > 2 else ""


def _pair_cases(samples: int) -> list[Case]:
    return [
        mechanism_case(f"release, {pair}", releases, Target(mechanism, _neighbours(_CELLS, pair)), (1.0, 0.0), samples)
        for mechanism in (CellPairs.calibrated(KeyedHits(_CELLS), 1.0), CellTriples.calibrated(KeyedHits(_CELLS), 1.0))
        for pair in PAIRS
    ] + [_number_case(pair, samples) for pair in PAIRS]


def _number_case(pair: str, samples: int) -> Case:
    """Return the attack on two people with numbers at either end, beside what they differ in otherwise."""
    mechanism = CellProducts.calibrated(KeyedHits(_CELLS, 0.5, beside=True), 1.0)
    left, right = (_beside(made, number) for made, number in zip(_neighbours(_CELLS, pair), _NUMBERS, strict=True))
    return mechanism_case(
        f"release with a number beside, {pair}", releases, Target(mechanism, (left, right)), (1.0, 0.0), samples
    )


def _beside(made: Maker, number: float) -> Maker:
    return lambda coins: replace(made(coins), numbers=np.full(len(coins), number))


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
        symbol_part("a level of one's key", NamedSymbol(layout, 2.0, 4, 5), ((0, 1.0), (0, 0.0))),
        _sums_part("sums of values", CellPairs(_keys(1), 0.5), 0),
        _sums_part("sums of the rest", CellPairs(_keys(1), 0.5), 1),
        _sums_part("sums of squares", CellTriples(_keys(1), 0.5), 0),
        _sums_part("sums of products with the rest", CellTriples(_keys(1), 0.5), 1),
        _sums_part("sums of squares of the rest", CellTriples(_keys(1), 0.5), 2),
        *(_products_part(name, own) for own, name in enumerate(PRODUCTS)),
    ]


def _sums_part(name: str, mechanism: CellPairs, own: int) -> MechanismPart:
    """Return the sums of one part of values; many people stand in one release, each with a key of their own.

    The two people have the values of which that part is largest and least.
    """
    count, grid = mechanism.parts.count, mechanism.unit
    points = np.floor(np.array([1 - own / (count - 1), float(own > 0)]) * UNIT)
    values, parts = points / UNIT, mechanism.parted(points.astype(np.int64))[::-1].T

    def observe(who: int, people: int) -> Integers:
        wide = msgspec.structs.replace(mechanism, layout=_keys(people))
        coins, none = np.full(people, COIN, np.uint32), np.zeros(people, np.int64)
        made = KeyedValues(coins, np.arange(people), none, np.full(people, values[who]))
        release = wide.release(wide.add(wide.empty(), wide.randomize(made, SecureNoise())), SecureNoise())
        return np.asarray(np.rint(grid * sums_of_parts(release)[:, :, 0].T), np.int64)

    law = LaplaceLaw(DiscreteLaplace.at_least(mechanism.scale * grid).scale)
    noise = Noise((law,) * count, (own,), parts)
    return noise_part(name, mechanism, model_of(releases), "DiscreteLaplace.draw", observe, noise, _COUNT)


def _products_part(name: str, own: int) -> MechanismPart:
    """Return one of nine sums of products, each person with a key of their own.

    The first person has the number and the value of which that product is largest, the second those of which it is 0.
    """
    mechanism = CellProducts(_keys(1), 0.5)
    places = np.array(divmod(own, 3)) / 2
    points = np.floor(np.stack([places, np.where(places > 0, 0.0, 1.0)]) * UNIT).astype(np.int64)
    people, parts = points / UNIT, mechanism.products(points[:, 1], points[:, 0]).T

    def observe(who: int, count: int) -> Integers:
        wide = msgspec.structs.replace(mechanism, layout=_keys(count))
        coins, none = np.full(count, COIN, np.uint32), np.zeros(count, np.int64)
        number, value = people[who]
        made = KeyedValues(coins, np.arange(count), none, np.full(count, value), np.full(count, number))
        release = wide.release(wide.add(wide.empty(), wide.randomize(made, SecureNoise())), SecureNoise())
        return np.asarray(np.rint(mechanism.unit * sums_of_parts(release)[:, :, 0].T), np.int64)

    law = LaplaceLaw(DiscreteLaplace.at_least(mechanism.scale * mechanism.unit).scale)
    noise = Noise((law,) * len(PRODUCTS), (own,), parts)
    return noise_part(name, mechanism, model_of(releases), "DiscreteLaplace.draw", observe, noise, _COUNT)


def _keys(count: int) -> SlotLayout:
    return SlotLayout.ungrouped(count, 5)
