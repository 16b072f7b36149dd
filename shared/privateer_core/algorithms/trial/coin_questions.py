"""Questions chosen by coins, if a report answers a single question."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from privateer_core.arrays import Array
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.primitives.public_coins import UNIT, SlotLayout
from privateer_core.primitives.questions import KeyedHits

EVERYBODY_SHARE_MAX: Final = 0.2  # maximum share of participants with a question about all participants
MEMBERSHIP_QUESTION_SHARE: Final = 0.08
"""Share of participants with a question about their segment alone, if the spec declares no shares of segments."""
_SHARE_DECIMALS: Final = 3  # decimal places of a share, so that machines with different rounding errors agree on it
_MIN_INFORMATION_RATIO: Final = 2 - 1e-9
"""Minimum ratio of information about the average effect, with and without questions about all participants."""


@dataclass(frozen=True)
class CoinQuestion:
    """A question that coins choose."""

    share: float  # share of participants whose coins choose it
    # the subject: 0 for the reward, then the guardrails by number. None: whether a participant is in a segment, as they
    # are in their own.
    fact: int | None = 0
    # whether the answer is about all participants instead of a segment. Then the coins alone choose the arm.
    everybody: bool = False


def make_coin_questions(
    n_segments: int, n_facts: int, epsilon: float, has_declared_shares: bool, explored_share: float = 1.0
) -> tuple[CoinQuestion, ...]:
    """Return the questions and shares of coins for locally private reports; empty if one report answers all.

    n_facts: number of the reward and its guardrails, which have separate questions if that is more informative.
    explored_share: share of participants whose arm does not depend on results, which bounds the share of questions
        about all participants.
    """
    n_answers = 2 ** (n_facts - 1)
    if NamedSymbol.can_name_keys(n_segments, epsilon):
        if n_facts == 1:
            return ()
        single, joint = (segment_information(n_segments, n, epsilon) for n in (1, n_answers))
        return () if joint > single / n_facts else tuple(CoinQuestion(1 / n_facts, fact) for fact in range(n_facts))
    membership_share = 0.0 if has_declared_shares else MEMBERSHIP_QUESTION_SHARE
    max_share = round(min(EVERYBODY_SHARE_MAX, explored_share), _SHARE_DECIMALS)
    overall_share = max_share if information_ratio(n_segments, epsilon, max_share) >= _MIN_INFORMATION_RATIO else 0.0
    questions = [CoinQuestion((1 - overall_share - membership_share) / n_facts, fact) for fact in range(n_facts)]
    questions += [CoinQuestion(overall_share / n_facts, fact, True) for fact in range(n_facts) if overall_share]
    questions += [CoinQuestion(membership_share, None)] if membership_share else []
    return tuple(questions) if len(questions) > 1 else ()


def segment_information(n_segments: int, n_answers: int, epsilon: float) -> float:
    """Return the information about each of equal segments in a report of the segment and one of ``n_answers``.

    With q the truth probability of randomized response, v the probability of a hit and o of another symbol: q^2 / v,
    where v is q / J + 2 o a for J segments by a answers. Reports that hash J segments to H buckets hit each with
    v = 1/H, and can have no answers: 0.
    """
    mechanism = _calibrate_symbol(n_segments * n_answers, epsilon)
    q, o = mechanism.response.gain, mechanism.response.other
    if not mechanism.is_named:
        return 0.0 if n_answers > 1 else q**2 * mechanism.buckets
    return q**2 / (q / n_segments + 2 * o * n_answers)


def information_ratio(n_segments: int, epsilon: float, share: float) -> float:
    """Return the ratio of information about the average if a share of participants is asked about all participants.

    If reports hash J segments to H buckets, the sum of J contributions has the information H q^2 / J. An answer about
    all participants hits its own bucket with v = q + 2 o, and has q^2 / v. The ratio is 1 + share * (J / (H v) - 1).
    """
    mechanism = _calibrate_symbol(n_segments + 1, epsilon)
    hit_probability = mechanism.response.gain + 2 * mechanism.response.other
    return 1 + share * (n_segments / (mechanism.buckets * hit_probability) - 1)


def _calibrate_symbol(n_keys: int, epsilon: float) -> NamedSymbol:
    return NamedSymbol.calibrated(KeyedHits.from_keys(n_keys), epsilon)


def make_coin_layout(seed: int, shares: Array, questions: Sequence[CoinQuestion]) -> SlotLayout:
    """Return the layout of coins: groups are arms within each question.

    A question has the same coins in every segment; in a question about all participants each arm has, too.

    shares (segments, arms): shares of the arms, with an additional row for questions about all participants.
    questions: the questions; empty: coins choose arms alone.
    """
    question_shares = [question.share for question in questions] or [1.0]
    ends = np.minimum(np.rint(np.cumsum(question_shares) * UNIT), UNIT)
    ends[-1] = UNIT
    edges = np.empty((len(shares), len(question_shares), shares.shape[1]))
    for index, question_share in enumerate(question_shares):
        rows = shares[-1:] if questions and questions[index].everybody else shares
        edges[:, index] = (sum(question_shares[:index]) + question_share * np.cumsum(rows, axis=1)) * UNIT
        edges[:, index] = np.clip(np.rint(edges[:, index]), ends[index - 1] if index else 0, ends[index])
        edges[:, index, -1] = ends[index]
    return SlotLayout(seed, edges.reshape(len(shares), -1)[:, :-1].astype(np.uint32))
