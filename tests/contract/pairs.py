"""Pairs of participants whose reports must be alike, and the labels by which reports of the two are compared."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.contributions import KeyedValues
from privateer_lab.simulation.scores import SeededNoise
from privateer_papers.paper_1.laplace_cells import LaplaceCells
from privateer_papers.paper_1.ldpmab_attack import compute_noiseless_cells

Person = tuple[int, int, float] | float
"""Key, group and value; or every coordinate of a vector, in bounds."""
KEYED_PAIRS: list[tuple[Person, Person]] = [
    ((0, 0, 1.0), (0, 0, 0.0)),
    ((0, 1, 1.0), (1, 0, 1.0)),
    ((1, 0, 0.0), (-1, 0, 0.0)),
    ((0, 2, 0.5), (-1, 0, 1.0)),
    ((2, 1, 1.0), (3, 0, 0.0)),
]
VECTOR_PAIRS: list[tuple[Person, Person]] = [(1.0, -1.0), (9.0, 0.0), (0.3, 0.2)]


def _contribute_copies(mechanism: Any, person: Person, count: int) -> Any:
    coins = np.full(count, 12_345, np.uint32)
    if isinstance(person, float):
        return BoundedVectors(coins, np.full((count, mechanism.ball.coordinates), person * mechanism.ball.bound))
    key, group, value = person
    return KeyedValues(coins, np.full(count, key), np.full(count, group), np.full(count, value))


def _label_senders(mechanism: Any, reports: NDArray[Any], pair: tuple[Person, Person]) -> NDArray[np.int64]:
    label = np.zeros(len(reports), np.int64)
    for message in reports.T:
        for person in pair:
            contributions = _contribute_copies(mechanism, person, len(message))
            own_symbols = mechanism.own_symbols(BoundedVectors(message["slot"], contributions.values))
            label = 2 * label + (own_symbols == message["symbol"][:, None]).any(axis=1)
    return label


def label_rows(mechanism: Any, person: Person, pair: tuple[Person, Person], count: int, seed: int) -> NDArray[np.int64]:
    """Return labels of a person's reports: the symbol, or where each cell lies between the pair's own values.

    Several symbols, with coins of their own each, are labelled by whose they are: one person's of the pair, or both's.
    """
    reports = mechanism.randomize(_contribute_copies(mechanism, person, count), SeededNoise(seed))
    if mechanism.messages > 1:
        return _label_senders(mechanism, reports, pair)
    if not isinstance(mechanism, LaplaceCells):
        return np.asarray(reports["symbol"].astype(np.int64).ravel())
    left, right = (compute_noiseless_cells(mechanism, _contribute_copies(mechanism, person, 1))[0] for person in pair)
    label = np.zeros(count, np.int64)
    for column in np.flatnonzero(left != right):
        low, high = sorted((left[column], right[column]))
        label = 3 * label + (reports[:, column] > low) + (reports[:, column] >= high)
    return label
