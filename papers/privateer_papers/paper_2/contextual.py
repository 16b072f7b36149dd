"""Paper 2's algorithms for contexts as printed: Algorithm 5 (contextual linear) and Algorithm 3 (generalized linear).

Symbols of the paper: d is the dimension of an action, T the horizon, t the people so far, sigma the noise, alpha the
failure probability, V the noisy second moments, u the noisy products, theta their quotient, and Upsilon, c and beta the
sequences of the same names. An action is a person's row (1, features), divided by its largest length, in the block of
an arm. People of a round decide by the same V and theta; the paper's rounds have one person.

`PublishedLinearSpec` is the spec of Algorithm 5 with joint reports and the textbook's noise, which the product's
`JointLearner` learns, whatever the noise of the reports is.
"""

import math
from typing import ClassVar, Final, Literal, Self

import numpy as np
from scipy.special import expit
from typing_extensions import override

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.linear.policy import LinearPolicy
from privateer_core.algorithms.linear.spec import LinearSpec, LinearTable
from privateer_core.arrays import Array, Ints
from privateer_core.primitives.clipping import Ball
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.baselines.run import Baseline, Visitors
from privateer_papers.paper_1.real_data.descent import centre_features
from privateer_papers.published_trust import PublishedPrivacy

_ALPHA: Final = 0.05


class PaperLinUcb(Baseline):
    """Paper 2, Algorithm 5: ridge regression on noisy second moments and products, with an upper confidence bound.

    Notes
    -----
    Privacy: (epsilon, delta) for each person up to epsilon 1, where the classic constant of normal noise is proved.
    """

    private: ClassVar[bool] = True
    parts: ClassVar[float] = 2.5
    """The number over delta in sigma: 1.25 for each of two reports."""

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        arms, row = spec.arm_count, spec.dimension + 1
        self.row, self.d, self.n_observed = row, arms * row, 0
        self.sigma = 6 * math.sqrt(2 * math.log(self.parts / spec.privacy.delta)) / spec.privacy.bound
        self.moments: Array = np.zeros((self.d, self.d))
        self.products: Array = np.zeros(self.d)
        self.theta: Array = self.products
        self.inverse: Array = self.moments

    def _upsilon(self) -> float:
        horizon = self.spec.experiment.horizon
        return self.sigma * math.sqrt(self.n_observed) * (4 * math.sqrt(self.d) + 2 * math.log(2 * horizon / _ALPHA))

    def beta(self) -> float:
        """Return beta of the people so far."""
        d, log, upsilon = self.d, math.log(self.spec.experiment.horizon), self._upsilon()
        width = math.sqrt(3 * upsilon) + self.sigma * math.sqrt(d * self.n_observed / upsilon)
        return 2 * self.sigma * math.sqrt(d * log) + width * d * log

    def rows(self, visitors: Visitors) -> Array:
        """Return rows of length 1 at most, (n, features + 1)."""
        return np.asarray(centre_features(visitors.contexts) / math.sqrt(self.row))

    def choose(self, visitors: Visitors) -> Ints:
        """Return the arms with the largest upper bound, (n,); random arms before the first report."""
        if not self.n_observed:
            return self.rng.integers(0, self.spec.arm_count, len(visitors))
        rows, arms = self.rows(visitors), self.spec.arm_count
        blocks = self.inverse.reshape(arms, self.row, arms, self.row)[range(arms), :, range(arms)]
        squares = np.einsum("ni,kij,nj->nk", rows, blocks, rows, optimize=True)
        scores = rows @ self.theta.reshape(arms, self.row).T + self.beta() * np.sqrt(np.maximum(squares, 0.0))
        return np.asarray(scores.argmax(axis=1))

    def learn(self, visitors: Visitors, arms: Ints, values: Array) -> None:
        """Add the noisy reports of participants to moments and products."""
        rows, count = self.rows(visitors), len(arms)
        blocks: Array = np.zeros((count, self.spec.arm_count, self.row))
        blocks[np.arange(count), arms] = rows
        actions = blocks.reshape(count, self.d)
        noise = np.triu(self._noise(count, self.d, self.d))
        self.moments = self.moments + actions.T @ actions + noise + np.triu(noise, 1).T
        self.products = self.products + self.noisy_products(actions, values)
        self.n_observed += count

    def noisy_products(self, actions: Array, values: Array) -> Array:
        """Return the sum of noisy products of actions (n, d) and rewards (n,), which are scaled to [-1, 1]."""
        return np.asarray((2 * values - 1) @ actions + self._noise(len(actions), self.d))

    def _noise(self, people: int, *shape: int) -> Array:
        return self.sigma * math.sqrt(people) * self.rng.normal(size=shape)

    def close(self) -> None:
        """Solve for theta."""
        self.inverse = np.asarray(np.linalg.inv(self.moments + 2 * self._upsilon() * np.eye(self.d)), np.float64)
        self.theta = self.inverse @ self.products


class PaperGeneralizedUcb(PaperLinUcb):
    """Paper 2, Algorithm 3: rewards are relabelled by a rough estimate, which descends along noisy gradients.

    The link is logistic, C = g(1) and mu = g'(1) bound it and its slope on [-1, 1], and zeta = 1 / sqrt(T). The paper
    has beta^2 = C sigma sqrt(d t) / mu up to logarithms; we take the ln(T / alpha) of its Lemma 2.
    """

    parts = 3.75
    bound: ClassVar[float] = float(expit(1.0))
    slope: ClassVar[float] = bound * (1 - bound)

    def __init__(self, spec: ArmsSpec, seed: int) -> None:
        super().__init__(spec, seed)
        self.rough, self.gradient = np.zeros(self.d), np.zeros(self.d)

    def beta(self) -> float:
        """Return beta of the people so far."""
        log = math.log(self.spec.experiment.horizon / _ALPHA)
        return math.sqrt(self.bound * self.sigma / self.slope * math.sqrt(self.d * self.n_observed) * log)

    def noisy_products(self, actions: Array, values: Array) -> Array:
        """Return the sum of noisy products of actions (n, d) and their rewards expected by the rough estimate."""
        expected = actions @ self.rough
        self.gradient += (expit(expected) - values) @ actions + self.bound * self._noise(len(actions), self.d)
        return np.asarray(expected @ actions + self._noise(len(actions), self.d))

    def close(self) -> None:
        """Solve for theta, and take a step of descent within the ball of radius 1."""
        super().close()
        descended = self.rough - self.gradient / math.sqrt(self.spec.experiment.horizon)
        self.rough, self.gradient = descended / max(1.0, float(np.linalg.norm(descended))), np.zeros(self.d)


class PublishedLinearTable(LinearTable):
    """The ``[algorithm]``: every participant reports x x^T and y x."""

    name: Literal["paper-2-linear"]  # type: ignore[assignment] # one of its own
    report_statistic: Literal["joint"] = "joint"


class PublishedLinearSpec(LinearSpec):
    """An experiment with linear rewards by the paper's algorithm, in simulation alone."""

    privacy: PublishedPrivacy
    algorithm: PublishedLinearTable

    @property
    @override
    def ball(self) -> Ball:
        return Ball("l2", 1.0, super().ball.coordinates)

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        return {"local": cls._example({"model": "local", "epsilon": 4.0, "delta": 1e-6}, {"name": "paper-2-linear"})}


ALGORITHM: Final = Algorithm(PublishedLinearSpec, LinearPolicy)
