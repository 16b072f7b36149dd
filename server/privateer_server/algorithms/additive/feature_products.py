"""Sums of products of two terms over people in whom features are independent: apart by feature, but for a low rank."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from privateer_core.algorithms.additive.cells import Cells, Questions
from privateer_core.arrays import Array, Ints

_GROUP_CACHE_SIZE: Final = 64  # experiments whose groups are kept
_TERM_CACHE_SIZE: Final = 64  # experiments whose terms are kept by feature
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
class RoundInformation:
    """The information of a round: apart by feature, and a rest of rank 2."""

    blocks: tuple[Array, ...]  # of each group of features, (arms, features, cells, cells)
    # sides, middle: shapes (arms, terms, 2) and (arms, 2, 2): the rest is sides middle sides^T
    sides: Array
    middle: Array

    def multiply(self, questions: Questions, vectors: Array) -> Array:
        """Return the product with vectors (arms, terms)."""
        products = (self.sides @ (self.middle @ (self.sides.transpose(0, 2, 1) @ vectors[:, :, None])))[:, :, 0]
        for group, blocks in zip(group_features_by_shape(questions), self.blocks, strict=True):
            products[:, group.terms] += (blocks @ vectors[:, group.terms, None])[..., 0]
        return np.asarray(products)


def sum_information(questions: Questions, rounds: Sequence[RoundInformation], weights: Array) -> Array:
    """Return the weighted sums (sums, arms, terms, terms) of information, by the rounds' weights (sums, rounds).

    The rest of all rounds is added at once, so that memory is written once and not for every round.
    """
    sides = np.concatenate([each.sides for each in rounds], axis=2)
    mixed = np.stack([each.sides @ each.middle for each in rounds])
    totals = np.empty((len(weights), len(sides), questions.cells.count, questions.cells.count))
    for total, round_weights in zip(totals, weights, strict=True):
        weighted = np.concatenate(list(round_weights[:, None, None, None] * mixed), axis=2)
        product = weighted @ sides.transpose(0, 2, 1)
        total[:] = (product + product.transpose(0, 2, 1)) / 2
        for index, group in enumerate(group_features_by_shape(questions)):
            block = sum(weight * each.blocks[index] for weight, each in zip(round_weights, rounds, strict=True))
            total[:, group.terms[:, :, None], group.terms[:, None]] += block
    return totals


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

    def statistics(
        self, questions: Questions, precisions: Array, means: Array, spread: Array
    ) -> tuple[RoundInformation, Array]:
        """Return information and scores (arms, terms) of sums by part.

        With M the parts by term, A these sums of products and N the variances of noise, sums by part have the slopes
        M A and the covariance S = spread M A M^T + N. With P = M^T N^-1 M, A M^T S^-1 M A is A (1 + spread P A)^-1 P A.
        Both P and B are apart by feature: so is X = (1 + spread P B)^-1 P, and the rest has rank 2 (Woodbury).

        precisions (arms, parts): of noise in them.
        means (arms, parts): the sums.
        spread (arms,): variance of a person's residual, where all sums are over the same people; else 0.
        """
        x_sums, mapped, scores, solutions = np.zeros((4, *self.sums.shape))
        information = []
        for group in group_features_by_shape(questions):
            sums, people = self.sums[:, group.terms], self.people[:, None, None]
            x, solution = _solve_group(group, sums, people, precisions[:, group.parts], means[:, group.parts], spread)
            x_own = (x @ sums[..., None])[..., 0]
            size, side = (sums * x_own).sum(axis=2, keepdims=True), sums * x_own / people
            x_sums[:, group.terms], mapped[:, group.terms] = x_own, sums * x_own - sums * size / people
            solutions[:, group.terms] = solution
            scores[:, group.terms] = sums * (solution - (sums * solution).sum(axis=2, keepdims=True) / people)
            # B X B, whose B is diagonal but for a rank of 1.
            outer = (sums * size / people**2 / 2 - side)[..., None] * sums[:, :, None]
            block = sums[..., None] * x * sums[:, :, None] + outer + outer.transpose(0, 1, 3, 2)
            information.append((block + block.transpose(0, 1, 3, 2)) / 2)
        size, score_sum = (self.sums * x_sums).sum(axis=1), (self.sums * solutions).sum(axis=1)
        share = spread / self.people / (1 + spread / self.people * size)
        weighted_sums = mapped + self.sums * (size / self.people)[:, None]
        scores += self.sums * (score_sum / self.people)[:, None] - weighted_sums * (share * score_sum)[:, None]
        mixed, corner = (1 - share * size) / self.people, (size - share * size**2) / self.people**2
        middle = np.stack([np.stack([-share, mixed], axis=1), np.stack([mixed, corner], axis=1)], axis=1)
        return RoundInformation(tuple(information), np.stack([mapped, self.sums], axis=2), middle), scores

    def variance_reductions(self, questions: Questions, covariances: Array, masses: Array) -> Array:
        """Return by how much a person more in each part lessens the variance of expected rewards, (arms, parts).

        With C the covariances, a part's row m and V the mean product of two terms of a person, it is m A C V C A m^T.
        V is a sum like A: so A C V C A takes the blocks of C V C, and its product with s.

        covariances (arms, terms, terms): of terms.
        masses (terms,): shares of people by cell.
        """
        spots = np.append(0.0, masses[1:])
        features = np.arange(1, len(questions.cells.features) + 1)
        rows = np.where(_feature_numbers(questions.cells) == features[:, None], spots, 0.0)
        by_feature, overall = covariances @ rows.T, covariances @ masses
        own = (covariances @ self.sums[:, :, None])[:, :, 0]
        weighed = spots * own - (own @ rows.T) @ rows + (own @ masses)[:, None] * masses
        size, mapped = (own * weighed).sum(axis=1), (covariances @ weighed[:, :, None])[:, :, 0]
        reductions = np.zeros((len(own), len(questions.question_of_part)))
        for group, feature_sums, blocks in self._feature_blocks(questions):
            roots = covariances[:, group.terms] * np.sqrt(spots)
            inner = roots @ roots.transpose(0, 1, 3, 2)
            inner -= by_feature[:, group.terms] @ by_feature[:, group.terms].transpose(0, 1, 3, 2)
            inner += overall[:, group.terms, None] * overall[:, group.terms][:, :, None]
            cross = (blocks @ mapped[:, group.terms, None])[..., 0] / self.people[:, None, None]
            side = cross + feature_sums * (size / self.people**2 / 2)[:, None, None]
            outer = side[..., None] * feature_sums[:, :, None]
            total = blocks @ inner @ blocks + outer + outer.transpose(0, 1, 3, 2)
            reductions[:, group.parts] = (group.matrix @ total * group.matrix).sum(axis=3)
        return reductions

    def _feature_blocks(self, questions: Questions) -> Iterator[tuple[FeatureGroup, Array, Array]]:
        """Yield groups with s (arms, features, cells) and B (arms, features, cells, cells) of each."""
        for group in group_features_by_shape(questions):
            feature_sums = self.sums[:, group.terms]
            blocks = -feature_sums[..., None] * feature_sums[..., None, :] / self.people[:, None, None, None]
            cells = np.arange(feature_sums.shape[2])
            blocks[..., cells, cells] += feature_sums
            yield group, feature_sums, blocks


def _solve_group(
    group: FeatureGroup, sums: Array, people: Array, precisions: Array, means: Array, spread: Array
) -> tuple[Array, Array]:
    """Return X (arms, features, cells, cells) and (1 + spread P B)^-1 M^T N^-1 means, of `FeatureProducts.statistics`.

    P is D + M^T W M, with D the precisions of own cells and M the few merged ones. F = 1 + spread D B is diagonal but
    for a rank of 1, and (1 + spread P B)^-1 = F^-1 - F^-1 M^T (1 / W + spread M B F^-1 M^T)^-1 spread M B F^-1.
    """
    n_cells = group.terms.shape[1]
    own, merged, merges = precisions[..., :n_cells], precisions[..., n_cells:], group.matrix[:, n_cells:]
    upper = merges.transpose(0, 2, 1)
    weighted = own * means[..., :n_cells] + (upper @ (merged * means[..., n_cells:])[..., None])[..., 0]
    right = np.zeros((*sums.shape, n_cells + 1))
    right[..., :-1], right[..., -1] = upper * merged[:, :, None] @ merges, weighted
    right[..., np.arange(n_cells), np.arange(n_cells)] += own
    if spread.any():
        sigma = spread[:, None, None, None]
        inverse = 1 / (1 + spread[:, None, None] * own * sums)
        scaled, column = (own * inverse)[..., None], sums[..., None]
        rest = (column * inverse[..., None]).sum(axis=2, keepdims=True)
        tilted = scaled * column * sigma / np.maximum(rest, _MIN_PEOPLE)

        def apply_blocks(values: Array) -> Array:
            return np.asarray(column * (values - column.transpose(0, 1, 3, 2) @ values / people[..., None]))

        def apply_inverse(values: Array) -> Array:
            product = apply_blocks(values)
            low_rank = tilted * ((scaled * column).transpose(0, 1, 3, 2) @ product)
            return np.asarray(values - sigma * (scaled * product + low_rank))

        solved = apply_inverse(right)
        if len(merges[0]):
            spreaded = apply_inverse(np.broadcast_to(upper, (len(sums), *upper.shape)))
            across = apply_blocks(spreaded)
            inner = np.eye(len(merges[0])) + sigma * merged[..., None] * (merges @ across)
            middle = np.linalg.solve(inner, merged[..., None] * (across.transpose(0, 1, 3, 2) @ right))
            solved -= sigma * (spreaded @ middle)
        right = solved
    return right[..., :-1], right[..., -1]


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


def mean_variances(cells: Cells, masses: Array, factors: Array) -> Array:
    """Return the variance of expected rewards averaged over people whose features are independent, (arms,).

    It is the trace of F^T V F with V their `independent_products`, and V is apart by feature but for a rank of 1.

    masses (terms,): shares of people by cell.
    factors (arms, terms, terms): with F F^T the covariance of an arm's terms.
    """
    rows = np.where(_feature_numbers(cells) == np.arange(1, len(cells.features) + 1)[:, None], masses, 0.0)
    own = np.square(factors[:, 1:]).sum(axis=2) @ masses[1:]
    apart, overall = np.square(rows @ factors).sum(axis=(1, 2)), np.square(masses @ factors).sum(axis=1)
    return np.asarray(own - apart + overall)


@lru_cache(_TERM_CACHE_SIZE)
def _feature_numbers(cells: Cells) -> Ints:
    """Return the number of each term's feature, from 1, and 0 for the intercept."""
    return np.repeat(np.arange(len(cells.features) + 1), np.diff(cells.starts, prepend=0))
