"""Delivery of complete batches to the server."""

import asyncio
import logging
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer.errors import Unavailable
from privateer.wire.batch import sign_batch
from privateer_shuffler.metrics import Metrics
from privateer_shuffler.pool import Pool
from privateer_shuffler.upstream import Upstream

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 30.0
_log = logging.getLogger(__name__)


class Forwarding:
    """Signs complete batches and delivers each until the server has it, then forgets it.

    A crash between delivery and forgetting delivers the same bytes again; the server knows the round is closed.
    """

    def __init__(self, upstream: Upstream, key: Ed25519PrivateKey, metrics: Metrics) -> None:
        self._upstream = upstream
        self._key = key
        self._metrics = metrics

    async def run(self, pool: Pool) -> None:
        """Wait until the pool is complete, deliver its batch, forget it."""
        await pool.complete()
        batch = await pool.batch()
        await self._deliver(batch, pool.round.experiment)
        self._metrics.batches.inc()
        self._metrics.forwarded.inc(pool.held)
        _log.info("delivered version %d of %s", pool.round.version, pool.round.experiment)
        await pool.forget()

    async def _deliver(self, batch: bytes, experiment: str) -> None:
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
