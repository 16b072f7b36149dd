"""The states of a round of reports: docs/operations/states.md draws them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class RoundState(StrEnum):
    """The state of a round."""

    OPEN = "open"  # it takes reports; without participants it stays open until the next publication is due
    CLOSED = "closed"  # it takes no more reports, and is learned from
    GIVEN_UP = "given-up"  # it takes no more reports, and nothing is learned from its reports
    LEARNED = "learned"  # its sums are released, and the next round is published
    MISSED = "missed"  # nothing of it is released, and the next round is published


class RoundEvent(StrEnum):
    """An event of a round."""

    REPORTED = "reported"  # reports are counted, and others are awaited
    FILLED = "filled"  # as many participants have reported as were invited
    DELIVERED = "delivered"  # its batches have as many participants as the privacy guarantee assumes
    DUE = "due"  # its deadline is over, and enough participants have reported
    ENDED = "ended"  # the operator, or the last late report, ends it with enough participants to learn from
    CUT_SHORT = "cut-short"  # the operator, or the last late report, ends it with too few participants
    EXPIRED = "expired"  # its deadline is over for longer than the maximum wait
    LOST = "lost"  # its key, its sums or its last batch are lost, or it may have been released before
    TOO_FEW = "too-few"  # the next round is on record, and fewer have reported than the privacy guarantee assumes
    PUBLISHED = "published"  # the next round is on record


_S, _E = RoundState, RoundEvent
NEXT: Final[Mapping[tuple[RoundState, RoundEvent], RoundState]] = {
    (_S.OPEN, _E.REPORTED): _S.OPEN,
    (_S.OPEN, _E.FILLED): _S.CLOSED,
    (_S.OPEN, _E.DELIVERED): _S.CLOSED,
    (_S.OPEN, _E.DUE): _S.CLOSED,
    (_S.OPEN, _E.ENDED): _S.CLOSED,
    (_S.OPEN, _E.CUT_SHORT): _S.GIVEN_UP,
    (_S.OPEN, _E.EXPIRED): _S.GIVEN_UP,
    (_S.OPEN, _E.LOST): _S.GIVEN_UP,
    (_S.CLOSED, _E.LOST): _S.GIVEN_UP,
    (_S.CLOSED, _E.TOO_FEW): _S.MISSED,
    (_S.CLOSED, _E.PUBLISHED): _S.LEARNED,
    (_S.GIVEN_UP, _E.PUBLISHED): _S.MISSED,
}
