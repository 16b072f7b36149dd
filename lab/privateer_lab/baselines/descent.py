"""Private stochastic gradient descent on a model of each arm, with greedy arms (Han et al. 2021, Algorithm 2)."""

from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from privateer.contributions import BoundedVectors
from privateer.experiment import Spec
from privateer.mechanisms.vector_symbol import VectorSymbol, symbol_vectors
from privateer.vectors import Ball
from privateer_lab.baselines.base import Baseline, Visitors

Array = NDArray[np.float64]
_WARM: Final = 0.05
"""Share of the people who are dealt their arms in turn before the greedy policy starts."""
_START: Final = 2000
"""People by which the first steps are shortened."""


class Descent(Baseline):
    """A model of every arm's mean reward, moved against the gradient of its logistic loss by noisy reports.

    Han, Liang, Wang and Zhang, *Generalized linear bandits with local differential privacy* (NeurIPS 2021), Algorithm
    2 with the update (6): after a warm start in which arms are dealt in turn, everybody plays the arm of the largest
    estimate, and reports a gradient for every arm, which is 0 for those not played. Where we depart:

    - their l2-ball mechanism sends each arm's gradient at epsilon/2. We send all arms' in one vector of the same
      length at epsilon, by the library's best mechanism: far less noise for the same promise;
    - a round's people share a model, and their gradients are summed;
    - without the elimination after the warm start (line 14), whose gap h nobody knows; their code has none either;
    - steps are 1 / (lambda (people + 2000)), lambda = 1 / (4 arms (d + 1)): about the curvature of the loss for
      uniform features, which the paper leaves open.

    Notes
    -----
    Privacy: epsilon-LDP, whatever the spec's trust model. A report is one `VectorSymbol` for a vector clipped to length
    1: one arm's gradient while arms are dealt, which makes them public, and all arms' later.

    Attributes
    ----------
    models
        Shape (arms, coordinates): parameters.
    """

    private: ClassVar[bool] = True

    def __init__(self, spec: Spec, seed: int) -> None:
        super().__init__(spec, seed)
        self.models = self._start()
        arms, coordinates = self.models.shape
        self.dealt, self.greedy = self._mechanism(coordinates), self._mechanism(arms * coordinates)
        self.curvature = 1 / (4 * arms * (spec.dimension + 1))
        self.seen = 0

    def _mechanism(self, coordinates: int) -> VectorSymbol:
        return symbol_vectors(Ball("l2", 1.0, coordinates), self.spec.privacy.bound, 0)

    def _start(self) -> Array:
        """Parameters of all arms before any report, shape (arms, coordinates)."""
        raise NotImplementedError

    def logits(self, contexts: Array) -> Array:
        """Logits of every arm's estimated mean reward, shape (n, arms); ``contexts`` (n, d) in [0, 1]."""
        raise NotImplementedError

    def slopes(self, contexts: Array, arms: NDArray[np.int64]) -> Array:
        """Gradients of the logits of these arms in their parameters, shape (n, coordinates)."""
        raise NotImplementedError

    def open(self, batch: int) -> None:
        """A round begins."""
        self.batch = batch
        self.warm = batch > 0 and self.seen < _WARM * self.spec.experiment.horizon
        self.total = np.zeros_like(self.models)
        self.place = 0

    def choose(self, visitors: Visitors) -> NDArray[np.int64]:
        """Arms of the next people of the round, shape (n,)."""
        n = len(visitors)
        if self.warm:
            self.place += n
            return np.arange(self.place - n, self.place) % len(self.models)
        return np.asarray(self.logits(visitors.contexts).argmax(axis=1))

    def learn(self, visitors: Visitors, arms: NDArray[np.int64], values: Array) -> None:
        """What these people received, shape (n,)."""
        gradients = self.gradients(visitors.contexts, arms, values)
        if self.warm:
            for arm in range(len(self.models)):
                self.total[arm] += self._sum(self.dealt, gradients[arms == arm])
            return
        told = np.zeros((len(arms), *self.models.shape))
        told[np.arange(len(arms)), arms] = gradients
        self.total += self._sum(self.greedy, told.reshape(len(arms), -1)).reshape(self.models.shape)

    def gradients(self, contexts: Array, arms: NDArray[np.int64], values: Array) -> Array:
        """Gradients of these people's logistic losses in their arms' parameters, shape (n, coordinates)."""
        played = np.take_along_axis(self.logits(contexts), arms[:, None], axis=1)
        return np.asarray((expit(played) - values[:, None]) * self.slopes(contexts, arms))

    def _sum(self, mechanism: VectorSymbol, vectors: Array) -> Array:
        slots = np.zeros(len(vectors), np.uint32)  # the law of a sum does not need them
        return mechanism.simulate(BoundedVectors(slots, vectors), self.rng).sums

    def close(self) -> None:
        """Take a step."""
        self.seen += self.batch
        self.models = self.models - self.total / (self.curvature * (self.seen + _START))


def centred(contexts: Array) -> Array:
    """A constant and features in [-1, 1], shape (n, d + 1)."""
    return np.concatenate([np.ones((len(contexts), 1)), 2 * contexts - 1], axis=1)
