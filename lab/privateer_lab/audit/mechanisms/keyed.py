"""Attacks on mechanisms of keyed means: as a whole, and part by part."""

from typing import Any, Final

import numpy as np

from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.accounting.events import Pure
from privateer_core.mechanisms.central_sums import CentralSums
from privateer_core.mechanisms.grouped_bit import GroupedBit
from privateer_core.mechanisms.mechanism import UNIT
from privateer_core.mechanisms.signed_symbol import SignedSymbol
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import Layout, SlotLayout
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.sampling.entropy import SecureNoise
from privateer_core.sampling.laplace import DiscreteLaplace
from privateer_lab.audit.case import Case, Integers, MechanismPart, Noise, Outcomes, noise_part, outcome_part
from privateer_lab.audit.law import LaplaceLaw, Law, NormalLaw
from privateer_lab.audit.views import (
    Coins,
    Maker,
    Target,
    batches,
    log_likelihood,
    mechanism_case,
    model_of,
    releases,
    reports,
)

LAYOUT = Layout.small()
Person = tuple[int, float]
"""Key and value; a person with key -1 has nothing to contribute."""
PAIRS: dict[str, tuple[Person, Person]] = {
    "opposite rewards": ((0, 1.0), (0, 0.0)),
    "another bin": ((0, 1.0), (1, 1.0)),
    "nothing to tell": ((2, 0.0), (-1, 0.0)),
}
_SAME_BIN, _OTHER_BIN = (0, 0.0), (2, 0.0)
_DELTA = 1e-6
_BATCH = 100
_LOCAL_MAX = 12.0
COIN: Final = 12_345
"""The public coins of everybody: what they decide is known."""
_SYMBOLS, SUMS = 6_000, 4_000
_L1: Final = 4
"""Distance of two people in all cells' rewards and counts."""
_OPPOSITE: Final = ((0, 1.0), (0, 0.0))
ELSEWHERE: Final = ((0, 1.0), (1, 1.0))
_NOTHING: Final = ((0, 1.0), (-1, 0.0))


def keyed_cases(samples: int) -> list[Case]:
    """Return all attacks on mechanisms of keyed means."""
    return [*_symbol_cases(samples), *_central_cases(samples), *_shuffled_cases(samples)]


def maker(person: Person, layout: Layout | SlotLayout = LAYOUT) -> Maker:
    """Return what makes the contributions of people alike."""
    key, value = person

    def make(coins: Coins) -> KeyedValues:
        keys = np.full(len(coins), key)
        groups = layout.group(layout.hashes(coins, keys), keys) if key >= 0 else np.zeros(len(coins), np.int64)
        return KeyedValues(coins, keys, groups, np.full(len(coins), value))

    return make


def _neighbours(pair: str) -> tuple[Maker, Maker]:
    left, right = PAIRS[pair]
    return maker(left), maker(right)


def _symbol_cases(samples: int) -> list[Case]:
    mechanisms = [SignedSymbol(LAYOUT, *sizes) for sizes in ((1.0, 1, False), (1.0, 1, True), (4.0, 8, True))]
    return [
        mechanism_case(
            f"{mechanism.symbols} symbols, {pair}",
            reports,
            Target(mechanism, _neighbours(pair)),
            (mechanism.epsilon, 0.0),
            2 * samples,
        )
        for mechanism in mechanisms
        for pair in PAIRS
    ]


def _central_cases(samples: int) -> list[Case]:
    """Return attacks on normal noise, and on the discrete Laplace noise of promises of delta 0."""
    cases = []
    for delta, what, count in ((_DELTA, "release", 3 * samples), (0.0, "release with Laplace noise", samples // 8)):
        mechanism = CentralSums.calibrated(KeyedMeans(LAYOUT), 1.0, delta)
        for pair in PAIRS:
            target = Target(mechanism, _neighbours(pair))
            cases.append(mechanism_case(f"{what}, {pair}", releases, target, (1.0, delta), count))
    return cases


def _shuffled_cases(samples: int) -> list[Case]:
    """Return attacks on 2, 3 and 9 symbols, each with the companions that hide a person least of those tried."""
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
        local_epsilon = amplified_local_epsilon(1.0, delta, symbols, _BATCH, _LOCAL_MAX)
        mechanism = SignedSymbol(LAYOUT, local_epsilon, buckets, elsewhere)
        target = Target(mechanism, _neighbours(pair), maker(others), _BATCH)
        name, count = f"batches of {symbols} symbols at delta {delta:g}, {pair}", max(2000, samples // 4)
        cases.append(mechanism_case(name, batches, target, (1.0, delta), count))
    return cases


def keyed_parts() -> list[MechanismPart]:
    """Return the parts of all mechanisms of keyed means."""
    return [*_symbol_parts(), *_central_parts()]


def people(layout: Layout, person: Person, count: int) -> KeyedValues:
    """Return what so many people alike contribute."""
    made: KeyedValues = maker(person, layout)(np.full(count, COIN, np.uint32))
    return made


def symbol_part(name: str, mechanism: Any, pair: tuple[Person, Person]) -> MechanismPart:
    """Return the part that is a symbol of randomized response; everybody's coins are the same."""
    symbols = mechanism.symbols if isinstance(mechanism, GroupedBit) else mechanism.response.symbols
    rows = np.zeros(symbols, mechanism.randomize(people(mechanism.layout, pair[0], 1), SecureNoise()).dtype)
    rows["slot"], rows["symbol"] = COIN, np.arange(symbols)
    made = [people(mechanism.layout, person, symbols) for person in pair]
    outcomes = Outcomes(np.exp([log_likelihood(mechanism, one, rows) for one in made]))

    def observe(who: int, count: int) -> Integers:
        sent = mechanism.randomize(people(mechanism.layout, pair[who], count), SecureNoise())
        return np.asarray(mechanism.parse(sent.tobytes())["symbol"].astype(np.int64))

    sampler, event = "RandomizedResponse.randomize", Pure(mechanism.local_epsilon)
    return outcome_part(name, mechanism, model_of(reports), sampler, observe, outcomes, _SYMBOLS, event)


def _symbol_parts() -> list[MechanismPart]:
    layout = Layout.small()
    return [
        symbol_part("one of 2 symbols", SignedSymbol(layout, 1.0, 1, False), _OPPOSITE),
        symbol_part("one of 9 symbols", SignedSymbol(layout, 2.0, 4, True), _OPPOSITE),
        symbol_part("the symbol elsewhere", SignedSymbol(layout, 2.0, 1, True), _NOTHING),
        symbol_part("the symbol of people without a key", SignedSymbol(layout, 1.0, 1, False), _NOTHING),
    ]


def plain(keys: int) -> Layout:
    """Return a layout of so many keys, each of one group."""
    return Layout.ungrouped(keys, 5)


def _central_parts() -> list[MechanismPart]:
    """Return the sums and the people per key as parts, with normal noise and with Laplace noise."""
    both = {"sums": ((0, 1), _OPPOSITE), "people per key": ((2, 3), ELSEWHERE)}
    found = []
    for what, (own, pair) in both.items():
        for kind, mechanism in (
            ("normal", CentralSums(plain(2), 1.0 if what == "sums" else 0.7)),
            ("Laplace", CentralSums(plain(2), 0.0, 1.0)),
        ):
            sampler = "RoundedNormal.draw" if kind == "normal" else "DiscreteLaplace.draw"
            found.append(_central_part(f"{kind} noise of {what}", mechanism, sampler, own, pair))
    return found


def _central_part(
    name: str, mechanism: CentralSums, sampler: str, own: tuple[int, ...], pair: tuple[Person, Person]
) -> MechanismPart:
    """Return the noise of some numbers as a part; many people stand in one release, each with two keys of their own."""

    def observe(who: int, count: int) -> Integers:
        wide = CentralSums(plain(2 * count), mechanism.standard_deviation, mechanism.scale)
        one = people(mechanism.layout, pair[who], count)
        made = KeyedValues(one.coins, one.keys + 2 * np.arange(count), one.groups, one.values)
        release = wide.release(wide.add(wide.empty(), wide.randomize(made, SecureNoise())), SecureNoise())
        numbers = [release.sums.reshape(count, 2), release.hits.reshape(count, 2)]
        return np.rint(UNIT * np.concatenate(numbers, axis=1)).astype(np.int64)

    exact = np.zeros((2, 4), np.int64)
    for who, (key, value) in enumerate(pair):
        exact[who, key], exact[who, 2 + key] = UNIT * (2 * value - 1), UNIT
    scale = DiscreteLaplace.at_least(mechanism.scale * UNIT).scale if mechanism.scale else 0
    law: Law = LaplaceLaw(scale) if scale else NormalLaw(mechanism.standard_deviation * UNIT)
    noise = Noise((law,) * 4, own, exact)
    return noise_part(name, mechanism, model_of(releases), sampler, observe, noise, SUMS)
