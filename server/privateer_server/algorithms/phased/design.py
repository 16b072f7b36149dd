"""Near-optimal experimental designs: shares of plays by which the value of every action is known well."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.portable import first_largest

Array = NDArray[np.float64]
_FLAT: Final = 1e-9
"""Directions in which actions extend by less than this share of the most are taken for rounding."""


@dataclass(frozen=True)
class Design:
    """A distribution over actions."""

    support: NDArray[np.int64]  # shape (s,), int64: rows of the actions that are played, rising
    weights: Array  # shape (s,): their shares, above 0, summing to 1
    basis: Array  # shape (rank, d): orthonormal rows that span the actions
    # largest x^T V(weights)^-1 x over the actions within their span, divided by the rank: 1 is optimal (Kiefer and
    # Wolfowitz 1960)
    gap: float

    @property
    def rank(self) -> int:
        """Dimension of the span."""
        return len(self.basis)


def span_of(actions: Array) -> Array:
    """Return orthonormal rows (rank, d) that span the actions (k, d); by the singular values of d rows at most."""
    triangular = np.linalg.qr(actions, mode="r") if len(actions) > actions.shape[1] else actions
    _, singular, rows = np.linalg.svd(triangular, full_matrices=False)
    return np.asarray(rows[singular > _FLAT * max(float(singular[0]), 1e-300)])


def near_optimal_design(actions: Array, gap: float = 2.0, most: int | None = None) -> Design:
    """Return a design whose worst leverage is at most ``gap`` times the rank, with a small support.

    Kumar and Yildirim's start (2005), then Frank-Wolfe steps on the action of largest leverage, of the length that
    makes the determinant largest (Fedorov 1972), then the smallest weights are dropped while the gap allows it; all
    within the span of the actions, so that they need not span the space.

    actions (k, d): not all 0.
    gap: above 1; Li, Zhou and Ji ask for 2 (Lattimore, Szepesvari and Weisz 2020, Proposition 3.7).
    most: the most actions of the support, at least ``d``; a design that needs more has a larger gap.
    """
    basis = span_of(actions)
    points = actions @ basis.T
    weights = np.zeros(len(points))
    weights[_start(points)] = 1 / len(basis)
    weights = _climb(points, weights, gap)
    weights = _pruned(points, weights, gap, len(points) if most is None else most)
    support = np.flatnonzero(weights)
    return Design(support, weights[support], basis, float(np.max(_leverages(points, weights))) / len(basis))


def _start(points: Array) -> NDArray[np.int64]:
    """Rows of ``rank`` actions that span: each the farthest out in a direction orthogonal to those before."""
    rest = np.square(points).sum(axis=1)
    units, chosen = np.zeros((points.shape[1], points.shape[1])), []
    for found in range(len(units)):
        farthest = first_largest(rest)
        unit = points[farthest] - (units @ points[farthest]) @ units
        unit -= (units @ unit) @ units  # again: what rounding left of the directions before
        units[found] = unit / np.linalg.norm(unit)
        rest = rest - np.square(_products(points, units[found]))
        chosen.append(farthest)
    return np.array(chosen)


def _leverages(points: Array, weights: Array) -> Array:
    """Return x^T V^-1 x of every action, shape (k,)."""
    some = np.flatnonzero(weights)
    scaled = points[some] * np.sqrt(weights[some])[:, None]
    triangular = np.linalg.qr(scaled, mode="r")
    return np.asarray(np.square(points @ np.linalg.inv(triangular)).sum(axis=1))


def _climb(points: Array, weights: Array, gap: float) -> Array:
    """Take Frank-Wolfe steps until the worst leverage is at most ``gap * rank``; the inverse changes by rank one."""
    rank = points.shape[1]
    leverages, inverse = _leverages(points, weights), _inverse(points, weights)
    while (worst := float(np.max(leverages))) > gap * rank:
        best = first_largest(leverages)
        step = (worst / rank - 1) / (worst - 1)
        towards = inverse @ points[best]
        ratio = step / (1 - step)
        factor = ratio / (1 + ratio * worst)
        # The inverse of (1 - step) V + step x x^T, by Sherman and Morrison.
        leverages = (leverages - factor * np.square(_products(points, towards))) / (1 - step)
        inverse = (inverse - factor * np.outer(towards, towards)) / (1 - step)
        weights = weights * (1 - step)
        weights[best] += step
    return weights


def _inverse(points: Array, weights: Array) -> Array:
    some = np.flatnonzero(weights)
    return np.asarray(np.linalg.inv((points[some] * weights[some, None]).T @ points[some]))


def _pruned(points: Array, weights: Array, gap: float, most: int) -> Array:
    """Weights without the smallest ones that the gap does not need, and ``most`` of them at most."""
    rank = points.shape[1]
    while np.count_nonzero(weights) > rank:
        fewer = _without(weights, first_largest(-np.where(weights > 0, weights, np.inf)))
        if len(span_of(points[fewer > 0])) < rank or np.max(_leverages(points, fewer)) > gap * rank:
            break
        weights = fewer
    while np.count_nonzero(weights) > most:
        rising = np.argsort(np.where(weights > 0, weights, np.inf), kind="stable")[: np.count_nonzero(weights)]
        rests = (_without(weights, int(row)) for row in rising)
        weights = next(rest for rest in rests if len(span_of(points[rest > 0])) == rank)
    return weights


def _without(weights: Array, row: int) -> Array:
    rest = weights.copy()
    rest[row] = 0.0
    return np.asarray(rest / rest.sum())


def _products(points: Array, vector: Array) -> Array:
    """``points @ vector`` in one thread: several would wait longer for each other than so small a product takes."""
    return np.asarray(np.einsum("kd,d->k", points, vector))
