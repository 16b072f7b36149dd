"""The state of the partition learner, in parts."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.partition import PartitionSpec
from privateer_core.algorithms.partition.bins import Bins
from privateer_core.policies.expected_rewards import ExpectedRewards, summed_by
from privateer_server.algorithms.partition.bin_tree import BinTree
from privateer_server.algorithms.partition.change_detection import Window
from privateer_server.algorithms.partition.feature_selection import Selection
from privateer_server.algorithms.partition.forgetting import Discounted
from privateer_server.algorithms.partition.gaussian_process import BinEvidence, BinPosterior, BinProcess
from privateer_server.algorithms.partition.kernel import UNSCALED, Hyperparameters, PriorScale
from privateer_server.algorithms.partition.posterior.constant_arms import ConstantArms
from privateer_server.algorithms.partition.round_estimates import Population

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LocatedBins(Bins):
    """Bins that find people."""

    dimension: int
    axes: NDArray[np.int64]
    depths: NDArray[np.int64]
    paths: NDArray[np.int64]


@dataclass(frozen=True)
class PartitionState:
    """The state of the partition learner. Values are 2 mean reward - 1, averaged over a bin."""

    # rounds, seen, own: closed rounds, people who reported, and those among them who belong to no source
    rounds: int
    seen: int
    own: int
    # cohort, reported: the cohort of the last round, and its people who have reported
    cohort: str
    reported: int
    tree: BinTree  # the bins
    active: NDArray[np.bool_]  # shape (bins, arms): arms that are played
    # what reports on bins say of values; where evidence is forgotten, that of the half-life in use
    evidence: BinEvidence
    population: Population  # shares of people by bin, cohort by cohort
    hyperparameters: Hyperparameters  # the kernel in use
    posterior: BinPosterior  # of values, when it was computed last
    discounted: Discounted | None = None  # evidence under each half-life; None where nothing is forgotten
    # the window whose rounds are compared with those before; None before the first one opens
    window: Window | None = None
    # what rounds about one feature at a time showed; None where no feature was asked about alone
    selection: Selection | None = None
    prior: PriorScale = UNSCALED  # where values are expected, and how far apart, when the posterior was computed last
    # the model that one arm is best for everybody, when the posterior was computed last; None where the arm is in the
    # key, or there are many bins
    constant: ConstantArms | None = None

    def means(self, asks: bool) -> Array:
        """Return posterior means of bins, (bins, arms), whether arms differ by the same everywhere or not.

        ``asks`` is whether they are for a round that asks people, or for the last policy.
        """
        mean = self.posterior.mean
        return self.constant.averaged(mean, asks) if self.constant else mean

    def is_news(self, before: int, times: float) -> bool:
        """Whether ``times`` as many people have reported as ``before``.

        Sources do not count once own people report: many reports of little information must not hold up a few of much.
        """
        others = self.seen - self.own if self.own else 0
        return self.seen - others >= times * max(0, before - others)

    @property
    def endless(self) -> BinEvidence:
        """The evidence that has not faded, of all rounds that posteriors know."""
        return self.discounted.endless if self.discounted else self.evidence

    @property
    def observed(self) -> tuple[Array, Array]:
        """Precisions and moments of all cells that rounds were about, unfaded; (cells,) each."""
        known = [self.endless.cells, *([self.selection.evidence.cells] if self.selection else [])]
        precision, moment = (np.concatenate(values) for values in zip(*known, strict=True))
        return precision, moment

    def expected(self, spec: PartitionSpec, process: BinProcess) -> ExpectedRewards:
        """Return what is expected in the bins, whose people are shared out as they reported."""
        tree, posterior, reward = self.tree, self.posterior, spec.reward
        bins = LocatedBins(spec.dimension, tree.all_axes(spec.dimension), tree.depths, tree.paths)
        means, deviations = reward.unscaled((1 + posterior.mean) / 2), reward.span * np.sqrt(posterior.variance) / 2

        def at(contexts: Array) -> tuple[Array, Array]:
            rows = bins.locate(contexts)
            return means[rows], deviations[rows]

        spread, size = process.spread_of(), len(tree)

        def deviation(contexts: Array, weights: Array) -> float:
            summed = summed_by(bins.locate(contexts), weights, size)
            return reward.span / 2 * spread(summed) if spread else float((np.abs(summed) * deviations).sum())

        return ExpectedRewards(*bins.edges(), self.population.own_shares, at, deviation)
