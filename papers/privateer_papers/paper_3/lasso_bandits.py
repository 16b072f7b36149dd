"""Sparse linear bandits of others, on the problem of paper 3: two LASSO bandits without privacy, and FLIPHAT."""

import math
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_HELD: Final = 32
"""Parts of records that are held until they are counted."""
_ITERATIONS: Final = 400
_ACCURATE: Final = 1e-6
"""A LASSO estimate that moves no more than this, in any coordinate, is final."""
_STEPS: Final = 2
"""FLIPHAT's iterations: of 2, 3, 5 and 10 the best on the problem of `examples/sparse.toml`."""
PENALTY: Final = 0.05
"""lambda_0 of all LASSO estimates: between what is best for the two LASSO bandits."""


@dataclass(frozen=True)
class Problem:
    """The parameters of the problem, which everybody knows."""

    dimension: int  # d, coordinates of a context; each is in [-1, 1]
    sparsity: int  # s_0, coordinates of the parameter that may differ from 0
    reward: float  # largest absolute reward
    length: float  # largest L2 length of the parameter
    variance: float  # mean square of a coordinate of a context
    people: int  # T
    # the promise of joint differential privacy, for whom it concerns
    epsilon: float
    delta: float


class Peer:
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
        self._held: list[tuple[NDArray[np.float32], Array]] = []

    def choose(self, contexts: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return arms (n,) of people with contexts (n, arms, d)."""
        known = np.flatnonzero(self.estimate)
        if not len(known):
            return self.rng.integers(0, contexts.shape[1], len(contexts))
        return np.asarray((contexts[:, :, known] @ self.estimate[known]).argmax(axis=1))

    def learn(self, rows: NDArray[np.float32], rewards: Array) -> None:
        """Take the contexts (n, d) of the arms played, and rewards (n,)."""
        self.people += len(rows)
        self._held.append((rows, rewards))
        if len(self._held) >= _HELD:
            self.count()

    def count(self) -> None:
        """Count what is held into ``gram`` and ``products``: a large matrix changes fast only in many rows at once."""
        if self._held:
            rows, rewards = (np.concatenate(parts) for parts in zip(*self._held, strict=True))
            self._held = []
            self.gram += rows.T @ rows
            self.products += rewards @ rows

    def update(self) -> None:
        """Estimate anew, if it is time: after 64, 96, 128, 192, ... people."""
        t = self.people
        if t >= 64 and (t & (t - 1) == 0 or (t % 3 == 0 and (t // 3) & (t // 3 - 1) == 0)):
            self.count()
            self.refit()

    def refit(self) -> None:
        """Estimate anew."""
        raise NotImplementedError


def lasso(gram: Array, products: Array, people: float, penalty: float) -> Array:
    """Return the minimizer (d,) of |Y - Z theta|^2 / people + penalty |theta|_1, by accelerated proximal descent.

    gram, products: Z^T Z, shape (d, d), and Z^T Y, shape (d,).
    """
    step = people / (2 * max(_largest_eigenvalue(gram), 1e-12))
    found, ahead, weight = np.zeros(len(gram)), np.zeros(len(gram)), 1.0
    for _ in range(_ITERATIONS):
        moved = ahead - step * 2 / people * (gram @ ahead - products)
        following = np.sign(moved) * np.maximum(np.abs(moved) - step * penalty, 0.0)
        larger = (1 + math.sqrt(1 + 4 * weight**2)) / 2
        change = following - found
        found, ahead, weight = following, following + (weight - 1) / larger * change, larger
        if np.abs(change).max() < _ACCURATE:
            break
    return found


def _largest_eigenvalue(gram: Array) -> float:
    vector = np.ones(len(gram))
    for _ in range(20):
        vector = gram @ vector
        vector /= np.linalg.norm(vector)
    return 1.05 * float(vector @ gram @ vector)  # the iteration comes from below


class LassoBandit(Peer):
    """Greedy arms by the LASSO estimate, for one parameter of all arms (Oh, Iyengar and Zeevi 2021)."""

    def refit(self) -> None:
        """Estimate from everything so far."""
        t, d = self.people, self.problem.dimension
        penalty = PENALTY * math.sqrt((4 * math.log(t) + 2 * math.log(d)) / t)
        self.estimate = lasso(self.gram, self.products, t, penalty)


class ThresholdedLassoBandit(Peer):
    """Least squares on coordinates that pass two thresholds (Ariu, Abe and Proutiere 2022, Algorithm 1)."""

    def refit(self) -> None:
        """Estimate from everything so far."""
        t, d = self.people, self.problem.dimension
        penalty = PENALTY * math.sqrt(2 * math.log(t) * math.log(d) / t)
        first = np.abs(lasso(self.gram, self.products, t, penalty))
        kept = first > 4 * penalty
        chosen = np.flatnonzero(kept & (first > 4 * penalty * math.sqrt(max(1, kept.sum()))))
        self.estimate = np.zeros(d)
        self.estimate[chosen] = np.linalg.lstsq(self.gram[np.ix_(chosen, chosen)], self.products[chosen])[0]


class Fliphat(Peer):
    """FLIPHAT (Chakraborty, Roy and Basu 2024): noisy iterative hard thresholding on the last episode alone.

    Notes
    -----
    Privacy: (epsilon, delta)-joint differential privacy. A person is in one episode, of which all that is published is
    made by a few iterations, each of which selects coordinates and their values with Laplace noise (``peeled``).
    """

    dense: ClassVar[bool] = False

    def learn(self, rows: NDArray[np.float32], rewards: Array) -> None:
        """Keep the episode's records: an episode is over when as many have come as before it."""
        self.people += len(rows)
        self._held.append((rows, np.clip(rewards, -self.problem.reward, self.problem.reward)))

    def update(self) -> None:
        """Estimate from the episode that ends, and forget it; within an episode nothing changes."""
        if self.people & (self.people - 1):
            return
        rows, rewards = (np.concatenate(parts) for parts in zip(*self._held, strict=True))
        self._held = []
        self.estimate = self._thresholded(rows, rewards)

    def _thresholded(self, rows: NDArray[np.float32], rewards: Array) -> Array:
        """N-IHT: gradient steps of size eta, each peeled, and shortened to the parameter's length."""
        problem, n = self.problem, len(rows)
        step = 1 / problem.variance
        # A person's gradient is at most reward + |x theta| in each coordinate; replaced, twice that.
        largest = problem.reward + math.sqrt(problem.sparsity) * problem.length
        sensitivity = 2 * step * largest / n
        found = np.zeros(problem.dimension)
        for _ in range(_STEPS):
            gradient = rows.T @ (rows @ found - rewards) / n
            found = self._peeled(found - step * gradient, sensitivity)
            found *= min(1.0, problem.length / max(float(np.linalg.norm(found)), 1e-12))
        return found

    def _peeled(self, values: Array, sensitivity: float) -> Array:
        """Select the largest coordinates one by one, and return them with noise (Dwork, Su and Zhang 2021)."""
        problem = self.problem
        epsilon, delta = problem.epsilon / _STEPS, problem.delta / _STEPS
        scale = sensitivity * 2 * math.sqrt(3 * problem.sparsity * math.log(1 / delta)) / epsilon
        left, kept = np.abs(values), np.zeros(len(values))
        for _ in range(problem.sparsity):
            chosen = int(np.argmax(left + self.rng.laplace(0, scale, len(left))))
            kept[chosen], left[chosen] = values[chosen] + self.rng.laplace(0, scale), -np.inf
        return kept
