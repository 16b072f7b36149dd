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
    BitVectors,
    CellPairs,
    CellTriples,
    CentralSums,
    CentralVectors,
    EventSymbol,
    FeatureSums,
    GaussianVectors,
    GroupedBit,
    NamedSymbol,
    ScreenedMoments,
    SignedSymbol,
    VectorSymbol,
)
from privateer_core.mechanisms.cell_pairs import UNIT as PAIR_UNIT
from privateer_core.mechanisms.cell_products import CellProducts
from privateer_core.mechanisms.central_sums import UNIT as CENTRAL_UNIT
from privateer_core.mechanisms.event_symbol import KEY_REPORT_CLASSES
from privateer_core.mechanisms.feature_sums import GRID as FEATURE_GRID
from privateer_core.mechanisms.screened_moments import GRID as MOMENT_GRID
from privateer_core.mechanisms.vectors.running_vectors import RunningVectors
from privateer_core.primitives.bounded_vectors import BoundedVectors, SecondMomentSums, VectorSums
from privateer_core.primitives.contributions import FeatureValues, KeyedEvents, KeyedValues
from privateer_core.primitives.public_coins import UNIT as SHARES
from privateer_core.spec.spec import Spec
from privateer_lab.simulation.scores import SeededNoise
from privateer_papers.paper_1.laplace_cells import GRID_POINTS_PER_UNIT as CELL_UNIT
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
        return self._with_keys(rng) if self.keyed else self._with_vectors(rng)

    def _with_features(self, rng: np.random.Generator) -> FeatureValues:
        """Contribute values that lean with the answers, a few of which are beyond the bounds."""
        mechanism, people = self.mechanism, np.arange(60)
        answers = np.column_stack([(people + question) % size for question, size in enumerate(mechanism.sizes)])
        values = np.linspace(-1.3, 1.3, len(people))
        return FeatureValues(
            rng.integers(0, 2**32, len(people), dtype=np.uint32), people % mechanism.arms, answers, values
        )

    def _with_keys(self, rng: np.random.Generator) -> KeyedValues:
        """Contribute values and numbers that lean with the key, a fifth of them without a key, on a curator's grid."""
        layout = self.mechanism.layout
        count = 60 if isinstance(self.mechanism, LaplaceCells) else 300
        keys = np.arange(count) % (layout.keys + 1) - 1
        keys[: count // 5] = min(0, layout.keys - 1)
        coins = rng.integers(0, 2**32, count, dtype=np.uint32)
        groups, has = np.zeros(count, np.int64), keys >= 0
        groups[has] = layout.group(layout.hashes(coins[has], keys[has]), keys[has])
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
    arrays = [np.asarray(value, float) for value in vars(release).values() if isinstance(value, np.ndarray)]
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


def truths(subject: Subject) -> Array:
    """Return what `estimates` estimate: sums of vectors or products; or of people of a key, by the shares of groups."""
    if isinstance(subject.mechanism, ScreenedMoments):
        records, rounding = _records(subject)
        return np.asarray((records.T @ records + np.diag(rounding.sum(axis=0)))[np.triu_indices(records.shape[1])])
    if isinstance(subject.mechanism, FeatureSums):
        return _feature_sums(subject)[0]
    if not subject.keyed:
        contributions, classes = subject.people(np.random.default_rng(0)), getattr(subject.mechanism, "classes", 1)
        return np.tile(subject.mechanism.ball.clip(contributions.values).sum(axis=0) / classes, classes)
    count, value, _ = _people_per_key(subject)
    shares = subject.mechanism.layout.shares
    if isinstance(subject.mechanism, LaplaceCells):
        return np.concatenate([(shares * value).ravel(), (shares * count).ravel()])
    if isinstance(subject.mechanism, EventSymbol):
        return np.concatenate(
            [((1 - 1 / KEY_REPORT_CLASSES) * shares * value).ravel(), count[:, 0] / KEY_REPORT_CLASSES]
        )
    return np.asarray((shares * (2 * value - count)).ravel())


def _people_per_key(subject: Subject) -> tuple[Array, Array, Array]:
    people = subject.people(np.random.default_rng(0))
    has = people.keys >= 0
    keys, values, size = people.keys[has], people.values[has], subject.mechanism.layout.keys
    return (
        np.bincount(keys, minlength=size)[:, None].astype(float),
        np.bincount(keys, values, size)[:, None],
        np.bincount(keys, (2 * values - 1) ** 2, size)[:, None],
    )


def _of_levels(subject: Subject) -> Array:
    """Return variances of scores of levels, 2 l / (L - 1) - 1: the sender's lies by chance next to the value."""
    count, _, squares = _people_per_key(subject)
    mechanism, people = subject.mechanism, subject.people(np.random.default_rng(0))
    places = (mechanism.levels - 1) * people.values
    rounding = 4 * (places % 1) * (1 - places % 1) / (mechanism.levels - 1) ** 2
    has = people.keys >= 0
    rounded = np.bincount(people.keys[has], rounding[has], len(count))[:, None]
    uniform = mechanism.response.other * np.square(np.linspace(-1, 1, mechanism.levels)).sum() * len(people)
    shares, gain = mechanism.layout.shares, mechanism.response.gain
    hits = gain * (squares + rounded) + uniform
    return np.asarray(((shares * hits - shares**2 * gain**2 * squares) / gain**2).ravel())


def _of_symbols(subject: Subject) -> Array:
    if getattr(subject.mechanism, "levels", 2) > 2:
        return _of_levels(subject)
    count, _, squares = _people_per_key(subject)
    shares, mechanism = subject.mechanism.layout.shares, subject.mechanism
    people, e = len(subject.people(np.random.default_rng(0))), np.exp(mechanism.epsilon)
    elsewhere = getattr(mechanism, "elsewhere", False)
    total = e + 2 * mechanism.buckets + elsewhere - 1
    p_own = (e + 1) / total
    collision = mechanism.collision_probability if isinstance(mechanism, NamedSymbol) else 1 / mechanism.buckets
    p_other = p_own * collision + 2 / total * (1 - collision)
    p_keyless = 2 / total if elsewhere else 1 / mechanism.buckets
    hits = count * p_own + (count.sum() - count) * p_other + (people - count.sum()) * p_keyless
    gain = (e - 1) / total
    return np.asarray(((shares * hits - shares**2 * gain**2 * squares) / gain**2).ravel())


def _of_groups(subject: Subject) -> Array:
    """Return variances of scores of a group's members, 1 or -1; members without a key score at random."""
    _, _, squares = _people_per_key(subject)
    mechanism, people = subject.mechanism, len(subject.people(np.random.default_rng(0)))
    shares, e = mechanism.layout.shares, np.exp(mechanism.epsilons)
    gain = (e - 1) / (e + 1)
    return np.asarray(((shares * people - shares**2 * gain**2 * squares) / gain**2).ravel())


def _of_events(subject: Subject) -> Array:
    """A report counts by chance, of its coins, and then it is a symbol that is or is not the key's."""
    count, value, squares = _people_per_key(subject)
    shares, mechanism = subject.mechanism.layout.shares, subject.mechanism
    people, e = len(subject.people(np.random.default_rng(0))), np.exp(mechanism.epsilon)
    other, gain = 1 / (e + mechanism.layout.keys), (e - 1) / (e + mechanism.layout.keys)

    def spread(counts: Array, sums: Array, square: Array) -> Array:
        noise = people * other * (1 - other) + gain * sums * (1 - 2 * other)
        return np.asarray((counts * noise - counts**2 * gain**2 * square) / gain**2)

    value_squares = (squares + 2 * (2 * value - count) + count) / 4
    events = spread((1 - 1 / KEY_REPORT_CLASSES) * shares, value, value_squares)
    return np.concatenate([events.ravel(), spread(np.array(1 / KEY_REPORT_CLASSES), count, count).ravel()])


def _of_cells(subject: Subject) -> Array:
    count, value, squares = _people_per_key(subject)
    shares, people = subject.mechanism.layout.shares, len(subject.people(np.random.default_rng(0)))
    noise = people * _laplace(subject.mechanism.scale) / CELL_UNIT**2
    value_squares = (squares + 2 * (2 * value - count) + count) / 4
    rewards = shares * value_squares - shares**2 * value_squares
    return np.concatenate([(rewards + noise).ravel(), (shares * (1 - shares) * count + noise).ravel()])


def _of_central_sums(subject: Subject) -> Array:
    _, _, squares = _people_per_key(subject)
    shares, mechanism = subject.mechanism.layout.shares, subject.mechanism
    noise = (
        _laplace(mechanism.scale * CENTRAL_UNIT) / CENTRAL_UNIT**2
        if mechanism.scale
        else mechanism.standard_deviation**2
    )
    return np.asarray((shares * squares - shares**2 * squares + noise).ravel())


def _of_pairs(subject: Subject) -> Array:
    mechanism = subject.mechanism
    # A product of three sums of a number is in each of two that tell scores.
    sums = 6 if isinstance(mechanism, CellProducts) else 2
    noise = sums * _laplace(mechanism.scale * PAIR_UNIT) / PAIR_UNIT**2 if mechanism.scale else 0.0
    return np.full(mechanism.layout.keys, noise)


def _laplace(scale: float) -> float:
    """Return the variance of discrete Laplace noise."""
    ratio = np.exp(-1 / scale)
    return float(2 * ratio / (1 - ratio) ** 2)


def _of_named_directions(subject: Subject) -> Array:
    """People are of a class by their coins: their vectors, too, vary where there are several."""
    mechanism, values = subject.mechanism, subject.people(np.random.default_rng(0)).values
    lengths = np.linalg.norm(mechanism.ball.clip(values), axis=1)
    noise = sum(mechanism.variance(float(length)) for length in lengths / mechanism.ball.radius)
    assigned = (1 - 1 / mechanism.classes) * float(np.square(lengths).sum())
    return np.array([(noise + assigned) / (mechanism.classes * mechanism.ball.coordinates)])


def _of_noisy_vectors(subject: Subject) -> Array:
    mechanism, values = subject.mechanism, subject.people(np.random.default_rng(0)).values
    share = (mechanism.ball.clip(values) / mechanism.ball.step) % 1.0
    draws = len(values) if isinstance(mechanism, GaussianVectors) else 1
    noise = draws * (mechanism.standard_deviation**2 + 1 / 12) if mechanism.standard_deviation else 0.0
    return np.asarray(((share * (1 - share)).sum(axis=0) + noise) * mechanism.ball.step**2)


def _feature_sums(subject: Subject) -> tuple[Array, Array]:
    """Return the sums of participants' vectors, coordinate by coordinate, and the variances that rounding adds."""
    mechanism, people = subject.mechanism, subject.people(np.random.default_rng(0))
    values = np.clip(people.values, -mechanism.below, 1.0)
    places = (FEATURE_GRID * values) % 1.0
    rounding = places * (1 - places) / FEATURE_GRID**2
    sums, variances = [], []
    for is_count in (False, True):
        scales = mechanism.count_scales if is_count else mechanism.value_scales
        for arm in range(mechanism.arms if mechanism.counts_arms or not is_count else 1):
            is_here = people.arms == arm if mechanism.counts_arms or not is_count else np.full(len(people), True)
            for question, (size, scale) in enumerate(zip(mechanism.sizes, scales, strict=True)):
                for answer in range(size):
                    rows = is_here & (people.answers[:, question] == answer)
                    sums.append(scale * (rows.sum() if is_count else values[rows].sum()))
                    variances.append(0.0 if is_count else scale**2 * rounding[rows].sum())
    return np.array(sums, float), np.array(variances, float)


def _of_features(subject: Subject) -> Array:
    mechanism = subject.mechanism
    noise = (mechanism.standard_deviation**2 + 1 / 12) * mechanism.step**2 if mechanism.standard_deviation else 0.0
    return _feature_sums(subject)[1] + noise


def _of_bits(subject: Subject) -> Array:
    mechanism, values = subject.mechanism, subject.people(np.random.default_rng(0)).values
    share = ((mechanism.ball.clip(values) + mechanism.ball.bound) / mechanism.unit) % 1.0
    trials = len(values) * mechanism.bits * mechanism.probability * (1 - mechanism.probability)
    return np.asarray(((share * (1 - share)).sum(axis=0) + trials) * mechanism.unit**2)


def _in_all_blocks(mechanism: ScreenedMoments) -> list[int]:
    """Return the coordinates that are in every block."""
    return [*range(mechanism.arms), *(mechanism.arms + i for i in mechanism.kept), mechanism.ball.coordinates - 1]


def _records(subject: Subject) -> tuple[Array, Array]:
    """Return the coordinates that are in every block as they are before rounding, and the variances that it adds."""
    mechanism, values = subject.mechanism, subject.people(np.random.default_rng(0)).values
    records = mechanism.ball.clip(values)
    records[:, : mechanism.arms] = values[:, : mechanism.arms].argmax(axis=1)[:, None] == np.arange(mechanism.arms)
    parts = (MOMENT_GRID * records) % 1
    return records[:, _in_all_blocks(mechanism)], (parts * (1 - parts) / MOMENT_GRID**2)[:, _in_all_blocks(mechanism)]


def _of_rounding(subject: Subject) -> Array:
    """Return variances of products of coordinates rounded at random; a squared coordinate is rounded to two numbers."""
    records, rounding = _records(subject)
    products = records.T**2 @ rounding + rounding.T @ records**2 + rounding.T @ rounding
    middles = np.floor(MOMENT_GRID * records) + 0.5
    np.fill_diagonal(products, (rounding * (2 * middles / MOMENT_GRID) ** 2).sum(axis=0))
    return np.asarray(products)


def _of_moments(subject: Subject) -> Array:
    """Noise in units of sqrt(features + 1) for every coordinate but the value; squares have twice the variance."""
    mechanism = subject.mechanism
    squared = np.append(
        np.full(mechanism.arms + len(mechanism.kept), 1.0 + len(mechanism.kept) + mechanism.screened), 1.0
    )
    noise = (mechanism.standard_deviation**2 * np.outer(squared, squared)) * (1 + np.eye(len(squared)))
    noise += mechanism.standard_deviation > 0 and 1 / (12 * MOMENT_GRID**4)
    noise[: mechanism.arms, : mechanism.arms] *= np.eye(mechanism.arms)
    noise += _of_rounding(subject)
    return np.asarray(noise[np.triu_indices(len(squared))])


EXACT: dict[type, Callable[[Subject], Array]] = {
    SignedSymbol: _of_symbols,
    EventSymbol: _of_events,
    GroupedBit: _of_groups,
    LaplaceCells: _of_cells,
    CentralSums: _of_central_sums,
    NamedSymbol: _of_symbols,
    CellPairs: _of_pairs,
    CellTriples: _of_pairs,
    CellProducts: _of_pairs,
    VectorSymbol: _of_named_directions,
    GaussianVectors: _of_noisy_vectors,
    CentralVectors: _of_noisy_vectors,
    RunningVectors: _of_noisy_vectors,
    BitVectors: _of_bits,
    ScreenedMoments: _of_moments,
    FeatureSums: _of_features,
}
"""Exact variances of `estimates`, rounding included; or their average, where only that is known."""


def variances(subject: Subject) -> Array:
    return EXACT[type(subject.mechanism)](subject)
