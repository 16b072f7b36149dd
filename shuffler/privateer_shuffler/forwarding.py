"""Delivery of complete batches to the server."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.errors import BatchRefused, Unavailable
from privateer_core.serving.logs import tell
from privateer_core.wire.batch import BATCH, BatchAnswer, sign_claim
from privateer_shuffler.holdings import RoundPool
from privateer_shuffler.metrics import Metrics
from privateer_shuffler.upstream import Upstream

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 30.0
_log = logging.getLogger(__name__)


class Forwarding:
    """Claims experiments, signs complete batches, and delivers each until the server has it.

    After a crash between delivery and forgetting the same bytes are delivered again; the server knows their digest.
    """

    def __init__(self, upstream: Upstream, key: Ed25519PrivateKey, metrics: Metrics) -> None:
        self._upstream = upstream
        self._key = key
        self._metrics = metrics

    async def claim(self, experiment: str) -> None:
        """Make sure that no other shuffler takes reports for an experiment: two would each hold a part of a batch.

        Raises
        ------
        Unavailable
            If another one does, or the server does not answer.
        """
        await self._upstream.claim(experiment, sign_claim(experiment, self._key))

    async def run(self, pool: RoundPool, is_past: Callable[[], bool]) -> bool:
        """Wait until the pool is complete, deliver its batch, and return whether its version takes no further one.

        A batch that the server refuses from this shuffler is given up once ``is_past`` says that its version is over.
        """
        if not await pool.complete():
            return True
        answer = await self._deliver(await pool.batch(), pool.round.experiment, is_past)
        if answer is None:
            self._metrics.drop(pool.round.experiment, pool.shown)
            _log.warning("gave up version %d of %s, which is over", pool.round.version, pool.round.experiment)
            return True
        self._metrics.deliver(pool.round.experiment, pool.held)
        event = "batch delivered" if answer.closed else "batch delivered, and too few reports opened: another follows"
        tell(_log, event, experiment=pool.round.experiment, round=pool.round.version, reports=pool.held)
        return answer.closed

    async def _deliver(self, batch: bytes, experiment: str, is_past: Callable[[], bool]) -> BatchAnswer | None:
        pause = _FIRST_PAUSE
        while True:
            signature = await asyncio.to_thread(BATCH.sign, batch, self._key)  # it expires after some minutes
            try:
                return await self._upstream.deliver(experiment, batch, signature)
            except Unavailable as error:
                self._metrics.failures.inc()
                _log.warning("a batch of %s waits: %s", experiment, error.detail)
            except BatchRefused as error:
                if is_past():
                    return None
                self._metrics.failures.inc()
                _log.error("a batch of %s waits: %s; %s", experiment, error.detail, error.remedy)
                pause = _LONGEST_PAUSE
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
