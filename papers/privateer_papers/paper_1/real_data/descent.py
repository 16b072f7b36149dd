"""Ma et al.'s competitors: private stochastic gradient descent on models of arms (Han et al. 2021, Algorithm 2)."""

import math
from typing import Any, ClassVar, Final

import numpy as np
from scipy.special import expit

from privateer_core.arrays import Array, Ints
from privateer_core.mechanisms.vectors.vector_symbol import VectorSymbol
from privateer_core.policies.policy import Arms
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.clipping import Ball
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.experiment import Source
from privateer_lab.baselines.run import Baseline, Visitors
from privateer_lab.environments import environment_for
from privateer_lab.simulation.scores import draw_past_arms, encode_contexts, scale_rewards

_ROUND_SIZE: Final = 100
_WARM_START_SHARE: Final = 0.05
"""Share of participants who get arms in turn before the greedy policy starts."""
_SCRIPT_STEP: Final = 0.01
"""The step in the authors' script for real data; gradients are clipped at 1 there, as here."""
_STEP_OFFSET: Final = 2000
"""Number of participants added to the step count, which shortens the first steps."""


class Descent(Baseline):
    """A model of every arm's mean reward, moved against the gradient of its logistic loss by noisy reports.

    Han, Liang, Wang and Zhang, *Generalized linear bandits with local differential privacy* (NeurIPS 2021), Algorithm
    2 with the update (6): after a warm start in which arms are dealt in turn, everybody plays the arm of the largest
    estimate, and reports a gradient for every arm, which is 0 for those not played. A round's people share a model,
    and their gradients are summed. docs/baselines.md says where else we depart from the paper.

    Privacy: epsilon-LDP, whatever the spec's trust model. A report is one `VectorSymbol` for a vector clipped to length
    1: one arm's gradient while arms are dealt, which makes them public, and all arms' later.
    """

    private: ClassVar[bool] = True

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        self.models = self._initial_models()  # shape (arms, coordinates): parameters
        arms, coordinates = self.models.shape
        self.dealt, self.greedy = self._mechanism(coordinates), self._mechanism(arms * coordinates)
        self.curvature = 1 / (4 * arms * (spec.dimension + 1))
        self.n_seen = 0

    def _mechanism(self, coordinates: int) -> VectorSymbol:
        return VectorSymbol.calibrated(Ball("l2", 1.0, coordinates), self.spec.privacy.bound, 0)

    def _initial_models(self) -> Array:
        """Return the parameters of all arms before any report, shape (arms, coordinates)."""
        raise NotImplementedError

    def logits(self, contexts: Array) -> Array:
        """Return the logits of every arm's estimated mean reward, shape (n, arms); ``contexts`` (n, d) in [0, 1]."""
        raise NotImplementedError

    def slopes(self, contexts: Array, arms: Ints) -> Array:
        """Return the gradients of the logits of these arms in their parameters, shape (n, coordinates)."""
        raise NotImplementedError

    def open(self, batch: int) -> None:
        """Begin a round of ``batch`` participants."""
        self.batch = batch
        self.warm = batch > 0 and self.n_seen < _WARM_START_SHARE * self.spec.experiment.horizon
        self.total = np.zeros_like(self.models)
        self.position = 0

    def choose(self, visitors: Visitors) -> Ints:
        """Return arms in turn during the warm start, then the arms with the largest estimates, shape (n,)."""
        n = len(visitors)
        if self.warm:
            self.position += n
            return np.arange(self.position - n, self.position) % len(self.models)
        return np.asarray(self.logits(visitors.contexts).argmax(axis=1))

    def learn(self, visitors: Visitors, arms: Ints, values: Array) -> None:
        """Add the gradients that these participants report."""
        gradients = self.gradients(visitors.contexts, arms, values)
        if self.warm:
            for arm in range(len(self.models)):
                self.total[arm] += self._sum_reports(self.dealt, gradients[arms == arm])
            return
        vectors = np.zeros((len(arms), *self.models.shape))
        vectors[np.arange(len(arms)), arms] = gradients
        self.total += self._sum_reports(self.greedy, vectors.reshape(len(arms), -1)).reshape(self.models.shape)

    def gradients(self, contexts: Array, arms: Ints, values: Array) -> Array:
        """Return the gradients of the logistic losses in the played arms' parameters, shape (n, coordinates)."""
        arm_logits = np.take_along_axis(self.logits(contexts), arms[:, None], axis=1)
        return np.asarray((expit(arm_logits) - values[:, None]) * self.slopes(contexts, arms))

    def _sum_reports(self, mechanism: VectorSymbol, vectors: Array) -> Array:
        coins = np.zeros(len(vectors), np.uint32)  # the distribution of a sum does not depend on them
        return mechanism.simulate(BoundedVectors(coins, vectors), self.rng).sums

    def close(self) -> None:
        """Update the models by a gradient step."""
        self.n_seen += self.batch
        self.models = self.models - self.total / (self.curvature * (self.n_seen + _STEP_OFFSET))


def centre_features(contexts: Array) -> Array:
    """Return a constant and features in [-1, 1], shape (n, d + 1)."""
    return np.concatenate([np.ones((len(contexts), 1)), 2 * contexts - 1], axis=1)


class Logistic(Descent):
    """Ma et al.'s Linear: every arm's mean reward is a logistic function of the features: 1 / (1 + exp(-theta . x)).

    Features and the constant are scaled so that x has at most length 1, and so has every gradient: nothing is clipped.
    """

    def _initial_models(self) -> Array:
        return np.zeros((self.spec.arm_count, self.spec.dimension + 1))

    def logits(self, contexts: Array) -> Array:
        """Return the logits of every arm's estimated mean reward, shape (n, arms)."""
        return np.asarray(self.slopes(contexts) @ self.models.T)

    def slopes(self, contexts: Array, _arms: Ints | None = None) -> Array:
        """Return the gradients of any arm's logits in its parameters, shape (n, d + 1)."""
        return centre_features(contexts) / math.sqrt(self.spec.dimension + 1)


class Network(Descent):
    """Ma et al.'s NN: every arm's mean reward is the logistic function of a network of 2 d hidden units, tanh.

    The paper replaces Linear's model by "a single-layer neural network, with the other steps staying unchanged": one
    pass of the same private descent, gradients clipped to length 1. A model's parameters are, in order, the hidden
    units' weights (2 d, d + 1), the output's weights (2 d,) and its constant; both weights start at random.
    """

    @property
    def hidden(self) -> int:
        """Hidden units of every arm, as many as the authors'."""
        return 2 * self.spec.dimension

    def _initial_models(self) -> Array:
        """Draw the weights of a network for each arm; its output starts at 0."""
        arms, inner = self.spec.arm_count, self.hidden * (self.spec.dimension + 1)
        weights = self.rng.normal(size=(arms, inner))
        outer = self.rng.normal(size=(arms, self.hidden)) / math.sqrt(self.hidden)
        return np.concatenate([weights, outer, np.zeros((arms, 1))], axis=1)

    def _split_parameters(self, models: Array) -> tuple[Array, Array, Array]:
        """Return hidden weights (..., hidden, d + 1), output weights (..., hidden) and constants (...) of models."""
        inner = self.hidden * (self.spec.dimension + 1)
        weights = models[..., :inner].reshape(*models.shape[:-1], self.hidden, -1)
        return weights, models[..., inner:-1], models[..., -1]

    def logits(self, contexts: Array) -> Array:
        """Return the logits of every arm's estimated mean reward, shape (n, arms)."""
        weights, outer, constant = self._split_parameters(self.models)
        units = np.tanh(np.einsum("khd,nd->nkh", weights, centre_features(contexts)))
        return np.asarray(np.einsum("nkh,kh->nk", units, outer) + constant)

    def slopes(self, contexts: Array, arms: Ints) -> Array:
        """Return the gradients of the logits of these arms in their parameters, shape (n, coordinates)."""
        weights, outer, _ = self._split_parameters(self.models[arms])
        inputs = centre_features(contexts)
        units = np.tanh(np.einsum("nhd,nd->nh", weights, inputs))
        inner = (outer * (1 - units**2))[:, :, None] * inputs[:, None, :]
        return np.concatenate([inner.reshape(len(arms), -1), units, np.ones((len(arms), 1))], axis=1)


class _DescentWithSources(Descent):
    """Stochastic gradient descent that begins with the participants of the spec's sources, in rounds of 100.

    The paper says that auxiliary data are included "in the stochastic gradient descent of the parameter estimation with
    the required privacy level", and no more. The authors' code gives it the first source alone; here all come, in the
    spec's order, and take the place of the warm start as far as they are as many. Arms of sources are secret, so that
    a report is one gradient for all arms.

    Notes
    -----
    Privacy: epsilon-LDP for everybody, with the epsilon of the source that they are in.
    """

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        own_mechanism = self.greedy
        for index, source in enumerate(spec.sources):
            self.greedy = type(own_mechanism).calibrated(own_mechanism.ball, source.epsilon or spec.privacy.bound, 0)
            self._learn_from_source(
                source, environment_for(spec, seed, source.population), np.random.default_rng([seed, 7, index])
            )
        self.greedy = own_mechanism

    def _learn_from_source(self, source: Source, environment: Any, rng: np.random.Generator) -> None:
        """Learn in rounds from a source's participants, whose arms were drawn as its past says."""
        for start in range(0, source.participants, _ROUND_SIZE):
            count = min(_ROUND_SIZE, source.participants - start)
            raw = environment.contexts(start, count, rng)
            arms = draw_past_arms(source, self.spec.arm_count, count, rng)
            rewards = scale_rewards(environment.rewards(raw, Arms(arms), rng), self.spec)
            self.open(count)
            self.warm = False
            self.learn(Visitors(0, raw, encode_contexts(raw, self.spec), environment.means(raw)), arms, rewards)
            self.close()


class SourcedLinear(_DescentWithSources, Logistic):
    """Linear with sources."""


class SourcedNetwork(_DescentWithSources, Network):
    """NN with sources."""


class LaplaceLinear(Logistic):
    """Linear without sources, with Laplace noise on every coordinate of a gradient.

    A gradient has at most length 1, so two differ by at most 2 sqrt(d + 1) in L1, and a report is epsilon-LDP.
    """

    def _sum_reports(self, mechanism: VectorSymbol, vectors: Array) -> Array:
        scale = 2 * np.sqrt(self.models.shape[1]) / mechanism.response.epsilon
        count, coordinates = vectors.shape
        noise = self.rng.standard_gamma(count, coordinates) - self.rng.standard_gamma(count, coordinates)
        return np.asarray(vectors.sum(axis=0) + scale * noise)


class FixedStepLinear(LaplaceLinear):
    """Linear without sources, with Laplace noise and a fixed step along a round's mean gradient."""

    def close(self) -> None:
        """Update the models by a gradient step."""
        self.n_seen += self.batch
        self.models = self.models - _SCRIPT_STEP * self.total / max(1, self.batch)
