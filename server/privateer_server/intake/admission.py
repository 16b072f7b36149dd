"""Admission of uploads: a token is spent once, in the transaction that counts its report; a shuffler claims rounds."""

import asyncio
import hashlib
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from privateer_core.errors import BatchRefused, Conflict, DuplicateReport, PrivateerError, Unavailable
from privateer_core.serving.logs import trace
from privateer_core.serving.token_gate import Admission
from privateer_core.wire.publication import Header
from privateer_server.experiments.catalog import Experiments
from privateer_server.intake.receipts import Delivery
from privateer_server.store.journal import Journal
from privateer_server.store.records import TRANSIENT_ERRORS, TokenRow

_HASH_BYTES: Final = 16
_TOKEN_BYTES: Final = 12
"""Two of a hundred million random tokens share 96 bits with probability 6e-14. A device that
chooses colliding nonces can spend only one of them, since the issuer signs nonces."""
_REPORT_BYTES: Final = 4
"""These bytes decide how a spent token is refused, and neither refusal counts a report: another report with the
same 32 bits is refused as counted before."""
DUPLICATE_REPORT: Final = DuplicateReport("the report was counted before", remedy="nothing to do: it counts once")
FindTokenReport = Callable[[int, bytes], bytes | None]
"""Returns the hash of a token's report, by expiry of its key and hash of the token; None if it was not spent."""
_log = logging.getLogger("privateer.server")


class SpentToken(NamedTuple):
    """A token and its report."""

    # hashes of the nonce with its experiment, and of the sealed report: a repeated report is recognized without
    # decryption. Devices choose nonces, so two experiments may get the same nonce, and each is spent by itself.
    row: TokenRow
    refusal: PrivateerError  # the refusal of another report with the same token

    @classmethod
    def from_admission(cls, admission: Admission, sealed: bytes) -> "SpentToken":
        """Return the token that admits a sealed report."""
        nonce_with_experiment = admission.experiment.encode() + admission.nonce
        row = TokenRow(admission.expires, _hash(nonce_with_experiment)[:_TOKEN_BYTES], _hash(sealed)[:_REPORT_BYTES])
        return cls(row, admission.spent_error())

    def check(self, find_token_report: FindTokenReport) -> None:
        """Refuse a token that was spent."""
        previous_report = find_token_report(self.row.expires, self.row.token)
        if previous_report is not None:
            raise DUPLICATE_REPORT if previous_report == self.row.report else self.refusal


def _hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_HASH_BYTES).digest()


class Shufflers:
    """Shufflers that deliver batches."""

    def __init__(self, experiments: Experiments, journal: Journal) -> None:
        self._experiments, self._journal = experiments, journal

    async def claim(self, delivery: Delivery) -> None:
        """Claim a batch's experiment for its shuffler, or refuse the batch if another shuffler has claimed it."""
        header = delivery.envelope.header
        try:
            experiment = await self._experiments.find(header.experiment)
            if header.version >= experiment.current.round.version:  # closed rounds are not claimed
                await self._experiments.claim(experiment.name, delivery.shuffler_key, delivery.signed_at)
        except Conflict:
            raise BatchRefused(
                "another shuffler claimed the experiment, it is for another's, or this one's claim was released",
                remedy="deliver through that one, or release its claim: DELETE /experiments/NAME/shuffler",
            ) from None
        except TRANSIENT_ERRORS as error:
            _log.error("whose an experiment's batches are cannot be read (%s)", trace(error))
            raise Unavailable("the server cannot read its data now", remedy="send the same batch again") from None

    async def record_last_batch(self, header: Header) -> None:
        """Record that a round takes no further batch, before its shuffler erases its reports; no-op if it is over.

        If the next round is published, the journal has that record already.
        """
        loaded = self._experiments.loaded.get(header.experiment)
        # The claim was not checked if a header names an earlier version, and the digest is public.
        if loaded is None or (loaded.current.round.version, loaded.current.digest) != (header.version, header.digest):
            return
        try:
            await asyncio.to_thread(self._journal.record_last_batch, header.experiment, header.digest)
        except TRANSIENT_ERRORS as error:
            _log.error("experiment %s: a round's last batch cannot be put on record (%s)", loaded.name, trace(error))
            raise Unavailable("the server cannot write its journal now", remedy="send the same batch again") from None
