"""Covers of a box of actions (Li, Zhou and Ji 2024, Remark 1): grids of its points, and the terms of their rewards."""

import math
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from functools import cached_property
from itertools import combinations_with_replacement, product
from typing import Final

import numpy as np

from privateer_core.arrays import Array, Ints

_POINTS_MAX: Final = 20_000
_FIRST_POINTS_MAX: Final = 1_000
SIDES_MAX: Final = 6
"""The largest number of sides: with more, the finest cover has fewer than five points a side, too few to test fit."""
_LAST_LEVEL: Final = 7


@dataclass(frozen=True)
class Box:
    """A box, whose points are the rows of its finest cover; the cover of a level has 2^level steps along each side."""

    low: Array  # shape (d,)
    high: Array  # shape (d,)
    degree: int  # of the polynomial in the coordinates that rewards are

    @cached_property
    def first_level(self) -> int:
        """The level of the first cover: two, or one where that has too many points."""
        return 2 if self.count_points(2) <= _FIRST_POINTS_MAX else 1

    @cached_property
    def last_level(self) -> int:
        """The level of the finest cover."""
        return max(level for level in range(1, _LAST_LEVEL + 1) if self.count_points(level) <= _POINTS_MAX)

    def count_points(self, level: int) -> int:
        """Return the number of points of a level's cover."""
        return int((2**level + 1) ** len(self.low))

    @property
    def term_count(self) -> int:
        """Number of terms of the polynomial: those up to the first degree come first."""
        n_linear = 1 + len(self.low)
        return n_linear + (len(self.low) * n_linear // 2 if self.degree > 1 else 0)

    def list_rows(self, level: int) -> Ints:
        """Return the rows of a level's cover, rising."""
        side = np.arange(0, 2**self.last_level + 1, 2 ** (self.last_level - level))
        return self._join(np.stack(np.meshgrid(*[side] * len(self.low), indexing="ij"), axis=-1))

    def refine(self, rows: Ints, level: int) -> Ints:
        """Return the rows of the next level's cover within one of its steps of ``rows``, which are of this level."""
        step = 2 ** (self.last_level - level - 1)
        offsets = np.stack(np.meshgrid(*[[-step, 0, step]] * len(self.low), indexing="ij"), axis=-1)
        steps = (self._split(rows)[:, None] + offsets.reshape(1, -1, len(self.low))).reshape(-1, len(self.low))
        return np.unique(self._join(steps[((steps >= 0) & (steps <= 2**self.last_level)).all(axis=1)]))

    def locate(self, rows: Ints) -> Array:
        """Return the points of rows with each side from -1 to 1; shape (n, d)."""
        return np.asarray(self._split(rows) / 2.0 ** (self.last_level - 1) - 1.0)

    def list_points(self, rows: Ints) -> Array:
        """Return the points of rows in their own units; shape (n, d)."""
        return np.asarray(self.low + (self.high - self.low) * (self._split(rows) / 2**self.last_level))

    def name_points(self) -> tuple[str, ...]:
        """Return the coordinates of all rows as names, with the decimals of a step and one for each halving."""
        steps = range(2**self.last_level + 1)
        sides = [
            [_format_coordinate(low + width * (step / steps[-1]), width / steps[-1], self.last_level) for step in steps]
            for low, width in zip(self.low.tolist(), (self.high - self.low).tolist(), strict=True)
        ]
        return tuple(f"({', '.join(names)})" for names in product(*sides))

    def compute_terms(self, positions: Array) -> Array:
        """Return the polynomial's terms at points with sides from -1 to 1, as vectors of length 1 at most."""
        columns = [np.ones((len(positions), 1)), positions]
        if self.degree > 1:
            pairs = combinations_with_replacement(range(len(self.low)), 2)
            columns.append(np.stack([positions[:, i] * positions[:, j] for i, j in pairs], axis=1))
        return np.asarray(np.hstack(columns) / np.sqrt(self.term_count))

    def compute_powers(self, positions: Array) -> Array:
        """Return each coordinate to the lowest power that the polynomial lacks; shape (n, d)."""
        return np.asarray(positions ** (self.degree + 1))

    @property
    def quadratic_terms(self) -> slice:
        """The terms of the second degree."""
        return slice(1 + len(self.low), None)

    def bound_loss(self, quadratic: Array, level: int) -> float:
        """Bound how much better the best point of the box is than the nearest of a level's cover.

        It is of the second order: only across a side of the box, where every cover has points, has the best point a
        slope.

        quadratic: bounds of the sizes of the coefficients of `quadratic_terms`.
        """
        return 4.0**-level * float(quadratic.sum()) / math.sqrt(self.term_count)

    def _split(self, rows: Ints) -> Ints:
        """Return the steps along each side, shape (n, d)."""
        return np.stack(np.unravel_index(rows, [2**self.last_level + 1] * len(self.low)), axis=-1).astype(np.int64)

    def _join(self, steps: Ints) -> Ints:
        """Return the rows of steps along each side, shape (..., d)."""
        sides = np.moveaxis(steps.reshape(-1, len(self.low)), -1, 0)
        rows: Ints = np.asarray(np.ravel_multi_index(tuple(sides), [2**self.last_level + 1] * len(self.low)))
        return rows.astype(np.int64)


def _format_coordinate(value: float, step: float, n_halvings: int) -> str:
    """Format a coordinate as the client in JavaScript does, which rounds ties away from zero."""
    n_decimals = n_halvings
    while step < 1:
        step, n_decimals = step * 10, n_decimals + 1
    rounded = Decimal(value).quantize(Decimal(1).scaleb(-n_decimals), ROUND_HALF_UP)
    text = f"{rounded:f}".rstrip("0").removesuffix(".")
    return "0" if text == "-0" else text
