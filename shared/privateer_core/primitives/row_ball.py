"""Vectors of a value at a row and of the row's second moments, and how far apart those of two participants are."""

import math
from typing import Final

import msgspec
import numpy as np

from privateer_core.arrays import Array
from privateer_core.errors import SpecError
from privateer_core.primitives.clipping import COORDINATES_MAX

GRID: Final = 1 << 20
"""Steps of a length of 1 in sums of vectors."""
SHARE_MAX: Final = 1 / 3
"""Largest share of second moments that costs residuals no noise."""
JOINT: Final = 1.0
"""The share of second moments that stands for a joint report."""
MOMENT_SCALE: Final = math.sqrt(1 / 3)
PRODUCT_SCALE: Final = math.sqrt(2 / 3)
"""Scales of a joint report's two parts, which have length 1 together."""
JOINT_DIAMETER: Final = math.sqrt(8 / 3)
"""Largest distance of two joint reports."""
ROWS: Final = "rows"
ARMS_MAX: Final = 1 << 16
_MIN_NORM: Final = 1e-100  # minimum norm of a vector with a direction: squares of smaller coordinates underflow
_ROUNDING: Final = 1 + 2.0**-40
"""Factor that covers rounding errors of floating point in a sensitivity."""


def count_moments(dimension: int) -> int:
    """Return the number of distinct second moments of ``dimension`` coordinates."""
    return dimension * (dimension + 1) // 2


def directions(rows: Array) -> Array:
    """Return rows (n, d) scaled to length 1; a row of 0 stays 0."""
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), _MIN_NORM))


def clip_rows(rows: Array) -> Array:
    """Return rows (n, d) scaled down to length 1 if they are longer."""
    return np.asarray(rows / np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True)))


def second_moments(rows: Array) -> Array:
    """Return the packed second moments (n, d (d + 1) / 2) of rows, which are clipped to length 1."""
    clipped = clip_rows(rows)
    left, right = np.triu_indices(rows.shape[1])
    doubled = np.where(left == right, 1.0, math.sqrt(2))
    return np.asarray(clipped[:, left] * clipped[:, right] * doubled)


def joint_reports(rows: Array, values: Array) -> Array:
    """Return second moments of rows (n, d), and products with values in [-1, 1]; (n, d (d + 1) / 2 + d).

    Rows are clipped to length 1 in both parts: then no two participants are farther apart than the root of 8/3.
    """
    products = values[:, None] * clip_rows(rows)
    return np.concatenate([MOMENT_SCALE * second_moments(rows), PRODUCT_SCALE * products], axis=1)


class RowBall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The vectors that a curator makes from records of an arm, a row t at most 1 long, and a value v in [-1, 1].

    In the block of the arm a vector has sqrt(1 - s) h(a) v t / |t|, and after all blocks sqrt(s) times the packed
    second moments of t. Here s is ``share``, a = |t|^2, and h(a) = sqrt(4 - r (1 - a)^2) - 1 with r = s / (1 - s).

    arms, dimension: number of arms, and of coordinates of a row.
    share: share of second moments in the squared length, 0 to 1/3; or `JOINT`: the arm's block is a joint report.

    No two vectors are farther apart than 2 sqrt(1 - s), as if second moments were not there
    (docs/privacy/curator.md#residuals-and-second-moments); participants with the same row of length 1, the same arm
    and opposite values are. For joint reports that holds with s = 1/3.
    """

    arms: int
    dimension: int
    share: float

    def __post_init__(self) -> None:
        if not (0 <= self.share <= SHARE_MAX or self.is_joint):
            raise SpecError("must be 0 to 1/3, or 1", field="share", remedy="fetch the policy again")
        is_possible = 1 <= self.arms <= ARMS_MAX and self.dimension >= 1
        if not (is_possible and self.coordinates <= COORDINATES_MAX):
            raise SpecError("is not possible for these arms", field="dimension", remedy="fetch the policy again")

    @property
    def norm(self) -> str:
        """Name of the shape of the vectors."""
        return ROWS

    @property
    def is_joint(self) -> bool:
        """Whether an arm's block is a joint report."""
        return self.share == JOINT

    @property
    def block(self) -> int:
        """Number of coordinates of an arm's block."""
        return self.dimension + (count_moments(self.dimension) if self.is_joint else 0)

    @property
    def _n_common(self) -> int:
        """Number of coordinates after all blocks."""
        return count_moments(self.dimension) if self.share and not self.is_joint else 0

    @property
    def coordinates(self) -> int:
        """Number of coordinates of a vector."""
        return self.arms * self.block + self._n_common

    @property
    def step(self) -> float:
        """Distance of grid points."""
        return 1 / GRID

    @property
    def sensitivity(self) -> float:
        """Largest L2 distance of two participants' vectors on the grid, in grid points; rounding included."""
        diameter = JOINT_DIAMETER if self.is_joint else 2 * math.sqrt(1 - self.share)
        return (diameter * GRID + math.sqrt(2 * self.block + self._n_common)) * _ROUNDING

    def residual_directions(self, rows: Array) -> Array:
        """Return the directions of rows (n, d) times h, so that shorter rows have slightly shorter residuals."""
        squares = np.square(clip_rows(rows)).sum(axis=1, keepdims=True)
        ratio = self.share / (1 - self.share)
        return np.asarray(directions(rows) * (np.sqrt(4 - ratio * np.square(1 - squares)) - 1))

    def split_rows(self, rows: Array, values: Array) -> tuple[Array, Array]:
        """Return the parts of the vectors of rows (n, d) and values (n,): in the arm's block, and after all blocks."""
        if self.is_joint:
            return joint_reports(rows, values), np.zeros((len(rows), 0))
        residuals = math.sqrt(1 - self.share) * values[:, None] * self.residual_directions(rows)
        moments = math.sqrt(self.share) * second_moments(rows) if self.share else np.zeros((len(rows), 0))
        return residuals, moments
