"""The resolution in which numbers are learned: neighbouring bins have one term until evidence asks for more."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
from scipy.special import logsumexp

from privateer_core.algorithms.additive.cells import Cells, Questions, ShapeCells
from privateer_core.arrays import Array, Ints
from privateer_server.algorithms.additive.feature_products import RoundInformation, group_features_by_shape
from privateer_server.algorithms.additive.posterior import (
    TermPosterior,
    build_scales,
    list_blocks,
    reward_unit,
    typical_scale,
)

_BIN_COUNTS: Final = (16, 32)  # numbers of bins that are tried below a feature's own
_LOG_ODDS: Final = 2.0  # finer bins are used if their log evidence is larger by so much
_REVIEW_GROWTH: Final = 1.5  # bins are chosen again when so many times as many people have reported
_CACHE_SIZE: Final = 256


@dataclass(frozen=True)
class Resolution:
    """Numbers of bins that terms are learned for, each of which merges neighbouring bins that reports are about."""

    questions: Questions  # about the bins of reports
    bins: tuple[int, ...]  # the bins of each feature that are learned; 0 for levels without an order

    @cached_property
    def merged(self) -> Questions:
        """The questions about learned bins."""
        features = zip(self.questions.cells.features, self.bins, strict=True)
        return Questions(Cells(tuple(replace(feature, bins=n) for feature, n in features)), self.questions.merges)

    @cached_property
    def terms(self) -> Ints:
        """The learned term of each term, (terms,)."""
        features = zip(self.questions.cells.features, self.merged.cells.starts, strict=False)
        merged = zip(features, self.bins, strict=True)
        parts = [start + _merge_cells(feature, n) for (feature, start), n in merged]
        return np.concatenate([np.zeros(1, np.int64), *parts])

    def merge(self, values: Array, axis: int = -1) -> Array:
        """Return the sums over the terms that are learned as one."""
        starts = np.searchsorted(self.terms, np.arange(self.merged.cells.count))
        return values if len(starts) == len(self.terms) else np.add.reduceat(values, starts, axis=axis)

    def merge_statistics(self, information: Array, scores: Array) -> tuple[Array, Array]:
        """Return the information (..., terms, terms) and scores (..., terms) of learned terms."""
        return self.merge(self.merge(information), axis=-2), self.merge(scores)

    def sum_information(self, rounds: Sequence[RoundInformation], weights: Array) -> Array:
        """Return the weighted sum (arms, terms, terms) of rounds' information on learned terms."""
        sides = self.merge(np.concatenate([each.sides for each in rounds], axis=2), axis=1)
        weighted = zip(weights.tolist(), rounds, strict=True)
        mixed = np.concatenate(
            [weight * self.merge(each.sides, axis=1) @ each.middle for weight, each in weighted], axis=2
        )
        product = mixed @ sides.transpose(0, 2, 1)
        total = (product + product.transpose(0, 2, 1)) / 2
        for index, group in enumerate(group_features_by_shape(self.questions)):
            blocks = np.tensordot(weights, np.stack([each.blocks[index] for each in rounds]), 1)
            for block, terms in zip(blocks.transpose(1, 0, 2, 3), self.terms[group.terms], strict=True):
                learned = slice(int(terms[0]), int(terms[-1]) + 1)
                starts = np.searchsorted(terms, np.arange(learned.start, learned.stop))
                total[:, learned, learned] += np.add.reduceat(np.add.reduceat(block, starts, axis=2), starts, axis=1)
        return np.asarray(total)

    def expand(self, posterior: TermPosterior) -> TermPosterior:
        """Return the posterior of all terms; its factors (arms, terms, learned terms) are not square."""
        if self.merged.cells.count == len(self.terms):
            return posterior
        return replace(posterior, means=posterior.means[:, self.terms], factors=posterior.factors[:, self.terms])


@lru_cache(_CACHE_SIZE)
def _merge_cells(feature: ShapeCells, n_bins: int) -> Ints:
    """Return the learned cell (cells,) of each cell."""
    return feature.merge_bins(n_bins) if n_bins < feature.bins else np.arange(feature.count)


def list_bin_counts(feature: ShapeCells) -> list[int]:
    """List the numbers of bins that a feature may be learned in, the fewest first."""
    return [*(count for count in _BIN_COUNTS if count < feature.bins), feature.bins]


def coarsest_bins(cells: Cells) -> tuple[int, ...]:
    """Return the fewest bins of each feature that it may be learned in."""
    return tuple(list_bin_counts(feature)[0] for feature in cells.features)


def is_due(reported: int, reviewed: int) -> bool:
    """Whether so many more people have reported since bins were chosen that they are chosen again."""
    return reported >= _REVIEW_GROWTH * reviewed or reported < reviewed


def choose_bins(
    resolution: Resolution, information: Array, scores: Array, masses: Array, posterior: TermPosterior
) -> tuple[int, ...]:
    """Return the bins that evidence asks for, a feature at a time, with all others as they are learned now.

    What reports say of a feature, with others' terms integrated out under their prior, is compared under the priors of
    every number of bins. So no system is solved that has more than one feature in fine bins.

    information, scores: shapes (arms, terms, terms) and (arms, terms), of all terms.
    masses (terms,): shares of participants by cell.
    posterior: that of learned terms, for its prior and level.
    """
    cells, learned = resolution.questions.cells, list_blocks(resolution.merged.cells)
    residuals = scores - posterior.level * information[:, :, 0]
    half_merged = resolution.merge(information)
    known, known_scores = resolution.merge(half_merged, axis=-2), resolution.merge(residuals)
    for block, covariance in zip(learned, posterior.prior, strict=True):
        known[:, block, block] += np.linalg.inv(covariance)
    unit, typical, bins = reward_unit(posterior.level), typical_scale(cells), list(resolution.bins)
    for index, feature in enumerate(cells.features):
        counts, columns = list_bin_counts(feature), cells.feature_slice(index)
        if len(counts) == 1:
            continue
        others = np.delete(np.arange(known.shape[1]), learned[1 + index])
        cross = half_merged[:, columns][:, :, others]
        sides = np.concatenate([cross.transpose(0, 2, 1), known_scores[:, others, None]], axis=2)
        solved = cross @ np.linalg.solve(known[:, others[:, None], others], sides)
        own = information[:, columns, columns] - solved[..., :-1], residuals[:, columns] - solved[..., -1]
        best, *finer = counts
        evidence = _log_evidence(feature, best, *own, masses[columns], (unit, typical))
        for count in finer:
            # What two bins together do not gain, four seldom do.
            finer_evidence = _log_evidence(feature, count, *own, masses[columns], (unit, typical))
            if finer_evidence < evidence + _LOG_ODDS:
                break
            best, evidence = count, finer_evidence
        bins[index] = best
    return tuple(bins)


def _log_evidence(
    feature: ShapeCells,
    n_bins: int,
    information: Array,
    scores: Array,
    masses: Array,
    unit_and_typical: Sequence[float],
) -> float:
    """Return the log marginal likelihood of learning a feature in so many bins, up to a constant."""
    starts = np.searchsorted(_merge_cells(feature, n_bins), np.arange(n_bins + feature.missing))
    shares, sums = (np.add.reduceat(values, starts, axis=-1) for values in (masses, scores))
    merged = np.add.reduceat(np.add.reduceat(information, starts, axis=-1), starts, axis=-2)
    family = build_scales(replace(feature, bins=n_bins), shares, *unit_and_typical)
    return float(logsumexp(family.evaluate(family.roots, merged, sums) + np.log(family.prior)))
