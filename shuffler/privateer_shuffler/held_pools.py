"""The pools of held reports, and the tasks that deliver or erase them."""

import asyncio
import sqlite3
from collections.abc import Coroutine
from typing import Final

from privateer_core.serving.process import Background
from privateer_shuffler.metrics import ShufflerMetrics
from privateer_shuffler.pool.pool import Pool, round_to_tenths
from privateer_shuffler.pool.store import PoolStore

RETRY_SECONDS: Final = 1.0  # pause after a failure of the disk or the server


class HeldPools:
    """All pools, each with the task that delivers it or erases its reports."""

    def __init__(self, pool_store: PoolStore, metrics: ShufflerMetrics, background: Background) -> None:
        self._pool_store, self._metrics, self._background = pool_store, metrics, background
        self._tasks: dict[Pool, asyncio.Task[None]] = {}

    @property
    def pools(self) -> list[Pool]:
        """All pools, over all experiments."""
        return list(self._tasks)

    @property
    def n_shown(self) -> int:
        """Number of participants with held reports, over all experiments, each round in tenths of its batch."""
        return sum(pool.n_shown for pool in self._tasks)

    @property
    def full_since(self) -> float:
        """Time at which the oldest waiting batch became full, in seconds since 1970; 0: no full batch waits."""
        return min((pool.full_since for pool in self._tasks if pool.full_since), default=0.0)

    @property
    def has_failed(self) -> bool:
        """Whether the last commit of a pool failed."""
        return any(pool.last_commit.has_failed for pool in self._tasks)

    @property
    def is_taking(self) -> bool:
        """Whether reports are taken for any round."""
        return any(not pool.is_full for pool in self._tasks)

    def add(self, pool: Pool, delivery: Coroutine[None, None, None]) -> None:
        """Add a pool, and start its delivery."""
        self._tasks[pool] = self._background.start(delivery)

    def replace(self, pool: Pool) -> None:
        """Remove a pool that another batch of the version has replaced."""
        del self._tasks[pool]

    def erase_unfilled(self, pool: Pool) -> None:
        """Erase a pool that is not full: its version is over."""
        self._tasks[pool].cancel()
        if not self._pool_store.shared:
            self._metrics.count_dropped(pool.round.experiment, pool.n_shown)
        self._tasks[pool] = self._background.start(self._abandon(pool))

    async def _abandon(self, pool: Pool) -> None:
        """Erase a pool, and count its reports as dropped."""
        n_participants = await self.end_version(pool)
        if self._pool_store.shared:  # of the replicas that drop the pool, the one that erased it counts its reports
            self._metrics.count_dropped(pool.round.experiment, round_to_tenths(n_participants, pool.round.batch_size))

    async def end_version(self, pool: Pool) -> int:
        """Store that a version is over, erase its pool, and return the number of participants; retry on a full disk."""
        while True:
            try:
                await asyncio.to_thread(self._pool_store.end_version, pool.round.experiment, pool.round.version)
                n_participants = await pool.forget()
            except (OSError, sqlite3.Error):
                pool.last_commit.record(is_durable=False)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                del self._tasks[pool]
                return n_participants

    async def close(self) -> None:
        """Close all pools, and keep their reports."""
        for pool in self._tasks:
            await pool.close()
