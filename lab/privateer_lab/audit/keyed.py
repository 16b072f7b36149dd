"""Attacks on keyed means: symbols, published Laplace cells, a curator's sums. Millions of reports, vectorised."""

import os

import numpy as np
from numpy.typing import NDArray

from privateer.accounting.curator import SENSITIVITY
from privateer.accounting.events import Gaussian, Pure
from privateer.coins import Layout, bucket, sign
from privateer.contributions import KeyedValues
from privateer.experiment import Privacy
from privateer.mechanisms.central_sums import CentralSums, CentralTotal
from privateer.mechanisms.laplace_cells import LaplaceCells
from privateer.mechanisms.signed_symbol import SignedSymbol
from privateer.sampling.entropy import SecureNoise
from privateer.terms import calibrate
from privateer_lab.audit.case import Case, Sampler
from privateer_lab.audit.evidence import Scores

Person = tuple[int, float]
"""Key and value; key -1 has nothing to tell."""
LAYOUT = Layout(0x5EED, np.array([[20_000, 40_000], [10_000, 65_536], [0, 30_000], [30_000, 30_000]], np.uint32))
PAIRS: dict[str, tuple[Person, Person]] = {
    "opposite rewards": ((0, 1.0), (0, 0.0)),
    "another bin": ((0, 1.0), (1, 1.0)),
    "nothing to tell": ((2, 0.0), (-1, 0.0)),
}
_SILENT = -1
_AT_ONCE = 250
"""People of one release of a curator, with four keys each."""


def told(person: Person, count: int) -> KeyedValues:
    """``count`` people alike, each with a slot that the device draws before it looks at the context."""
    slots = np.frombuffer(os.urandom(4 * count), dtype=np.uint32)
    keys = np.full(count, person[0])
    groups = np.zeros(count, np.int64)
    if person[0] >= 0:
        groups = LAYOUT.group(LAYOUT.hashes(slots, keys), keys)
    return KeyedValues(slots, keys, groups, np.full(count, person[1]))


def keyed_cases(samples: int) -> list[Case]:
    """All attacks on mechanisms of keyed means."""
    return [*_symbol_cases(samples), *_laplace_cases(samples), *_curated_cases(samples)]


def _symbol_cases(samples: int) -> list[Case]:
    cases = []
    for epsilon, buckets, elsewhere in ((1.0, 1, False), (1.0, 1, True), (4.0, 8, True)):
        mechanism = SignedSymbol(LAYOUT, epsilon, buckets, elsewhere)
        for pair, people in PAIRS.items():
            name = f"{2 * buckets + elsewhere} symbols, {pair}"
            sample = _symbol_sampler(mechanism, people)
            cases.append(Case(name, "SignedSymbol", "local", "tight", epsilon, 0.0, Pure(epsilon), sample, 2 * samples))
    return cases


def _symbol_sampler(mechanism: SignedSymbol, people: tuple[Person, Person]) -> Sampler:
    def sample(who: int, count: int) -> Scores:
        rows = mechanism.randomize(told(people[who], count), SecureNoise()).tobytes()
        reports = mechanism.parse(rows)
        ratio = np.log(probabilities(mechanism, people[0], reports) / probabilities(mechanism, people[1], reports))
        # Slots are public and must not depend on the record: each of their signs makes an event of its own.
        slots, keys = reports["slot"], np.zeros(count, np.int64)
        signs = sign(LAYOUT.hashes(slots, keys)) + 3 * sign(LAYOUT.hashes(slots, keys + 1))
        return np.asarray(np.round(ratio, 6) + 1e-3 * signs)

    return sample


def probabilities(mechanism: SignedSymbol, person: Person, reports: NDArray[np.void]) -> Scores:
    """Probability of each report's symbol, given its slot, if a person sent it; shape (n,)."""
    truth, response = _truth(mechanism, person, reports["slot"]), mechanism.response
    keyed = np.where(reports["symbol"] == truth, response.truth, response.other)
    return np.where(truth == _SILENT, 1 / response.symbols, keyed)


def _truth(mechanism: SignedSymbol, person: Person, slots: NDArray[np.uint32]) -> NDArray[np.int64]:
    key, value = person
    if key < 0:
        return np.full(len(slots), 2 * mechanism.buckets if mechanism.elsewhere else _SILENT)
    hashes = LAYOUT.hashes(slots, np.full(len(slots), key))
    return 2 * bucket(hashes, mechanism.buckets) + ((2 * value - 1) * sign(hashes) > 0)


def _laplace_cases(samples: int) -> list[Case]:
    cases = []
    for epsilon in (1.0, 4.0):
        mechanism, event = LaplaceCells(LAYOUT, epsilon), Pure(epsilon)
        for pair in ("opposite rewards", "another bin"):
            sample, name = _laplace_sampler(mechanism, PAIRS[pair]), f"cells, {pair}"
            cases.append(Case(name, "LaplaceCells", "local", "published", epsilon, 0.0, event, sample, samples // 4))
    return cases


def _laplace_sampler(mechanism: LaplaceCells, people: tuple[Person, Person]) -> Sampler:
    unit = mechanism.scale * mechanism.epsilon / 4

    def mean(person: Person) -> Scores:
        # Where the slot's group is unknown the adversary compares sums over groups: a person's reward and count.
        vector = np.zeros((2, LAYOUT.keys))
        vector[0, person[0]], vector[1, person[0]] = person[1] * unit, unit
        return vector

    means = [mean(person) for person in people]

    def sample(who: int, count: int) -> Scores:
        keys = [person[0] for person in people]
        contributions = told(people[who], count)
        # The worst case: the adversary knows the slot, and with it the cell.
        groups = np.zeros((len(keys), count), np.int64)
        for row, key in enumerate(keys):
            wide = np.full(count, key)
            groups[row] = LAYOUT.group(LAYOUT.hashes(contributions.slots, wide), wide)
        rows = mechanism.randomize(contributions, SecureNoise()).tobytes()
        reports = mechanism.parse(rows).reshape(count, 2, LAYOUT.keys, LAYOUT.groups).astype(float)
        score = np.zeros(count)
        for key in sorted(set(keys)):
            cells = reports[np.arange(count), :, key, groups[keys.index(key)]]
            left, right = means[0][:, key], means[1][:, key]
            score += (np.abs(cells - right) - np.abs(cells - left)).sum(axis=1) / mechanism.scale
        return score

    return sample


def _curated_cases(samples: int) -> list[Case]:
    terms = calibrate(Privacy(model="central", epsilon=1.0, delta=1e-6), 1000, 1.0, 1.0)
    event = Gaussian(terms.standard_deviation, SENSITIVITY)
    cases = []
    for pair, people in PAIRS.items():
        sample = _curated_sampler(terms.standard_deviation, people)
        cases.append(Case(f"release, {pair}", "CuratedSums", "central", "tight", 1.0, 1e-6, event, sample, 4 * samples))
    return cases


def _curated_sampler(standard_deviation: float, people: tuple[Person, Person]) -> Sampler:
    """One run, many people: each has keys of their own, where the adversary knows everybody else.

    Noise is independent from cell to cell, so each of the people is an observation.
    """
    layout = Layout(LAYOUT.seed, np.tile(LAYOUT.thresholds, (_AT_ONCE, 1)))
    slots = np.arange(_AT_ONCE, dtype=np.uint32)

    def rows(mechanism: CentralSums, person: Person) -> NDArray[np.void]:
        key, value = person
        keys = LAYOUT.keys * np.arange(_AT_ONCE) + key if key >= 0 else np.full(_AT_ONCE, -1)
        groups = layout.group(layout.hashes(slots, keys), keys)
        told = KeyedValues(slots, keys, groups, np.full(_AT_ONCE, value))
        return mechanism.parse(mechanism.randomize(told, SecureNoise()).tobytes())

    def released(mechanism: CentralSums, total: CentralTotal) -> Scores:
        release = mechanism.release(total, SecureNoise())
        return np.concatenate([release.sums.reshape(_AT_ONCE, -1), release.hits.reshape(_AT_ONCE, -1)], axis=1)

    noisy, silent = CentralSums(layout, standard_deviation), CentralSums(layout, 0.0)
    exact = [released(silent, silent.add(silent.empty(), rows(silent, person))) for person in people]
    directions = (exact[0] - exact[1]) / np.linalg.norm(exact[0] - exact[1], axis=1, keepdims=True)

    def sample(who: int, count: int) -> Scores:
        total = noisy.add(noisy.empty(), rows(noisy, people[who]))
        releases = -(-count // _AT_ONCE)
        scores = [((released(noisy, total) - exact[1]) * directions).sum(axis=1) for _ in range(releases)]
        return np.concatenate(scores)[:count]

    return sample
