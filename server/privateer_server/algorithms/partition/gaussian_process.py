"""The posterior of every arm's values: Gaussian process regression on observations of their averages over bins."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from privateer_core.arrays import Array, Bools, Ints
from privateer_server.algorithms.forgetting import SufficientStatistics
from privateer_server.algorithms.partition.bin_tree import BinTree, Space, Split
from privateer_server.algorithms.partition.kernel import UNSCALED, Kernel, PriorScale
from privateer_server.algorithms.partition.observations import ContextFreeArms, Observations

_MAX_GROUP_SIZE: Final = 256  # bins that learn from each other, at most: neighbourhoods above this size are cut in two


@dataclass(frozen=True)
class BinEvidence(SufficientStatistics):
    """Normal evidence of each bin's own reports on its values: precision, and precision times mean."""

    # precision, moment: shape (..., bins, arms)
    precision: Array
    moment: Array
    # past_precision, past_moment: shape (..., past, arms): the same of bins that were split since
    past_precision: Array
    past_moment: Array

    @classmethod
    def empty(cls, *shape: int) -> "BinEvidence":
        """Return evidence without any report, of shape (..., bins, arms), where no bin was split."""
        zeros, past = np.zeros(shape), np.zeros((*shape[:-2], 0, shape[-1]))
        return cls(zeros, zeros, past, past)

    def standardized(self, prior: PriorScale) -> "BinEvidence":
        """Return the evidence on the process u, where values are ``level + scale * u``."""
        level, scale = prior.level, prior.scale

        def transform(precision: Array, moment: Array) -> tuple[Array, Array]:
            return scale**2 * precision, scale * (moment - level * precision)

        return BinEvidence(*transform(self.precision, self.moment), *transform(self.past_precision, self.past_moment))

    @property
    def cells(self) -> tuple[Array, Array]:
        """Precisions and moments of all cells, including bins that were split; (cells,) each."""
        parts = ((self.precision, self.past_precision), (self.moment, self.past_moment))
        precision, moment = (np.concatenate([array.reshape(-1) for array in pair]) for pair in parts)
        return precision, moment

    def add(self, precision: Array, moment: Array, rows: slice | Ints = slice(None)) -> "BinEvidence":
        """Return the evidence with observations of some bins added, (..., rows, arms) each."""
        more_precision, more_moment = self.precision.copy(), self.moment.copy()
        more_precision[..., rows, :] += precision
        more_moment[..., rows, :] += moment
        return replace(self, precision=more_precision, moment=more_moment)

    def split(self, split: Split) -> "BinEvidence":
        """Return the evidence after bins were split; halves have no observations of their own."""
        copies, is_kept = split.copies, ~split.fresh[:, None]
        return BinEvidence(
            self.precision[..., copies, :] * is_kept,
            self.moment[..., copies, :] * is_kept,
            np.concatenate([self.past_precision, self.precision[..., split.ready, :]], axis=-2),
            np.concatenate([self.past_moment, self.moment[..., split.ready, :]], axis=-2),
        )

    @property
    def is_tried(self) -> Bools:
        """Whether each arm was observed in any bin, shape (arms,)."""
        return np.asarray((self.precision > 0).any(axis=0) | (self.past_precision > 0).any(axis=0))


@dataclass(frozen=True)
class BinPosterior:
    """The posterior of arms' values in bins."""

    # mean, variance: shape (bins, arms)
    mean: Array
    variance: Array
    computed: int  # people who had reported when it was computed


@dataclass(frozen=True)
class BinProcess:
    """A Gaussian process of every arm's values over the selected features, with its observations."""

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
    other_observations: Observations | None = None
    prior: PriorScale = UNSCALED  # what values are in terms of the process. All results are about values.

    @cached_property
    def box(self) -> tuple[Array, Array]:
        """Lower and upper corners of the bins along the selected columns, (bins, columns) each."""
        return self._box(self.tree)

    def _box(self, tree: BinTree) -> tuple[Array, Array]:
        lower, upper = tree.corners(self.dimension)
        return lower[:, self.columns], upper[:, self.columns]

    @cached_property
    def correlated_groups(self) -> list[tuple[slice, Observations]]:
        """Observations by groups of bins that are correlated: the slice of bins, then their observations."""
        (lower, upper), evidence, groups = self.box, self.evidence.standardized(self.prior), []
        for bins, past, inside in self.tree.neighbourhoods(_MAX_GROUP_SIZE):
            shares = inside * self.people[bins]
            shares = shares / shares.sum(axis=1, keepdims=True)
            information = np.einsum("pi,pk,pj->kij", shares, evidence.past_precision[past], shares, optimize=True)
            diagonal = np.arange(bins.stop - bins.start)
            information[:, diagonal, diagonal] += evidence.precision[bins].T
            weighted = evidence.moment[bins].T + evidence.past_moment[past].T @ shares
            local = Observations(lower[bins], upper[bins], information, weighted)
            groups.append((bins, local.with_others(self.other_observations) if self.other_observations else local))
        return groups

    def posterior(self) -> tuple[Array, Array]:
        """Return means of the bins' averages, and variances without the arms' common part; (bins, arms) each."""
        moments = []
        for bins, observations in self.correlated_groups:
            moments.append([moment[: bins.stop - bins.start] for moment in observations.posterior(self.kernel)])
        return self._values(*(np.concatenate(parts) for parts in zip(*moments, strict=True)))

    def variances_with_common_part(self) -> Array:
        """Return variances of the bins' averages including the arms' common part, shape (bins, arms)."""
        groups = [(bins.stop - bins.start, observations) for bins, observations in self.correlated_groups]
        variances = [observations.variances_with_common_part(self.kernel)[:size] for size, observations in groups]
        return np.asarray(self.prior.scale**2 * np.concatenate(variances))

    def build_standard_error(self) -> Callable[[Array], float] | None:
        """Return a function for the standard error of a sum of averages with weights (bins, arms), or None.

        It is None where arms have a common part: the covariances of their own parts are not kept then.
        """
        if self.kernel.common:
            return None
        covariances = []
        for bins, observations in self.correlated_groups:
            size = bins.stop - bins.start
            covariances.append((bins, observations.covariances(self.kernel)[:, :size, :size]))

        def standard_error(weights: Array) -> float:
            parts = (
                np.einsum("ik,kij,jk->", weights[bins], covariance, weights[bins], optimize=True)
                for bins, covariance in covariances
            )
            return self.prior.scale * float(np.sqrt(max(0.0, sum(map(float, parts)))))

        return standard_error

    def _values(self, means: Array, variances: Array) -> tuple[Array, Array]:
        """Return means and variances of values from those of the process."""
        return self.prior.level + self.prior.scale * means, self.prior.scale**2 * variances

    @property
    def variance(self) -> float:
        """The prior variance of a value at a point."""
        return self.prior.scale**2 * self.kernel.variance

    def within_bin_variances(self, wide_kernel: Kernel, is_wide: Bools) -> Array:
        """Return the variance of the value at a random point of a bin around its average, (bins,).

        In the bins ``is_wide`` (bins,) it is at least that of ``wide_kernel``.
        """
        variances = self.kernel.within_bin_variances(*self.box)
        variances = np.where(is_wide, np.maximum(variances, wide_kernel.within_bin_variances(*self.box)), variances)
        return np.asarray(self.prior.scale**2 * variances)

    def posterior_of_other_boxes(self) -> tuple[Array, Array]:
        """Return posterior means and variances in the boxes of ``other_observations``, (boxes, arms) each.

        The bins must be a single group.
        """
        [(bins, observations)] = self.correlated_groups
        return self._values(*(moment[bins.stop :] for moment in observations.posterior(self.kernel)))

    def means(self, rows: Ints, tree: BinTree) -> Array:
        """Return posterior means over the bins of another tree, (its bins, arms), which lie in ``rows`` of these."""
        (lower, upper), means = self._box(tree), np.empty((len(rows), self.evidence.precision.shape[1]))
        for bins, observations in self.correlated_groups:
            is_in_group = (rows >= bins.start) & (rows < bins.stop)
            means[is_in_group] = observations.predict_boxes(self.kernel, lower[is_in_group], upper[is_in_group])
        return self.prior.level + self.prior.scale * means

    def half_difference_variances(self, tree: BinTree) -> Array:
        """Return the variance of half the difference between halves of a tree's bins by column, (bins, columns)."""
        return self.prior.scale**2 * self.kernel.half_difference_variances(*self._box(tree))

    def fit_context_free_arms(self) -> ContextFreeArms | None:
        """Return the model in which arms differ by a constant; None if there are several groups."""
        if len(self.correlated_groups) > 1:
            return None
        [(_, observations)] = self.correlated_groups
        return ContextFreeArms.from_observations(observations, self.kernel, self.prior)

    def log_density(self) -> float:
        """Return the log density of all observations, up to a constant."""
        return sum(observations.log_density(self.kernel) for _, observations in self.correlated_groups)

    def predictive_log_density(self, new_evidence: BinEvidence) -> float:
        """Return the predictive log density of new evidence on the bins, up to a constant."""
        new_evidence = new_evidence.standardized(self.prior)
        return sum(
            observations.predictive_log_density(self.kernel, new_evidence.precision[bins], new_evidence.moment[bins])
            for bins, observations in self.correlated_groups
        )

    def fit_kernel(self) -> Kernel:
        """Return the most likely kernel near the current one, with or without a common part, for a single group."""
        [(_, observations)] = self.correlated_groups
        kernels = [observations.fit_kernel(replace(self.kernel, common=common)) for common in (False, True)]
        return max(kernels, key=observations.log_density)
