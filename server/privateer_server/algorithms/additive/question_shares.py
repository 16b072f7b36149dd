"""The shares of questions that minimize the error of predictions."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.additive.cells import Questions
from privateer_core.arrays import Array, Ints
from privateer_core.primitives.public_coins import UNIT
from privateer_server.algorithms.additive.feature_products import (
    FeatureProducts,
    independent_products,
    sum_information,
)

_N_DESIGN_STEPS: Final = 8
_EVEN_SHARE: Final = 0.3  # share of people who are asked evenly, feature by feature, whatever is known


def even_shares(questions: Questions) -> Array:
    """Return shares (questions,) that are equal for all features, and for all questions about a feature."""
    features = np.array([feature for feature, _ in questions.partitions])
    _, feature_indices, n_questions = np.unique(features, return_inverse=True, return_counts=True)
    return np.asarray(1 / (len(n_questions) * n_questions[feature_indices]))


@dataclass(frozen=True)
class SeparateTerms:
    """Independent terms that have one question each."""

    questions: Ints  # shape (terms,): the question of each, numbered after all others
    variances: Array  # shape (arms, terms): what is not known of them
    weighted: Array  # shape (arms, terms): people who will report, times what their residuals are multiplied by
    masses: Array  # shape (terms,): shares of people

    @property
    def count(self) -> int:
        """The number of questions."""
        return int(self.questions.max(initial=-1)) + 1

    def variance_reductions(self, shares: Array, noise: float) -> Array:
        """Return the derivative of the variance of expected rewards by each question's share, (questions,), negated."""
        information = self.weighted**2 / noise
        posterior_variances = self.variances / (1 + information * shares[self.questions] * self.variances)
        reductions = (information * posterior_variances**2 * self.masses).sum(axis=0)
        return np.asarray(np.bincount(self.questions, reductions, self.count), np.float64)


def optimal_question_shares(
    questions: Questions, factors: Array, weighted: Array, noise: float, masses: Array, separate_terms: SeparateTerms
) -> Array:
    """Return the shares of questions, then of long features, that minimize the mean variance of expected rewards.

    A-optimal design by multiplicative steps (Silvey, Titterington and Torsney 1978): information is linear in shares.
    Some even shares are mixed in.

    factors (arms, terms, terms): with F F^T the covariance of an arm's terms.
    weighted (arms, terms): people who will report, times what their residuals are multiplied by.
    noise: variance of noise in a sum, if its question was the only one.
    masses (terms,): shares of participants by cell.
    separate_terms: terms of long features.
    """
    features = 1 + len(questions.cells.features) + separate_terms.count
    uniform = np.full(questions.count + separate_terms.count, 1 / features)
    uniform[: questions.count] = even_shares(questions) * (features - separate_terms.count) / features
    shares, products = uniform, FeatureProducts.from_weights(questions, weighted)
    known = np.linalg.inv(factors @ factors.transpose(0, 2, 1))
    no_sums, one_each = np.zeros((len(weighted), int(questions.starts[-1]))), np.ones((1, 1))
    for _ in range(_N_DESIGN_STEPS):
        precisions = no_sums + shares[questions.question_of_part] / noise
        added, _ = products.statistics(questions, precisions, no_sums, np.zeros(len(weighted)))
        covariances = np.linalg.inv(known + sum_information(questions, [added], one_each)[0])
        reductions = products.variance_reductions(questions, covariances, masses).sum(axis=0) / noise
        slopes = np.bincount(questions.question_of_part, reductions, questions.count)
        slopes = np.append(slopes, separate_terms.variance_reductions(shares[questions.count :], noise))
        if not slopes.any():
            return uniform
        shares = shares * np.sqrt(slopes)
        shares /= shares.sum()
    return (1 - _EVEN_SHARE) * shares + _EVEN_SHARE * uniform


def best_questions(
    questions: Questions, factors: Array, weighted: Array, noise: float, spread: Array, masses: Array, share: float
) -> Ints:
    """Return the question of each feature that minimizes the variance of expected rewards.

    Everybody answers one question, and an answer of few people has as much noise as one of many: so a feature is asked
    about in one way. Merged cells tell more while little is known.

    noise: variance of noise in a sum over the people who are asked.
    spread (arms,): variance of a person's residual, over what it is multiplied by.
    share: that of people who are asked about a feature; others are those of `optimal_question_shares`.
    """
    root = np.linalg.cholesky(independent_products(questions.cells, masses) + 1e-9 * np.eye(len(masses)))
    losses = np.zeros(questions.count)
    for arm_weights, factor, residual_variance in zip(share * weighted, factors, spread, strict=True):
        slopes, end = independent_products(questions.cells, arm_weights) @ factor, factor.T @ root
        deviations = np.sqrt(noise + residual_variance * questions.incidence_matrix @ arm_weights)
        observations = (questions.incidence_matrix @ slopes) / deviations[:, None]
        for question, (start, stop) in enumerate(pairwise(questions.starts.tolist())):
            row = observations[start:stop]
            solution = np.linalg.solve(row @ row.T + np.eye(stop - start), row @ end)
            losses[question] -= float(((row @ end) * solution).sum())
    features = np.array([feature for feature, _ in questions.partitions])
    questions_by_feature = [np.flatnonzero(features == feature) for feature in range(len(questions.cells.features))]
    return np.array([candidates[losses[candidates].argmin()] for candidates in questions_by_feature], np.int64)


def compute_edges(shares: Array) -> NDArray[np.uint32]:
    """Return where the share of each question but the last ends among coins, (questions - 1,)."""
    return np.minimum(np.rint(np.cumsum(shares)[:-1] * UNIT), UNIT).astype(np.uint32)
