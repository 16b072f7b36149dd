"""Delivery of complete batches to the server."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core import errors
from privateer_core.serving.logs import log_event
from privateer_core.wire.batch import BATCH, BatchAnswer, sign_claim
from privateer_shuffler.exchange import ShareExchange
from privateer_shuffler.metrics import ShufflerMetrics
from privateer_shuffler.pool.pool import Pool
from privateer_shuffler.upstream import Upstream

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 30.0
_log = logging.getLogger(__name__)


class Forwarding:
    """The delivery of complete batches: claims experiments, signs batches, and repeats until the server has them.

    After a crash between delivery and erasure the same bytes are delivered again; the server knows their digest.
    """

    def __init__(self, upstream: Upstream, key: Ed25519PrivateKey, metrics: ShufflerMetrics) -> None:
        self._upstream, self._key, self._metrics = upstream, key, metrics
        self._exchange = ShareExchange(upstream, key, metrics)

    async def claim(self, experiment: str) -> None:
        """Claim an experiment: two shufflers would each hold an incomplete batch."""
        await self._upstream.claim(experiment, sign_claim(experiment, self._key))

    async def deliver_when_complete(self, pool: Pool, is_past: Callable[[], bool]) -> bool:
        """Wait until the pool is complete, deliver its batch, and return whether its version takes no further batch.

        A batch that the server refuses from this shuffler is abandoned once ``is_past`` is true for its version.
        """
        if not await pool.claim_when_complete():
            return True
        attempt = self._exchange.attempt if pool.round.is_shared else self._send_batch
        answer = await self._deliver(lambda: attempt(pool), pool.round.experiment, is_past)
        if answer is None:
            self._metrics.count_dropped(pool.round.experiment, pool.n_shown)
            _log.warning("gave up version %d of %s, which is over", pool.round.version, pool.round.experiment)
            return True
        self._metrics.count_delivery(pool.round.experiment, pool.n_held)
        event = "batch delivered" if answer.closed else "batch delivered, and too few reports opened: another follows"
        log_event(_log, event, experiment=pool.round.experiment, round=pool.round.version, reports=pool.n_held)
        return answer.closed

    async def _send_batch(self, pool: Pool) -> BatchAnswer:
        """Send the batch of a complete pool once."""
        batch = await pool.read_batch()
        signature = await asyncio.to_thread(BATCH.sign, batch, self._key)  # it expires after some minutes
        return await self._upstream.deliver(pool.round.experiment, batch, signature)

    async def _deliver(
        self, attempt: Callable[[], Awaitable[BatchAnswer]], experiment: str, is_past: Callable[[], bool]
    ) -> BatchAnswer | None:
        """Deliver a batch until the server answers; None if the server refuses it and its version is over."""
        pause_seconds = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return await attempt()
            except errors.Unavailable as error:
                self._metrics.failures.inc()
                _log.warning("a batch of %s waits: %s", experiment, error.detail)
            except errors.BatchRefused as error:
                if is_past():
                    return None
                self._metrics.failures.inc()
                _log.error("a batch of %s waits: %s; %s", experiment, error.detail, error.remedy)
                pause_seconds = _LONGEST_PAUSE_SECONDS
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)
