"""The terms of features, in groups of equally many cells: what is apart by feature is worked out a group at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.additive.cells import Questions

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
_KEPT: Final = 64
"""Experiments whose groups are kept."""
_LEAST: Final = 1e-9


@dataclass(frozen=True)
class FeatureGroup:
    """Features with equally many cells, and parts of questions."""

    # terms, parts: shapes (features, cells) and (features, parts): which they are among all
    terms: Ints
    parts: Ints
    matrix: Array  # shape (features, parts, cells): which cells each part has, 1 or 0


@lru_cache(_KEPT)
def feature_groups(questions: Questions) -> tuple[FeatureGroup, ...]:
    """Return the groups of all features; the term of everybody is the first one, by itself."""
    found: dict[tuple[int, int], list[tuple[Ints, Ints]]] = {}
    features = questions.features_of_parts
    for place in range(-1, len(questions.cells.features)):
        own = questions.cells.of_feature(place) if place >= 0 else slice(0, 1)
        terms, parts = np.arange(own.start, own.stop), np.flatnonzero(features == place)
        found.setdefault((len(terms), len(parts)), []).append((terms, parts))
    groups = []
    for some in found.values():
        terms, parts = (np.array(one) for one in zip(*some, strict=True))
        groups.append(FeatureGroup(terms, parts, questions.matrix[parts[:, :, None], terms[:, None]]))
    return tuple(groups)


@dataclass(frozen=True)
class IndependentFeatures:
    """Sums of products of two terms over people of each arm in whom features are independent.

    They are B + s s^T / n, with s the people by term, n all people, and B apart by feature.
    """

    sums: Array  # shape (arms, terms): s
    people: Array  # shape (arms,): n

    @classmethod
    def of(cls, questions: Questions, weighted: Array) -> "IndependentFeatures":
        """Return those of people (arms, terms) by arm and cell, whose sum over a feature is that of everybody."""
        sums, people = weighted.copy(), np.maximum(weighted[:, 0], _LEAST)
        for group in feature_groups(questions):
            own = weighted[:, group.terms]
            sums[:, group.terms] = own * (people[:, None] / np.maximum(own.sum(axis=2), _LEAST))[:, :, None]
        return cls(sums, people)

    def told(self, questions: Questions, precisions: Array, means: Array, spread: Array) -> tuple[Array, Array]:
        """Return information (arms, terms, terms) and scores (arms, terms) of sums by part.

        With M the parts by term, A these sums of products and N the variances of noise, sums by part have the slopes
        M A and the covariance S = spread M A M^T + N. With P = M^T N^-1 M, A M^T S^-1 M A is A (1 + spread P A)^-1 P A.
        Both P and B are apart by feature: so is X = (1 + spread P B)^-1 P, and the rest has rank 2 (Woodbury).

        precisions (arms, parts): of noise in them.
        means (arms, parts): the sums.
        spread (arms,): variance of a person's residual, where all sums are over the same people; else 0.
        """
        arms, terms = self.sums.shape
        x_sums, mapped, scores = np.zeros((arms, terms)), np.zeros((arms, terms)), np.zeros((arms, terms))
        alone, information = np.zeros((arms, terms)), np.zeros((arms, terms, terms))
        for group, own, apart in self._apart(questions):
            weighed = precisions[:, group.parts]
            precision = group.matrix.transpose(0, 2, 1) * weighed[:, :, None] @ group.matrix
            seen = np.einsum("fpc,kfp->kfc", group.matrix, weighed * means[:, group.parts])
            inner = np.eye(own.shape[2]) + spread[:, None, None, None] * (precision @ apart)
            found = np.linalg.solve(inner, np.concatenate([precision, seen[..., None]], axis=3))
            x, first = found[..., :-1], found[..., -1:]
            x_own = x @ own[..., None]
            x_sums[:, group.terms], mapped[:, group.terms] = x_own[..., 0], (apart @ x_own)[..., 0]
            alone[:, group.terms], scores[:, group.terms] = first[..., 0], (apart @ first)[..., 0]
            information[:, group.terms[:, :, None], group.terms[:, None]] = apart @ x @ apart
        size, heard = (self.sums * x_sums).sum(axis=1), (self.sums * alone).sum(axis=1)
        share = spread / self.people / (1 + spread / self.people * size)
        both = mapped + self.sums * (size / self.people)[:, None]
        scores += self.sums * (heard / self.people)[:, None] - both * (share * heard)[:, None]
        mixed, own = (1 - share * size) / self.people, (size - share * size**2) / self.people**2
        middle = np.stack([np.stack([-share, mixed], axis=1), np.stack([mixed, own], axis=1)], axis=1)
        sides = np.stack([mapped, self.sums], axis=2)
        information += sides @ middle @ sides.transpose(0, 2, 1)
        return (information + information.transpose(0, 2, 1)) / 2, scores

    def _apart(self, questions: Questions) -> Iterator[tuple[FeatureGroup, Array, Array]]:
        """Yield groups with s (arms, features, cells) and B (arms, features, cells, cells) of each."""
        for group in feature_groups(questions):
            own = self.sums[:, group.terms]
            found = -own[..., None] * own[..., None, :] / self.people[:, None, None, None]
            cells = np.arange(own.shape[2])
            found[..., cells, cells] += own
            yield group, own, found
