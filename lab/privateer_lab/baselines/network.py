"""Paper 1's competitor NN: as Linear, with a network of one hidden layer for every arm."""

import math

import numpy as np
from numpy.typing import NDArray

from privateer_lab.baselines.descent import Array, Descent, centred


class Network(Descent):
    """Every arm's mean reward is the logistic function of a network: 2 d hidden units (as the authors'), tanh.

    The paper replaces Linear's model by "a single-layer neural network, with the other steps staying unchanged": one
    pass of the same private descent, gradients clipped to length 1. A model's parameters are, in order, the hidden
    units' weights (2 d, d + 1), the output's weights (2 d,) and its constant; both weights start at random.
    """

    @property
    def hidden(self) -> int:
        """Hidden units of every arm."""
        return 2 * self.spec.dimension

    def _start(self) -> Array:
        arms, inner = self.spec.arm_count, self.hidden * (self.spec.dimension + 1)
        weights = self.rng.normal(size=(arms, inner))
        outer = self.rng.normal(size=(arms, self.hidden)) / math.sqrt(self.hidden)
        return np.concatenate([weights, outer, np.zeros((arms, 1))], axis=1)

    def _parts(self, models: Array) -> tuple[Array, Array, Array]:
        """Hidden weights (..., hidden, d + 1), output weights (..., hidden) and constants (...) of models."""
        inner = self.hidden * (self.spec.dimension + 1)
        weights = models[..., :inner].reshape(*models.shape[:-1], self.hidden, -1)
        return weights, models[..., inner:-1], models[..., -1]

    def logits(self, contexts: Array) -> Array:
        """Logits of every arm's estimated mean reward, shape (n, arms)."""
        weights, outer, constant = self._parts(self.models)
        units = np.tanh(np.einsum("khd,nd->nkh", weights, centred(contexts)))
        return np.asarray(np.einsum("nkh,kh->nk", units, outer) + constant)

    def slopes(self, contexts: Array, arms: NDArray[np.int64]) -> Array:
        """Gradients of the logits of these arms in their parameters, shape (n, coordinates)."""
        weights, outer, _ = self._parts(self.models[arms])
        inputs = centred(contexts)
        units = np.tanh(np.einsum("nhd,nd->nh", weights, inputs))
        inner = (outer * (1 - units**2))[:, :, None] * inputs[:, None, :]
        return np.concatenate([inner.reshape(len(arms), -1), units, np.ones((len(arms), 1))], axis=1)
