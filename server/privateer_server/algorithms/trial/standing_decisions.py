"""What a trial's looks have decided so far, and the arm that follows for everybody."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class StandingDecisions:
    """Decisions on effects, with the last interval of each; arrays of any shape S.

    Few people get an arm that is dropped, so that later looks have no interval for it. Its decision stands, and so does
    its last interval: intervals of all looks hold together.
    """

    intervals: Array  # shape (*S, 3): estimate and ends at the last look that had an interval; nan where none had
    people: NDArray[np.int64]  # shape S, int64: how many people had reported at that look
    # shape S: whether a test has decided it at some look, as the spec corrects for several effects, and the interval
    # leaves 0 out
    decided: NDArray[np.bool_]
    tested: NDArray[np.bool_]  # shape S: whether a test has decided it at some look
    better: NDArray[np.bool_]  # shape S: whether it is decided, and above 0

    @classmethod
    def of(
        cls, path: Array, people: NDArray[np.float64], tested: NDArray[np.bool_], beside: tuple[Array, Array]
    ) -> "StandingDecisions":
        """Return what follows from the intervals of all looks, (looks, *S, 3), and the people at each.

        Where no look had an interval, the ends ``beside``, S each, tell the side of 0 on which the effect is.
        """
        known = np.isfinite(path[..., 0])
        last = len(path) - 1 - np.argmax(known[::-1], axis=0)
        found = np.take_along_axis(path, last[None, ..., None], axis=0)[0]
        low, high = (np.where(known.any(axis=0), found[..., end], beside[end - 1]) for end in (1, 2))
        better = tested & (low > 0)
        return cls(found, people.astype(np.int64)[last], better | (tested & (high < 0)), tested, better)

    @property
    def worse(self) -> NDArray[np.bool_]:
        """Shape S: whether it is decided, and below 0."""
        return self.decided & ~self.better


def leader(effects: Array) -> int:
    """Return the arm with the largest of effects (K,); the control where none is above 0."""
    return int(np.argmax(np.concatenate([[0.0], np.nan_to_num(effects)])))


def decided_arms(
    called: StandingDecisions, average: StandingDecisions | None, ahead: Array
) -> tuple[NDArray[np.int64], int]:
    """Return the arm of each segment, (J,), and that for all: the control unless another one is decided to be better.

    What is decided on average holds in a segment of which nothing is decided, unless it is decided to be worse there.

    ahead (J, K + 1): values of the arms, of which those that are better are ranked.
    """
    own = np.where(called.better.any(axis=1), 1 + np.where(called.better, ahead[:, 1:], -np.inf).argmax(axis=1), 0)
    if average is None:
        return own, int(own[0])
    for_all = leader(np.where(average.better, average.intervals[:, 0], 0.0))
    if not for_all:
        return own, 0
    return np.where((own > 0) | called.worse[:, for_all - 1], own, for_all), for_all
