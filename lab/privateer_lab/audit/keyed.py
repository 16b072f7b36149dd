"""Attacks on keyed means: symbols, published Laplace cells, a curator's sums. Millions of reports, vectorised."""

import math
import os

import numpy as np
from numpy.typing import NDArray

from privateer.contributions import KeyedValues
from privateer.experiment import Privacy
from privateer.privacy.curator import SENSITIVITY
from privateer.privacy.events import Gaussian, Pure
from privateer.privacy.noise import SecureNoise
from privateer.privacy.terms import calibrate
from privateer.privatizers.curated import CuratedSums
from privateer.privatizers.laplace import LaplaceCells
from privateer.privatizers.signed_symbol import SignedSymbol
from privateer.slots import Layout, bucket, sign
from privateer_lab.audit.case import Case, Sampler
from privateer_lab.audit.evidence import Scores

Person = tuple[int, float]
"""Key and value; key -1 has nothing to tell."""
_LAYOUT = Layout(0x5EED, np.array([[20_000, 40_000], [10_000, 65_536], [0, 30_000], [30_000, 30_000]], np.uint32))
_PAIRS: dict[str, tuple[Person, Person]] = {
    "opposite rewards": ((0, 1.0), (0, 0.0)),
    "another bin": ((0, 1.0), (1, 1.0)),
    "nothing to tell": ((2, 0.0), (-1, 0.0)),
}
_SILENT = -1


def told(person: Person, count: int) -> KeyedValues:
    """``count`` people alike, each with a slot that the device draws before it looks at the context."""
    slots = np.frombuffer(os.urandom(4 * count), dtype=np.uint32)
    keys = np.full(count, person[0])
    groups = np.zeros(count, np.int64)
    if person[0] >= 0:
        groups = _LAYOUT.group(_LAYOUT.hashes(slots, keys), keys)
    return KeyedValues(slots, keys, groups, np.full(count, person[1]))


def keyed_cases(samples: int) -> list[Case]:
    """All attacks on privatizers of keyed means."""
    return [*_symbol_cases(samples), *_laplace_cases(samples), *_curated_cases(samples)]


def _symbol_cases(samples: int) -> list[Case]:
    cases = []
    for epsilon, buckets, elsewhere in ((1.0, 1, False), (1.0, 1, True), (4.0, 8, True)):
        privatizer = SignedSymbol(_LAYOUT, epsilon, buckets, elsewhere)
        for pair, people in _PAIRS.items():
            name = f"{2 * buckets + elsewhere} symbols, {pair}"
            sample = _symbol_sampler(privatizer, people)
            cases.append(Case(name, "SignedSymbol", "local", "tight", epsilon, 0.0, Pure(epsilon), sample, 2 * samples))
    return cases


def _symbol_sampler(privatizer: SignedSymbol, people: tuple[Person, Person]) -> Sampler:
    response = privatizer.response

    def chances(person: Person, slots: NDArray[np.uint32], symbols: NDArray[np.int64]) -> Scores:
        truth = _truth(privatizer, person, slots)
        keyed = np.where(symbols == truth, response.truth, response.other)
        return np.where(truth == _SILENT, 1 / response.symbols, keyed)

    def sample(who: int, count: int) -> Scores:
        rows = privatizer.randomize(told(people[who], count), SecureNoise()).tobytes()
        reports = privatizer.parse(rows)
        slots, symbols = reports["slot"], reports["symbol"].astype(np.int64)
        ratio = np.log(chances(people[0], slots, symbols) / chances(people[1], slots, symbols))
        # Slots are public and must not depend on the record: each of their signs makes an event of its own.
        keys = np.zeros(count, np.int64)
        signs = sign(_LAYOUT.hashes(slots, keys)) + 3 * sign(_LAYOUT.hashes(slots, keys + 1))
        return np.asarray(np.round(ratio, 6) + 1e-3 * signs)

    return sample


def _truth(privatizer: SignedSymbol, person: Person, slots: NDArray[np.uint32]) -> NDArray[np.int64]:
    key, value = person
    if key < 0:
        return np.full(len(slots), 2 * privatizer.buckets if privatizer.elsewhere else _SILENT)
    hashes = _LAYOUT.hashes(slots, np.full(len(slots), key))
    return 2 * bucket(hashes, privatizer.buckets) + ((2 * value - 1) * sign(hashes) > 0)


def _laplace_cases(samples: int) -> list[Case]:
    cases = []
    for epsilon in (1.0, 4.0):
        privatizer, event = LaplaceCells(_LAYOUT, epsilon), Pure(epsilon)
        for pair in ("opposite rewards", "another bin"):
            sample, name = _laplace_sampler(privatizer, _PAIRS[pair]), f"cells, {pair}"
            cases.append(Case(name, "LaplaceCells", "local", "published", epsilon, 0.0, event, sample, samples // 4))
    return cases


def _laplace_sampler(privatizer: LaplaceCells, people: tuple[Person, Person]) -> Sampler:
    unit = privatizer.scale * privatizer.epsilon / 4

    def mean(person: Person) -> Scores:
        # Where the slot's group is unknown the adversary compares sums over groups: a person's reward and count.
        vector = np.zeros((2, _LAYOUT.keys))
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
            groups[row] = _LAYOUT.group(_LAYOUT.hashes(contributions.slots, wide), wide)
        rows = privatizer.randomize(contributions, SecureNoise()).tobytes()
        reports = privatizer.parse(rows).reshape(count, 2, _LAYOUT.keys, _LAYOUT.groups).astype(float)
        score = np.zeros(count)
        for key in sorted(set(keys)):
            cells = reports[np.arange(count), :, key, groups[keys.index(key)]]
            left, right = means[0][:, key], means[1][:, key]
            score += (np.abs(cells - right) - np.abs(cells - left)).sum(axis=1) / privatizer.scale
        return score

    return sample


def _curated_cases(samples: int) -> list[Case]:
    terms = calibrate(Privacy(model="central", epsilon=1.0, delta=1e-6), 1000, 1.0, 1.0)
    privatizer = CuratedSums(_LAYOUT, terms.deviation)
    event = Gaussian(terms.deviation, SENSITIVITY)
    cases = []
    for pair, people in _PAIRS.items():
        sample, count = _curated_sampler(privatizer, people), max(2000, samples // 5)
        cases.append(Case(f"release, {pair}", "CuratedSums", "central", "tight", 1.0, 1e-6, event, sample, count))
    return cases


def _curated_sampler(privatizer: CuratedSums, people: tuple[Person, Person]) -> Sampler:
    """The adversary knows everybody else, so a release of one person is as good as one of a thousand."""

    def exact(who: int) -> Scores:
        silent = CuratedSums(_LAYOUT, 0.0)
        total = silent.add(silent.empty(), silent.parse(one[who]))
        release = silent.release(total, SecureNoise())
        return np.concatenate([release.sums.ravel(), release.hits])

    slots = np.array([77], np.uint32)

    def row(person: Person) -> bytes:
        keys = np.array([person[0]])
        group = _LAYOUT.group(_LAYOUT.hashes(slots, keys), keys) if person[0] >= 0 else np.zeros(1, np.int64)
        contribution = KeyedValues(slots, keys, group, np.array([person[1]]))
        return privatizer.randomize(contribution, SecureNoise()).tobytes()

    one = [row(person) for person in people]
    direction = exact(0) - exact(1)
    direction = direction / math.sqrt(float(direction @ direction))

    def sample(who: int, count: int) -> Scores:
        total = privatizer.add(privatizer.empty(), privatizer.parse(one[who]))
        scores = np.empty(count)
        for i in range(count):
            release = privatizer.release(total, SecureNoise())
            scores[i] = np.concatenate([release.sums.ravel(), release.hits]) @ direction
        return scores

    return sample
