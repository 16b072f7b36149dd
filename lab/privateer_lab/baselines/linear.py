"""Paper 1's competitor Linear: a locally private generalized linear bandit (Han et al. 2021)."""

import math

import numpy as np
from numpy.typing import NDArray

from privateer_lab.baselines.descent import Array, Descent, centred


class Linear(Descent):
    """Every arm's mean reward is a logistic function of the features: 1 / (1 + exp(-theta . x)).

    Features and the constant are scaled so that x has at most length 1, and so has every gradient: none is clipped.
    """

    def _start(self) -> Array:
        return np.zeros((self.spec.arm_count, self.spec.dimension + 1))

    def _scaled(self, contexts: Array) -> Array:
        return centred(contexts) / math.sqrt(self.spec.dimension + 1)

    def logits(self, contexts: Array) -> Array:
        """Logits of every arm's estimated mean reward, shape (n, arms)."""
        return np.asarray(self._scaled(contexts) @ self.models.T)

    def slopes(self, contexts: Array, _arms: NDArray[np.int64]) -> Array:
        """Gradients of the logits of these arms in their parameters, shape (n, d + 1)."""
        return self._scaled(contexts)
