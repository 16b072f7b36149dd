"""ABSE with the constants of its authors, under which its guarantee holds."""

import math

import numpy as np
from numpy.typing import NDArray

from privateer_lab.baselines.tree import Tree


class Abse(Tree):
    """`tree` as published (Perchet and Rigollet 2013, Section 5 and Theorem 5.1, for Lipschitz rewards).

    U(s, T) = 2 sqrt(2 log(T/s) / s) and c_0 = 2 L sqrt(d), with L the spec's ``algorithm.lipschitz``, else 1.
    """

    def standard_deviation(self, pulls: NDArray[np.float64]) -> NDArray[np.float64]:
        """U(s, T) at this many pulls of every arm in each cube, both shape (bins,)."""
        return np.asarray(2 * np.sqrt(2 * self.logarithm(pulls) / pulls))

    def tolerance(self) -> NDArray[np.float64]:
        """The deviation at which each cube is known well enough to burst, shape (bins,)."""
        lipschitz = float(getattr(self.spec.algorithm, "lipschitz", 1.0))
        return np.asarray(4 * lipschitz * math.sqrt(self.spec.dimension) * 0.5**self.bursts)
