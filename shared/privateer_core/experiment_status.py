"""The status of an experiment, and its transitions: docs/operations/states.md draws them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Status(StrEnum):
    """The status of an experiment."""

    OPEN = "open"  # participants are asked for reports
    PAUSED = "paused"  # no participants are asked until the experiment is resumed
    DRAINING = "draining"  # no participants are asked, and late reports are awaited
    STOPPED = "stopped"  # an operator has ended it
    FINISHED = "finished"  # all participants have been asked
    FAILED = "failed"  # a round could not be closed

    @property
    def is_over(self) -> bool:
        """Whether the experiment asks for no more reports."""
        return self not in (Status.OPEN, Status.PAUSED, Status.DRAINING)


_S: Final = Status
NEXT: Final[Mapping[tuple[Status, str], Status]] = {
    (_S.OPEN, "pause"): _S.PAUSED,
    (_S.OPEN, "stop"): _S.STOPPED,
    (_S.OPEN, "extend"): _S.OPEN,
    (_S.OPEN, "add-arm"): _S.OPEN,
    (_S.OPEN, "retire-arm"): _S.OPEN,
    (_S.OPEN, "last round"): _S.FINISHED,
    (_S.OPEN, "late reports"): _S.DRAINING,
    (_S.OPEN, "no end"): _S.FAILED,
    (_S.PAUSED, "resume"): _S.OPEN,
    (_S.PAUSED, "stop"): _S.STOPPED,
    (_S.PAUSED, "extend"): _S.PAUSED,
    (_S.PAUSED, "add-arm"): _S.PAUSED,
    (_S.PAUSED, "retire-arm"): _S.PAUSED,
    (_S.DRAINING, "pause"): _S.PAUSED,
    (_S.DRAINING, "stop"): _S.STOPPED,
    (_S.DRAINING, "extend"): _S.OPEN,
    (_S.DRAINING, "retire-arm"): _S.DRAINING,
    (_S.DRAINING, "last round"): _S.FINISHED,
    (_S.FINISHED, "extend"): _S.OPEN,
    (_S.FINISHED, "retire-arm"): _S.FINISHED,  # participants still get arms, and none may be out of reach
    (_S.STOPPED, "retire-arm"): _S.STOPPED,
}
"""The next status by status and event: a change by an operator, or the end of a round."""


def statuses_before(event: str) -> frozenset[Status]:
    """Return the statuses in which an event is allowed; an empty set means all of them."""
    return frozenset(status for status in Status if (status, event) in NEXT)
