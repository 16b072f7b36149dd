"""Upload tokens at the endpoint of the server: each is spent once, in the transaction that counts its report."""

import asyncio
import hashlib
from collections.abc import Callable
from typing import Final, NamedTuple

from privateer_core.errors import DuplicateReport, PrivateerError
from privateer_core.serving.token_gate import Admission

_HASH_BYTES: Final = 16
_DUPLICATE: Final = DuplicateReport("the report was counted before", remedy="nothing to do: it counts once")
FindSpent = Callable[[bytes], bytes | None]
"""Returns the report that a spent token came with, both as hashes; None if the token was not spent."""


class SpentToken(NamedTuple):
    """A token and the report that it comes with.

    Attributes
    ----------
    token, report
        Hashes of the nonce with its experiment, and of the sealed report: the same report again is known from another
        one unopened. Devices choose nonces, so two experiments may see the same one, and each is spent by itself.
    expires
        Until when it must be remembered, in seconds since 1970.
    refusal
        What another report with the same token gets.
    """

    token: bytes
    report: bytes
    expires: int
    refusal: PrivateerError

    @classmethod
    def of(cls, admission: Admission, sealed: bytes) -> "SpentToken":
        """Return the token that admits a sealed report."""
        named = admission.experiment.encode() + admission.nonce
        return cls(_hash(named), _hash(sealed), admission.expires, admission.spent())

    def check(self, find: FindSpent) -> None:
        """Refuse a token that was spent.

        Raises
        ------
        DuplicateReport
            If the same report came with it.
        TokenSpent
            If another one did.
        """
        before = find(self.token)
        if before is not None:
            raise _DUPLICATE if before == self.report else self.refusal

    async def check_early(self, find: FindSpent) -> None:
        """Do the same in a thread, before the report waits to be opened; `check` decides when it is counted."""
        await asyncio.to_thread(self.check, find)


def _hash(some: bytes) -> bytes:
    return hashlib.blake2b(some, digest_size=_HASH_BYTES).digest()
