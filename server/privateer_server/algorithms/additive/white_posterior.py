"""Posteriors under priors that are apart by feature, in coordinates in which the prior is 1."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtri

Array = NDArray[np.float64]


@dataclass(frozen=True)
class WhitePosterior:
    """A normal posterior of each arm's terms.

    With P = R R^T the prior and J the information, its covariance is R (1 + R^T J R)^-1 R^T, or F F^T with F = R U and
    U the transposed inverse of the lower Cholesky factor of 1 + R^T J R.
    """

    # blocks, roots: the terms of each block of the prior, and the root (cells, cells) of its part
    blocks: Sequence[slice]
    roots: Sequence[Array]
    uppers: Array  # shape (arms, terms, terms): U
    white: Array  # shape (arms, terms): means of R^-1 terms
    means: Array  # shape (arms, terms)

    @classmethod
    def of(cls, information: Array, scores: Array, blocks: Sequence[slice], prior: Sequence[Array]) -> "WhitePosterior":
        """Return the posterior after information (arms, terms, terms) and scores (arms, terms).

        ``prior`` has a covariance (cells, cells) for each block; blocks are apart.
        """
        roots = [np.asarray(np.linalg.cholesky(one), np.float64) for one in prior]
        turned, told, inner = np.empty_like(information), np.empty_like(scores), np.empty_like(information)
        for own, root in zip(blocks, roots, strict=True):
            turned[:, own] = root.T @ information[:, own]
            told[:, own] = scores[:, own] @ root
        for own, root in zip(blocks, roots, strict=True):
            inner[:, :, own] = turned[:, :, own] @ root
        inner[:, np.arange(len(inner[0])), np.arange(len(inner[0]))] += 1.0
        uppers = np.array([dtrtri(one.T, lower=0)[0] for one in np.linalg.cholesky(inner)])
        white = (uppers @ (uppers.transpose(0, 2, 1) @ told[:, :, None]))[:, :, 0]
        return cls(blocks, roots, uppers, white, _by_block(white.T, blocks, roots).T)

    @property
    def factors(self) -> Array:
        """Shape (arms, terms, terms): each times its own transpose is the covariance of an arm's terms."""
        found = np.empty_like(self.uppers)
        for own, root in zip(self.blocks, self.roots, strict=True):
            found[:, own] = root @ self.uppers[:, own]
        return found

    @property
    def covariances(self) -> Array:
        """Shape (arms, terms, terms)."""
        return self.factors @ self.factors.transpose(0, 2, 1)

    def told(self, place: int) -> tuple[Array, Array, Array]:
        """Return what is known of a block's terms as `TermScales.evidence` takes it."""
        own = self.blocks[place]
        # Columns before the block have only zeros there.
        rows = self.uppers[:, own, own.start :]
        return self.roots[place], rows @ rows.transpose(0, 2, 1), self.white[:, own]


def _by_block(values: Array, blocks: Sequence[slice], roots: Sequence[Array]) -> Array:
    """Return R values, (terms, n)."""
    return np.concatenate([root @ values[own] for own, root in zip(blocks, roots, strict=True)])
