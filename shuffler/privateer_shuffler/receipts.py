"""Requests that wait until their reports are durable, and what they are told then."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from privateer_core.errors import DuplicateReport, PrivateerError, Unavailable
from privateer_core.serving.tokens import Admission


class Receipt(NamedTuple):
    """What became of the reports of a request: how many are held and were refused, by slug, and the first refusal."""

    accepted: int
    refused: dict[str, int]
    problem: PrivateerError | None

    @classmethod
    def of(cls, people: int, refusals: Sequence[PrivateerError]) -> "Receipt":
        """Return the receipt of a request with the reports of so many people."""
        refused: dict[str, int] = {}
        for refusal in refusals:
            refused[refusal.slug] = refused.get(refusal.slug, 0) + 1
        return cls(people - len(refusals), refused, refusals[0] if refusals else None)


class Waiting(NamedTuple):
    """A request: the sealed reports of people, and what admits it, if it must be admitted."""

    sealed: list[bytes]
    receipt: asyncio.Future[Receipt]
    admission: Admission | None


def settle(group: Sequence[Waiting], receipts: Sequence[Receipt] | None) -> None:
    """Give requests their receipts; None: nothing is stored."""
    for index, request in enumerate(group):
        if request.receipt.done():  # the sender has hung up
            continue
        if receipts is None:
            request.receipt.set_exception(failure())
        else:
            request.receipt.set_result(receipts[index])


def duplicate() -> DuplicateReport:
    """Return the refusal of a report that is held, or was in an earlier batch."""
    return DuplicateReport("the report was accepted already", remedy="nothing to do")


def waiting() -> Unavailable:
    """Return the refusal of reports that come while a full batch is on its way. The server may ask for another."""
    return Unavailable("the batch of this version is full and on its way", remedy="send the same bytes again later")


def failure() -> Unavailable:
    """Return the refusal of reports that could not be stored."""
    return Unavailable("the shuffler cannot store reports", remedy="send the same bytes again later")


def in_tenths(people: int, batch: int) -> int:
    """Return a number of people rounded down to tenths of a batch, for the operator alone.

    A live count would reveal to whoever watches it when somebody reported, and so how long after fetching the policy.
    Tenths reveal it, too, to a stranger who fills the pool to just below one.
    """
    step = max(1, batch // 10)
    return people // step * step
