"""What people have told of contexts: means and second moments of whitened rows, as far as noise lets them be known."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer.algorithms.linear.design import Design, prior_moments
from privateer.algorithms.linear.reports import matrix_of
from privateer_server.algorithms.linear.surrogate import root

Array = NDArray[np.float64]
_WIDE: Final = 2.0
"""Squared length to which whitened features are cut, by their number."""
_MIDDLE: Final = 0.5
"""Share of a row's squared length that its coordinate 1 has: products with it tell means."""
_MEAN: Final = 0.3
_MEANMIN: Final = 0.03
_PAIR: Final = 0.1
"""Variances of means and of products of whitened features before anybody tells."""
_ALIKE: Final = 0.003
"""The least variance of covariances that is taken for possible."""
_TOGETHER: Final = 0.95
"""No two features are believed to be correlated more than this."""


@dataclass(frozen=True)
class Features:
    """What is known of whitened features, of which (d - 1,) means and (d - 1, d - 1) covariances.

    Attributes
    ----------
    means, covariances
        Of features that have means 0 and covariances 1 if what is assumed is true.
    doubt
        The square of how far second moments may be off in any direction, relative to what they are.
    """

    means: Array
    covariances: Array
    doubt: float


class Contexts:
    """How rows tell second moments, and what follows from what was told.

    Parameters
    ----------
    design
        What rows are made of.
    """

    def __init__(self, design: Design) -> None:
        self.design, self.assumed = design, prior_moments(design)
        self._middle = self.assumed[0, 1:]
        self._covariances = self.assumed[1:, 1:] - np.outer(self._middle, self._middle)
        d = design.dimension
        lengths = np.full(d, math.sqrt((1 - _MIDDLE) / (_WIDE * max(1, d - 1))))
        lengths[0] = math.sqrt(_MIDDLE)
        self._lengths = np.outer(lengths, lengths)

    @property
    def telling(self) -> Array:
        """What rows are multiplied with, (d, d): the coordinate 1 and whitened features, by their shares of length."""
        whiten = root(self._covariances, -0.5)
        shift = np.concatenate([np.ones(1), -self._middle @ whiten])[None]
        matrix = np.concatenate([shift, np.pad(whiten, ((0, 0), (1, 0)))])
        return np.asarray(matrix * np.sqrt(np.diag(self._lengths)))

    def told(self, sums: Array, people: int, noise: float, share: float) -> tuple[Array, Array]:
        """Return second moments of whitened rows by their precisions, and these, (d, d) each.

        Parameters
        ----------
        sums
            The packed sum of what ``people`` told.
        noise
            Its variance in a coordinate.
        share
            That of a report's squared length.
        """
        d = self.design.dimension
        packed = noise / (people**2 * share * self._lengths**2)
        precision = 1 / (packed * (1 + np.eye(d)) / 2 + 1 / people)
        return precision * matrix_of(sums / people, d) / (self._lengths * math.sqrt(share)), precision

    def features(self, moments: Array, precision: Array) -> Features:
        """Return what is known of whitened features, by what was told in all.

        Covariances are shrunk as far as those that were told are no larger than their noise.
        """
        sure = precision[1:, 1:]
        heard = np.maximum(precision[0, 1:], 1e-9)
        wide = _MEAN
        if precision[0, 1:].any():
            wide = max(_MEANMIN, float(((moments[0, 1:] / heard)**2 - 1 / heard).mean()))
        means = moments[0, 1:] / (precision[0, 1:] + 1 / wide)
        raw = moments[1:, 1:] / np.maximum(sure, 1e-9) - np.outer(means, means)
        pairs = ~np.eye(len(means), dtype=bool)
        spread = _PAIR
        if sure.any() and pairs.any():
            spread = min(_PAIR, max(_ALIKE, float((raw[pairs] ** 2 - 1 / sure[pairs]).mean())))
        kept = np.where(pairs, sure / (sure + 1 / spread), sure / (sure + 1 / _PAIR))
        covariances = kept * raw + (1 - kept) * np.eye(len(means))
        off = 2 * float((1 / (precision[0, 1:] + 1 / wide)).mean())
        off += float((1 / (sure + np.where(pairs, 1 / spread, 1 / _PAIR))).sum(axis=1).mean())
        return Features(means, covariances, off / 4)

    def moments(self, known: Features) -> Array:
        """Return second moments (d, d) of rows, whose answers of yes or no have squares of 1."""
        back = root(self._covariances, 0.5)
        limits = np.concatenate([np.full(w, w == 1) for w in self.design.widths])
        middle = self._middle + known.means @ back
        middle = np.where(limits, np.clip(middle, -0.98, 0.98), middle)
        covariances = back @ known.covariances @ back
        variances = np.maximum(np.diag(covariances), 1e-3)
        signs = self.design.signs
        variances = np.where(signs, 1 - middle**2, variances)
        variances = np.where(limits & ~signs, np.minimum(variances, 1-middle**2), variances)
        most = np.sqrt(np.outer(variances, variances)) * _TOGETHER
        covariances = np.clip(covariances, -most, most)
        np.fill_diagonal(covariances, variances)
        row = np.concatenate([np.ones(1), middle])
        found = np.outer(row, row)
        found[1:, 1:] += covariances
        return found
