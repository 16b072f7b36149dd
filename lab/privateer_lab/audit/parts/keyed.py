"""Parts of the mechanisms of keyed means: symbols, noise of sums, and noise of how many people have a key."""

from typing import Any, Final

import numpy as np

from privateer_core.accounting.events import Pure
from privateer_core.mechanisms.central_sums import UNIT, CentralSums
from privateer_core.mechanisms.signed_symbol import SignedSymbol
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import Layout
from privateer_core.sampling.entropy import SecureNoise
from privateer_core.sampling.laplace import DiscreteLaplace
from privateer_lab.audit.law import LaplaceLaw, Law, NormalLaw
from privateer_lab.audit.parts.part import Integers, MechanismPart, Noise, Outcomes, noise_part, outcome_part
from privateer_lab.audit.views import log_likelihood, model_of, releases, reports

Person = tuple[int, float]
"""Key, -1 for none, and value."""
COIN: Final = 12_345
"""The public coins of everybody: what they decide is known."""
_SYMBOLS, SUMS = 6_000, 4_000
_L1: Final = 4
"""Distance of two people in all cells' rewards and counts."""
_OPPOSITE: Final = ((0, 1.0), (0, 0.0))
ELSEWHERE: Final = ((0, 1.0), (1, 1.0))
_NOTHING: Final = ((0, 1.0), (-1, 0.0))


def keyed_parts() -> list[MechanismPart]:
    """Return the parts of all mechanisms of keyed means."""
    return [*_symbol_parts(), *_central_parts()]


def people(layout: Layout, person: Person, count: int) -> KeyedValues:
    """Return what so many people alike contribute."""
    keys, coins = np.full(count, person[0]), np.full(count, COIN, np.uint32)
    groups = layout.group(layout.hashes(coins, keys), keys) if person[0] >= 0 else np.zeros(count, np.int64)
    return KeyedValues(coins, keys, groups, np.full(count, person[1]))


def symbol_part(name: str, mechanism: Any, pair: tuple[Person, Person]) -> MechanismPart:
    """Return the part that is a symbol of randomized response; everybody's coins are the same."""
    symbols = mechanism.response.symbols
    rows = np.zeros(symbols, mechanism.randomize(people(mechanism.layout, pair[0], 1), SecureNoise()).dtype)
    rows["slot"], rows["symbol"] = COIN, np.arange(symbols)
    made = [people(mechanism.layout, person, symbols) for person in pair]
    outcomes = Outcomes(np.exp([log_likelihood(mechanism, one, rows) for one in made]))

    def observe(who: int, count: int) -> Integers:
        told = mechanism.randomize(people(mechanism.layout, pair[who], count), SecureNoise())
        return np.asarray(mechanism.parse(told.tobytes())["symbol"].astype(np.int64))

    sampler, event = "RandomizedResponse.randomize", Pure(mechanism.epsilon)
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
    """Sums and people per key, with normal noise and with Laplace noise; each is as private as it can be told apart."""
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
    """Many people stand in one release, each with two keys of their own."""

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
