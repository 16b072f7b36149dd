"""The shufflers of experiments: one claims an experiment by its first batch, and learns which batch is the last."""

import asyncio
import logging

from privateer_core.errors import BatchRefused, Conflict, Unavailable
from privateer_core.serving.logs import trace
from privateer_core.wire.publication import Header
from privateer_server.experiments.catalog import Experiments
from privateer_server.intake.receipts import Delivery
from privateer_server.store.journal import Journal
from privateer_server.store.records import TRANSIENT_ERRORS

_log = logging.getLogger("privateer.server")


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
