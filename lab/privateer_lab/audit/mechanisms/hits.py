"""Attacks on symbols and sums of events and hits, and on their parts."""

from dataclasses import replace
from typing import Final

import msgspec
import numpy as np

from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.mechanisms.cell_pairs import CellPairs, CellTriples
from privateer_core.mechanisms.cell_products import CellProducts
from privateer_core.mechanisms.event_symbol import EventSymbol
from privateer_core.mechanisms.grouped_bit import GroupedBit
from privateer_core.mechanisms.mechanism import UNIT
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import Layout, SlotLayout
from privateer_core.primitives.questions import KeyedHits, KeyedMeans
from privateer_core.sampling.laplace import DiscreteLaplace
from privateer_core.sampling.randomness import SecureNoise
from privateer_lab.audit import views
from privateer_lab.audit.case import Case, Integers, MechanismPart, Noise, build_part
from privateer_lab.audit.law import LaplaceLaw
from privateer_lab.audit.mechanisms import keyed

_LAYOUT: Final = Layout.example()
_DELTA, _BATCH_SIZE, _MAX_LOCAL_EPSILON = 0.1, 100, 12.0
_EVENT_LAYOUT, _NAME_LAYOUT = Layout.ungrouped(3, 5), Layout.ungrouped(3, 11)
"""Layouts in which the public coins select event reports, and key reports."""


def event_cases(samples: int) -> list[Case]:
    """Build all attacks on event symbols; the other participants of a batch give the least protection."""
    local = amplified_local_epsilon(1.0, _DELTA, _LAYOUT.keys + 1, _BATCH_SIZE, _MAX_LOCAL_EPSILON)
    single, shuffled, crowd = EventSymbol(_LAYOUT, 3.0), EventSymbol(_LAYOUT, local), keyed.keyed_factory((2, 0.0))
    name, claim, count = "batches of events", (1.0, _DELTA), max(2000, samples // 4)
    return [
        *keyed.build_pair_cases("events", views.attack_reports, single, (single.epsilon, 0.0), 2 * samples),
        *keyed.build_pair_cases(name, views.attack_batches, shuffled, claim, count, crowd, _BATCH_SIZE),
    ]


def event_parts() -> list[MechanismPart]:
    """Return the symbols of event reports and of key reports as parts."""
    return [
        keyed.symbol_part("the symbol of an event", EventSymbol(_EVENT_LAYOUT, 2.0), ((0, 1.0), (0, 0.0))),
        keyed.symbol_part(
            "the symbol of people without an event", EventSymbol(_EVENT_LAYOUT, 1.0), ((0, 0.0), (1, 1.0))
        ),
        keyed.symbol_part("the symbol that names a key", EventSymbol(_NAME_LAYOUT, 2.0), keyed.OTHER_KEY),
    ]


LAYOUT: Final = Layout(5, np.array([[13_107, 45_875]], np.uint32))
"""Three arms, of a fifth, a half and three tenths of the coins."""


def visible_group_cases(samples: int) -> list[Case]:
    """Build attacks on a batch from each arm; the other participants give the least protection."""
    shuffled = GroupedBit.amplified(
        KeyedMeans(LAYOUT, has_visible_groups=True), 1.0, _DELTA, _BATCH_SIZE, _MAX_LOCAL_EPSILON
    )
    cases, others = [], keyed.keyed_factory((0, 0.0), LAYOUT)
    for label, people in {"opposite rewards": keyed.OPPOSITE_REWARDS, "nothing to tell": keyed.NOTHING_TO_TELL}.items():
        neighbours, count = keyed.keyed_pair(people, LAYOUT), max(2000, samples // 4)
        for arm in range(LAYOUT.groups):
            target = views.Target(shuffled, neighbours, others, _BATCH_SIZE, arm)
            name = f"batches whose arms are seen, arm {arm}, {label}"
            cases.append(views.mechanism_case(name, views.attack_batches, target, (1.0, _DELTA), count))
    return cases


def group_parts() -> list[MechanismPart]:
    """Return the bits of participants with and without a value as parts."""
    mechanism = GroupedBit(LAYOUT, (2.0, 2.0, 2.0))
    parts = [
        keyed.symbol_part("the bit of a group", mechanism, keyed.OPPOSITE_REWARDS),
        keyed.symbol_part("the bit of people without a value", mechanism, keyed.NOTHING_TO_TELL),
    ]
    return [replace(part, model=views.model_for(views.attack_batches)) for part in parts]


_SLOTS = SlotLayout.example()
_CELLS, _ONE_CELL = SlotLayout.ungrouped(4, 5), SlotLayout.ungrouped(1, 5)
_N_RELEASES = 4_000
_NUMBERS: Final = (0.0, 1.0)
"""Numbers beside the values of the two neighbours."""
PRODUCT_SUMS: Final = tuple(
    f"sums of {of_number} of numbers, {of_value} of values"
    for of_number in ("rests squared", "products", "squares")
    for of_value in ("rests squared", "products", "squares")
)
"""The nine sums of `CellProducts`, in order."""


def hit_cases(samples: int) -> list[Case]:
    """Return all attacks on mechanisms of hits."""
    return [*_symbol_cases(samples), *_pair_cases(samples), *_shuffled_cases(samples)]


def _symbol_cases(samples: int) -> list[Case]:
    """Build the cases that attack single reports of each instance."""
    cases = []
    for mechanism in NamedSymbol.instances().values():
        levels = f", {mechanism.levels} levels" if mechanism.levels > 2 else ""
        name = f"{mechanism.buckets} buckets of {mechanism.layout.keys} keys{levels}"
        cases += keyed.build_pair_cases(name, views.attack_reports, mechanism, (mechanism.epsilon, 0.0), samples)
    return cases


def _pair_cases(samples: int) -> list[Case]:
    """Build attacks on releases; neighbours with a number beside the value have the smallest and the largest number."""
    cases, claim = [], (1.0, 0.0)
    for mechanism in (CellPairs.calibrated(KeyedHits(_CELLS), 1.0), CellTriples.calibrated(KeyedHits(_CELLS), 1.0)):
        cases += keyed.build_pair_cases("release", views.attack_releases, mechanism, claim, samples)
    products = CellProducts.calibrated(KeyedHits(_CELLS, 0.5, has_covariate=True), 1.0)
    for pair, people in keyed.NEIGHBOUR_PAIRS.items():
        left, right = map(_add_number, keyed.keyed_pair(people, _CELLS), _NUMBERS)
        name, target = f"release with a number beside, {pair}", views.Target(products, (left, right))
        cases.append(views.mechanism_case(name, views.attack_releases, target, claim, samples))
    return cases


def _add_number(factory: views.Contributor, number: float) -> views.Contributor:
    return lambda coins: msgspec.structs.replace(factory(coins), numbers=np.full(len(coins), number))


def _shuffled_cases(samples: int) -> list[Case]:
    """Build the cases that attack batches whose amplified epsilon is 1."""
    local_epsilon = amplified_local_epsilon(1.0, _DELTA, 2 * _CELLS.keys, _BATCH_SIZE, _MAX_LOCAL_EPSILON)
    mechanism = NamedSymbol(_CELLS, local_epsilon, _CELLS.keys)
    crowd, count = keyed.keyed_factory((2, 0.0), _CELLS), max(2000, samples // 4)
    return keyed.build_pair_cases("batches", views.attack_batches, mechanism, (1.0, _DELTA), count, crowd, _BATCH_SIZE)


def hit_parts() -> list[MechanismPart]:
    """Return the parts of all mechanisms of hits."""
    layout, pairs, triples = SlotLayout.example(), CellPairs(_ONE_CELL, 0.5), CellTriples(_ONE_CELL, 0.5)
    return [
        keyed.symbol_part("a symbol of one's key", NamedSymbol(layout, 2.0, 4), ((0, 1.0), (1, 1.0))),
        keyed.symbol_part("a symbol of one's bucket", NamedSymbol(layout, 2.0, 2), ((0, 1.0), (0, 0.0))),
        keyed.symbol_part("the symbol of people without a key", NamedSymbol(layout, 1.0, 1), ((0, 1.0), (-1, 0.0))),
        keyed.symbol_part("a level of one's key", NamedSymbol(layout, 2.0, 4, 5), ((0, 1.0), (0, 0.0))),
        _value_part("sums of values", pairs, 0),
        _value_part("sums of the rest", pairs, 1),
        _value_part("sums of squares", triples, 0),
        _value_part("sums of products with the rest", triples, 1),
        _value_part("sums of squares of the rest", triples, 2),
        *(_products_part(name, index) for index, name in enumerate(PRODUCT_SUMS)),
    ]


def _value_part(name: str, mechanism: CellPairs, index: int) -> MechanismPart:
    """Return the sums of one part of values; the neighbours have the values with the largest and the smallest part."""
    points = np.floor(np.array([1 - index / (mechanism.parts.count - 1), float(index > 0)]) * UNIT).astype(np.int64)
    return _sums_part(name, mechanism, index, points[:, None], mechanism.split_values(points)[::-1].T)


def _products_part(name: str, index: int) -> MechanismPart:
    """Return a sum of products as a part; neighbours have the largest product, and one of 0."""
    mechanism = CellProducts(_ONE_CELL, 0.5)
    fractions = np.array(divmod(index, 3)) / 2
    points = np.floor(np.stack([fractions, np.where(fractions > 0, 0.0, 1.0)]) * UNIT).astype(np.int64)
    return _sums_part(name, mechanism, index, points[:, ::-1], mechanism.multiply_parts(points[:, 1], points[:, 0]).T)


def _sums_part(name: str, mechanism: CellPairs, index: int, points: Integers, exact: Integers) -> MechanismPart:
    """Return a sum of a release as a part; its people have different keys, and ``points``, (2, 1 or 2), in units."""

    def observe(neighbour: int, count: int) -> Integers:
        wide = msgspec.structs.replace(mechanism, layout=SlotLayout.ungrouped(count, 5))
        coins, groups = np.full(count, keyed.PUBLIC_COIN, np.uint32), np.zeros(count, np.int64)
        amounts = (np.full(count, amount) for amount in points[neighbour] / UNIT)
        contribution = KeyedValues(coins, np.arange(count), groups, *amounts)
        release = wide.release(wide.add(wide.empty(), wide.randomize(contribution, SecureNoise())), SecureNoise())
        return np.asarray(np.rint(mechanism.unit * views.part_sums(release)[:, :, 0].T), np.int64)

    law = LaplaceLaw(DiscreteLaplace.from_min_scale(mechanism.scale * mechanism.unit).scale)
    noise = Noise((law,) * exact.shape[1], (index,), exact)
    return build_part(
        name, mechanism, views.model_for(views.attack_releases), "DiscreteLaplace.draw", observe, noise, _N_RELEASES
    )
