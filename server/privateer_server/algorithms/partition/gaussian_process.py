"""The posterior of every arm's values: Gaussian process regression on observations of their averages over bins."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_server.algorithms.partition.bin_tree import BinTree, Space, Split
from privateer_server.algorithms.partition.kernel import UNSCALED, Kernel, PriorScale
from privateer_server.algorithms.partition.posterior.constant_arms import ConstantArms
from privateer_server.algorithms.partition.posterior.observations import Observations

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_TOGETHER: Final = 256
"""Bins that learn from each other, at most: neighbourhoods above this size are cut in two."""


@dataclass(frozen=True)
class BinEvidence:
    """Normal evidence of each bin's own reports on its values: precision, and precision times mean."""

    # precision, moment: shape (..., bins, arms)
    precision: Array
    moment: Array
    # past_precision, past_moment: shape (..., past, arms): the same of bins that were split since
    past_precision: Array
    past_moment: Array

    @classmethod
    def nothing(cls, *shape: int) -> "BinEvidence":
        """Return evidence without any report, of shape (..., bins, arms), where no bin was split."""
        none, past = np.zeros(shape), np.zeros((*shape[:-2], 0, shape[-1]))
        return cls(none, none, past, past)

    def of(self, member: int) -> "BinEvidence":
        """Return one entry of the first axis."""
        return self._each(lambda values: np.asarray(values[member]))

    def scaled(self, share: float | Array) -> "BinEvidence":
        """Return it as if such a share of it was left."""
        return self._each(lambda values: np.asarray(share * values))

    def standardized(self, prior: PriorScale) -> "BinEvidence":
        """Return what it says of the process u, where values are ``level + scale * u``."""
        level, scale = prior.level, prior.scale

        def of(precision: Array, moment: Array) -> tuple[Array, Array]:
            return scale**2 * precision, scale * (moment - level * precision)

        return BinEvidence(*of(self.precision, self.moment), *of(self.past_precision, self.past_moment))

    @property
    def cells(self) -> tuple[Array, Array]:
        """Precisions and moments of all cells, of bins that were split, too; (cells,) each."""
        parts = ((self.precision, self.past_precision), (self.moment, self.past_moment))
        precision, moment = (np.concatenate([one.reshape(-1) for one in pair]) for pair in parts)
        return precision, moment

    def added(self, precision: Array, moment: Array, rows: slice | Ints = slice(None)) -> "BinEvidence":
        """Return it with what was observed of some bins besides, (..., rows, arms) each."""
        more_precision, more_moment = self.precision.copy(), self.moment.copy()
        more_precision[..., rows, :] += precision
        more_moment[..., rows, :] += moment
        return replace(self, precision=more_precision, moment=more_moment)

    def split(self, split: Split) -> "BinEvidence":
        """Return it after bins were split: nothing was observed of halves alone."""
        copies, kept = split.copies, ~split.fresh[:, None]
        return BinEvidence(
            self.precision[..., copies, :] * kept,
            self.moment[..., copies, :] * kept,
            np.concatenate([self.past_precision, self.precision[..., split.ready, :]], axis=-2),
            np.concatenate([self.past_moment, self.moment[..., split.ready, :]], axis=-2),
        )

    def with_arms(self, added: int) -> "BinEvidence":
        """Return it with so many more arms at the end, of which nothing was observed."""
        return self._each(lambda values: with_arms(values, added))

    def _each(self, change: Callable[[Array], Array]) -> "BinEvidence":
        return BinEvidence(
            change(self.precision), change(self.moment), change(self.past_precision), change(self.past_moment)
        )

    @property
    def tried(self) -> NDArray[np.bool_]:
        """Which arms were observed anywhere, shape (arms,)."""
        return np.asarray((self.precision > 0).any(axis=0) | (self.past_precision > 0).any(axis=0))


def with_arms(values: Array, added: int) -> Array:
    """Return numbers by arm, (..., arms), with so many more arms at the end, whose numbers are 0."""
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, added)])


@dataclass(frozen=True)
class BinPosterior:
    """The posterior of arms' values in bins."""

    # mean, variance: shape (bins, arms)
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    computed: int  # people who had reported when it was computed


@dataclass(frozen=True)
class BinProcess:
    """A Gaussian process of every arm's values over the features that are kept, and what was observed of it."""

    tree: BinTree  # the bins
    # what was observed of them, and of bins that were split, whose values are averages over their parts
    evidence: BinEvidence
    people: Array  # shape (bins,): share of the people in each bin
    # kernel, space, columns: the kernel, the space of its features, and the columns that these have in the space of all
    kernel: Kernel
    space: Space
    columns: Ints
    dimension: int  # number of columns of the space of all features
    # observations of other boxes, if any: of the process, as `BinEvidence.standardized`
    beside: Observations | None = None
    prior: PriorScale = UNSCALED  # what values are in terms of the process. All results are about values.

    @cached_property
    def box(self) -> tuple[Array, Array]:
        """Lower and upper corners of the bins along the columns that are kept, (bins, columns) each."""
        return self._box(self.tree)

    def _box(self, tree: BinTree) -> tuple[Array, Array]:
        lower, upper = tree.corners(self.dimension)
        return lower[:, self.columns], upper[:, self.columns]

    @cached_property
    def groups(self) -> list[tuple[slice, Observations]]:
        """What was observed, by groups of bins that learn from each other: which bins, then their observations."""
        (lower, upper), known, groups = self.box, self.evidence.standardized(self.prior), []
        for some, past, inside in self.tree.neighbourhoods(_TOGETHER):
            shares = inside * self.people[some]
            shares = shares / shares.sum(axis=1, keepdims=True)
            information = np.einsum("pi,pk,pj->kij", shares, known.past_precision[past], shares, optimize=True)
            size = np.arange(some.stop - some.start)
            information[:, size, size] += known.precision[some].T
            weighted = known.moment[some].T + known.past_moment[past].T @ shares
            own = Observations(lower[some], upper[some], information, weighted)
            groups.append((some, own.with_others(self.beside) if self.beside else own))
        return groups

    def posterior(self) -> tuple[Array, Array]:
        """Means of the bins' averages, and variances without what all arms have in common; (bins, arms) each."""
        found = []
        for some, observations in self.groups:
            found.append([part[: some.stop - some.start] for part in observations.posterior(self.kernel)])
        return self._values(*(np.concatenate(parts) for parts in zip(*found, strict=True)))

    def variances(self) -> Array:
        """Variances of the bins' averages with that of what all arms have in common, shape (bins, arms)."""
        found = [observations.variances(self.kernel)[: some.stop - some.start] for some, observations in self.groups]
        return np.asarray(self.prior.scale**2 * np.concatenate(found))

    def spread_of(self) -> Callable[[Array], float] | None:
        """Return what tells the standard deviation of a sum of the bins' averages with weights (bins, arms).

        None where arms have a common part: how their own parts go together is not kept then.
        """
        if self.kernel.common:
            return None
        known = []
        for some, observations in self.groups:
            size = some.stop - some.start
            known.append((some, observations.covariances(self.kernel)[:, :size, :size]))

        def spread(weights: Array) -> float:
            parts = (np.einsum("ik,kij,jk->", weights[some], own, weights[some], optimize=True) for some, own in known)
            return self.prior.scale * float(np.sqrt(max(0.0, sum(map(float, parts)))))

        return spread

    def _values(self, means: Array, variances: Array) -> tuple[Array, Array]:
        """Return means and variances of values for those of the process."""
        return self.prior.level + self.prior.scale * means, self.prior.scale**2 * variances

    @property
    def variance(self) -> float:
        """Variance of a value at a place before anything is known."""
        return self.prior.scale**2 * self.kernel.variance

    def within(self, least: Kernel, where: Bools) -> Array:
        """Return the variance of the value at a random place of a bin around its average, (bins,).

        In the bins (bins,) ``where`` that is asked for it is that of another kernel at ``least``.
        """
        own = self.kernel.within(*self.box)
        own = np.where(where, np.maximum(own, least.within(*self.box)), own)
        return np.asarray(self.prior.scale**2 * own)

    def posterior_beside(self) -> tuple[Array, Array]:
        """Means and variances of the averages over the other boxes, (boxes, arms) each, while there is one group."""
        [(bins, observations)] = self.groups
        return self._values(*(found[bins.stop :] for found in observations.posterior(self.kernel)))

    def means(self, rows: Ints, tree: BinTree) -> Array:
        """Return posterior means of averages over the bins of another tree, (its bins, arms).

        ``rows`` are the bins of this process in which they lie.
        """
        (lower, upper), means = self._box(tree), np.empty((len(rows), self.evidence.precision.shape[1]))
        for some, observations in self.groups:
            here = (rows >= some.start) & (rows < some.stop)
            means[here] = observations.elsewhere(self.kernel, lower[here], upper[here])
        return self.prior.level + self.prior.scale * means

    def differences(self, tree: BinTree) -> Array:
        """Return the variance of half the difference between halves of a tree's bins by column, (bins, columns)."""
        return self.prior.scale**2 * self.kernel.halves(*self._box(tree))

    def constant_arms(self) -> ConstantArms | None:
        """Return the model beside that arms differ by the same everywhere; None where there are several groups."""
        if len(self.groups) > 1:
            return None
        [(_, observations)] = self.groups
        return ConstantArms.beside(observations, self.kernel, self.prior)

    def likelihood(self) -> float:
        """Return the logarithm of the density of all that was observed, but for a constant."""
        return sum(observations.likelihood(self.kernel) for _, observations in self.groups)

    def predicted(self, came: BinEvidence) -> float:
        """Return the log density of what ``came`` besides of the bins, but for a constant that is its alone."""
        came = came.standardized(self.prior)
        return sum(
            observations.predicted(self.kernel, came.precision[some], came.moment[some])
            for some, observations in self.groups
        )

    def fitted(self) -> Kernel:
        """Return the most likely kernel near the one in use, with a common part of arms or without, in one group."""
        [(_, observations)] = self.groups
        found = [observations.fitted(replace(self.kernel, common=common)) for common in (False, True)]
        return max(found, key=observations.likelihood)
