"""Paper 3's PrivateLASSO as published, for comparison: its support step leaks and its constants drown it.

It exists in the lab only, and no spec can name it. Faults are kept: S_0 is not private, no sensitivity is stated for
the LASSO estimate, its thresholds are below 0 for epsilon 1 and above, its penalty is not divided by the people, an
'ln' is missing in the Wishart matrices' degrees of freedom, and whoever reported before a change of the support is
released again. Where the text leaves something open: lambda_0 is that of the LASSO bandits beside it, s-bar is 4 s_0,
and estimates change every 128 people, which are the leaves of the tree.
"""

import math
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.accounting.events import Approximate
from privateer_core.accounting.gaussian import gaussian_standard_deviation
from privateer_core.arrays import Array, Ints
from privateer_core.mechanisms.vectors.running_vectors import Factorization
from privateer_lab.audit.case import Case
from privateer_lab.audit.law import Scores
from privateer_lab.audit.views import attack_releases, model_for
from privateer_papers.paper_3.lasso_bandits import PENALTY, Problem, SparseBandit, lasso
from privateer_papers.published_trust import PUBLISHED

LEAF_SIZE: Final = 128
"""Number of participants of a leaf of the tree."""
_N_PARTICIPANTS: Final = 1024
_FEATURES: Final = 8
_PROBLEM: Final = Problem(_FEATURES, 3, 1.0, 1.0, 1 / _FEATURES, _N_PARTICIPANTS, 1.0, 1e-6)
_MIN_SAMPLES: Final = 4_000


def noise_scale(people: int, sparsity: int, epsilon: float, delta: float) -> float:
    """Return xi, by which Algorithm 2 scales the Laplace noise of estimates and thresholds."""
    episodes = math.ceil(math.log(people))
    log_term = math.log(2 * episodes / delta)
    episode_epsilon = epsilon / (2 * episodes * log_term) / math.sqrt(8 * _support_size(sparsity) * log_term)
    return math.sqrt(32 * log_term) / episode_epsilon


def _support_size(sparsity: int) -> int:
    """Return s-bar."""
    return 4 * sparsity


def select_support(estimate: Array, penalty: float, problem: Problem, rng: np.random.Generator) -> Ints:
    """Return S_1 (Algorithm 2, from line 3): coordinates that pass a threshold exactly, and then another with noise.

    estimate (d,): the LASSO estimate.
    penalty: lambda_t.
    """
    scale, size = (
        noise_scale(problem.people, problem.sparsity, problem.epsilon, problem.delta),
        _support_size(problem.sparsity),
    )
    logs = math.sqrt(math.log(problem.dimension) * math.log(problem.people))
    gamma = ((scale * math.log((1 - problem.delta) / problem.epsilon) - problem.length) / logs - 1) / math.sqrt(size)
    threshold, max_selected = 4 * penalty * gamma * math.sqrt(size), problem.sparsity + math.sqrt(size)
    candidates = np.flatnonzero(np.abs(estimate) > 4 * penalty)
    noisy = np.abs(estimate[candidates]) + rng.laplace(0, 2 * scale, len(candidates))
    selected = candidates[noisy > threshold + rng.laplace(0, scale, len(candidates))]
    return selected[: math.ceil(max_selected)]


class PrivateLasso(SparseBandit):
    """Algorithm 1: a support at powers of two, and ridge regression on it from the nodes of a binary tree.

    Notes
    -----
    Privacy: none. The nodes have what the paper states; S_0 tells what it selects from.
    """

    def __init__(self, problem: Problem, seed: int) -> None:
        super().__init__(problem, seed)
        self._support = np.zeros(0, np.int64)
        self._noise = np.zeros((0, 0))
        self._moments = np.zeros((1, 1))

    def learn(self, rows: NDArray[np.float32], rewards: Array) -> None:
        """Add records, and count the coordinates of the support."""
        super().learn(rows, rewards)
        records = np.concatenate([rows[:, self._support], rewards[:, None]], axis=1)
        self._moments = self._moments + records.T @ records

    def update_if_due(self) -> None:
        """Choose the support at powers of two, where a new tree begins; estimate at the ends of leaves."""
        if not self.people & (self.people - 1):
            self.add_pending_records()
            self._choose_support()
        if len(self._support) and self.people % LEAF_SIZE == 0:
            self.estimate = self._estimate_coefficients()

    def _choose_support(self) -> None:
        """Select the support again; if it changes, restart its noise, moments and estimate."""
        t, problem = self.people, self.problem
        penalty = PENALTY * math.sqrt(2 * math.log(t) * math.log(problem.dimension) / t)
        support = select_support(lasso(self.gram, self.products, t, penalty / t), penalty, problem, self.rng)
        if support.tolist() != self._support.tolist():
            self._support, self._noise = support, np.zeros((0, 0))
            products = self.products[support][:, None]
            self._moments = np.block([[self.gram[np.ix_(support, support)], products], [products.T, np.zeros((1, 1))]])
            self.estimate = np.zeros(problem.dimension)

    def _estimate_coefficients(self) -> Array:
        """Return the estimate of noisy second moments and products, shortened to the parameter's length."""
        support, problem = self._support, self.problem
        noisy = self._moments + self._draw_prefix_noise(self.people // LEAF_SIZE)
        coefficients = np.linalg.lstsq(noisy[:-1, :-1], noisy[:-1, -1])[0]
        coefficients *= min(1.0, problem.length / max(float(np.linalg.norm(coefficients)), 1e-12))
        estimate = np.zeros(problem.dimension)
        estimate[support] = coefficients
        return estimate

    @cached_property
    def _tree(self) -> Factorization:
        return Factorization("tree", -(-self.problem.people // LEAF_SIZE))

    def _draw_prefix_noise(self, leaves: int) -> Array:
        """Return the noise of the sum of the first leaves: the sum of the noise of its nodes, each drawn once."""
        size = len(self._support) + 1
        if not len(self._noise):
            self._noise = np.zeros((0, size * size))
        while len(self._noise) < leaves:
            node = self._draw_node_noise(size).ravel()
            row = self._tree.row(len(self._noise) + 1)[:-1]
            self._noise = np.vstack([self._noise, node - row @ self._noise])
        return np.asarray(self._noise.sum(axis=0).reshape(size, size))

    def _draw_node_noise(self, side: int) -> Array:
        """Draw a node's Wishart matrix, (side, side): k = d ln(8d/delta) (2/delta)/epsilon^2 degrees of freedom."""
        problem = self.problem
        log = math.log(8 * problem.dimension / problem.delta)
        degrees = problem.dimension * log * 2 / problem.delta / problem.epsilon**2
        lower = np.tril(self.rng.normal(size=(side, side)), -1)
        lower[np.diag_indices(side)] = np.sqrt(self.rng.chisquare(degrees - np.arange(side)))
        squares = side - 1 + problem.reward**2
        return np.asarray(squares * lower @ lower.T)


class GaussianTree(PrivateLasso):
    """PrivateLASSO with normal noise in the nodes, composed exactly.

    Notes
    -----
    Privacy: the tree of one support is (epsilon, delta)-private, with empty nodes to complete it. The support is not
    private.
    """

    @cached_property
    def _deviation(self) -> float:
        """The standard deviation of a node's noise that keeps the promise."""
        problem = self.problem
        return gaussian_standard_deviation(
            problem.epsilon, problem.delta, self._tree.sensitivity(2 * problem.reward, 0)
        )

    def _draw_node_noise(self, side: int) -> Array:
        """Draw a node's noise, a symmetric (side, side) matrix: moments scaled to reward / sqrt 2 of the products."""
        length, reward, deviation = math.sqrt(side - 1), self.problem.reward, self._deviation
        off_diagonal = np.triu(self.rng.normal(0, deviation / math.sqrt(2), (side, side)), 1)
        node = off_diagonal + off_diagonal.T + np.diag(self.rng.normal(0, deviation, side))
        node *= length**2 * math.sqrt(2) / reward
        node[:-1, -1] = node[-1, :-1] = self.rng.normal(0, deviation, side - 1) * length
        return np.asarray(node)


def cases(samples: int, flips: bool = True) -> list[Case]:
    """Return an attack on S_1 at its paper's promise; the person's reward is 1 or -1.

    The claim is unsafe where S_0 flips: no noise is in S_0, so that nothing covers it.

    flips: whether the person's coordinate is a candidate (in S_0) in one case alone; otherwise it is one in both.
    """
    name = "a candidate or none" if flips else "a candidate either way"

    def sample(case: int, count: int) -> Scores:
        penalty = PENALTY * math.sqrt(2 * math.log(_N_PARTICIPANTS) * math.log(_FEATURES) / _N_PARTICIPANTS)
        estimate = _lasso_estimate(penalty, 1 - 2 * case, 1.0 if flips else 1.5)
        rng = np.random.default_rng([count, case])
        return np.array([0 in select_support(estimate, penalty, _PROBLEM, rng) for _ in range(count)], np.float64)

    promise = (_PROBLEM.epsilon, _PROBLEM.delta)
    model, runs = model_for(attack_releases), max(_MIN_SAMPLES, samples // 20)
    return [
        Case(
            name, "paper-3-privatelasso", model, PUBLISHED, *promise, Approximate(*promise), sample, runs, unsafe=flips
        )
    ]


def _lasso_estimate(penalty: float, reward: float, threshold_factor: float) -> Scores:
    """Return the LASSO estimate, (features,), of 128 participants with each coordinate, and one target participant.

    All others make the target's coordinate ``threshold_factor`` times the threshold of candidates; the rest are 0.
    """
    n_per_coordinate = _N_PARTICIPANTS // _FEATURES
    products = np.zeros(_FEATURES)
    products[0] = 4 * penalty * threshold_factor * n_per_coordinate + reward
    return lasso(n_per_coordinate * np.eye(_FEATURES), products, _N_PARTICIPANTS, penalty / _N_PARTICIPANTS)
