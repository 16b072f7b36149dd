"""Continual release: sums since the beginning, told again and again, with noise that does not add up.

Let x_1, x_2, ... be what rounds add to a sum, and C a lower-triangular matrix with ones on its diagonal. The noise E of
the rounds solves C E = z with independent normal z, so that whoever sees all x + E sees no more than C x + z. A person
is in one round, and moves C x by a column of C; the sum of the first rounds has noise of far smaller variance than as
many independent numbers would have (Denisov, McMahan, Rush, Smith and Thakurta, NeurIPS 2022).
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError

Array = NDArray[np.float64]
STEPS_MAX: Final = 1 << 16
_WHOLE: Final = 1 + 2.0**-10
"""Most that rounding noise to whole numbers moves a coordinate by, with what floating point loses."""


@dataclass(frozen=True)
class Factorization:
    """How the noise of a step depends on that of earlier ones.

    Parameters
    ----------
    kind
        ``root``: C is the square root of the matrix that sums up, which is Toeplitz; ``tree``: its rows are the nodes
        of a binary tree, where the node that ends with a step holds as many steps as the lowest bit of its number.
    steps
        Releases at most, 1 to 65,536.

    Raises
    ------
    SpecError
        If a parameter is out of range.

    Notes
    -----
    The root's coefficients are c_0 = 1, c_k = c_(k-1) (2k - 1) / (2k) (Fichtenberger, Henzinger and Upadhyay, ICML
    2023). A tree needs no completion in this order: the nodes of a sum have all ended when it is told. What counts are
    the most nodes that hold one step, also in a tree that never becomes full.
    """

    kind: Literal["root", "tree"]
    steps: int

    def __post_init__(self) -> None:
        if self.kind not in ("root", "tree"):
            raise SpecError("must be 'root' or 'tree'", field="kind", remedy="choose one")
        if not 1 <= self.steps <= STEPS_MAX:
            raise SpecError(f"must be 1 to {STEPS_MAX:,}", field="steps", remedy="let rounds be larger")

    @cached_property
    def _root(self) -> Array:
        k = np.arange(1, self.steps)
        return np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])

    def row(self, step: int) -> Array:
        """Return the row of C for a step from 1, up to its diagonal: shape (step,)."""
        if self.kind == "root":
            return self._root[:step][::-1]
        row = np.zeros(step)
        row[step - (step & -step) :] = 1.0
        return row

    def following(self, fresh: NDArray[np.int64], earlier: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the noise of a step in whole numbers, (n,), from fresh noise (n,) and that of all earlier steps."""
        before = self.row(len(earlier) + 1)[:-1] @ earlier.astype(np.float64)
        return np.asarray(fresh - np.rint(before).astype(np.int64))

    def variance(self, step: int) -> float:
        """Return the variance of the sum of the noise of steps 1 to ``step``, where that of fresh noise is 1."""
        return float(np.square(self._root[:step]).sum()) if self.kind == "root" else float(step.bit_count())

    def shift(self, diameter: float, coordinates: int) -> float:
        """Return the L2 distance of two neighbours in what independent noise hides, over all steps.

        Parameters
        ----------
        diameter
            The most by which one person moves the sum of a round, in L2.
        coordinates
            Coordinates of the sum, if noise is in whole numbers; 0 if it is not.

        Notes
        -----
        What is released says that a neighbour, whose sum differs by v in a round, had fresh noise that differs by v
        there, and by the rounded c_k v in the k-th round after it. Rounding changes it by 1 at most in each coordinate,
        depending on the past. So every step is a Gaussian mechanism of a known sensitivity, given the steps before, and
        these compose exactly, adaptively or not: squares of sensitivities add up. A tree's coefficients are whole.
        """
        if self.kind == "tree":
            return diameter * math.sqrt(self.steps.bit_length())
        moved = diameter * self._root
        moved[1:] += _WHOLE * math.sqrt(coordinates)
        return float(np.linalg.norm(moved))
