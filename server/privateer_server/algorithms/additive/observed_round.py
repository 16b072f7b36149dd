"""What the sums of a round tell of terms, and the shares of questions that minimize the error of predictions."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import sposv

from privateer_core.algorithms.additive.cells import Cells, Questions
from privateer_core.algorithms.additive.policy import AdditivePolicy
from privateer_core.arrays import Array, Ints
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.feature_sums import FeatureSums
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.primitives.bounded_vectors import VectorSums
from privateer_core.primitives.contributions import CellHits
from privateer_core.primitives.public_coins import UNIT
from privateer_core.privacy.terms import Terms
from privateer_server.algorithms.additive.participant_shares import ArmShares

_MIN_DIVISOR: Final = 1e-9


@dataclass(frozen=True)
class PartSums:
    """Sums over all participants of a round."""

    sums: Array  # shape (arms, parts): of residuals
    counts: Array  # shape (arms or 1, parts): of people
    # noise, count_noise: shape (parts,): variances of noise in sums and counts, if everybody's report was noise;
    # infinite where nobody was asked
    noise: Array
    count_noise: Array
    # how likely the report of a person elsewhere is noise, and how much likelier that of a person of the part
    rates: tuple[float, float]
    # mean square of what the report of a person elsewhere adds to a sum, and how much larger that of one of the part
    # is, as far as ``noise`` does not say it
    value_rates: tuple[float, float]
    is_same_people: bool  # whether all sums are over the same people
    # shape (parts,): how often everybody who was asked counts, if residuals vary by more than ``noise`` says; else 0
    times: Array

    def variances(self, shares: Array, spreads: Array) -> Array:
        """Return the variance of noise in sums, (arms, parts), by shares and variances of people's residuals."""
        return self.noise * (self.value_rates[0] + self.value_rates[1] * shares) + self.times * spreads

    def count_variances(self, shares: Array, people: int) -> Array:
        """Return the variance of noise in the sum of counts over arms, (parts,), by the parts' shares of people."""
        noise = self.count_noise * (len(self.counts) * self.rates[0] + self.rates[1] * shares)
        return noise + np.maximum(self.times - 1, 0) * people * shares

    def select_parts(self, parts: Ints) -> "PartSums":
        """Return the sums of the selected parts."""
        columns = self.sums[:, parts], self.counts[:, parts], self.noise[parts], self.count_noise[parts]
        return PartSums(*columns, self.rates, self.value_rates, self.is_same_people, self.times[parts])

    @classmethod
    def from_release(cls, policy: AdditivePolicy, release: VectorSums | CellHits) -> "PartSums":
        """Return the sums of a release."""
        if policy.is_single_question:
            return cls._from_pairs(policy, cast(CellHits, release))
        if isinstance(release, CellHits):
            return cls._from_symbols(policy, release)
        return cls._from_features(policy, release)

    @classmethod
    def _from_features(cls, policy: AdditivePolicy, release: VectorSums) -> "PartSums":
        """Return the sums of records, in which everybody answers all questions."""
        mechanism, question_of_part = cast(FeatureSums, policy.terms.mechanism), policy.questions.question_of_part
        totals, arms = release.sums.reshape(-1, len(question_of_part)), len(policy.means)
        rows = []
        for scaled_sums, scales in ((totals[:arms], mechanism.value_scales), (totals[arms:], mechanism.count_scales)):
            part_scales = np.array(scales, np.float64)[question_of_part]
            divisors = np.maximum(part_scales, 1.0)
            noise = np.where(part_scales > 0, release.noise / divisors**2, np.inf)
            rows.append((scaled_sums / divisors, noise))
        (sums, noise), (counts, count_noise) = rows
        times = np.zeros(len(noise))
        return cls(sums, counts, noise, count_noise, (1.0, 0.0), (1.0, 0.0), is_same_people=True, times=times)

    @classmethod
    def _from_pairs(cls, policy: AdditivePolicy, release: CellHits) -> "PartSums":
        """Return the sums of hits by part and arm, in which each participant answers one question."""
        shape, shares = (-1, len(policy.means)), policy.shares[policy.questions.question_of_part]
        positive, hits = release.positive.reshape(shape).T, release.hits.reshape(shape).T
        with np.errstate(divide="ignore"):
            inverse_shares = np.where(shares > 0, 1 / shares, np.inf)
        scale = np.where(shares > 0, 1 / np.maximum(shares, _MIN_DIVISOR), 0.0)
        sums, counts = scale * (positive - policy.below * (hits - positive)), scale * hits
        noise = (1 + policy.below**2) * release.noise * inverse_shares**2, 2 * release.noise * inverse_shares**2
        return cls(sums, counts, *noise, (1.0, 0.0), (1.0, 0.0), is_same_people=False, times=scale)

    @classmethod
    def _from_symbols(cls, policy: AdditivePolicy, release: CellHits) -> "PartSums":
        """Return the sums of symbols, each of which names a key of one question."""
        questions, arms = policy.questions, len(policy.means)
        part_questions = questions.question_of_part
        part_offsets = np.arange(int(questions.starts[-1])) - questions.starts[part_questions]
        indices = part_offsets * arms + np.arange(arms)[:, None], part_questions
        trials = release.counts[0][part_questions].astype(np.float64)
        times = np.where(trials > 0, release.reports / np.maximum(trials, 1), 0.0)
        hit_own, hit_other = hit_rates(policy.terms)
        own_excess = hit_own - hit_other
        noise_scale = np.where(trials > 0, trials * times**2, np.inf)
        # A hit with value 1 counts for 1, and one with value 0 for -below: for the residuals that they say.
        below, positive, hits = policy.below, release.positive[indices], release.hits[indices]
        sums = positive - below * (hits - positive) - trials * hit_other * (1 - below) / 2
        sums *= times / release.gain
        noise = noise_scale / release.gain**2
        if own_excess <= 0:
            # One bucket has all keys: a hit says nothing of who is where.
            zeros, infinite = np.zeros_like(sums), np.full_like(noise_scale, np.inf)
            rates = (hit_other, 0.0), (hit_other, 0.0)
            return cls(sums, zeros, noise, infinite, *rates, is_same_people=False, times=np.zeros(len(noise)))
        counts = times * (hits - trials * hit_other) / own_excess
        # A share of below / (1 + below) of residuals with mean 0 have value 1, so that their mean square is below.
        value_rates = hit_other * (1 + below**2) / 2, own_excess * below
        rates = (hit_other, own_excess), value_rates
        return cls(
            sums, counts, noise, noise_scale / own_excess**2, *rates, is_same_people=False, times=np.zeros(len(noise))
        )


def hit_rates(terms: Terms) -> tuple[float, float]:
    """Return the probabilities that a report hits the participant's own key, and another key."""
    mechanism = terms.mechanism
    assert isinstance(mechanism, NamedSymbol)
    other_rate = 2 * mechanism.response.other
    own_rate = mechanism.response.gain + other_rate
    return own_rate, mechanism.collision_probability * own_rate + (1 - mechanism.collision_probability) * other_rate


def noise_variance(terms: Terms, below: float) -> float:
    """Return the variance of noise in a sum over all participants of a round, if its question was the only one."""
    mechanism = terms.mechanism
    if isinstance(mechanism, NamedSymbol):
        return terms.batch_size * hit_rates(terms)[1] * (1 + below**2) / 2 / mechanism.response.gain**2
    if isinstance(mechanism, CellPairs):
        return (1 + below**2) * mechanism.noise
    return cast(FeatureSums, mechanism).value_noise


_GROUP_CACHE_SIZE: Final = 64  # experiments whose groups are kept
_MIN_PEOPLE: Final = 1e-9


@dataclass(frozen=True)
class FeatureGroup:
    """Features with the same number of cells and of parts of questions."""

    # terms, parts: shapes (features, cells) and (features, parts): which they are among all
    terms: Ints
    parts: Ints
    matrix: Array  # shape (features, parts, cells): which cells each part has, 1 or 0


@lru_cache(_GROUP_CACHE_SIZE)
def group_features_by_shape(questions: Questions) -> tuple[FeatureGroup, ...]:
    """Group the features with equal numbers of terms and parts; the first group has the intercept alone."""
    members_by_shape: dict[tuple[int, int], list[tuple[Ints, Ints]]] = {}
    features = questions.feature_of_part
    for index in range(-1, len(questions.cells.features)):
        columns = questions.cells.feature_slice(index) if index >= 0 else slice(0, 1)
        terms, parts = np.arange(columns.start, columns.stop), np.flatnonzero(features == index)
        members_by_shape.setdefault((len(terms), len(parts)), []).append((terms, parts))
    groups = []
    for members in members_by_shape.values():
        terms, parts = (np.array(indices) for indices in zip(*members, strict=True))
        groups.append(FeatureGroup(terms, parts, questions.incidence_matrix[parts[:, :, None], terms[:, None]]))
    return tuple(groups)


@dataclass(frozen=True)
class FeatureProducts:
    """Sums of products of two terms over people of each arm in whom features are independent.

    They are B + s s^T / n, with s the people by term, n all people, and B apart by feature.
    """

    sums: Array  # shape (arms, terms): s
    people: Array  # shape (arms,): n

    @classmethod
    def from_weights(cls, questions: Questions, weighted: Array) -> "FeatureProducts":
        """Return the sums of participants (arms, terms) by arm and cell, rescaled to the intercept's by feature."""
        sums, n = weighted.copy(), np.maximum(weighted[:, 0], _MIN_PEOPLE)
        for group in group_features_by_shape(questions):
            weights = weighted[:, group.terms]
            sums[:, group.terms] = weights * (n[:, None] / np.maximum(weights.sum(axis=2), _MIN_PEOPLE))[:, :, None]
        return cls(sums, n)

    def statistics(self, questions: Questions, precisions: Array, means: Array, spread: Array) -> tuple[Array, Array]:
        """Return information (arms, terms, terms) and scores (arms, terms) of sums by part.

        With M the parts by term, A these sums of products and N the variances of noise, sums by part have the slopes
        M A and the covariance S = spread M A M^T + N. With P = M^T N^-1 M, A M^T S^-1 M A is A (1 + spread P A)^-1 P A.
        Both P and B are apart by feature: so is X = (1 + spread P B)^-1 P, and the rest has rank 2 (Woodbury).

        precisions (arms, parts): of noise in them.
        means (arms, parts): the sums.
        spread (arms,): variance of a person's residual, where all sums are over the same people; else 0.
        """
        n_arms, n_terms = self.sums.shape
        x_sums, mapped, scores, solutions = np.zeros((4, n_arms, n_terms))
        information = np.zeros((n_arms, n_terms, n_terms))
        for group, feature_sums, blocks in self._feature_blocks(questions):
            weighed = precisions[:, group.parts]
            precision = group.matrix.transpose(0, 2, 1) * weighed[:, :, None] @ group.matrix
            weighted_means = np.einsum("fpc,kfp->kfc", group.matrix, weighed * means[:, group.parts])
            inner = np.eye(feature_sums.shape[2]) + spread[:, None, None, None] * (precision @ blocks)
            solution = np.linalg.solve(inner, np.concatenate([precision, weighted_means[..., None]], axis=3))
            x, weighted = solution[..., :-1], solution[..., -1:]
            x_own = x @ feature_sums[..., None]
            x_sums[:, group.terms], mapped[:, group.terms] = x_own[..., 0], (blocks @ x_own)[..., 0]
            solutions[:, group.terms], scores[:, group.terms] = weighted[..., 0], (blocks @ weighted)[..., 0]
            information[:, group.terms[:, :, None], group.terms[:, None]] = blocks @ x @ blocks
        size, score_sum = (self.sums * x_sums).sum(axis=1), (self.sums * solutions).sum(axis=1)
        share = spread / self.people / (1 + spread / self.people * size)
        weighted_sums = mapped + self.sums * (size / self.people)[:, None]
        scores += self.sums * (score_sum / self.people)[:, None] - weighted_sums * (share * score_sum)[:, None]
        mixed, corner = (1 - share * size) / self.people, (size - share * size**2) / self.people**2
        middle = np.stack([np.stack([-share, mixed], axis=1), np.stack([mixed, corner], axis=1)], axis=1)
        sides = np.stack([mapped, self.sums], axis=2)
        information += sides @ middle @ sides.transpose(0, 2, 1)
        return (information + information.transpose(0, 2, 1)) / 2, scores

    def _feature_blocks(self, questions: Questions) -> Iterator[tuple[FeatureGroup, Array, Array]]:
        """Yield groups with s (arms, features, cells) and B (arms, features, cells, cells) of each."""
        for group in group_features_by_shape(questions):
            feature_sums = self.sums[:, group.terms]
            blocks = -feature_sums[..., None] * feature_sums[..., None, :] / self.people[:, None, None, None]
            cells = np.arange(feature_sums.shape[2])
            blocks[..., cells, cells] += feature_sums
            yield group, feature_sums, blocks


_EXACT_COUNT_VARIANCE: Final = 1e-3
"""Variance of a sum that has no noise, in people: a little, so that sums that follow from others do no harm."""
_TERM_CACHE_SIZE: Final = 64  # experiments whose terms are kept by feature


@dataclass(frozen=True)
class ObservedRound:
    """A round's sums of residuals."""

    people: int  # people of the round
    sums: Array  # shape (arms, parts): sums over all people, as estimated
    variances: Array  # shape (arms, parts): of noise in them; infinite where nobody was asked
    means: Array  # shape (arms, terms): the terms that residuals were measured from
    arms: ArmShares  # who got which arm
    has_joint_sums: bool  # whether all sums are over the same people, so that they vary together
    counts: Array  # shape (arms, terms): people by arm and cell, where they are known exactly; else empty

    def statistics(self, questions: Questions, masses: Array) -> tuple[Array, Array]:
        """Return information (arms, terms, terms) and scores (arms, terms) of the terms."""
        products = FeatureProducts.from_weights(questions, self._weighted(masses))
        precisions = 1 / np.maximum(self.variances, _EXACT_COUNT_VARIANCE)
        spread = self.arms.spread if self.has_joint_sums else np.zeros(len(self.sums))
        information, scores = products.statistics(questions, precisions, self.sums, spread)
        return information, scores + np.einsum("kij,kj->ki", information, self.means)

    def _weighted(self, masses: Array) -> Array:
        """Return how many people each arm has by cell, (arms, terms), by what their residuals are multiplied by.

        Features are taken as independent given the arm: what that leaves out later rounds measure again.
        """
        if self.counts.size:
            return self.counts * self.arms.weighted / np.maximum(self.arms.shares, 1e-9)
        return self.people * masses * self.arms.weighted


def independent_products(cells: Cells, weighted: Array) -> Array:
    """Return the sums (terms, terms) of products of two terms, by weighted participants (terms,) of one arm."""
    n_participants, feature = max(float(weighted[0]), 1e-9), _feature_numbers(cells)
    feature_totals = np.maximum(np.bincount(feature, weighted), 1e-9)
    scaled = weighted * (n_participants / feature_totals)[feature]
    scaled[0] = weighted[0]
    products = np.outer(scaled, scaled) / n_participants
    products[feature[:, None] == feature] = 0.0
    np.fill_diagonal(products, scaled)
    products[0, 0] = scaled[0] ** 2 / n_participants
    return np.asarray(products)


@lru_cache(_TERM_CACHE_SIZE)
def _feature_numbers(cells: Cells) -> Ints:
    """Return the number of each term's feature, from 1, and 0 for the intercept."""
    return np.repeat(np.arange(len(cells.features) + 1), np.diff(cells.starts, prepend=0))


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
    With T the rows of observations, w their shares and G = T F, the covariance after them is F (1 + G^T w G)^-1 F^T.
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
    shares = uniform
    products = independent_products(questions.cells, masses)
    root = np.linalg.cholesky(products + 1e-9 * np.eye(len(products)))
    rows, ends = [], []
    for arm_weights, factor in zip(weighted, factors, strict=True):
        observations = questions.incidence_matrix @ independent_products(questions.cells, arm_weights) / np.sqrt(noise)
        # Shares are not needed to more than a few digits, and half the precision takes half the time.
        rows.append((observations @ factor).astype(np.float32))
        ends.append((factor.T @ root).astype(np.float32))
    for _ in range(_N_DESIGN_STEPS):
        slopes = np.zeros(questions.count)
        weights = shares[questions.question_of_part, None].astype(np.float32)
        for row, end in zip(rows, ends, strict=True):
            inner = row.T @ (weights * row)
            np.fill_diagonal(inner, inner.diagonal() + 1)
            solution = row @ sposv(inner, end)[1]
            slopes += np.bincount(questions.question_of_part, np.square(solution).sum(axis=1), questions.count)
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
