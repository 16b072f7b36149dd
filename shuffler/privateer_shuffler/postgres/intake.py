"""What becomes of each report of a group that one transaction takes."""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from privateer_core.errors import PrivateerError
from privateer_core.wire.envelope import pieces
from privateer_shuffler.postgres.spent import SharedSpent
from privateer_shuffler.receipts import Receipt, Waiting, duplicate, waiting

_HASH_BYTES: Final = 16


@dataclass
class Person:
    """One person's messages, and why they are not held, if they are not.

    Attributes
    ----------
    token
        What is kept of the upload token; empty: there is none.
    """

    request: Waiting
    messages: list[bytes]
    fingerprints: list[bytes]
    token: bytes = b""
    refusal: PrivateerError | None = None


def keyed_hash(message: bytes, key: bytes) -> bytes:
    """Return a hash of a message that nobody computes without the key."""
    return hashlib.blake2b(message, digest_size=_HASH_BYTES, key=key).digest()


def people_of(group: Sequence[Waiting], size: int, key: bytes, spent: SharedSpent | None) -> Iterator[Person]:
    """Yield the people of requests; ``size`` is that of a message, and ``key`` is for fingerprints."""
    for request in group:
        token = spent.hash(request.admission.nonce) if request.admission and spent else b""
        for report in request.sealed:
            messages = pieces(report, size)
            yield Person(request, messages, [keyed_hash(one, key) for one in messages], token)


def decide(people: Sequence[Person], known: Collection[bytes], spent: Collection[bytes], room: int) -> None:
    """Refuse duplicates, those for whom there is no room, and those whose tokens were spent, in this order."""
    held, used = set(known), set(spent)
    for person in people:
        if len(set(person.fingerprints)) < len(person.messages) or not held.isdisjoint(person.fingerprints):
            person.refusal = duplicate()
        elif not room:
            person.refusal = waiting()
        elif person.token in used or (person.request.admission and person.request.admission.is_spent):
            refuse_spent(person)  # where this replica has seen it spent, nobody has looked at its signature
        else:
            room -= 1
            held.update(person.fingerprints)
            used |= {person.token} - {b""}


def refuse_spent(person: Person) -> None:
    """Refuse a report whose token was spent."""
    assert person.request.admission, "it has a token"
    person.refusal = person.request.admission.spent()


def receipts(group: Sequence[Waiting], people: Sequence[Person]) -> list[Receipt]:
    """Return what each request is told."""
    refusals: list[list[PrivateerError]] = [[] for _ in group]
    places = {id(request): at for at, request in enumerate(group)}
    for person in people:
        if person.refusal:
            refusals[places[id(person.request)]].append(person.refusal)
    return [Receipt.of(len(request.sealed), told) for request, told in zip(group, refusals, strict=True)]
