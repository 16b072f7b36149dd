"""Delivery of complete batches to the server."""

import asyncio
import logging
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer.errors import Unavailable
from privateer.wire.batch import BatchAnswer, sign_batch, sign_claim
from privateer_shuffler.metrics import Metrics
from privateer_shuffler.pool import Pool
from privateer_shuffler.upstream import Upstream

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 30.0
_log = logging.getLogger(__name__)


class Forwarding:
    """Claims experiments, and signs complete batches and delivers each until the server has it.

    A crash between delivery and forgetting delivers the same bytes again; the server knows them by their digest.
    """

    def __init__(self, upstream: Upstream, key: Ed25519PrivateKey, metrics: Metrics) -> None:
        self._upstream = upstream
        self._key = key
        self._metrics = metrics

    async def claim(self, experiment: str) -> None:
        """Make sure that this shuffler alone takes reports for an experiment: two would each hold a part of a batch.

        Raises
        ------
        Unavailable
            If another one does, or the server cannot say.
        """
        await self._upstream.claim(experiment, sign_claim(experiment, self._key))

    async def run(self, pool: Pool) -> bool:
        """Wait until the pool is complete and deliver its batch; whether its version takes no further one."""
        await pool.complete()
        batch = await pool.batch()
        answer = await self._deliver(batch, pool.round.experiment)
        self._metrics.batches.inc()
        self._metrics.forwarded.inc(pool.held)
        then = "" if answer.closed else "; the server asks for another batch, since too few reports opened"
        _log.info("delivered version %d of %s%s", pool.round.version, pool.round.experiment, then)
        return answer.closed

    async def _deliver(self, batch: bytes, experiment: str) -> BatchAnswer:
        pause = _FIRST_PAUSE
        while True:
            signature = await asyncio.to_thread(sign_batch, batch, self._key)  # each is good for some minutes
            try:
                return await self._upstream.deliver(batch, signature)
            except Unavailable as error:
                self._metrics.failures.inc()
                _log.warning("a batch of %s waits: %s", experiment, error.detail)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
