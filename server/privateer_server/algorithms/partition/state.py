"""The state of the partition learner, in parts."""

from dataclasses import dataclass

import numpy as np

from privateer_core.algorithms.partition import PartitionSpec
from privateer_core.algorithms.partition.policy import Bins
from privateer_core.arrays import Array, Bools, Ints
from privateer_core.policies.expected_rewards import ExpectedRewards, sum_by_group
from privateer_server.algorithms.forgetting import Discounted
from privateer_server.algorithms.partition.bin_tree import BinTree
from privateer_server.algorithms.partition.change_detection import Window
from privateer_server.algorithms.partition.clipped_weights import KeptWeights
from privateer_server.algorithms.partition.feature_selection import Selection
from privateer_server.algorithms.partition.gaussian_process import BinEvidence, BinPosterior, BinProcess
from privateer_server.algorithms.partition.kernel import UNSCALED, Hyperparameters, PriorScale
from privateer_server.algorithms.partition.observations import ContextFreeArms
from privateer_server.algorithms.partition.round_estimates import CohortShares
from privateer_server.algorithms.tier_account import TierAccount


@dataclass(frozen=True)
class LocatedBins(Bins):
    """Bins that can locate contexts."""

    dimension: int
    axes: Ints
    depths: Ints
    paths: Ints


@dataclass(frozen=True)
class PartitionState:
    """The state of the partition learner. Values are 2 mean reward - 1, averaged over a bin."""

    # rounds, seen, n_own_reports: closed rounds, people who reported, and those among them who belong to no source
    rounds: int
    seen: int
    n_own_reports: int
    # cohort, reported: the cohort of the last round, and its people who have reported
    cohort: str
    reported: int
    tree: BinTree  # the bins
    active: Bools  # shape (bins, arms): arms that are played
    # what reports on bins say of values; where evidence is forgotten, that of the half-life in use
    evidence: BinEvidence
    population: CohortShares  # shares of people by bin, cohort by cohort
    hyperparameters: Hyperparameters  # the kernel in use
    posterior: BinPosterior  # of values, when it was computed last
    discounted: Discounted[BinEvidence] | None = None  # evidence under each half-life; None where nothing is forgotten
    # the window whose rounds are compared with those before; None before the first one opens
    window: Window | None = None
    # what rounds about one feature at a time showed; None where no feature was asked about alone
    selection: Selection | None = None
    prior: PriorScale = UNSCALED  # where values are expected, and how far apart, when the posterior was computed last
    # the model that one arm is best for everybody, when the posterior was computed last; None where the arm is in the
    # key, or there are many bins
    constant: ContextFreeArms | None = None
    # what clipping left of the weights of sources; None where none has propensities of its devices' own
    kept_weights: KeptWeights | None = None
    tiers: TierAccount | None = None  # what each tier has contributed; None without tiers

    def means(self, is_asking: bool) -> Array:
        """Return posterior means of bins, (bins, arms), averaged with the model of constant differences."""
        mean = self.posterior.mean
        return self.constant.averaged(mean, is_asking) if self.constant else mean

    def is_news(self, n_before: int, growth: float) -> bool:
        """Whether the number of reports has grown by the factor ``growth``.

        Sources do not count once own people report: many reports of little information must not hold up a few of much.
        """
        n_source_reports = self.seen - self.n_own_reports if self.n_own_reports else 0
        return self.seen - n_source_reports >= growth * max(0, n_before - n_source_reports)

    @property
    def endless(self) -> BinEvidence:
        """The evidence without discount, of all rounds in the posterior."""
        return self.discounted.endless if self.discounted else self.evidence

    @property
    def is_tried(self) -> Bools:
        """Whether each arm was played anywhere, (arms,); only these can be the best arm."""
        is_tried = self.evidence.is_tried
        return is_tried | self.selection.evidence.is_tried if self.selection else is_tried

    @property
    def observed_cells(self) -> tuple[Array, Array]:
        """Precisions and moments of all observed cells, without discount; (cells,) each."""
        cells = [self.endless.cells, *([self.selection.evidence.cells] if self.selection else [])]
        precision, moment = (np.concatenate(values) for values in zip(*cells, strict=True))
        return precision, moment

    def build_expected_rewards(self, spec: PartitionSpec, process: BinProcess) -> ExpectedRewards:
        """Return the expected rewards in the bins, with the participants' shares as reported."""
        tree, posterior, reward = self.tree, self.posterior, spec.reward
        bins = LocatedBins(spec.dimension, tree.all_axes(spec.dimension), tree.depths, tree.paths)
        means, deviations = reward.unscaled((1 + posterior.mean) / 2), reward.span * np.sqrt(posterior.variance) / 2

        def predict(contexts: Array) -> tuple[Array, Array]:
            rows = bins.locate(contexts)
            return means[rows], deviations[rows]

        sum_error, size = process.build_standard_error(), len(tree)

        def standard_error(contexts: Array, weights: Array) -> float:
            summed = sum_by_group(bins.locate(contexts), weights, size)
            return reward.span / 2 * sum_error(summed) if sum_error else float((np.abs(summed) * deviations).sum())

        return ExpectedRewards(*bins.edges(), self.population.own_shares, predict, standard_error)
