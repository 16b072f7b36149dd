"""Questions among which coins choose, where a report answers one question alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.primitives.public_coins import UNIT, SlotLayout
from privateer_core.primitives.questions import KeyedHits

Array = NDArray[np.float64]

ABOUT_EVERYBODY: Final = 0.2
"""Largest share of the people who are asked about everybody, where that pays."""
ABOUT_SHARES: Final = 0.08
"""Share of the people who are asked for their segment alone, where nobody has declared how many it has."""
_DIGITS: Final = 3
"""A share has so many decimal places: machines that differ in the last digits of a power agree on it."""
_PAYS: Final = 2 - 1e-9
"""Everybody is asked about where the average effect is told with twice the information, as without."""


@dataclass(frozen=True)
class CoinQuestion:
    """A question."""

    share: float  # share of the people whose coins choose it
    # what is asked: 0 for the reward, then the guardrails by number. None: whether a person is in a segment, to which
    # everybody says yes about their own.
    fact: int | None = 0
    # whether the answer is about everybody instead of a segment. Then the arm is that of the coins alone.
    everybody: bool = False


def questions_of(
    segments: int, facts: int, epsilon: float, declared: bool, explored: float = 1.0
) -> tuple[CoinQuestion, ...]:
    """Return the questions of reports of a local epsilon; empty where everybody answers all that there is.

    segments: number of segments.
    facts: the reward and its guardrails. They are asked by turns where symbols of all answers tell less of each.
    epsilon: of a report.
    declared: whether the owner has said which share of the people each segment has.
    explored: share of the people whose arm is drawn alike whatever is learned. No more are asked about everybody: their
        arm does not follow what is learned of their segment.
    """
    answers = 2 ** (facts - 1)
    if NamedSymbol.names(segments, epsilon):
        joint = (
            facts == 1
            or segment_information(segments, answers, epsilon) > segment_information(segments, 1, epsilon) / facts
        )
        return () if joint else tuple(CoinQuestion(1 / facts, fact) for fact in range(facts))
    shares = 0.0 if declared else ABOUT_SHARES
    most = round(min(ABOUT_EVERYBODY, explored), _DIGITS)
    everybody = most if information_ratio(segments, epsilon, most) >= _PAYS else 0.0
    questions = [CoinQuestion((1 - everybody - shares) / facts, fact) for fact in range(facts)]
    questions += [CoinQuestion(everybody / facts, fact, True) for fact in range(facts) if everybody]
    questions += [CoinQuestion(shares, None)] if shares else []
    return tuple(questions) if len(questions) > 1 else ()


def segment_information(segments: int, answers: int, epsilon: float) -> float:
    """Return the information about each of equal segments in a report that names one of so many answers beside it.

    With q what randomized response keeps, v the probability of a hit and o that of another's symbol: q^2 / v, and v is
    q / J + 2 o a for J segments by a answers. Reports that deal J segments to H buckets hit each with v = 1/H, and have
    no answers beside it: 0.
    """
    mechanism = _calibrated(segments * answers, epsilon)
    q, o = mechanism.response.gain, mechanism.response.other
    if not mechanism.named:
        return 0.0 if answers > 1 else q**2 * mechanism.buckets
    return q**2 / (q / segments + 2 * o * answers)


def information_ratio(segments: int, epsilon: float, share: float) -> float:
    """Return by how much the information about the average grows if a share of the people is asked about everybody.

    Where reports deal J segments to H buckets, the sum of J contributions is told with H q^2 / J. An answer about
    everybody hits its own bucket with v = q + 2 o, and tells q^2 / v. Both together: 1 + share * (J / (H v) - 1).
    """
    mechanism = _calibrated(segments + 1, epsilon)
    hit = mechanism.response.gain + 2 * mechanism.response.other
    return 1 + share * (segments / (mechanism.buckets * hit) - 1)


def _calibrated(keys: int, epsilon: float) -> NamedSymbol:
    return NamedSymbol.calibrated(KeyedHits.of_keys(keys), epsilon)


def coin_layout(seed: int, shares: Array, questions: Sequence[CoinQuestion]) -> SlotLayout:
    """Return what coins mean: groups are arms, within each question asked.

    A question has the same coins in every segment, to the last; one about everybody has each of its arms at the same.

    seed: of the coins.
    shares (segments, arms): shares of the arms; where everybody is asked about, one row more for those questions.
    questions: the questions; none: coins choose arms alone.
    """
    sizes = [question.share for question in questions] or [1.0]
    ends = np.minimum(np.rint(np.cumsum(sizes) * UNIT), UNIT)
    ends[-1] = UNIT
    edges = np.empty((len(shares), len(sizes), shares.shape[1]))
    for place, size in enumerate(sizes):
        rows = shares[-1:] if questions and questions[place].everybody else shares
        edges[:, place] = (sum(sizes[:place]) + size * np.cumsum(rows, axis=1)) * UNIT
        edges[:, place] = np.clip(np.rint(edges[:, place]), ends[place - 1] if place else 0, ends[place])
        edges[:, place, -1] = ends[place]
    return SlotLayout(seed, edges.reshape(len(shares), -1)[:, :-1].astype(np.uint32))
