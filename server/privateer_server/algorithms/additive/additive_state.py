"""What the learner of additive bandits knows between rounds."""

from dataclasses import dataclass, replace

from privateer_core.arrays import Array
from privateer_server.algorithms.additive.long_levels import LevelCounts, LevelStatistics
from privateer_server.algorithms.additive.observed_round import ObservedRound
from privateer_server.algorithms.additive.participant_shares import CellMasses
from privateer_server.algorithms.forgetting import Discounted, SufficientStatistics


@dataclass(frozen=True)
class TermStatistics(SufficientStatistics):
    """Normal evidence of terms, in natural parameters."""

    # information, scores: shapes (arms, terms, terms) and (arms, terms), without the terms of long features
    information: Array
    scores: Array
    levels: LevelStatistics  # of the terms of long features

    arm_axis = 1

    def add(self, information: Array, scores: Array) -> "TermStatistics":
        """Return the evidence under each half-life with that of reports under each."""
        return replace(self, information=self.information + information, scores=self.scores + scores)


@dataclass(frozen=True)
class AdditiveState:
    """The state of the learner."""

    reported: int  # people whose reports opened
    discounted: Discounted[TermStatistics]  # what rounds say of terms that are not kept, under each half-life
    masses: CellMasses  # what is known of the shares of people by cell
    level_counts: LevelCounts  # what is known of the shares of people by level of long features
    # bins: of each feature that is not long, in which it is learned; reviewed: people after whom that was chosen
    bins: tuple[int, ...]
    reviewed: int = 0
    rounds: tuple[ObservedRound, ...] = ()  # the latest rounds, oldest first
