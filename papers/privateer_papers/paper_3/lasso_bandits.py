"""Published sparse linear bandits on the problem of paper 3: two LASSO bandits without privacy, and FLIPHAT."""

import math
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.arrays import Array, Ints

_MAX_HELD_BATCHES: Final = 32
"""Number of batches of records after which they are counted."""
_ITERATIONS: Final = 400
_TOLERANCE: Final = 1e-6
"""Largest change of a coordinate in the last iteration of a LASSO estimate."""
_N_THRESHOLDING_STEPS: Final = 2
"""FLIPHAT's iterations: of 2, 3, 5 and 10 the best on the problem of `examples/sparse.toml`."""
PENALTY: Final = 0.05
"""lambda_0 of all LASSO estimates: between what is best for the two LASSO bandits."""


@dataclass(frozen=True)
class Problem:
    """The public parameters of the problem."""

    dimension: int  # d, coordinates of a context; each is in [-1, 1]
    sparsity: int  # s_0, coordinates of the parameter that may differ from 0
    reward: float  # largest absolute reward
    length: float  # largest L2 length of the parameter
    variance: float  # mean square of a coordinate of a context
    people: int  # T
    # the promise of joint differential privacy, for whom it concerns
    epsilon: float
    delta: float


class SparseBandit:
    """A bandit that plays the arm of the largest product of its context with one estimate.

    gram, products: second moments (d, d) of the contexts of arms played, and their products with rewards (d,), up to
        the last `count`.
    """

    dense: ClassVar[bool] = True  # whether second moments of all coordinates are kept

    def __init__(self, problem: Problem, seed: int) -> None:
        self.problem, self.rng = problem, np.random.default_rng([seed, 33])
        self.estimate = np.zeros(problem.dimension)  # shape (d,); arms are at random while all of it is 0
        self.people = 0
        d = problem.dimension if self.dense else 0
        self.gram, self.products = np.zeros((d, d)), np.zeros(d)
        self._pending: list[tuple[NDArray[np.float32], Array]] = []

    def choose(self, contexts: NDArray[np.float32]) -> Ints:
        """Return arms (n,) of people with contexts (n, arms, d)."""
        support = np.flatnonzero(self.estimate)
        if not len(support):
            return self.rng.integers(0, contexts.shape[1], len(contexts))
        return np.asarray((contexts[:, :, support] @ self.estimate[support]).argmax(axis=1))

    def learn(self, rows: NDArray[np.float32], rewards: Array) -> None:
        """Take the contexts (n, d) of the arms played, and rewards (n,)."""
        self.people += len(rows)
        self._pending.append((rows, rewards))
        if len(self._pending) >= _MAX_HELD_BATCHES:
            self.add_pending_records()

    def add_pending_records(self) -> None:
        """Add pending records to ``gram`` and ``products``: updates of a large matrix are fast only by many rows."""
        if self._pending:
            rows, rewards = (np.concatenate(parts) for parts in zip(*self._pending, strict=True))
            self._pending = []
            self.gram += rows.T @ rows
            self.products += rewards @ rows

    def update_if_due(self) -> None:
        """Refit the estimate if 64, 96, 128, 192, ... participants have been learned from."""
        t = self.people
        if t >= 64 and (t & (t - 1) == 0 or (t % 3 == 0 and (t // 3) & (t // 3 - 1) == 0)):
            self.add_pending_records()
            self.refit()

    def refit(self) -> None:
        """Refit the estimate."""
        raise NotImplementedError


def lasso(gram: Array, products: Array, people: float, penalty: float) -> Array:
    """Return the minimizer (d,) of |Y - Z theta|^2 / people + penalty |theta|_1, by accelerated proximal descent.

    gram, products: Z^T Z, shape (d, d), and Z^T Y, shape (d,).
    """
    step = people / (2 * max(_largest_eigenvalue(gram), 1e-12))
    estimate, extrapolated, weight = np.zeros(len(gram)), np.zeros(len(gram)), 1.0
    for _ in range(_ITERATIONS):
        gradient_step = extrapolated - step * 2 / people * (gram @ extrapolated - products)
        new_estimate = np.sign(gradient_step) * np.maximum(np.abs(gradient_step) - step * penalty, 0.0)
        new_weight = (1 + math.sqrt(1 + 4 * weight**2)) / 2
        change = new_estimate - estimate
        estimate, extrapolated, weight = new_estimate, new_estimate + (weight - 1) / new_weight * change, new_weight
        if np.abs(change).max() < _TOLERANCE:
            break
    return estimate


def _largest_eigenvalue(gram: Array) -> float:
    """Return the largest eigenvalue by power iteration, raised by 5 % since that comes from below."""
    vector = np.ones(len(gram))
    for _ in range(20):
        vector = gram @ vector
        vector /= np.linalg.norm(vector)
    return 1.05 * float(vector @ gram @ vector)  # the iteration comes from below


class LassoBandit(SparseBandit):
    """Greedy arms by the LASSO estimate, for one parameter of all arms (Oh, Iyengar and Zeevi 2021)."""

    def refit(self) -> None:
        """Estimate from everything so far."""
        t, d = self.people, self.problem.dimension
        penalty = PENALTY * math.sqrt((4 * math.log(t) + 2 * math.log(d)) / t)
        self.estimate = lasso(self.gram, self.products, t, penalty)


class ThresholdedLassoBandit(SparseBandit):
    """Least squares on coordinates that pass two thresholds (Ariu, Abe and Proutiere 2022, Algorithm 1)."""

    def refit(self) -> None:
        """Estimate from everything so far."""
        t, d = self.people, self.problem.dimension
        penalty = PENALTY * math.sqrt(2 * math.log(t) * math.log(d) / t)
        first_estimate = np.abs(lasso(self.gram, self.products, t, penalty))
        passes_first = first_estimate > 4 * penalty
        support = np.flatnonzero(passes_first & (first_estimate > 4 * penalty * math.sqrt(max(1, passes_first.sum()))))
        self.estimate = np.zeros(d)
        self.estimate[support] = np.linalg.lstsq(self.gram[np.ix_(support, support)], self.products[support])[0]


class Fliphat(SparseBandit):
    """FLIPHAT (Chakraborty, Roy and Basu 2024): noisy iterative hard thresholding on the last episode alone.

    Notes
    -----
    Privacy: (epsilon, delta)-joint differential privacy. A person is in one episode, of which all that is published is
    made by a few iterations, each of which selects coordinates and their values with Laplace noise (`_peel`).
    """

    dense: ClassVar[bool] = False

    def learn(self, rows: NDArray[np.float32], rewards: Array) -> None:
        """Store the episode's records: an episode is as long as all episodes before it."""
        self.people += len(rows)
        self._pending.append((rows, np.clip(rewards, -self.problem.reward, self.problem.reward)))

    def update_if_due(self) -> None:
        """Estimate from the episode if it ends now, and forget its data; within an episode change nothing."""
        if self.people & (self.people - 1):
            return
        rows, rewards = (np.concatenate(parts) for parts in zip(*self._pending, strict=True))
        self._pending = []
        self.estimate = self._threshold_iteratively(rows, rewards)

    def _threshold_iteratively(self, rows: NDArray[np.float32], rewards: Array) -> Array:
        """Return the estimate of N-IHT: gradient steps of size eta, peeled and clipped to the parameter's length."""
        problem, n = self.problem, len(rows)
        step = 1 / problem.variance
        # A person's gradient is at most reward + |x theta| in each coordinate; replaced, twice that.
        max_gradient = problem.reward + math.sqrt(problem.sparsity) * problem.length
        sensitivity = 2 * step * max_gradient / n
        estimate = np.zeros(problem.dimension)
        for _ in range(_N_THRESHOLDING_STEPS):
            gradient = rows.T @ (rows @ estimate - rewards) / n
            estimate = self._peel(estimate - step * gradient, sensitivity)
            estimate *= min(1.0, problem.length / max(float(np.linalg.norm(estimate)), 1e-12))
        return estimate

    def _peel(self, values: Array, sensitivity: float) -> Array:
        """Select the largest coordinates by peeling, and return them with noise (Dwork, Su and Zhang 2021)."""
        problem = self.problem
        epsilon, delta = problem.epsilon / _N_THRESHOLDING_STEPS, problem.delta / _N_THRESHOLDING_STEPS
        scale = sensitivity * 2 * math.sqrt(3 * problem.sparsity * math.log(1 / delta)) / epsilon
        magnitudes, selected = np.abs(values), np.zeros(len(values))
        for _ in range(problem.sparsity):
            index = int(np.argmax(magnitudes + self.rng.laplace(0, scale, len(magnitudes))))
            selected[index], magnitudes[index] = values[index] + self.rng.laplace(0, scale), -np.inf
        return selected
