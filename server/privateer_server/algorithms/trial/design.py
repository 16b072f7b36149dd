"""What a trial fixes before its first person: level, people and shares."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
    """

    alpha: float
    people: float
    arms: Array
    segments: Array
    counted: bool = True
