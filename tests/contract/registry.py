"""Every mechanism and learner there is, found by introspection, and how the battery builds and judges each."""

import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

import privateer.mechanisms
import privateer_server.algorithms
from privateer.algorithms.partition import PartitionPolicy
from privateer.coins import Layout
from privateer.contributions import KeyedValues
from privateer.experiment import Spec
from privateer.mechanisms.central_sums import CentralSums
from privateer.mechanisms.laplace_cells import LaplaceCells
from privateer.mechanisms.signed_symbol import SignedSymbol
from privateer_lab.noise import SeededNoise
from privateer_server.algorithms.partition.practical import PartitionLearner
from privateer_server.algorithms.partition.proved import ProvedPartitionLearner
from privateer_server.algorithms.partition.published import PublishedPartitionLearner
from privateer_server.algorithms.partition.shares import thresholds
from tests.support.people import bumps, rounds
from tests.support.specs import SHUFFLE, make_spec

Array = NDArray[np.float64]


def classes(package: ModuleType, methods: set[str]) -> Iterator[type]:
    """Classes with ``methods``, one or more a file, defined in the modules of a package."""
    for found in pkgutil.iter_modules(package.__path__):
        module = import_module(f"{package.__name__}.{found.name}")
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if kind.__module__ == module.__name__ and methods <= set(dir(kind)):
                yield kind


def mechanisms() -> set[type]:
    return set(classes(privateer.mechanisms, {"randomize", "add", "release", "simulate"}))


def learners() -> set[type]:
    return set(classes(privateer_server.algorithms, {"start", "policy", "learn"}))


EDGES = np.array([[20_000, 40_000], [10_000, 65_536], [0, 30_000], [30_000, 30_000]], np.uint32)
LAYOUT = Layout(5, EDGES)

PRIVATIZERS: dict[type, dict[str, Any]] = {
    SignedSymbol: {
        f"signed-symbol-{epsilon:g}-{buckets}{'-elsewhere' * elsewhere}": SignedSymbol(
            LAYOUT, epsilon, buckets, elsewhere
        )
        for epsilon, buckets, elsewhere in [(1.0, 1, False), (1.0, 1, True), (2.0, 3, False), (4.0, 8, True)]
    },
    LaplaceCells: {f"laplace-{epsilon:g}": LaplaceCells(LAYOUT, epsilon) for epsilon in (1.0, 4.0)},
    CentralSums: {
        f"curated-{standard_deviation:g}": CentralSums(LAYOUT, standard_deviation)
        for standard_deviation in (0.0, 2.0, 12.0)
    },
}
LOCAL = (SignedSymbol, LaplaceCells)
"""Privatizers whose reports are private by themselves."""


def weaker(mechanism: Any, factor: float) -> Any:
    """The same mechanism with ``factor`` times the epsilon, or with so much less noise."""
    if isinstance(mechanism, LOCAL):
        return replace(mechanism, epsilon=factor * mechanism.epsilon)
    return replace(
        mechanism, standard_deviation=mechanism.standard_deviation / factor if mechanism.standard_deviation else factor
    )


_TRUST: dict[str, dict[str, Any]] = {
    "local": {"privacy.epsilon": 4.0},
    "shuffle": {**SHUFFLE, "experiment.round_growth": 0.1},
    "central": {"privacy.model": "central", "privacy.epsilon": 1.0, "privacy.delta": 1e-6},
    "none": {"privacy.model": "none", "privacy.epsilon": None},
}
_TRUST |= {f"{model}-hidden": {**_TRUST[model], "privacy.arms": "hidden"} for model in ("shuffle", "central")}
LEARNERS: dict[type, dict[str, Spec]] = {
    PartitionLearner: {f"partition-practical-{model}": make_spec(changes) for model, changes in _TRUST.items()},
    ProvedPartitionLearner: {
        f"partition-proved-{model}": make_spec({**changes, "algorithm.confidence": "proved"})
        for model, changes in _TRUST.items()
    },
    PublishedPartitionLearner: {
        "partition-published-local": make_spec({"privacy.epsilon": 16.0, "privacy.calibration": "published"})
    },
}


def learner_cases() -> dict[str, Spec]:
    return {name: spec for cases in LEARNERS.values() for name, spec in cases.items()}


@cache
def played(name: str) -> tuple[Any, PartitionPolicy]:
    """State and policy of a learner's case at the last of its rounds that asks about several bins.

    Arms that are almost decided have so few slots that a sample of some hundred runs has no law of large numbers: the
    policy's shares are mixed with a tenth of even ones.
    """
    spec = learner_cases()[name]
    *_, last = (one for one in rounds(spec, bumps(spec.arm_count), seed=1) if len(one.policy.bins) > 1)
    active, layout = last.policy.active[last.policy.bins], last.policy.layout
    shares = 0.9 * layout.shares + 0.1 * active / active.sum(axis=1, keepdims=True)
    return last.state, replace(last.policy, layout=Layout(layout.seed, thresholds(shares, active)))


@dataclass(frozen=True)
class Case:
    """A mechanism as the battery tries it, by itself or as a learner's policy calibrates it."""

    mechanism: Any

    @property
    def layout(self) -> Layout:
        return self.mechanism.layout

    def people(self, rng: np.random.Generator) -> KeyedValues:
        """The same keys and values every time, with fresh slots: a fifth have no key, values lean with the key."""
        count = 60 if isinstance(self.mechanism, LaplaceCells) else 300
        keys = np.arange(count) % (self.layout.keys + 1) - 1
        keys[: count // 5] = min(0, self.layout.keys - 1)
        values = np.clip(0.9 - 0.25 * (keys % 4), 0, 1)
        slots = rng.integers(0, 2**32, count, dtype=np.uint32)
        groups = np.zeros(count, np.int64)
        has = keys >= 0
        groups[has] = self.layout.group(self.layout.hashes(slots[has], keys[has]), keys[has])
        return KeyedValues(slots, keys, groups, values)

    def collected(self, rng: np.random.Generator) -> Any:
        """A release by the real path: randomize, add, release."""
        one = self.mechanism
        reports = one.randomize(self.people(rng), SeededNoise(int(rng.integers(2**63))))
        return one.release(one.add(one.empty(), reports), SeededNoise(int(rng.integers(2**63))))


def cases() -> dict[str, Callable[[], Case]]:
    made: dict[str, Callable[[], Case]] = {}
    for entries in PRIVATIZERS.values():
        for name, mechanism in entries.items():
            made[name] = lambda mechanism=mechanism: Case(mechanism)
    for name in learner_cases():
        made[name] = lambda name=name: Case(played(name)[1].mechanism)
    return made


def numbers(release: Any) -> Array:
    """Everything random in a release, with sums over keys that show dependence between keys."""
    arrays = [np.asarray(value, float) for value in vars(release).values() if isinstance(value, np.ndarray)]
    joint = [np.array([a.sum(), (a.sum(axis=0) ** 2).sum()]) for a in arrays]
    return np.concatenate([a.ravel() for a in arrays] + joint)


def estimates(case: Case, release: Any) -> Array:
    """Unbiased estimates that a release gives, cell by cell."""
    if isinstance(case.mechanism, LaplaceCells):
        return np.concatenate([release.rewards.ravel(), release.counts.ravel()])
    return (release.sums / release.gain).ravel()


def _people_per_key(case: Case) -> tuple[Array, Array, Array]:
    people = case.people(np.random.default_rng(0))
    has = people.keys >= 0
    keys, values = people.keys[has], people.values[has]
    size = case.layout.keys
    return (
        np.bincount(keys, minlength=size)[:, None].astype(float),
        np.bincount(keys, values, size)[:, None],
        np.bincount(keys, (2 * values - 1) ** 2, size)[:, None],
    )


def truths(case: Case) -> Array:
    """What `estimates` estimate: sums over people of a key, times the share of slots of the group."""
    count, value, _ = _people_per_key(case)
    shares = case.layout.shares
    if isinstance(case.mechanism, LaplaceCells):
        return np.concatenate([(shares * value).ravel(), (shares * count).ravel()])
    return (shares * (2 * value - count)).ravel()


def variances(case: Case) -> Array:
    """Exact variances of `estimates`, from the law of one report."""
    count, value, squares = _people_per_key(case)
    shares, one = case.layout.shares, case.mechanism
    people = len(case.people(np.random.default_rng(0)))
    if isinstance(one, LaplaceCells):
        ratio = np.exp(-1 / one.scale)
        noise = people * 2 * ratio / (1 - ratio) ** 2 / privateer.mechanisms.laplace_cells._UNIT**2
        value_squares = (squares + 2 * (2 * value - count) + count) / 4
        rewards = shares * value_squares - shares**2 * value_squares
        return np.concatenate([(rewards + noise).ravel(), (shares * (1 - shares) * count + noise).ravel()])
    if isinstance(one, CentralSums):
        return (shares * squares - shares**2 * squares + one.standard_deviation**2).ravel()
    e = np.exp(one.epsilon)
    total = e + 2 * one.buckets + one.elsewhere - 1
    own = (e + 1) / total
    other = own / one.buckets + 2 / total * (1 - 1 / one.buckets)
    without = 2 / total if one.elsewhere else 1 / one.buckets
    keyed = count.sum()
    hits = count * own + (keyed - count) * other + (people - keyed) * without
    gain = (e - 1) / total
    return ((shares * hits - shares**2 * gain**2 * squares) / gain**2).ravel()


class _Silence:
    """Words that add no noise where a small word means noise."""

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.full(count, 2**64 - 1, np.uint64)


Person = tuple[int, int, float]


def _told(person: Person, count: int) -> KeyedValues:
    key, group, value = person
    slots = np.full(count, 12_345, np.uint32)
    return KeyedValues(slots, np.full(count, key), np.full(count, group), np.full(count, value))


def outcomes(mechanism: Any, person: Person, pair: tuple[Person, Person], count: int, seed: int) -> NDArray[np.int64]:
    """Labels of ``count`` reports of a person: the symbol, or where each cell lies between the pair's own values."""
    reports = mechanism.randomize(_told(person, count), SeededNoise(seed))
    if not isinstance(mechanism, LaplaceCells):
        return reports["symbol"].astype(np.int64)
    left, right = (mechanism.randomize(_told(one, 1), _Silence())[0] for one in pair)
    label = np.zeros(count, np.int64)
    for column in np.flatnonzero(left != right):
        low, high = sorted((left[column], right[column]))
        label = 3 * label + (reports[:, column] > low) + (reports[:, column] >= high)
    return label
