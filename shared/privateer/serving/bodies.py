"""Request bodies: what a service knows about one before it reads it, and whether it turns out to be that body."""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Self

from starlette.requests import Request

from privateer.errors import PrivateerError
from privateer.serving.budget import Reservation, too_large
from privateer.serving.peer import peer
from privateer.wire.keys import TrustedKeys
from privateer.wire.signature import Announcement
from privateer.wire.upload import UPLOAD


@dataclass(frozen=True)
class Body:
    """A body that is about to be read.

    Attributes
    ----------
    length
        Bytes that it has at most.
    sender
        The id of the key that signed it, or the address that it comes from.
    digest, signed_at
        SHA-256 that it must have, if a trusted sender signed it, and when that was, in seconds since 1970.
    """

    length: int
    sender: str
    digest: bytes | None = None
    signed_at: float = 0.0

    @classmethod
    def unsigned(cls, content_length: str | None, most: int, sender: str) -> Self:
        """Return a body of the announced length, or of ``most`` bytes if none is announced.

        Raises
        ------
        TooLarge
            If more than ``most`` bytes are announced.
        """
        return cls(_within(most if content_length is None else int(content_length), most), sender)

    @classmethod
    def signed(cls, announced: Announcement, most: int) -> Self:
        """Return the body that a signature announces.

        Raises
        ------
        TooLarge
            If that is more than ``most`` bytes.
        """
        return cls(_within(announced.length, most), announced.key_id, announced.digest, announced.signed_at)

    @property
    def is_signed(self) -> bool:
        """Whether a trusted sender signed it."""
        return self.digest is not None


def _within(length: int, most: int) -> int:
    if length > most:
        raise too_large(most)
    return length


def announced_upload(request: Request, most: int, senders: TrustedKeys, now: float) -> Body:
    """Return what the headers say about an upload of reports: one person's, or more if a trusted sender signed it.

    Raises
    ------
    SenderRefused
        If it is signed, but not by one of the ``senders`` within five minutes of ``now``.
    TooLarge
        If it has more than ``most`` bytes.
    """
    signature = request.headers.get(UPLOAD.header)
    if signature is None:
        return Body.unsigned(request.headers.get("content-length"), most, peer(request.scope))
    return Body.signed(UPLOAD.check(signature, senders.by_id(), now), most)


async def read_upload(request: Request, body: Body, room: Reservation) -> bytearray:
    """Read an announced upload into the room reserved for it.

    Raises
    ------
    SenderRefused
        If it is not the body that was signed.
    TooLarge, Unavailable
        As `Reservation.read`.
    """
    chunks = request.stream()
    return await room.read(unchanged(chunks, body.digest, UPLOAD.changed()) if body.digest else chunks)


async def unchanged(chunks: AsyncIterator[bytes], digest: bytes, changed: PrivateerError) -> AsyncIterator[bytes]:
    """Yield the chunks of a body, then raise ``changed`` if they do not have the digest that was announced."""
    hashed = hashlib.sha256()
    async for chunk in chunks:
        hashed.update(chunk)
        yield chunk
    if hashed.digest() != digest:
        raise changed
