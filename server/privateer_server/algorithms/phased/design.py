"""Near-optimal experimental designs: shares of plays by which the value of every action is estimated precisely."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from privateer_core.arrays import Array, Ints
from privateer_core.portable import first_largest

_MIN_SINGULAR_RATIO: Final = 1e-9
"""Directions in which actions extend by less than this share of the most are taken for rounding."""


@dataclass(frozen=True)
class Design:
    """A distribution over actions."""

    support: Ints  # shape (s,), int64: rows of the actions that are played, rising
    weights: Array  # shape (s,): their shares, above 0, summing to 1
    basis: Array  # shape (rank, d): orthonormal rows that span the actions
    # largest x^T V(weights)^-1 x over the actions within their span, divided by the rank: 1 is optimal (Kiefer and
    # Wolfowitz 1960)
    gap: float

    @property
    def rank(self) -> int:
        """Dimension of the span."""
        return len(self.basis)


def compute_span(actions: Array) -> Array:
    """Return orthonormal rows (rank, d) that span the actions (k, d); by the singular values of d rows at most."""
    triangular = np.linalg.qr(actions, mode="r") if len(actions) > actions.shape[1] else actions
    _, singular, rows = np.linalg.svd(triangular, full_matrices=False)
    return np.asarray(rows[singular > _MIN_SINGULAR_RATIO * max(float(singular[0]), 1e-300)])


def near_optimal_design(actions: Array, gap: float = 2.0, max_support: int | None = None) -> Design:
    """Return a design whose worst leverage is at most ``gap`` times the rank, with a small support.

    Kumar and Yildirim's start (2005), then Frank-Wolfe steps on the action of largest leverage, of the length that
    makes the determinant largest (Fedorov 1972), then the smallest weights are dropped while the gap allows it; all
    within the span of the actions, so that they need not span the space.

    actions (k, d): not all 0.
    gap: above 1; Li, Zhou and Ji ask for 2 (Lattimore, Szepesvari and Weisz 2020, Proposition 3.7).
    max_support: the most actions of the support, at least ``d``; a design that needs more has a larger gap.
    """
    basis = compute_span(actions)
    points = actions @ basis.T
    weights = np.zeros(len(points))
    weights[_initial_support(points)] = 1 / len(basis)
    weights = _optimize_weights(points, weights, gap)
    weights = _prune_support(points, weights, gap, len(points) if max_support is None else max_support)
    support = np.flatnonzero(weights)
    return Design(support, weights[support], basis, float(np.max(_leverages(points, weights))) / len(basis))


def _initial_support(points: Array) -> Ints:
    """Return rows of ``rank`` spanning actions: each the farthest in a direction orthogonal to the previous."""
    squared_distances = np.square(points).sum(axis=1)
    units, chosen = np.zeros((points.shape[1], points.shape[1])), []
    for index in range(len(units)):
        farthest = first_largest(squared_distances)
        unit = points[farthest] - (units @ points[farthest]) @ units
        unit -= (units @ unit) @ units  # again: what rounding left of the directions before
        units[index] = unit / np.linalg.norm(unit)
        squared_distances = squared_distances - np.square(_products(points, units[index]))
        chosen.append(farthest)
    return np.array(chosen)


def _leverages(points: Array, weights: Array) -> Array:
    """Return x^T V^-1 x of every action, shape (k,)."""
    support = np.flatnonzero(weights)
    scaled = points[support] * np.sqrt(weights[support])[:, None]
    triangular = np.linalg.qr(scaled, mode="r")
    return np.asarray(np.square(points @ np.linalg.inv(triangular)).sum(axis=1))


def _optimize_weights(points: Array, weights: Array, gap: float) -> Array:
    """Take Frank-Wolfe steps until the worst leverage is at most ``gap * rank``; the inverse changes by rank one."""
    rank = points.shape[1]
    leverages, inverse = _leverages(points, weights), _inverse(points, weights)
    while (worst := float(np.max(leverages))) > gap * rank:
        best = first_largest(leverages)
        step = (worst / rank - 1) / (worst - 1)
        direction = inverse @ points[best]
        ratio = step / (1 - step)
        factor = ratio / (1 + ratio * worst)
        # The inverse of (1 - step) V + step x x^T, by Sherman and Morrison.
        leverages = (leverages - factor * np.square(_products(points, direction))) / (1 - step)
        inverse = (inverse - factor * np.outer(direction, direction)) / (1 - step)
        weights = weights * (1 - step)
        weights[best] += step
    return weights


def _inverse(points: Array, weights: Array) -> Array:
    support = np.flatnonzero(weights)
    return np.asarray(np.linalg.inv((points[support] * weights[support, None]).T @ points[support]))


def _prune_support(points: Array, weights: Array, gap: float, max_support: int) -> Array:
    """Return weights without the smallest that the gap does not need, at most ``max_support`` of them."""
    rank = points.shape[1]
    while np.count_nonzero(weights) > rank:
        pruned = _drop_row(weights, first_largest(-np.where(weights > 0, weights, np.inf)))
        if len(compute_span(points[pruned > 0])) < rank or np.max(_leverages(points, pruned)) > gap * rank:
            break
        weights = pruned
    while np.count_nonzero(weights) > max_support:
        rising = np.argsort(np.where(weights > 0, weights, np.inf), kind="stable")[: np.count_nonzero(weights)]
        candidates = (_drop_row(weights, int(row)) for row in rising)
        weights = next(candidate for candidate in candidates if len(compute_span(points[candidate > 0])) == rank)
    return weights


def _drop_row(weights: Array, row: int) -> Array:
    remaining = weights.copy()
    remaining[row] = 0.0
    return np.asarray(remaining / remaining.sum())


def _products(points: Array, vector: Array) -> Array:
    """Return ``points @ vector`` in one thread, which is faster for small products."""
    return np.asarray(np.einsum("kd,d->k", points, vector))
