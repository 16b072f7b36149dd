"""What one person's report tells the learner: the measure by which trust models, epsilons and rounds are compared.

For means by key it is the squared gain over the variance of a report's score, ``q^2 / v``, times the share of people
who say something of a cell; for vectors it is one over the variance of a coordinate. Half-widths are in proportion to
one over its square root.
"""

import math
from dataclasses import dataclass, replace
from functools import singledispatch

import numpy as np

from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.central_sums import CentralSums
from privateer_core.mechanisms.event_symbol import EventSymbol
from privateer_core.mechanisms.grouped_bit import GroupedBit
from privateer_core.mechanisms.mechanism import Mechanism
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.mechanisms.screened_moments import ScreenedMoments
from privateer_core.mechanisms.signed_symbol import SignedSymbol
from privateer_core.mechanisms.vectors.running_vectors import RunningVectors
from privateer_core.mechanisms.vectors.vector_bits import BitVectors
from privateer_core.mechanisms.vectors.vector_noise import CentralVectors, GaussianVectors
from privateer_core.mechanisms.vectors.vector_symbol import VectorSymbol
from privateer_core.primitives.questions import KeyedMeans, Question, VectorSum


@dataclass(frozen=True)
class AskedCell:
    """What a round asks, and of whom."""

    question: Question  # the question
    people: int  # people of the round
    key: float = 1.0  # share of people who have the key, or bin, that is looked at
    arm: float = 1.0  # share of them who have the arm that is looked at; 1 where reports are not about one arm each
    # whether a round asks about one arm, and each has as many rounds as its share: then as little is lost on others as
    # where coins tell them apart
    in_turns: bool = False

    @property
    def tells_arms(self) -> bool:
        """Whether what is public tells a report's arm, so that other arms' reports are told apart."""
        if self.in_turns:
            return True
        if isinstance(self.question, VectorSum):
            return self.question.classes > 1
        return self.question.layout.groups > 1

    @property
    def apart(self) -> float:
        """Share of the reports among which the cell's are, as far as is public."""
        return self.arm if self.tells_arms else 1.0

    @property
    def within(self) -> float:
        """Share of those reports that are the cell's."""
        return self.key if self.tells_arms else self.key * self.arm


@singledispatch
def information(mechanism: Mechanism, asked: AskedCell) -> float:
    """Return what one person tells of one cell, or of one coordinate; infinite where nothing is added to a vector.

    mechanism: what the round's terms have.
    asked: what the round asks.
    """
    kinds = f"{type(mechanism).__name__}, asked {type(asked.question).__name__}"
    raise TypeError(f"nobody has said how much is told by a {kinds}")


@information.register
def _(mechanism: SignedSymbol, asked: AskedCell) -> float:
    if isinstance(asked.question, KeyedMeans) and asked.question.rate is not None:
        return _of_rate(mechanism, asked)
    own, other = mechanism.response.truth + mechanism.response.other, mechanism.response.other
    bucketed = own / mechanism.buckets + 2 * other * (1 - 1 / mechanism.buckets)
    return _scored(asked, mechanism.response.gain, own, bucketed)


@information.register
def _(mechanism: EventSymbol, asked: AskedCell) -> float:
    return _of_rate(mechanism, asked)


def _of_rate(mechanism: SignedSymbol | EventSymbol, asked: AskedCell) -> float:
    """Return the information of a report on a rare rate, whose estimate has a variance of its own."""
    assert isinstance(asked.question, KeyedMeans)
    question = replace(asked.question, key_share=asked.within)
    return asked.apart * asked.within**2 / (4 * mechanism.variance(question))


@information.register
def _(mechanism: GroupedBit, asked: AskedCell) -> float:
    # The arm that is looked at is the first group.
    return asked.arm * float(mechanism.gains[0]) ** 2


@information.register
def _(mechanism: NamedSymbol, asked: AskedCell) -> float:
    response, levels = mechanism.response, mechanism.levels
    own = response.truth + response.other
    # Scores of those that say nothing of the key are at every level alike.
    foreign = response.other * float(np.square(np.linspace(-1, 1, levels)).sum())
    if mechanism.named:
        return _scored(asked, response.gain, response.gain + foreign, foreign)
    others = mechanism.together * own + (1 - mechanism.together) * 2 * response.other
    return _scored(asked, response.gain, own, others)


def _scored(asked: AskedCell, gain: float, own: float, others: float) -> float:
    """Return that of a score which is not 0 with probability ``own`` for the cell's people, ``others`` for the rest."""
    share = asked.within
    return asked.apart * (gain * share) ** 2 / (share * own + (1 - share) * others)


@information.register
def _(mechanism: CentralSums, asked: AskedCell) -> float:
    laplace = 2 * mechanism.scale**2
    return _curated(asked, mechanism.standard_deviation**2 + laplace)


@information.register
def _(mechanism: CellPairs, asked: AskedCell) -> float:
    # A score is the difference of the first and the last sum.
    return _curated(asked, 2 * mechanism.noise)


def _curated(asked: AskedCell, noise: float) -> float:
    """Return that of a person in a cell's sum, to which a curator adds noise; people's own scores vary, too.

    Cells of other arms have noise of their own, whatever is public of arms.
    """
    apart = asked.arm if asked.in_turns else 1.0
    share = asked.key * (1.0 if asked.in_turns else asked.arm)
    rate = getattr(asked.question, "rate", None)
    own = 1.0 if rate is None else 4 * rate * (1 - rate)
    return apart * share**2 / (share * own + noise / asked.people)


@information.register
def _(mechanism: VectorSymbol, asked: AskedCell) -> float:
    return _vector(asked, mechanism.error / mechanism.ball.coordinates)


@information.register
def _(mechanism: GaussianVectors, asked: AskedCell) -> float:
    return _vector(asked, mechanism.error / mechanism.ball.coordinates)


@information.register
def _(mechanism: BitVectors, asked: AskedCell) -> float:
    each = mechanism.bits * mechanism.probability * (1 - mechanism.probability) * mechanism.unit**2
    return _vector(asked, each)


@information.register
def _(mechanism: CentralVectors, asked: AskedCell) -> float:
    return _vector(asked, (mechanism.standard_deviation * mechanism.ball.step) ** 2 / asked.people)


@information.register
def _(mechanism: RunningVectors, asked: AskedCell) -> float:
    # Noise of the sum of all rounds, each of as many people.
    whole = mechanism.standard_deviation**2 * mechanism.factorization.variance(mechanism.steps)
    return _vector(asked, whole * mechanism.ball.step**2 / (mechanism.steps * asked.people))


@information.register
def _(mechanism: ScreenedMoments, asked: AskedCell) -> float:
    # The products of a feature with the value have the noise of the last column.
    return _vector(asked, float(mechanism.variances[0, -1]) / asked.people)


def _vector(asked: AskedCell, each: float) -> float:
    """Return that of a person in a sum of vectors, who adds noise of variance ``each`` to every coordinate."""
    return asked.apart * asked.within**2 / each if each else math.inf
