"""What a trial fixes before its first person: level, people and shares."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.mechanisms.named_symbol import NamedSymbol

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Design:
    """What intervals and weights are planned for. Nothing in it depends on data.

    Attributes
    ----------
    alpha
        1 - the level of intervals, in (0, 1).
    people
        Reports planned over the whole trial.
    arms
        Shape (K + 1,), above 0, summing to 1: planned shares of the arms; arm 0 is the control.
    segments
        Shape (J,), above 0: planned shares of people. They decide how good weights are, and whether they are right
        where ``counted`` is not set.
    counted
        Whether hits tell a segment's share of people: a person hits its own segment (q p + 2 o of the reports do).
        Otherwise hits are public slots, and the share has to be asked or declared.
    hit
        Share of the reports that hit a segment where hits are not counted: 1 if every report is about all.
    """

    alpha: float
    people: float
    arms: Array
    segments: Array
    counted: bool = True
    hit: float = 1.0

    @property
    def precision(self) -> float:
        """Information about the average effect, up to q^2 and the shares of arms, where hits are not counted."""
        return self.people / (len(self.segments) * self.hit)


@dataclass(frozen=True)
class Designs:
    """What is planned for people who are asked about their segment, and for those who are asked about everybody."""

    segments: Design
    everybody: Design | None


def designs(spec: TrialSpec) -> Designs:
    """Return what a spec plans: people of all epochs, by what coins ask them."""
    terms, people, questions = spec.planned(""), spec.experiment.horizon, spec.questions
    own = Design(spec.algorithm.level, people, np.array(spec.arm_shares), spec.segment_shares)
    mechanism = terms.mechanism if terms else None
    if questions:
        own = replace(own, people=people * questions[0].share)
    if not isinstance(mechanism, NamedSymbol) or mechanism.named:
        return Designs(own, None)
    own = replace(own, counted=False, hit=1 / mechanism.buckets)
    about = next((question.share for question in questions if question.everybody), None)
    if about is None:
        return Designs(own, None)
    hit = mechanism.response.gain + 2 * mechanism.response.other
    return Designs(own, replace(own, people=people * about, segments=np.ones(1), hit=hit))
