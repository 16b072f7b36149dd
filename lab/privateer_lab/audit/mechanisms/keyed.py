"""Attacks on keyed means: symbols alone and shuffled, a curator's sums."""

import numpy as np

from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.mechanisms.central_sums import CentralSums
from privateer_core.mechanisms.signed_symbol import SignedSymbol
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import Layout
from privateer_core.primitives.questions import KeyedMeans
from privateer_lab.audit.case import Case
from privateer_lab.audit.views import Coins, Maker, Target, batches, mechanism_case, releases, reports

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


def keyed_cases(samples: int) -> list[Case]:
    """Return all attacks on mechanisms of keyed means."""
    return [*_symbol_cases(samples), *_central_cases(samples), *_shuffled_cases(samples)]


def maker(person: Person) -> Maker:
    """Return what a person contributes."""
    key, value = person

    def make(coins: Coins) -> KeyedValues:
        keys = np.full(len(coins), key)
        groups = LAYOUT.group(LAYOUT.hashes(coins, keys), keys) if key >= 0 else np.zeros(len(coins), np.int64)
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
    """Normal noise, and the discrete Laplace noise of promises of delta 0."""
    cases = []
    for delta, what, count in ((_DELTA, "release", 3 * samples), (0.0, "release with Laplace noise", samples // 8)):
        mechanism = CentralSums.calibrated(KeyedMeans(LAYOUT), 1.0, delta)
        for pair in PAIRS:
            target = Target(mechanism, _neighbours(pair))
            cases.append(mechanism_case(f"{what}, {pair}", releases, target, (1.0, delta), count))
    return cases


def _shuffled_cases(samples: int) -> list[Case]:
    """Alphabets of 2, 3 and 9 symbols, each with the companions that hide a person least of those tried."""
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
