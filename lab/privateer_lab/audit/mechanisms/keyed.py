"""Attacks on mechanisms of keyed means, and on their parts."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.accounting.events import Pure
from privateer_core.mechanisms.central_sums import CentralSums
from privateer_core.mechanisms.grouped_bit import GroupedBit
from privateer_core.mechanisms.mechanism import UNIT
from privateer_core.mechanisms.signed_symbol import SignedSymbol
from privateer_core.mechanisms.tiered_symbol import Channel, TieredSymbol
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import Layout, SlotLayout
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.sampling.laplace import DiscreteLaplace
from privateer_core.sampling.randomness import SecureNoise
from privateer_lab.audit import views
from privateer_lab.audit.case import Case, Integers, MechanismPart, Noise, Outcomes, build_part
from privateer_lab.audit.law import LaplaceLaw, Law, NormalLaw
from privateer_lab.audit.likelihoods import log_likelihood

LAYOUT = Layout.example()
Person = tuple[int, float]
"""Key and value; a participant with key -1 has nothing to contribute."""
NEIGHBOUR_PAIRS: dict[str, tuple[Person, Person]] = {
    "opposite rewards": ((0, 1.0), (0, 0.0)),
    "another bin": ((0, 1.0), (1, 1.0)),
    "nothing to tell": ((2, 0.0), (-1, 0.0)),
}
_SAME_BIN, _OTHER_BIN = (0, 0.0), (2, 0.0)
_DELTA = 1e-6
_BATCH_SIZE = 100
_MAX_LOCAL_EPSILON = 12.0
PUBLIC_COIN: Final = 12_345
"""The public coins of all participants."""
_N_SYMBOLS, N_SUMS = 6_000, 4_000
_CHANNELS: Final = (Channel(1.0, 1, False, 0.5), Channel(2.0, 4, True, 0.5))
OPPOSITE_REWARDS: Final = ((0, 1.0), (0, 0.0))
OTHER_KEY: Final = ((0, 1.0), (1, 1.0))
NOTHING_TO_TELL: Final = ((0, 1.0), (-1, 0.0))


def keyed_cases(samples: int) -> list[Case]:
    """Return all attacks on mechanisms of keyed means."""
    return [*_symbol_cases(samples), *_central_cases(samples), *_shuffled_cases(samples)]


def keyed_factory(person: Person, layout: Layout | SlotLayout = LAYOUT) -> views.Contributor:
    """Build the contributor of participants with the same key and value."""
    key, value = person

    def make_contribution(coins: views.Coins) -> KeyedValues:
        keys = np.full(len(coins), key)
        groups = layout.find_groups(layout.hashes(coins, keys), keys) if key >= 0 else np.zeros(len(coins), np.int64)
        return KeyedValues(coins, keys, groups, np.full(len(coins), value))

    return make_contribution


def keyed_pair(
    people: tuple[Person, Person], layout: Layout | SlotLayout = LAYOUT
) -> tuple[views.Contributor, views.Contributor]:
    """Build the contributors of two neighbours."""
    return keyed_factory(people[0], layout), keyed_factory(people[1], layout)


def build_pair_cases(
    name: str, attack: views.Attack, mechanism: Any, claim: tuple[float, float], count: int, *crowd: Any
) -> list[Case]:
    """Build attacks on a mechanism's claim for each pair of neighbours; ``crowd``: all others, and the batch size."""
    targets = {
        pair: views.Target(mechanism, keyed_pair(people, mechanism.layout), *crowd)
        for pair, people in NEIGHBOUR_PAIRS.items()
    }
    return [views.mechanism_case(f"{name}, {pair}", attack, target, claim, count) for pair, target in targets.items()]


def _symbol_cases(samples: int) -> list[Case]:
    """Build the cases that attack single reports of 2, 3 and 17 symbols, and those of two tiers."""
    cases = []
    for mechanism in (SignedSymbol(LAYOUT, *sizes) for sizes in ((1.0, 1, False), (1.0, 1, True), (4.0, 8, True))):
        name, claim = f"{mechanism.symbols} symbols", (mechanism.epsilon, 0.0)
        cases += build_pair_cases(name, views.attack_reports, mechanism, claim, 2 * samples)
    for tier, tiered in enumerate(TieredSymbol.instances().values()):
        claim = (tiered.epsilon, 0.0)
        cases += build_pair_cases(f"tier {tier}", views.attack_reports, tiered, claim, 2 * samples)
    return cases


def _central_cases(samples: int) -> list[Case]:
    """Build attacks on normal noise, and on the discrete Laplace noise of promises of delta 0."""
    cases = []
    for delta, label, count in ((_DELTA, "release", 3 * samples), (0.0, "release with Laplace noise", samples // 8)):
        mechanism = CentralSums.calibrated(KeyedMeans(LAYOUT), 1.0, delta)
        cases += build_pair_cases(label, views.attack_releases, mechanism, (1.0, delta), count)
    return cases


def _shuffled_cases(samples: int) -> list[Case]:
    """Build attacks on 2, 3 and 9 symbols, with the least protective other participants that were tried."""
    cases = []
    for buckets, elsewhere, delta, pair, others in (
        (1, False, 0.1, "opposite rewards", _SAME_BIN),
        (1, False, 0.01, "opposite rewards", _SAME_BIN),
        (1, True, 0.1, "opposite rewards", _OTHER_BIN),
        (1, True, 0.1, "nothing to tell", _OTHER_BIN),
        (4, True, 0.1, "another bin", _OTHER_BIN),
        (4, True, 0.1, "opposite rewards", _OTHER_BIN),
    ):
        symbols = 2 * buckets + elsewhere
        local_epsilon = amplified_local_epsilon(1.0, delta, symbols, _BATCH_SIZE, _MAX_LOCAL_EPSILON)
        mechanism = SignedSymbol(LAYOUT, local_epsilon, buckets, elsewhere)
        target = views.Target(mechanism, keyed_pair(NEIGHBOUR_PAIRS[pair]), keyed_factory(others), _BATCH_SIZE)
        name, count = f"batches of {symbols} symbols at delta {delta:g}, {pair}", max(2000, samples // 4)
        cases.append(views.mechanism_case(name, views.attack_batches, target, (1.0, delta), count))
    return cases


def keyed_parts() -> list[MechanismPart]:
    """Return the parts of all mechanisms of keyed means."""
    return [*_symbol_parts(), *_central_parts()]


def contribute_alike(layout: Layout, person: Person, count: int) -> KeyedValues:
    """Return the contributions of ``count`` participants with the same key and value."""
    contribution: KeyedValues = keyed_factory(person, layout)(np.full(count, PUBLIC_COIN, np.uint32))
    return contribution


def symbol_part(name: str, mechanism: Any, pair: tuple[Person, Person]) -> MechanismPart:
    """Build the part that is a symbol of randomized response; all coins are the same."""
    symbols = mechanism.symbols if isinstance(mechanism, GroupedBit) else mechanism.response.symbols
    first = int(mechanism.first_symbols[mechanism.tier]) if isinstance(mechanism, TieredSymbol) else 0

    def contribute(neighbour: int, count: int) -> KeyedValues:
        return contribute_alike(mechanism.layout, pair[neighbour], count)

    return response_part(name, mechanism, symbols, contribute, "RandomizedResponse.randomize", first)


def response_part(
    name: str, mechanism: Any, symbols: int, contribute: Callable[[int, int], Any], sampler: str, first: int = 0
) -> MechanismPart:
    """Build the part that is a symbol, from ``first`` on, of contributions (neighbour, count) with `PUBLIC_COIN`."""
    rows = np.zeros(symbols, mechanism.randomize(contribute(0, 1), SecureNoise()).dtype)
    rows["slot"], rows["symbol"] = PUBLIC_COIN, first + np.arange(symbols)
    likelihoods = np.exp([log_likelihood(mechanism, contribute(neighbour, symbols), rows) for neighbour in (0, 1)])
    outcomes = Outcomes(likelihoods / likelihoods.sum(axis=1, keepdims=True), Pure(mechanism.local_epsilon))

    def observe(neighbour: int, count: int) -> Integers:
        reports = mechanism.randomize(contribute(neighbour, count), SecureNoise())
        return np.asarray(mechanism.parse(reports.tobytes())["symbol"].astype(np.int64) - first)

    return build_part(name, mechanism, views.model_for(views.attack_reports), sampler, observe, outcomes, _N_SYMBOLS)


def _symbol_parts() -> list[MechanismPart]:
    """Build the tests of the symbols' samplers, for opposite rewards and for participants without a key."""
    return [
        symbol_part("one of 2 symbols", SignedSymbol(LAYOUT, 1.0, 1, False), OPPOSITE_REWARDS),
        symbol_part("one of 9 symbols", SignedSymbol(LAYOUT, 2.0, 4, True), OPPOSITE_REWARDS),
        symbol_part("the symbol elsewhere", SignedSymbol(LAYOUT, 2.0, 1, True), NOTHING_TO_TELL),
        symbol_part("the symbol of people without a key", SignedSymbol(LAYOUT, 1.0, 1, False), NOTHING_TO_TELL),
        symbol_part("the symbol of a tier", TieredSymbol(LAYOUT, _CHANNELS, 1), OPPOSITE_REWARDS),
    ]


def ungrouped_layout(keys: int) -> Layout:
    """Return a layout with ``keys`` keys of one group each."""
    return Layout.ungrouped(keys, 5)


def _central_parts() -> list[MechanismPart]:
    """Return sums and counts per key as parts, with normal noise and with Laplace noise."""
    tested_pairs = {"sums": ((0, 1), OPPOSITE_REWARDS), "people per key": ((2, 3), OTHER_KEY)}
    parts = []
    for label, (tested, pair) in tested_pairs.items():
        for distribution, mechanism in (
            ("normal", CentralSums(ungrouped_layout(2), 1.0 if label == "sums" else 0.7)),
            ("Laplace", CentralSums(ungrouped_layout(2), 0.0, 1.0)),
        ):
            sampler = "RoundedNormal.draw" if distribution == "normal" else "DiscreteLaplace.draw"
            parts.append(_central_part(f"{distribution} noise of {label}", mechanism, sampler, tested, pair))
    return parts


def _central_part(
    name: str, mechanism: CentralSums, sampler: str, tested: tuple[int, ...], pair: tuple[Person, Person]
) -> MechanismPart:
    """Return the noise of the tested numbers as a part; the participants of a release have two separate keys each."""

    def observe(neighbour: int, count: int) -> Integers:
        wide = CentralSums(ungrouped_layout(2 * count), mechanism.standard_deviation, mechanism.scale)
        single = contribute_alike(mechanism.layout, pair[neighbour], count)
        contribution = KeyedValues(single.coins, single.keys + 2 * np.arange(count), single.groups, single.values)
        release = wide.release(wide.add(wide.empty(), wide.randomize(contribution, SecureNoise())), SecureNoise())
        numbers = [release.sums.reshape(count, 2), release.hits.reshape(count, 2)]
        return np.rint(UNIT * np.concatenate(numbers, axis=1)).astype(np.int64)

    exact = np.zeros((2, 4), np.int64)
    for neighbour, (key, value) in enumerate(pair):
        exact[neighbour, key], exact[neighbour, 2 + key] = UNIT * (2 * value - 1), UNIT
    scale = DiscreteLaplace.from_min_scale(mechanism.scale * UNIT).scale if mechanism.scale else 0
    law: Law = LaplaceLaw(scale) if scale else NormalLaw(mechanism.standard_deviation * UNIT)
    noise = Noise((law,) * 4, tested, exact)
    return build_part(name, mechanism, views.model_for(views.attack_releases), sampler, observe, noise, N_SUMS)
