"""The states of a batch: docs/operations/states.md draws them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class BatchState(StrEnum):
    """The state of the batch of an experiment's newest round."""

    ELSEWHERE = "elsewhere"  # no reports are held: by endpoint, without participants, or beyond a limit
    FILLING = "filling"  # reports are held until there are enough
    DELIVERING = "delivering"  # it takes no more reports, and is on its way to the server
    OVER = "over"  # the server wants no further batch of the version, and the reports are erased
    DELETED = "deleted"  # the server has deleted the experiment, and what was held is erased


class BatchEvent(StrEnum):
    """An event in the life of a batch."""

    HELD = "held"  # reports are taken
    FILLED = "filled"  # all participants of the round have reported, or enough by its deadline
    RENEWED = "renewed"  # too few of its reports could be decrypted, so the server asks for another batch
    ANSWERED = "answered"  # the server has all reports that the version needs
    PUBLISHED = "published"  # the server publishes a round for this shuffler
    MOVED = "moved"  # the server publishes a round that takes no reports here; a batch that is not full is erased
    DELETED = "deleted"  # the server has deleted the experiment


_S, _E = BatchState, BatchEvent
NEXT: Final[Mapping[tuple[BatchState, BatchEvent], BatchState]] = {
    (_S.ELSEWHERE, _E.PUBLISHED): _S.FILLING,
    (_S.ELSEWHERE, _E.MOVED): _S.ELSEWHERE,
    (_S.FILLING, _E.HELD): _S.FILLING,
    (_S.FILLING, _E.PUBLISHED): _S.FILLING,
    (_S.FILLING, _E.FILLED): _S.DELIVERING,
    (_S.FILLING, _E.MOVED): _S.ELSEWHERE,
    (_S.DELIVERING, _E.RENEWED): _S.FILLING,
    (_S.DELIVERING, _E.ANSWERED): _S.OVER,
    (_S.DELIVERING, _E.PUBLISHED): _S.FILLING,  # the full batch is delivered besides
    (_S.DELIVERING, _E.MOVED): _S.ELSEWHERE,
    (_S.OVER, _E.PUBLISHED): _S.FILLING,
    (_S.OVER, _E.MOVED): _S.ELSEWHERE,
    **{(state, _E.DELETED): _S.DELETED for state in (_S.ELSEWHERE, _S.FILLING, _S.DELIVERING, _S.OVER)},
}
