"""The states of a participant's choice, as in docs/sdk/states.md and docs/behaviour.json."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from privateer_client.ledger.account_protocol import Payment
    from privateer_client.participation import StoredChoice


class ReportStatus(StrEnum):
    """The status of a report.

    ``accepted``: it is durable. ``late``: the round closed before the report came. ``not-requested``: the experiment is
    over or paused, it is other people's turn, or other people were drawn. ``already-reported``: this person's reports
    are made, or this period's. ``refused``: the endpoint did not take the report. ``pending``: nobody has decided yet.
    The device keeps what came of the choice until the report is due, or the sealed bytes until an endpoint decides.
    """

    ACCEPTED = "accepted"
    LATE = "late"
    NOT_REQUESTED = "not-requested"
    ALREADY_REPORTED = "already-reported"
    REFUSED = "refused"
    PENDING = "pending"


class ChoiceState(StrEnum):
    """The state of a participant's choice."""

    OFFERED = "offered"  # a round asks this person, and no choice is kept
    CHOSEN = "chosen"  # a choice is kept, and its report is made when its outcome is known
    WAITING = "waiting"  # a choice is kept until its conversion window ends, and with it the last outcome
    DUE = "due"  # nothing changes the choice any more: the next round that takes its report gets it
    DELIVERED = "delivered"  # the report is paid for and sealed, and the choice is erased
    GIVEN_UP = "given-up"  # no round took the report, and the choice is erased
    CLOSED = "closed"  # no round asks this person, and no choice is kept


class ChoiceEvent(StrEnum):
    """An event that changes the state of a choice."""

    ASKED = "asked"  # a round asks this person
    UNASKED = "unasked"  # no round does
    DECIDED = "decided"  # the device decides, in an experiment without a conversion window
    DEFERRED = "deferred"  # the device decides, in an experiment with one
    LAPSED = "lapsed"  # the choice is no longer the person's: an arm is retired, a report would not count, or `fresh`
    OUTCOME = "outcome"  # the application reports
    WINDOW_ENDED = "window-ended"  # the time of the report has come
    TAKEN = "taken"  # the open round takes the report
    DECLINED = "declined"  # the open round does not take the report now, or the open round is unknown
    EXPIRED = "expired"  # and none has for another window, or the report could not wait
    ERASED = "erased"  # the person, or the application, erases the choice
    DELETED = "deleted"  # the experiment is deleted


class Action(StrEnum):
    """An action that a state may allow."""

    KEEP = "keep"  # a choice that is made now is kept
    SHOW = "show"  # the choice that is kept is what the person gets
    STAY = "stay"  # the arm that the person had before is what they get
    REPORT = "report"  # an outcome may count
    MAKE = "make"  # `join` and `flush` make the report


_S, _E, _A = ChoiceState, ChoiceEvent, Action
NEXT: Final[Mapping[tuple[ChoiceState, ChoiceEvent], ChoiceState]] = {
    (_S.OFFERED, _E.UNASKED): _S.CLOSED,
    (_S.OFFERED, _E.DECIDED): _S.CHOSEN,
    (_S.OFFERED, _E.DEFERRED): _S.WAITING,
    (_S.OFFERED, _E.OUTCOME): _S.DUE,  # participants from a source report on earlier arms
    (_S.OFFERED, _E.ERASED): _S.OFFERED,
    (_S.CHOSEN, _E.LAPSED): _S.OFFERED,
    (_S.CHOSEN, _E.OUTCOME): _S.DUE,
    (_S.CHOSEN, _E.ERASED): _S.OFFERED,
    (_S.WAITING, _E.LAPSED): _S.OFFERED,
    (_S.WAITING, _E.OUTCOME): _S.WAITING,
    (_S.WAITING, _E.WINDOW_ENDED): _S.DUE,
    (_S.WAITING, _E.ERASED): _S.OFFERED,
    (_S.DUE, _E.LAPSED): _S.OFFERED,
    (_S.DUE, _E.OUTCOME): _S.DUE,
    (_S.DUE, _E.TAKEN): _S.DELIVERED,
    (_S.DUE, _E.DECLINED): _S.DUE,
    (_S.DUE, _E.EXPIRED): _S.GIVEN_UP,
    (_S.DUE, _E.ERASED): _S.OFFERED,
    (_S.DUE, _E.DELETED): _S.CLOSED,
    (_S.DELIVERED, _E.ASKED): _S.OFFERED,
    (_S.DELIVERED, _E.OUTCOME): _S.DELIVERED,
    (_S.DELIVERED, _E.ERASED): _S.DELIVERED,
    (_S.GIVEN_UP, _E.ASKED): _S.OFFERED,
    (_S.GIVEN_UP, _E.UNASKED): _S.CLOSED,
    (_S.GIVEN_UP, _E.OUTCOME): _S.GIVEN_UP,
    (_S.GIVEN_UP, _E.ERASED): _S.GIVEN_UP,
    (_S.CLOSED, _E.ASKED): _S.OFFERED,
    (_S.CLOSED, _E.OUTCOME): _S.CLOSED,
    (_S.CLOSED, _E.ERASED): _S.CLOSED,
}
ALLOWED: Final[Mapping[ChoiceState, frozenset[Action]]] = {
    _S.OFFERED: frozenset({_A.KEEP, _A.REPORT}),  # a choice that is the same for all needs no call of `choose`
    _S.CHOSEN: frozenset({_A.SHOW, _A.REPORT}),
    _S.WAITING: frozenset({_A.SHOW, _A.REPORT}),
    _S.DUE: frozenset({_A.STAY, _A.REPORT, _A.MAKE}),
    _S.DELIVERED: frozenset({_A.STAY}),
    _S.GIVEN_UP: frozenset({_A.STAY}),
    _S.CLOSED: frozenset({_A.STAY}),
}
OUTCOMES: Final[Mapping[ChoiceState, ReportStatus]] = {
    _S.WAITING: ReportStatus.PENDING,
    _S.DUE: ReportStatus.PENDING,
    _S.DELIVERED: ReportStatus.ALREADY_REPORTED,
    _S.GIVEN_UP: ReportStatus.NOT_REQUESTED,
    _S.CLOSED: ReportStatus.NOT_REQUESTED,
}
"""The result of `report` in the states in which it sends nothing."""


def find_state(
    stored: "StoredChoice | None",
    payment: "Payment | None",
    now: float,
    period: int,
    is_report_requested: Callable[[], bool],
) -> ChoiceState:
    """Derive the state from the payment, else from the stored choice, else from whether a round asks for reports."""
    if payment is not None and not payment.allows(period if stored is None else stored.period):
        return ChoiceState.DELIVERED
    if stored is None:
        return ChoiceState.OFFERED if is_report_requested() else ChoiceState.CLOSED
    if stored.is_due(now):
        return ChoiceState.DUE
    return ChoiceState.WAITING if stored.window else ChoiceState.CHOSEN
