"""Uploads that wait for the next transaction: whose reports it takes, and what their senders are answered."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from privateer_core.errors import DuplicateReport, PrivateerError, Unavailable
from privateer_core.serving.token_gate import Admission
from privateer_core.wire.envelope import pieces


class PoolReceipt(NamedTuple):
    """What became of the reports of a request: how many are held and were refused, by slug, and the first refusal."""

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


class WaitingUpload(NamedTuple):
    """A request: the sealed reports of people, and what admits it, if it must be admitted."""

    sealed: list[bytes]
    receipt: asyncio.Future[PoolReceipt]
    admission: Admission | None


@dataclass(slots=True)
class PersonReport:
    """One person's messages, and why they are not held, if they are not.

    Attributes
    ----------
    fingerprints
        What identifies the messages in their round.
    token
        What is kept of the upload token; empty: there is none.
    """

    upload: WaitingUpload
    messages: list[bytes]
    fingerprints: list[bytes]
    token: bytes = b""
    refusal: PrivateerError | None = None

    @property
    def expires(self) -> int:
        """When the key of the upload token expires, in seconds since 1970."""
        assert self.upload.admission, "it has a token"
        return self.upload.admission.expires


def people_of(
    group: Iterable[WaitingUpload],
    size: int,
    fingerprint: Callable[[bytes], bytes],
    token: Callable[[bytes], bytes] | None,
) -> Iterator[PersonReport]:
    """Yield the people of requests.

    Parameters
    ----------
    size
        Bytes of a message.
    fingerprint, token
        Hash a message, and the nonce of an upload token; None: reports come without.
    """
    for upload in group:
        own = token(upload.admission.nonce) if token and upload.admission else b""
        for report in upload.sealed:
            messages = pieces(report, size)
            yield PersonReport(upload, messages, [fingerprint(one) for one in messages], own)


def decide(
    people: Iterable[PersonReport],
    room: int,
    is_known: Callable[[Sequence[bytes]], bool],
    is_spent: Callable[[bytes], bool],
) -> list[PersonReport]:
    """Refuse duplicates, those for whom there is no room, and those whose tokens were spent, in this order.

    Parameters
    ----------
    is_known
        Whether any message with these fingerprints was taken before.
    is_spent
        Whether an upload token was.

    Returns
    -------
    list of PersonReport
        The people whose messages are to be held, all of them or none.
    """
    taken: list[PersonReport] = []
    seen, used = set[bytes](), set[bytes]()
    for person in people:
        fingerprints, token = person.fingerprints, person.token
        if is_known(fingerprints) or not seen.isdisjoint(fingerprints) or _repeats(fingerprints):
            person.refusal = duplicate()
        elif len(taken) >= room:
            person.refusal = waiting()
        elif token and (token in used or is_spent(token)):
            refuse_spent(person)
        elif person.upload.admission and person.upload.admission.is_spent:
            person.refusal = taken_back()
        else:
            taken.append(person)
            seen.update(fingerprints)
            used.add(token)
    return taken


def _repeats(fingerprints: Sequence[bytes]) -> bool:
    return len(fingerprints) > 1 and len(set(fingerprints)) < len(fingerprints)


def receipts(group: Sequence[WaitingUpload], people: Iterable[PersonReport]) -> list[PoolReceipt]:
    """Return the answer to each request."""
    refusals: dict[int, list[PrivateerError]] = {}
    for person in people:
        if person.refusal:
            refusals.setdefault(id(person.upload), []).append(person.refusal)
    return [PoolReceipt.of(len(upload.sealed), refusals.get(id(upload), ())) for upload in group]


def refuse_all(group: Iterable[WaitingUpload], refusal: PrivateerError) -> list[PoolReceipt]:
    """Return the answers to requests of which nothing is taken."""
    return [PoolReceipt.of(len(upload.sealed), [refusal] * len(upload.sealed)) for upload in group]


def settle(group: Sequence[WaitingUpload], answers: Sequence[PoolReceipt] | None) -> None:
    """Give requests their receipts; None: nothing is stored."""
    for index, upload in enumerate(group):
        if upload.receipt.done():  # the sender has hung up
            continue
        if answers is None:
            upload.receipt.set_exception(failure())
        else:
            upload.receipt.set_result(answers[index])


def refuse_spent(person: PersonReport) -> None:
    """Refuse a report whose token was spent."""
    assert person.upload.admission, "it has a token"
    person.refusal = person.upload.admission.spent()


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
