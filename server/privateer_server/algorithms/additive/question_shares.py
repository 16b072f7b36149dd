"""How often each question is asked: so that the next round leaves least doubt about rewards."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import sposv

from privateer_core.algorithms.additive.cells import Questions
from privateer_core.primitives.public_coins import UNIT
from privateer_server.algorithms.additive.observed_round import independent

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
_STEPS: Final = 8
_EVEN: Final = 0.3
"""Share of people who are asked evenly, feature by feature, whatever is known."""


def even(questions: Questions) -> Array:
    """Return shares (questions,) that are the same for all features, and for all questions about one."""
    features = np.array([place for place, _ in questions.parts])
    _, places, times = np.unique(features, return_inverse=True, return_counts=True)
    return np.asarray(1 / (len(times) * times[places]))


@dataclass(frozen=True)
class ApartTerms:
    """Terms that stand for themselves, each of which one question is about."""

    questions: NDArray[np.int64]  # shape (terms,): the question of each, numbered after all others
    variances: Array  # shape (arms, terms): what is not known of them
    weighted: Array  # shape (arms, terms): people who will report, times what their residuals are multiplied by
    masses: Array  # shape (terms,): shares of people

    @property
    def count(self) -> int:
        """How many questions there are."""
        return int(self.questions.max(initial=-1)) + 1

    def doubts(self, shares: Array, noise: float) -> Array:
        """Return by how much each question's share lowers the variance of expected rewards, (questions,)."""
        told = self.weighted**2 / noise
        after = self.variances / (1 + told * shares[self.questions] * self.variances)
        found = (told * after**2 * self.masses).sum(axis=0)
        return np.asarray(np.bincount(self.questions, found, self.count), np.float64)


def least_doubt(
    questions: Questions, factors: Array, weighted: Array, noise: float, masses: Array, apart: ApartTerms
) -> Array:
    """Return the shares (questions,) after which the variance of expected rewards is least, on average over people.

    A-optimal design by multiplicative steps (Silvey, Titterington and Torsney 1978): information is linear in shares.
    With T the rows of observations, w their shares and G = T F, the covariance after them is F (1 + G^T w G)^-1 F^T.

    factors (arms, terms, terms): with F F^T the covariance of an arm's terms.
    weighted (arms, terms): people who will report, times what their residuals are multiplied by.
    noise: variance of noise in a sum, if its question was the only one.
    masses (terms,): shares of people by cell.
    apart: terms of long features, whose questions come last in what is returned.
    """
    features = 1 + len(questions.cells.features) + apart.count
    alike = np.full(questions.count + apart.count, 1 / features)
    alike[: questions.count] = even(questions) * (features - apart.count) / features
    found = alike
    people = independent(questions.cells, masses)
    root = np.linalg.cholesky(people + 1e-9 * np.eye(len(people)))
    rows, ends = [], []
    for own, factor in zip(weighted, factors, strict=True):
        told = questions.matrix @ independent(questions.cells, own) / np.sqrt(noise)
        # Shares are not needed to more than a few digits, and half the precision takes half the time.
        rows.append((told @ factor).astype(np.float32))
        ends.append((factor.T @ root).astype(np.float32))
    for _ in range(_STEPS):
        slopes, own = np.zeros(questions.count), found[: questions.count][questions.of_part, None].astype(np.float32)
        for row, end in zip(rows, ends, strict=True):
            inner = row.T @ (own * row)
            np.fill_diagonal(inner, inner.diagonal() + 1)
            after = row @ sposv(inner, end)[1]
            slopes += np.bincount(questions.of_part, np.square(after).sum(axis=1), questions.count)
        slopes = np.append(slopes, apart.doubts(found[questions.count :], noise))
        if not slopes.any():
            return alike
        found = found * np.sqrt(slopes)
        found /= found.sum()
    return (1 - _EVEN) * found + _EVEN * alike


def one_each(
    questions: Questions, factors: Array, weighted: Array, noise: float, spread: Array, masses: Array, share: float
) -> Ints:
    """Return of each feature the question after which the variance of expected rewards is least.

    Everybody answers one question, and an answer of few people has as much noise as one of many: so a feature is asked
    about in one way. Merged cells tell more while little is known.

    noise: variance of noise in a sum over the people who are asked.
    spread (arms,): variance of a person's residual, over what it is multiplied by.
    share: that of people who are asked about a feature.
    Others are those of `least_doubt`.
    """
    root = np.linalg.cholesky(independent(questions.cells, masses) + 1e-9 * np.eye(len(masses)))
    doubts = np.zeros(questions.count)
    for own, factor, each in zip(share * weighted, factors, spread, strict=True):
        slopes, end = independent(questions.cells, own) @ factor, factor.T @ root
        deviations = np.sqrt(noise + each * questions.matrix @ own)
        told = (questions.matrix @ slopes) / deviations[:, None]
        for question, (start, stop) in enumerate(pairwise(questions.starts.tolist())):
            row = told[start:stop]
            seen = np.linalg.solve(row @ row.T + np.eye(stop - start), row @ end)
            doubts[question] -= float(((row @ end) * seen).sum())
    features = np.array([place for place, _ in questions.parts])
    found = [np.flatnonzero(features == place) for place in range(len(questions.cells.features))]
    return np.array([some[doubts[some].argmin()] for some in found], np.int64)


def edges_of(shares: Array) -> NDArray[np.uint32]:
    """Return where the share of each question but the last ends among coins, (questions - 1,)."""
    return np.minimum(np.rint(np.cumsum(shares)[:-1] * UNIT), UNIT).astype(np.uint32)
