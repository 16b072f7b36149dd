"""Pending uploads: the selection of accepted reports for the next transaction, and the receipts of senders."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from privateer_core.errors import DuplicateReport, PrivateerError, Unavailable
from privateer_core.serving.token_gate import Admission
from privateer_core.wire.publication import split_bytes


class PoolReceipt(NamedTuple):
    """The receipt of an upload: numbers of accepted and refused reports, by slug, and the first refusal."""

    accepted: int
    refused: dict[str, int]
    first_refusal: PrivateerError | None


@dataclass(slots=True, eq=False)
class PendingUpload:
    """An upload with the sealed reports of participants that waits for a transaction."""

    sealed: list[bytes]
    receipt: asyncio.Future[PoolReceipt]
    admission: Admission | None  # the admission of the upload, if it needs one
    refusals: list[PrivateerError] = field(default_factory=list)  # the refusals of participants' reports

    def refuse_spent(self) -> None:
        """Refuse the report because its token was spent."""
        assert self.admission, "it has a token"
        self.refusals.append(self.admission.spent_error())

    def refuse_all(self, refusal: PrivateerError) -> None:
        """Refuse all reports."""
        self.refusals = [refusal] * len(self.sealed)

    def make_receipt(self) -> PoolReceipt:
        """Return the receipt, after the selection of accepted reports."""
        refused = dict(Counter(refusal.slug for refusal in self.refusals))
        return PoolReceipt(len(self.sealed) - len(self.refusals), refused, next(iter(self.refusals), None))


class Portion(NamedTuple):
    """The messages of participants of an upload that are accepted together."""

    upload: PendingUpload
    n_participants: int
    messages: list[bytes]
    fingerprints: list[bytes]  # fingerprints of the messages in their round
    token: bytes = b""  # hash of the upload token; empty: no token

    @property
    def expires(self) -> int:
        """Time at which the key of the upload token expires, in seconds since 1970."""
        assert self.upload.admission, "it has a token"
        return self.upload.admission.expires

    def split(self) -> Iterator["Portion"]:
        """Yield the portion of each participant."""
        n_messages = len(self.messages) // self.n_participants
        for start in range(0, len(self.messages), n_messages):
            part = slice(start, start + n_messages)
            yield Portion(self.upload, 1, self.messages[part], self.fingerprints[part], self.token)


def build_portions(
    group: Iterable[PendingUpload],
    size: int,
    fingerprints: Callable[[list[bytes]], list[bytes]],
    token: Callable[[bytes], bytes] | None,
) -> list[Portion]:
    """Return a portion for each upload, with hashes of its messages in their round, and of its token's nonce."""
    portions = []
    for upload in group:
        messages = split_bytes(b"".join(upload.sealed), size)
        nonce_hash = token(upload.admission.nonce) if token and upload.admission else b""
        portions.append(Portion(upload, len(upload.sealed), messages, fingerprints(messages), nonce_hash))
    return portions


def select_accepted(
    portions: Iterable[Portion],
    capacity: int,
    is_known: Callable[[list[bytes]], bool],
    is_spent: Callable[[Portion], bool],
) -> list[Portion]:
    """Return the portions to accept, and record on the uploads why the others are refused.

    An upload that cannot be accepted as a whole is split: its participants are accepted or refused one at a time, for
    duplicates, a full batch, or spent tokens, in this order.

    capacity: number of participants who can be accepted.
    is_known: whether a message with one of these fingerprints was accepted before.
    is_spent: whether the upload token of a portion was spent.
    """
    accepted: list[Portion] = []
    seen_fingerprints, seen_tokens = set[bytes](), set[bytes]()

    def accept(portion: Portion) -> PrivateerError | None:
        nonlocal capacity
        hashes, admission = portion.fingerprints, portion.upload.admission
        if len(set(hashes)) < len(hashes) or not seen_fingerprints.isdisjoint(hashes) or is_known(hashes):
            return DuplicateReport("the report was accepted already", remedy="nothing to do")
        if portion.n_participants > capacity:
            return batch_full_error()
        if portion.token and admission and (portion.token in seen_tokens or is_spent(portion)):
            return admission.spent_error()
        if admission and admission.is_spent:
            # The token was restored after being spent: its signature has not been checked.
            return Unavailable("the disk did not take the report", remedy="send the same bytes again later")
        accepted.append(portion)
        capacity -= portion.n_participants
        seen_fingerprints.update(hashes)
        seen_tokens.add(portion.token)
        return None

    for portion in portions:
        error = accept(portion)
        if error and portion.n_participants > 1:
            portion.upload.refusals += [refusal for single in portion.split() if (refusal := accept(single))]
        elif error:
            portion.upload.refusals.append(error)
    return accepted


def send_receipts(group: Iterable[PendingUpload], is_stored: bool) -> None:
    """Set the receipts of uploads, or an error if they could not be stored."""
    for upload in group:
        if upload.receipt.done():  # the sender has hung up
            continue
        if is_stored:
            upload.receipt.set_result(upload.make_receipt())
        else:
            error = Unavailable("the shuffler cannot store reports", remedy="send the same bytes again later")
            upload.receipt.set_exception(error)


def batch_full_error() -> Unavailable:
    """Return the refusal of reports during the delivery of a full batch. The server may ask for another batch."""
    return Unavailable("the batch of this version is full and on its way", remedy="send the same bytes again later")
