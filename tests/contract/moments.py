"""The exact mean and variance of a mechanism's estimates, by which a battery judges what it draws."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

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
    RowSums,
    ScreenedMoments,
    SharedPairs,
    SharedProducts,
    SharedSums,
    SharedTriples,
    SignedSymbol,
    TieredSymbol,
    VectorSymbol,
)
from privateer_core.mechanisms.cell_pairs import UNIT as PAIR_UNIT
from privateer_core.mechanisms.cell_products import CellProducts
from privateer_core.mechanisms.central_sums import UNIT as CENTRAL_UNIT
from privateer_core.mechanisms.event_symbol import KEY_REPORT_CLASSES
from privateer_core.mechanisms.feature_sums import GRID as FEATURE_GRID
from privateer_core.mechanisms.screened_moments import GRID as MOMENT_GRID
from privateer_core.mechanisms.vectors.row_sums import RECORD_GRID
from privateer_core.mechanisms.vectors.running_vectors import RunningVectors
from privateer_core.primitives.clipping import clip_norm
from privateer_papers.paper_1.laplace_cells import GRID_POINTS_PER_UNIT as CELL_UNIT
from privateer_papers.paper_1.laplace_cells import LaplaceCells
from tests.contract.subjects import Subject
from tests.support.row_vectors import make_vectors

Array = NDArray[np.float64]


def truths(subject: Subject) -> Array:
    """Return what `estimates` estimate: sums of vectors or products; or of people of a key, by the shares of groups."""
    if isinstance(subject.mechanism, ScreenedMoments):
        records, rounding = _records(subject)
        return np.asarray((records.T @ records + np.diag(rounding.sum(axis=0)))[np.triu_indices(records.shape[1])])
    if isinstance(subject.mechanism, FeatureSums):
        return _feature_sums(subject)[0]
    if isinstance(subject.mechanism, RowSums):
        return _row_sums(subject)[0]
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


def _of_tier(subject: Subject) -> Array:
    """Return variances of scores of the mechanism's tier."""
    mechanism = subject.mechanism
    return _of_symbols(replace(subject, mechanism=mechanism.tier_symbols[mechanism.tier]))


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


def _of_votes(subject: Subject) -> Array:
    """Return variances of scores of votes in whole units: one uniform number rounds the sums of their first parts."""
    mechanism, people = subject.mechanism, subject.people(np.random.default_rng(0))
    parts = _bernstein(people.values) if mechanism.unit > 1 else np.stack([1 - people.values, people.values])
    if mechanism.n_parts == 9:
        parts = (_bernstein(people.numbers)[:, None] * parts).reshape(9, -1)
    edges, uniforms = mechanism.unit * np.cumsum(parts, axis=0)[:-1], (np.arange(1000) + 0.5) / 1000
    edges = np.vstack([np.zeros(len(people)), edges, np.full(len(people), mechanism.unit)])
    weights = np.tile(np.linspace(-1, 1, mechanism.parts.count), mechanism.n_parts // mechanism.parts.count)
    numbers = np.diff(np.floor(edges[..., None] + uniforms), axis=0)
    spread = (np.tensordot(weights, numbers, 1) / mechanism.unit).var(axis=1)
    has = people.keys >= 0
    rounding = np.bincount(people.keys[has], spread[has], mechanism.layout.keys)[:, None]
    _, _, squares = _people_per_key(subject)
    shares, noise = (
        mechanism.layout.shares,
        mechanism.noise * np.square(np.linspace(-1, 1, mechanism.parts.count)).sum(),
    )
    return np.asarray(shares * (squares + rounding) - shares**2 * squares + noise).ravel()


def _bernstein(values: Array) -> Array:
    return np.stack([np.square(1 - values), 2 * values * (1 - values), np.square(values)])


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


def _row_sums(subject: Subject) -> tuple[Array, Array]:
    """Return the sum of the vectors as they are before rounding, and the variances that it adds, to first order."""
    mechanism, people = subject.mechanism, subject.people(np.random.default_rng(0))
    rows = clip_norm(people.rows, 1 - math.sqrt(mechanism.ball.dimension) / RECORD_GRID)
    numbers = np.column_stack([rows, np.clip(people.values, -1, 1)])
    places, step = (RECORD_GRID * numbers) % 1, 1e-6
    rounding, added = places * (1 - places) / RECORD_GRID**2, np.zeros(mechanism.ball.coordinates)
    for column, shift in enumerate(step * np.eye(numbers.shape[1])):
        ends = [
            make_vectors(mechanism.ball, people.arms, end[:, :-1], end[:, -1])
            for end in (numbers + shift, numbers - shift)
        ]
        added += rounding[:, column] @ np.square((ends[0] - ends[1]) / (2 * step))
    return make_vectors(mechanism.ball, people.arms, rows, numbers[:, -1]).sum(axis=0), added


def _of_row_sums(subject: Subject) -> Array:
    mechanism = subject.mechanism
    noise = (mechanism.standard_deviation**2 + 1 / 12) * mechanism.ball.step**2 if mechanism.standard_deviation else 0.0
    return np.asarray(_row_sums(subject)[1] + noise)


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
    TieredSymbol: _of_tier,
    EventSymbol: _of_events,
    GroupedBit: _of_groups,
    LaplaceCells: _of_cells,
    CentralSums: _of_central_sums,
    NamedSymbol: _of_symbols,
    CellPairs: _of_pairs,
    CellTriples: _of_pairs,
    CellProducts: _of_pairs,
    SharedSums: _of_votes,
    SharedPairs: _of_votes,
    SharedTriples: _of_votes,
    SharedProducts: _of_votes,
    VectorSymbol: _of_named_directions,
    GaussianVectors: _of_noisy_vectors,
    CentralVectors: _of_noisy_vectors,
    RowSums: _of_row_sums,
    RunningVectors: _of_row_sums,
    BitVectors: _of_bits,
    ScreenedMoments: _of_moments,
    FeatureSums: _of_features,
}
"""Exact variances of `estimates`, rounding included; or their average, where only that is known."""


def variances(subject: Subject) -> Array:
    return EXACT[type(subject.mechanism)](subject)
