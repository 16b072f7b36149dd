"""Keeps a shuffler's claim, and puts on record what it is about to hear."""

import asyncio
import logging

from privateer_core.errors import BatchRefused, Conflict, Unavailable
from privateer_core.serving.logs import trace
from privateer_core.wire.envelope import Header
from privateer_server.experiments.catalog import Experiments
from privateer_server.intake.receipts import Delivery
from privateer_server.store.journal import Journal
from privateer_server.store.records import TRANSIENT

_log = logging.getLogger("privateer.server")


class Shufflers:
    """Shufflers that deliver batches."""

    def __init__(self, experiments: Experiments, journal: Journal) -> None:
        self._experiments, self._journal = experiments, journal

    async def claim(self, delivery: Delivery) -> None:
        """See that a batch's experiment is its shuffler's; it becomes that with its first batch.

        Raises
        ------
        NotFound, Unavailable
            If there is no such experiment, or the store cannot say.
        BatchRefused
            If it is another one's.
        """
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

        Raises
        ------
        Unavailable
            If the journal cannot be written: the shuffler delivers the batch again.
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
