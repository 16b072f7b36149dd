"""Information of a participant's report, the measure by which trust models, epsilons and rounds are compared.

For means by key it is the squared gain over the variance of a report's score, ``q^2 / v``, times the share of
participants of a cell; for vectors it is the inverse variance of a coordinate. Half-widths are proportional to the
inverse of its square root.
"""

import math
from dataclasses import dataclass
from functools import singledispatch

import msgspec
import numpy as np

from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.central_sums import CentralSums
from privateer_core.mechanisms.event_symbol import EventSymbol
from privateer_core.mechanisms.feature_sums import FeatureSums
from privateer_core.mechanisms.grouped_bit import GroupedBit
from privateer_core.mechanisms.mechanism import Mechanism
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.mechanisms.screened_moments import ScreenedMoments
from privateer_core.mechanisms.shared_votes import SharedVotes
from privateer_core.mechanisms.signed_symbol import SignedSymbol
from privateer_core.mechanisms.tiered_symbol import TieredSymbol
from privateer_core.mechanisms.vectors.row_sums import RowSums
from privateer_core.mechanisms.vectors.running_vectors import RunningVectors
from privateer_core.mechanisms.vectors.vector_bits import BitVectors
from privateer_core.mechanisms.vectors.vector_noise import CentralVectors, GaussianVectors
from privateer_core.mechanisms.vectors.vector_symbol import VectorSymbol
from privateer_core.primitives.questions import FeatureMeans, KeyedMeans, Question, VectorSum


@dataclass(frozen=True)
class AskedCell:
    """A cell of a round's question, with the shares of its participants."""

    question: Question  # the question
    people: int  # number of participants of the round
    key: float = 1.0  # share of participants with the key, or bin, of the cell
    arm: float = 1.0  # share of the arm among them; 1 if reports are not about a single arm
    # whether a round asks about a single arm, and each arm has rounds in proportion to its share: then no information
    # is lost on others, as if coins distinguished them
    in_turns: bool = False

    @property
    def has_public_arms(self) -> bool:
        """Whether public data determine a report's arm, so that reports of other arms can be excluded."""
        if self.in_turns:
            return True
        if isinstance(self.question, VectorSum):
            return self.question.classes > 1
        if isinstance(self.question, FeatureMeans):
            return False
        return self.question.layout.groups > 1

    @property
    def report_share(self) -> float:
        """Share of the reports that may be the cell's, by public data."""
        return self.arm if self.has_public_arms else 1.0

    @property
    def cell_share(self) -> float:
        """Share of the cell's reports among these."""
        return self.key if self.has_public_arms else self.key * self.arm


@singledispatch
def measure_information(mechanism: Mechanism, cell: AskedCell) -> float:
    """Return a participant's information on a cell, or a coordinate; infinite for vectors without noise."""
    kinds = f"{type(mechanism).__name__}, asked {type(cell.question).__name__}"
    raise TypeError(f"nobody has said how much is told by a {kinds}")


@measure_information.register
def _(mechanism: SignedSymbol, cell: AskedCell) -> float:
    """Return the information of a report's score; of a declared rate, by the mechanism's variance."""
    if isinstance(cell.question, KeyedMeans) and cell.question.rate is not None:
        return _rate_information(mechanism, cell)
    own_hit, other = mechanism.response.truth + mechanism.response.other, mechanism.response.other
    other_hit = own_hit / mechanism.buckets + 2 * other * (1 - 1 / mechanism.buckets)
    return _score_information(cell, mechanism.response.gain, own_hit, other_hit)


@measure_information.register
def _(mechanism: TieredSymbol, cell: AskedCell) -> float:
    """Return the information of a report of any tier, by the expected shares of participants."""
    pairs = zip(mechanism.tier_symbols, mechanism.channels, strict=True)
    return sum(channel.share * measure_information(symbol, cell) for symbol, channel in pairs)


@measure_information.register(EventSymbol)
def _rate_information(mechanism: SignedSymbol | EventSymbol, cell: AskedCell) -> float:
    """Return the information of a report on a rare rate, whose estimate has a variance of its own."""
    assert isinstance(cell.question, KeyedMeans)
    question = msgspec.structs.replace(cell.question, key_share=cell.cell_share)
    return cell.report_share * cell.cell_share**2 / (4 * mechanism.variance(question))


@measure_information.register
def _(mechanism: GroupedBit, cell: AskedCell) -> float:
    # The arm of the cell is the first group.
    return cell.arm * float(mechanism.gains[0]) ** 2


@measure_information.register
def _(mechanism: NamedSymbol, cell: AskedCell) -> float:
    """Return the information of a report's score at a key that it names, or whose bucket it names."""
    response, levels = mechanism.response, mechanism.levels
    own_hit = response.truth + response.other
    # Scores of reports without information on the key have all levels with equal probability.
    foreign = response.other * float(np.square(np.linspace(-1, 1, levels)).sum())
    if mechanism.is_named:
        return _score_information(cell, response.gain, response.gain + foreign, foreign)
    other_hit = mechanism.collision_probability * own_hit + (1 - mechanism.collision_probability) * 2 * response.other
    return _score_information(cell, response.gain, own_hit, other_hit)


def _score_information(cell: AskedCell, gain: float, own_hit: float, other_hit: float) -> float:
    """Return the information of a score with hit probability ``own_hit`` in the cell, ``other_hit`` outside of it."""
    share = cell.cell_share
    return cell.report_share * (gain * share) ** 2 / (share * own_hit + (1 - share) * other_hit)


@measure_information.register
def _(mechanism: CentralSums, cell: AskedCell) -> float:
    return _curated_information(cell, mechanism.standard_deviation**2 + 2 * mechanism.scale**2)


@measure_information.register
def _(mechanism: CellPairs | SharedVotes, cell: AskedCell) -> float:
    # A score is the difference of the first and the last sum.
    return _curated_information(cell, 2 * mechanism.noise)


def _curated_information(cell: AskedCell, noise_variance: float) -> float:
    """Return the information of a participant in a cell's sum, with a curator's noise and the variance of scores.

    Cells of other arms have noise of their own, also if arms are public.
    """
    report_share = cell.arm if cell.in_turns else 1.0
    share = cell.key * (1.0 if cell.in_turns else cell.arm)
    rate = getattr(cell.question, "rate", None)
    own_hit = 1.0 if rate is None else 4 * rate * (1 - rate)
    return report_share * share**2 / (share * own_hit + noise_variance / cell.people)


@measure_information.register
def _(mechanism: VectorSymbol | GaussianVectors, cell: AskedCell) -> float:
    return _vector_information(cell, mechanism.error / mechanism.ball.coordinates)


@measure_information.register
def _(mechanism: BitVectors, cell: AskedCell) -> float:
    variance = mechanism.bits * mechanism.probability * (1 - mechanism.probability) * mechanism.unit**2
    return _vector_information(cell, variance)


@measure_information.register
def _(mechanism: CentralVectors | RowSums, cell: AskedCell) -> float:
    return _vector_information(cell, (mechanism.standard_deviation * mechanism.ball.step) ** 2 / cell.people)


@measure_information.register
def _(mechanism: FeatureSums, cell: AskedCell) -> float:
    return _vector_information(cell, mechanism.value_noise / cell.people)


@measure_information.register
def _(mechanism: RunningVectors, cell: AskedCell) -> float:
    # Noise of the sum of all rounds, each with the same number of participants.
    total_variance = mechanism.standard_deviation**2 * mechanism.factorization.variance(mechanism.steps)
    return _vector_information(cell, total_variance * mechanism.ball.step**2 / (mechanism.steps * cell.people))


@measure_information.register
def _(mechanism: ScreenedMoments, cell: AskedCell) -> float:
    # The products of a feature with the value have the noise of the last column.
    return _vector_information(cell, float(mechanism.variances[0, -1]) / cell.people)


def _vector_information(cell: AskedCell, variance: float) -> float:
    """Return the information of a participant in a sum of vectors with noise of ``variance``; infinite without."""
    return cell.report_share * cell.cell_share**2 / variance if variance else math.inf
