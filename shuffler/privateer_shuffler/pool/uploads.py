"""Uploads that wait for the next transaction: whose reports it takes, and what their senders are answered."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from privateer_core.errors import DuplicateReport, PrivateerError, Unavailable
from privateer_core.serving.token_gate import Admission
from privateer_core.wire.envelope import pieces


class PoolReceipt(NamedTuple):
    """The outcome of a request's reports: how many are held and were refused, by slug, and the first refusal."""

    accepted: int
    refused: dict[str, int]
    problem: PrivateerError | None

    @classmethod
    def of(cls, people: int, refusals: Sequence[PrivateerError]) -> "PoolReceipt":
        """Return the receipt of a request with the reports of so many people."""
        refused: dict[str, int] = {}
        for refusal in refusals:
            refused[refusal.slug] = refused.get(refusal.slug, 0) + 1
        return cls(people - len(refusals), refused, refusals[0] if refusals else None)


@dataclass(slots=True, eq=False)
class WaitingUpload:
    """A request with the sealed reports of people."""

    sealed: list[bytes]
    receipt: asyncio.Future[PoolReceipt]
    admission: Admission | None  # what admits it, if it must be admitted
    # why people's reports are not held, of those of whom they are not
    refusals: list[PrivateerError] = field(default_factory=list)

    def refuse_spent(self) -> None:
        """Refuse the report, since its token was spent."""
        assert self.admission, "it has a token"
        self.refusals.append(self.admission.spent())

    def refuse_all(self, refusal: PrivateerError) -> None:
        """Take no report."""
        self.refusals = [refusal] * len(self.sealed)

    def answer(self) -> PoolReceipt:
        """Return the receipt, once it is decided what is held."""
        return PoolReceipt.of(len(self.sealed), self.refusals)


class Portion(NamedTuple):
    """The messages of some people of an upload, which are held together."""

    upload: WaitingUpload
    people: int
    messages: list[bytes]
    fingerprints: list[bytes]  # what identifies the messages in their round
    token: bytes = b""  # what is kept of the upload token; empty: there is none

    @property
    def expires(self) -> int:
        """When the key of the upload token expires, in seconds since 1970."""
        assert self.upload.admission, "it has a token"
        return self.upload.admission.expires

    def split(self) -> Iterator["Portion"]:
        """Yield the portion of each of the people."""
        each = len(self.messages) // self.people
        for start in range(0, len(self.messages), each):
            own = slice(start, start + each)
            yield Portion(self.upload, 1, self.messages[own], self.fingerprints[own], self.token)


def portions_of(
    group: Iterable[WaitingUpload],
    size: int,
    fingerprints: Callable[[list[bytes]], list[bytes]],
    token: Callable[[bytes], bytes] | None,
) -> list[Portion]:
    """Return what requests bring, each as one portion.

    size: bytes of a message.
    fingerprints, token: hash messages, and the nonce of an upload token; None: reports come without.
    """
    portions = []
    for upload in group:
        messages = pieces(b"".join(upload.sealed), size)
        own = token(upload.admission.nonce) if token and upload.admission else b""
        portions.append(Portion(upload, len(upload.sealed), messages, fingerprints(messages), own))
    return portions


def decide(
    portions: Iterable[Portion],
    room: int,
    is_known: Callable[[list[bytes]], bool],
    is_spent: Callable[[Portion], bool],
) -> list[Portion]:
    """Return what is to be held: whole uploads, or those of their people who are not refused.

    Refused are duplicates, those for whom there is no room, and those whose tokens were spent, in this order. All
    messages of a person are held, or none.

    room: for so many people.
    is_known: whether any message with these fingerprints was taken before.
    is_spent: whether the upload token of a portion was.
    """
    taken: list[Portion] = []
    seen, used = set[bytes](), set[bytes]()

    def take(one: Portion) -> PrivateerError | None:
        nonlocal room
        own, admission = one.fingerprints, one.upload.admission
        if len(set(own)) < len(own) or not seen.isdisjoint(own) or is_known(own):
            return duplicate()
        if one.people > room:
            return waiting()
        if one.token and admission and (one.token in used or is_spent(one)):
            return admission.spent()
        if admission and admission.is_spent:
            return taken_back()
        taken.append(one)
        room -= one.people
        seen.update(own)
        used.add(one.token)
        return None

    for whole in portions:
        problem = take(whole)
        if problem and whole.people > 1:
            whole.upload.refusals += [own for person in whole.split() if (own := take(person))]
        elif problem:
            whole.upload.refusals.append(problem)
    return taken


def settle(group: Iterable[WaitingUpload], stored: bool) -> None:
    """Give requests their receipts, or the refusal of what could not be stored."""
    for upload in group:
        if upload.receipt.done():  # the sender has hung up
            continue
        if stored:
            upload.receipt.set_result(upload.answer())
        else:
            upload.receipt.set_exception(failure())


def duplicate() -> DuplicateReport:
    """Return the refusal of a report that is held, or was in an earlier batch."""
    return DuplicateReport("the report was accepted already", remedy="nothing to do")


def waiting() -> Unavailable:
    """Return the refusal of reports that come while a full batch is on its way. The server may ask for another."""
    return Unavailable("the batch of this version is full and on its way", remedy="send the same bytes again later")


def failure() -> Unavailable:
    """Return the refusal of reports that could not be stored."""
    return Unavailable("the shuffler cannot store reports", remedy="send the same bytes again later")


def taken_back() -> Unavailable:
    """Return the refusal of a token that was spent, and is so no more: nobody has looked at its signature."""
    return Unavailable("the disk did not take the report", remedy="send the same bytes again later")
