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
from privateer_core.mechanisms.vectors.running_vectors import Factorization
from privateer_lab.audit.case import Case
from privateer_lab.audit.lower_bounds import Scores
from privateer_lab.audit.views import model_of, releases
from privateer_papers.paper_3.lasso_bandits import PENALTY, Peer, Problem, lasso
from privateer_papers.published_trust import PUBLISHED

Array = NDArray[np.float64]
LEAF: Final = 128
"""People of a leaf of the tree."""
_PEOPLE: Final = 1024
_FEATURES: Final = 8
_PROBLEM: Final = Problem(_FEATURES, 3, 1.0, 1.0, 1 / _FEATURES, _PEOPLE, 1.0, 1e-6)
_LEAST: Final = 4_000


def noise_scale(people: int, sparsity: int, epsilon: float, delta: float) -> float:
    """Return xi, by which Algorithm 2 scales the Laplace noise of estimates and thresholds."""
    episodes = math.ceil(math.log(people))
    log = math.log(2 * episodes / delta)
    own = epsilon / (2 * episodes * log) / math.sqrt(8 * _most(sparsity) * log)
    return math.sqrt(32 * log) / own


def _most(sparsity: int) -> int:
    """Return s-bar."""
    return 4 * sparsity


def support(estimate: Array, penalty: float, problem: Problem, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return S_1 (Algorithm 2, from line 3): coordinates that pass a threshold exactly, and then another with noise.

    estimate (d,): the LASSO estimate.
    penalty: lambda_t.
    """
    scale, most = noise_scale(problem.people, problem.sparsity, problem.epsilon, problem.delta), _most(problem.sparsity)
    logs = math.sqrt(math.log(problem.dimension) * math.log(problem.people))
    gamma = ((scale * math.log((1 - problem.delta) / problem.epsilon) - problem.length) / logs - 1) / math.sqrt(most)
    limit, enough = 4 * penalty * gamma * math.sqrt(most), problem.sparsity + math.sqrt(most)
    candidates = np.flatnonzero(np.abs(estimate) > 4 * penalty)
    noisy = np.abs(estimate[candidates]) + rng.laplace(0, 2 * scale, len(candidates))
    passed = candidates[noisy > limit + rng.laplace(0, scale, len(candidates))]
    return passed[: math.ceil(enough)]


class PrivateLasso(Peer):
    """Algorithm 1: a support at powers of two, and ridge regression on it from the nodes of a binary tree.

    Notes
    -----
    Privacy: none. The nodes have what the paper states; S_0 tells what it selects from.
    """

    def __init__(self, problem: Problem, seed: int) -> None:
        super().__init__(problem, seed)
        self._support = np.zeros(0, np.int64)
        self._noise = np.zeros((0, 0))
        self._own = np.zeros((1, 1))

    def learn(self, rows: NDArray[np.float32], rewards: Array) -> None:
        """Take records, and count those of the support."""
        super().learn(rows, rewards)
        own = np.concatenate([rows[:, self._support], rewards[:, None]], axis=1)
        self._own = self._own + own.T @ own

    def update(self) -> None:
        """Choose the support at powers of two, where a new tree begins; estimate at the ends of leaves."""
        if not self.people & (self.people - 1):
            self.count()
            self._choose_support()
        if len(self._support) and self.people % LEAF == 0:
            self.estimate = self._regression()

    def _choose_support(self) -> None:
        t, problem = self.people, self.problem
        penalty = PENALTY * math.sqrt(2 * math.log(t) * math.log(problem.dimension) / t)
        chosen = support(lasso(self.gram, self.products, t, penalty / t), penalty, problem, self.rng)
        if chosen.tolist() != self._support.tolist():
            self._support, self._noise = chosen, np.zeros((0, 0))
            products = self.products[chosen][:, None]
            self._own = np.block([[self.gram[np.ix_(chosen, chosen)], products], [products.T, np.zeros((1, 1))]])
            self.estimate = np.zeros(problem.dimension)

    def _regression(self) -> Array:
        """Return the estimate of noisy second moments and products, shortened to the parameter's length."""
        chosen, problem = self._support, self.problem
        noisy = self._own + self._prefix(self.people // LEAF)
        own = np.linalg.lstsq(noisy[:-1, :-1], noisy[:-1, -1])[0]
        own *= min(1.0, problem.length / max(float(np.linalg.norm(own)), 1e-12))
        found = np.zeros(problem.dimension)
        found[chosen] = own
        return found

    @cached_property
    def _tree(self) -> Factorization:
        return Factorization("tree", -(-self.problem.people // LEAF))

    def _prefix(self, leaves: int) -> Array:
        """Return the noise of the first leaves' sum: that of the nodes that make it up, each drawn once."""
        size = len(self._support) + 1
        if not len(self._noise):
            self._noise = np.zeros((0, size * size))
        while len(self._noise) < leaves:
            fresh = self._node(size).ravel()
            row = self._tree.row(len(self._noise) + 1)[:-1]
            self._noise = np.vstack([self._noise, fresh - row @ self._noise])
        return np.asarray(self._noise.sum(axis=0).reshape(size, size))

    def _node(self, size: int) -> Array:
        """Draw the Wishart matrix of a node: k = d ln(8d/delta) (2/delta)/epsilon^2 degrees, on (context, reward)."""
        problem = self.problem
        log = math.log(8 * problem.dimension / problem.delta)
        degrees = problem.dimension * log * 2 / problem.delta / problem.epsilon**2
        lower = np.tril(self.rng.normal(size=(size, size)), -1)
        lower[np.diag_indices(size)] = np.sqrt(self.rng.chisquare(degrees - np.arange(size)))
        squares = size - 1 + problem.reward**2
        return np.asarray(squares * lower @ lower.T)


class GaussianTree(PrivateLasso):
    """The same with normal noise in the nodes, composed exactly: what is left of PrivateLASSO with a tight tree.

    Notes
    -----
    Privacy: the tree of one support is (epsilon, delta)-private, with nodes of people who are not there to complete it.
    The support is none.
    """

    @cached_property
    def _deviation(self) -> float:
        problem = self.problem
        return gaussian_standard_deviation(problem.epsilon, problem.delta, self._tree.shift(2 * problem.reward, 0))

    def _node(self, size: int) -> Array:
        """Draw symmetric noise: second moments are scaled to reward / sqrt 2 of the products."""
        length, reward, deviation = math.sqrt(size - 1), self.problem.reward, self._deviation
        off = np.triu(self.rng.normal(0, deviation / math.sqrt(2), (size, size)), 1)
        node = off + off.T + np.diag(self.rng.normal(0, deviation, size))
        node *= length**2 * math.sqrt(2) / reward
        node[:-1, -1] = node[-1, :-1] = self.rng.normal(0, deviation, size - 1) * length
        return np.asarray(node)


def cases(samples: int, flips: bool = True) -> list[Case]:
    """Return an attack on S_1 at its paper's promise; the person's reward is 1 or -1.

    The claim is unsafe where S_0 flips: no noise is in S_0, so that nothing covers it.

    flips: whether the person's coordinate is a candidate (in S_0) in one case alone; otherwise it is one in both.
    """
    name = "a candidate or none" if flips else "a candidate either way"

    def sample(who: int, count: int) -> Scores:
        penalty = PENALTY * math.sqrt(2 * math.log(_PEOPLE) * math.log(_FEATURES) / _PEOPLE)
        estimate = _estimate(penalty, 1 - 2 * who, 1.0 if flips else 1.5)
        rng = np.random.default_rng([count, who])
        return np.array([0 in support(estimate, penalty, _PROBLEM, rng) for _ in range(count)], np.float64)

    promise = (_PROBLEM.epsilon, _PROBLEM.delta)
    model, count = model_of(releases), max(_LEAST, samples // 20)
    return [
        Case(
            name, "paper-3-privatelasso", model, PUBLISHED, *promise, Approximate(*promise), sample, count, unsafe=flips
        )
    ]


def _estimate(penalty: float, reward: float, level: float) -> Scores:
    """Return the LASSO estimate, (features,), where 128 people have each coordinate, and rewards of that of the person.

    Those of everybody else make the person's coordinate ``level`` times the threshold of candidates; the others are 0.
    """
    each = _PEOPLE // _FEATURES
    products = np.zeros(_FEATURES)
    products[0] = 4 * penalty * level * each + reward
    return lasso(each * np.eye(_FEATURES), products, _PEOPLE, penalty / _PEOPLE)
