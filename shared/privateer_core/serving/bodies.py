"""Request bodies: what a service knows about one before it reads it, and whether it turns out to be that body."""

import hashlib
from collections.abc import AsyncIterator
from typing import NamedTuple, Self

from privateer_core.errors import PrivateerError
from privateer_core.serving.budget import too_large
from privateer_core.serving.tokens import Admission
from privateer_core.wire.signature import Announcement


class Body(NamedTuple):
    """A body that is about to be read.

    Attributes
    ----------
    length
        Bytes that it has at most.
    sender
        The id of the key that signed it, or the address that it comes from.
    digest, signed_at
        SHA-256 that it must have, if a trusted sender signed it, and when that was, in seconds since 1970.
    admission
        The upload token that it comes with, if it needs one.
    """

    length: int
    sender: str
    digest: bytes | None = None
    signed_at: float = 0.0
    admission: Admission | None = None

    @classmethod
    def unsigned(
        cls, content_length: str | bytes | None, most: int, sender: str, admission: Admission | None = None
    ) -> Self:
        """Return a body of the announced length, or of ``most`` bytes if none is announced.

        Raises
        ------
        TooLarge
            If more than ``most`` bytes are announced.
        """
        length = _within(most if content_length is None else int(content_length), most)
        return cls(length, sender, admission=admission)

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


async def unchanged(chunks: AsyncIterator[bytes], digest: bytes, changed: PrivateerError) -> AsyncIterator[bytes]:
    """Yield the chunks of a body, then raise ``changed`` if they do not have the digest that was announced."""
    hashed = hashlib.sha256()
    async for chunk in chunks:
        hashed.update(chunk)
        yield chunk
    if hashed.digest() != digest:
        raise changed
