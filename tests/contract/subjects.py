"""Subjects of the batteries: instances of mechanisms and algorithms, and mechanisms as algorithms calibrate them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms import ALGORITHMS, algorithm
from privateer_core.mechanisms import MECHANISMS as OURS
from privateer_core.mechanisms import (
    FeatureSums,
    GroupedBit,
    RowSums,
)
from privateer_core.primitives.bounded_vectors import BoundedVectors, SecondMomentSums, VectorSums
from privateer_core.primitives.contributions import FeatureValues, KeyedEvents, KeyedValues, RowValues
from privateer_core.primitives.public_coins import UNIT as SHARES
from privateer_core.primitives.row_ball import directions
from privateer_core.spec.spec import Spec
from privateer_lab.simulation.scores import SeededNoise
from privateer_papers.paper_1.laplace_cells import CellSums, LaplaceCells
from tests.support.people import Round, rounds

Array = NDArray[np.float64]
MECHANISMS: tuple[type[Any], ...] = (*OURS, LaplaceCells)
"""Those of the core, and of the papers."""
MESSAGES_MAX = 2000
"""Mechanisms of more messages a person are simulated only, since the real path would take hours."""


@cache
def specs() -> dict[str, Spec]:
    """Return every instance of every algorithm, by algorithm and name."""
    return {
        f"{name}-{instance}": spec for name in ALGORITHMS for instance, spec in algorithm(name).spec.instances().items()
    }


@cache
def history(name: str) -> list[Round]:
    """Return all rounds of an instance."""
    return list(rounds(specs()[name], seed=1))


@dataclass(frozen=True)
class Subject:
    """A mechanism as the battery tries it."""

    mechanism: Any

    @property
    def keyed(self) -> bool:
        return hasattr(self.mechanism, "layout")

    def people(self, rng: np.random.Generator) -> Any:
        """Return the contributions of the same people every time, with fresh coins."""
        if isinstance(self.mechanism, FeatureSums):
            return self._with_features(rng)
        if isinstance(self.mechanism, RowSums):
            return self._with_rows(rng)
        return self._with_keys(rng) if self.keyed else self._with_vectors(rng)

    def _with_features(self, rng: np.random.Generator) -> FeatureValues:
        """Contribute values that lean with the answers, a few of which are beyond the bounds."""
        mechanism, people = self.mechanism, np.arange(60)
        answers = np.column_stack([(people + question) % size for question, size in enumerate(mechanism.sizes)])
        values = np.linspace(-1.3, 1.3, len(people))
        return FeatureValues(
            rng.integers(0, 2**32, len(people), dtype=np.uint32), people % mechanism.arms, answers, values
        )

    def _with_rows(self, rng: np.random.Generator) -> RowValues:
        """Contribute rows and values, a few of which are beyond their bounds."""
        ball, people = self.mechanism.ball, np.arange(60)
        angles = people[:, None] * (1 + np.arange(ball.dimension))
        rows = np.linspace(0.4, 1.2, len(people))[:, None] * directions(0.3 + np.cos(angles))
        coins = rng.integers(0, 2**32, len(people), dtype=np.uint32)
        return RowValues(coins, people % ball.arms, rows, np.linspace(-1.3, 1.3, len(people)))

    def _with_keys(self, rng: np.random.Generator) -> KeyedValues:
        """Contribute values and numbers that lean with the key, a fifth of them without a key, on a curator's grid."""
        layout = self.mechanism.layout
        count = 60 if isinstance(self.mechanism, LaplaceCells) else 300
        keys = np.arange(count) % (layout.keys + 1) - 1
        keys[: count // 5] = min(0, layout.keys - 1)
        coins = rng.integers(0, 2**32, count, dtype=np.uint32)
        groups, has = np.zeros(count, np.int64), keys >= 0
        groups[has] = layout.find_groups(layout.hashes(coins[has], keys[has]), keys[has])
        return KeyedValues(coins, keys, groups, 0.8 - 0.2 * (keys % 4), 0.2 * (np.arange(count) % 6))

    def _with_vectors(self, rng: np.random.Generator) -> BoundedVectors:
        """Contribute vectors, a few of which are beyond the ball."""
        ball, count = self.mechanism.ball, max(60, getattr(self.mechanism, "least", 0))
        angles = np.arange(count)[:, None] * (1 + np.arange(ball.coordinates))[None, :]
        lengths = np.linspace(0, 1.6, count)[:, None]
        coins = rng.integers(0, 2**32, count, dtype=np.uint32)
        return BoundedVectors(coins, ball.bound * lengths * (0.3 + np.cos(angles)))

    def reports(self, seed: int = 0) -> Any:
        """Return one row a person, or a row of messages."""
        return self.mechanism.randomize(self.people(np.random.default_rng(seed)), SeededNoise(seed))

    def collected(self, rng: np.random.Generator, contributions: Any = None) -> Any:
        """Return a release by the real path: randomize, send, parse, add, release."""
        mechanism, contributions = self.mechanism, self.people(rng) if contributions is None else contributions
        rows = mechanism.randomize(contributions, SeededNoise(int(rng.integers(2**63)))).tobytes()
        return mechanism.release(
            mechanism.add(mechanism.empty(), mechanism.parse(rows)), SeededNoise(int(rng.integers(2**63)))
        )

    def simulated(self, rng: np.random.Generator, factor: float = 1.0) -> Any:
        """Return a simulated release, by a mechanism with so much less noise."""
        mechanism = self.mechanism if factor == 1.0 else self.mechanism.with_less_noise(factor)
        return mechanism.simulate(self.people(rng), rng)


def instances() -> dict[str, Subject]:
    """Return every mechanism's own instances."""
    return {f"{kind.__name__}-{name}": Subject(case) for kind in MECHANISMS for name, case in kind.instances().items()}


def calibrated_subject(name: str) -> Subject:
    """Return the mechanism of the last round of an instance that asks about several things.

    Arms that are almost decided have so few coins that a sample of some hundred runs has no central limit: the shares
    of groups are mixed with even ones.
    """
    asking = [step.policy.terms.mechanism for step in history(name)]
    mechanism = ([m for m in asking if not hasattr(m, "layout") or m.layout.keys > 1] or asking)[-1]
    if not hasattr(mechanism, "layout"):
        return Subject(mechanism)
    if isinstance(mechanism, GroupedBit):  # the last round's arms have an epsilon each, and decided ones no coins
        epsilons = np.linspace(1.0, max(mechanism.epsilons), mechanism.layout.groups)
        mechanism = GroupedBit(mechanism.layout, tuple(epsilons.tolist()))
    mixed = 0.7 * mechanism.layout.shares + 0.3 / mechanism.layout.groups
    edges = np.minimum(np.rint(np.cumsum(mixed, axis=1)[:, :-1] * SHARES), SHARES).astype(np.uint32)
    return Subject(msgspec.structs.replace(mechanism, layout=replace(mechanism.layout, thresholds=edges)))


@cache
def subjects() -> dict[str, Callable[[], Subject]]:
    """Return all mechanisms: their own instances, and one of every instance of an algorithm that sends few messages."""
    instances_by_name = {name: (lambda subject=subject: subject) for name, subject in instances().items()}
    names = [name for name, spec in specs().items() if spec.privacy.trust.calibration == "tight" or _is_short(spec)]
    return instances_by_name | {name: (lambda name=name: calibrated_subject(name)) for name in names}


def _is_short(spec: Spec) -> bool:
    """Calibrating takes long, and all that collect tests would do it: where it is tight, messages are few."""
    return spec.first_terms("").messages <= MESSAGES_MAX


def numbers(release: Any) -> Array:
    """Return everything random in a release, with sums over keys that show dependence between keys."""
    arrays = [np.asarray(value, float) for value in msgspec.structs.astuple(release) if isinstance(value, np.ndarray)]
    joint = [np.array([a.sum(), (a.sum(axis=0) ** 2).sum()]) for a in arrays]
    return np.concatenate([a.ravel() for a in arrays] + joint)


def estimates(release: Any) -> Array:
    """Return unbiased estimates that a release gives."""
    if isinstance(release, CellSums):
        return np.concatenate([release.rewards.ravel(), release.counts.ravel()])
    if isinstance(release, KeyedEvents):
        events, named = release.sums - release.counts * release.other, release.hits - release.trials * release.other
        return np.concatenate([events.ravel(), named]) / release.gain
    if isinstance(release, SecondMomentSums):
        indices = [*range(len(release.moments) - 1 - len(release.chosen)), -1]
        return release.moments[np.ix_(indices, indices)][np.triu_indices(len(indices))]
    return release.sums if isinstance(release, VectorSums) else (release.sums / release.gain).ravel()
