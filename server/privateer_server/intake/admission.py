"""Admits what comes in: a token is spent once, in the transaction that counts its report; a shuffler claims rounds."""

import asyncio
import hashlib
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from privateer_core.errors import BatchRefused, Conflict, DuplicateReport, PrivateerError, Unavailable
from privateer_core.serving.logs import trace
from privateer_core.serving.token_gate import Admission
from privateer_core.wire.envelope import Header
from privateer_server.experiments.catalog import Experiments
from privateer_server.intake.receipts import Delivery
from privateer_server.store.journal import Journal
from privateer_server.store.records import TRANSIENT, TokenRow

_HASH_BYTES: Final = 16
_TOKEN_BYTES: Final = 12
"""Two of a hundred million random tokens share 96 bits with probability 6e-14. Whoever
chooses nonces so that they do can spend only one of them, since the issuer signs nonces."""
_REPORT_BYTES: Final = 4
"""These decide how a spent token is refused, and neither refusal counts a report: whoever makes another report with the
same 32 bits hears that it was counted before."""
_DUPLICATE: Final = DuplicateReport("the report was counted before", remedy="nothing to do: it counts once")
FindSpent = Callable[[int, bytes], bytes | None]
"""Returns the report that a token came with, both as hashes, by when its key expires; None if it was not spent."""
_log = logging.getLogger("privateer.server")


class SpentToken(NamedTuple):
    """A token and the report that it comes with."""

    # hashes of the nonce with its experiment, and of the sealed report: the same report again is known from another one
    # unopened. Devices choose nonces, so two experiments may see the same one, and each is spent by itself.
    row: TokenRow
    refusal: PrivateerError  # what another report with the same token gets

    @classmethod
    def of(cls, admission: Admission, sealed: bytes) -> "SpentToken":
        """Return the token that admits a sealed report."""
        named = admission.experiment.encode() + admission.nonce
        row = TokenRow(admission.expires, _hash(named)[:_TOKEN_BYTES], _hash(sealed)[:_REPORT_BYTES])
        return cls(row, admission.spent())

    def check(self, find: FindSpent) -> None:
        """Refuse a token that was spent."""
        before = find(self.row.expires, self.row.token)
        if before is not None:
            raise _DUPLICATE if before == self.row.report else self.refusal

    async def check_early(self, find: FindSpent) -> None:
        """Do the same in a thread, before the report waits to be opened; `check` decides when it is counted."""
        await asyncio.to_thread(self.check, find)


def _hash(some: bytes) -> bytes:
    return hashlib.blake2b(some, digest_size=_HASH_BYTES).digest()


class Shufflers:
    """Shufflers that deliver batches."""

    def __init__(self, experiments: Experiments, journal: Journal) -> None:
        self._experiments, self._journal = experiments, journal

    async def claim(self, delivery: Delivery) -> None:
        """See that a batch's experiment is its shuffler's; it becomes that with its first batch."""
        try:
            await self._claimed(delivery)
        except Conflict:
            raise BatchRefused(
                "another shuffler claimed the experiment, it is for another's, or this one's claim was released",
                remedy="deliver through that one, or release its claim: DELETE /experiments/NAME/shuffler",
            ) from None
        except TRANSIENT as error:
            _log.error("whose an experiment's batches are cannot be read (%s)", trace(error))
            raise Unavailable("the server cannot read its data now", remedy="send the same batch again") from None

    async def _claimed(self, delivery: Delivery) -> None:
        header = delivery.envelope.header
        experiment = await self._experiments.find(header.experiment)
        if header.version >= experiment.current.round.version:  # nobody owns rounds that are over
            await self._experiments.claim(experiment.name, delivery.closer, delivery.signed_at)

    async def shut(self, header: Header) -> None:
        """Put on record that a round takes no further batch, before its shuffler hears of that and erases its reports.

        Where the next round is published, the journal has that already.
        """
        known = self._experiments.known(header.experiment)
        # We did not ask whose the experiment is where a header names an earlier version, and the digest is public.
        if known is None or (known.current.round.version, known.current.digest) != (header.version, header.digest):
            return
        try:
            await asyncio.to_thread(self._journal.shut, header.experiment, header.digest)
        except TRANSIENT as error:
            _log.error("experiment %s: a round's last batch cannot be put on record (%s)", known.name, trace(error))
            raise Unavailable("the server cannot write its journal now", remedy="send the same batch again") from None
