"""The rounds that take reports, as the server publishes them for the experiments with reports."""

import asyncio
import logging
import sqlite3
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from privateer_core import errors
from privateer_core.serving.admission import ExperimentSize, RoundSize, ShufflerLimits, raise_refusals
from privateer_core.serving.process import Background
from privateer_core.wire.publication import Header, Round, check_header, digest
from privateer_shuffler import held_pools
from privateer_shuffler.delivery import Forwarding
from privateer_shuffler.exchange import check_helper
from privateer_shuffler.held_pools import HeldPools
from privateer_shuffler.metrics import ShufflerMetrics
from privateer_shuffler.pool.pool import Label, Pool
from privateer_shuffler.pool.store import LastPublication, PoolStore
from privateer_shuffler.pool.uploads import batch_full_error
from privateer_shuffler.server_health import ServerHealth
from privateer_shuffler.states import NEXT, BatchEvent, BatchState
from privateer_shuffler.upstream import Upstream, read_round

_POLL_SECONDS: Final = 30
_PAUSE_SECONDS: Final = 0.1  # pause between long polls, for a server that answers them at once
_FETCHES_MAX: Final = 64
_LOOK_SECONDS: Final = 1.0  # pause between searches for rounds that other replicas have begun
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrackedRound:
    """The round of an experiment, as the server published it, and the reports held for it."""

    # round, digest: the published round, and the digest of the whole publication
    round: Round
    digest: bytes
    # the held reports. None if this shuffler takes none: another endpoint takes them, the experiment or the version is
    # over, the round misses the operator's requirements, or the next pool is being created.
    pool: Pool | None
    without_pool: BatchState = BatchState.ELSEWHERE  # state of the batch if no reports are held

    @property
    def state(self) -> BatchState:
        """State of the round's batch."""
        if self.pool is None:
            return self.without_pool
        return BatchState.DELIVERING if self.pool.is_full else BatchState.FILLING

    def with_event(self, event: BatchEvent) -> "TrackedRound":
        """Return the round without its pool, after an event that ends the pool."""
        return replace(self, pool=None, without_pool=NEXT[self.state, event])


class FollowedRounds:
    """The rounds of experiments that the shuffler follows, from the first report until they are over.

    The first publication of every version counts. The shuffler refuses a server that publishes another one later or
    returns to an older version, also after a restart.

    limits: the operator's limits: rounds beyond them take no reports.
    pool_store: store of held reports and latest publications; its rounds are resumed at the start.
    """

    def __init__(
        self,
        pool_store: PoolStore,
        limits: ShufflerLimits,
        upstream: Upstream,
        forwarding: Forwarding,
        metrics: ShufflerMetrics,
        server: ServerHealth,
    ) -> None:
        self._pool_store, self.limits = pool_store, limits
        self._upstream, self._forwarding, self._server = upstream, forwarding, server
        self._metrics, self._background = metrics, Background()
        self.held_pools = HeldPools(pool_store, metrics, self._background)
        self._followed: dict[str, TrackedRound] = {}
        self._fetches: dict[str, asyncio.Task[None]] = {}
        self._watched, self._unclaimed = set[str](), set[str]()
        self._lock = asyncio.Lock()

    @property
    def is_healthy(self) -> bool:
        """Whether neither the disk nor a background task has failed."""
        return not self._background.failed and not self.held_pools.has_failed

    async def start(self) -> None:
        """Resume the held rounds: deliver the full batches and follow their experiments."""
        await self._resume_rounds()
        if self._pool_store.shared:
            self._background.start(self._resume_rounds_periodically())

    async def _resume_rounds_periodically(self) -> None:
        """Resume rounds of other replicas periodically: if a replica dies, this process delivers its batches."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            with suppress(OSError):
                await self._resume_rounds()

    async def _resume_rounds(self) -> None:
        async with self._lock:
            pools = await self._pool_store.open_stored_rounds({pool.header.digest for pool in self.held_pools.pools})
            for pool in sorted(pools, key=lambda pool: pool.round.version):
                name, publication = pool.round.experiment, LastPublication(pool.round.version, pool.header.digest)
                await asyncio.to_thread(self._pool_store.store_publication, name, publication)
                followed = self._followed.get(name)
                if followed is None or followed.round.version < publication.version:
                    self._track_round(TrackedRound(pool.round, publication.digest, pool))
                    self._watch(name)
                else:  # its batch is on its way, or it is over
                    self.held_pools.add(pool, self._deliver_batches(pool))

    async def stop(self) -> None:
        """Stop following and close the databases."""
        await self._background.stop()
        await self.held_pools.close()

    async def get_round(self, name: str) -> TrackedRound:
        """Return the round of an experiment; on the first call, fetch it and begin to follow the experiment."""
        if name not in self._followed:
            await self._fetch_once(name)
        followed = self._followed[name]
        if followed.state is BatchState.DELETED:
            raise errors.Deleted("the experiment was deleted", remedy="nothing to do: it asks nobody any more")
        return followed

    async def get_current_round(self, header: Header) -> TrackedRound:
        """Return the round to compare ``header`` with. Ask the server if the header names a newer version."""
        followed = await self.get_round(header.experiment)
        for _ in range(2):  # the first answer may be to a question that was asked before this version was published
            if header.version > followed.round.version:
                await self._fetch_once(header.experiment)
                followed = self._followed[header.experiment]
        return followed

    def get_cached_round(self, header: Header) -> TrackedRound | None:
        """Return the round to compare ``header`` with, as `get_current_round`; None if the server must be asked."""
        followed = self.find_followed(header.experiment)
        return None if followed is None or header.version > followed.round.version else followed

    def find_followed(self, name: str) -> TrackedRound | None:
        """Return the round of an experiment that is followed and not deleted; None if the server must be asked."""
        followed = self._followed.get(name)
        return None if followed is None or followed.state is BatchState.DELETED else followed

    def admit(self, header: Header, followed: TrackedRound) -> Pool:
        """Return the pool that takes reports with this header, or refuse a wrong header or a round without a pool."""
        check_header(header, followed.round, followed.digest, "shuffler")
        self._check_limits(followed.round)
        if followed.state in (BatchState.OVER, BatchState.DELETED):
            raise errors.RoundClosed("this version takes no further batch", remedy="nothing to do")
        if followed.pool is None:
            raise batch_full_error()
        return followed.pool

    async def _fetch_once(self, name: str) -> None:
        """Fetch a publication now, once for all concurrent callers; `Unavailable` with too many fetches at a time."""
        if name not in self._fetches:
            if len(self._fetches) >= _FETCHES_MAX:
                raise errors.Unavailable("the shuffler is fetching too many rounds at once", remedy="try again later")
            self._fetches[name] = asyncio.create_task(self._fetch_publication(name))
            self._fetches[name].add_done_callback(lambda _: self._fetches.pop(name))
        await asyncio.shield(self._fetches[name])

    async def _fetch_publication(self, name: str, wait: int = 0) -> None:
        """Fetch and accept the publication of an experiment; erase what is held if the experiment was deleted."""
        followed = None if self._server.refusal else self._followed.get(name)  # a signed one ends a refusal
        try:
            body = await self._upstream.fetch_publication(name, followed.digest if followed else None, wait)
        except errors.Deleted:
            await self._erase_deleted(name)
            raise
        except (errors.KeyChanged, errors.SignatureInvalid) as error:
            self._server.refusal = error
            raise
        if body is not None:
            self._server.refusal = None
            await self._accept_publication(name, body)
            self._watch(name)

    async def _erase_deleted(self, name: str) -> None:
        """Erase the held reports of an experiment that the server has deleted, and take no more."""
        async with self._lock:
            if (followed := self._followed.get(name)) and followed.state is not BatchState.DELETED:
                self._followed[name] = followed.with_event(BatchEvent.DELETED)
                self._drop_incomplete(followed)

    def _watch(self, name: str) -> None:
        """Begin to follow an experiment that takes reports, also again after its end, at a restored server."""
        if name not in self._watched and self._followed[name].round.batch_size:
            self._watched.add(name)
            self._background.start(self._follow_publications(name))

    async def _follow_publications(self, name: str) -> None:
        """Fetch each new publication of an experiment until the experiment is over."""
        while self._followed[name].round.batch_size and self._followed[name].state is not BatchState.DELETED:
            try:
                await self._fetch_publication(name, 0 if name in self._server.unfollowed else _POLL_SECONDS)
                self._server.unfollowed.discard(name)
                await asyncio.sleep(_PAUSE_SECONDS)
            except errors.Deleted:
                _log.warning("%s was deleted; what was held for it is erased", name)
            except errors.PrivateerError as error:
                self._metrics.unfollowed.inc()
                if name not in self._server.unfollowed:
                    _log.warning("cannot follow %s, and tries again: %s", name, error.detail)
                self._server.unfollowed.add(name)
                await asyncio.sleep(held_pools.RETRY_SECONDS)
        self._server.unfollowed.discard(name)
        self._watched.discard(name)

    async def _accept_publication(self, name: str, body: bytes) -> None:
        """Follow the round of a newer publication, and refuse a server that returned to an older publication."""
        round_, new_digest = read_round(name, body), digest(body)
        async with self._lock:
            followed, last = self._followed.get(name), await self._load_last_publication(name)
            is_same = last is not None and (last.version, last.digest) == (round_.version, new_digest)
            if last is not None and not is_same and round_.version <= last.version:
                remedy = "its operator must start it with the journal that it had (PRIVATEER_JOURNAL)"
                raise errors.Unavailable("the server went back to another publication", remedy=remedy)
            if followed is None or followed.round.version < round_.version:
                is_over = is_same and last is not None and last.over
                new_round = TrackedRound(round_, new_digest, None, BatchState.OVER if is_over else BatchState.ELSEWHERE)
                self._track_round(
                    new_round if is_over else replace(new_round, pool=await self._open_pool(round_, new_digest))
                )

    async def _load_last_publication(self, name: str) -> LastPublication | None:
        """Return the newest publication that is followed, or was stored before a restart; None without either."""
        try:
            last = await asyncio.to_thread(self._pool_store.load_last_publication, name)
        except (OSError, sqlite3.Error) as error:
            raise _storage_error() from error
        followed = self._followed.get(name)
        if followed is None or (last is not None and last.version > followed.round.version):
            return last
        return LastPublication(followed.round.version, followed.digest)

    def _check_limits(self, round_: Round) -> None:
        if round_.is_shared:
            check_helper()
        largest = RoundSize(round_.batch_size, round_.messages, round_.sealed_size)
        size = ExperimentSize(round_.fewest, [largest], is_shuffled=True, is_shared=round_.is_shared)
        raise_refusals(size.find_refusals(shuffler=self.limits))

    async def _open_pool(self, round_: Round, new_digest: bytes) -> Pool | None:
        """Open the pool of a round; None if it takes no reports here, or is beyond the limits, which is logged."""
        if round_.endpoint != "shuffler" or round_.batch_size == 0:
            return None
        try:
            self._check_limits(round_)
            await self._claim_experiment(round_.experiment)
            publication = LastPublication(round_.version, new_digest)
            await asyncio.to_thread(self._pool_store.store_publication, round_.experiment, publication)
            return await self._pool_store.create_round(Label(round_, new_digest))
        except errors.SpecError as error:
            _log.warning("taking no reports for %s: %s", round_.experiment, error)
            return None
        except (OSError, sqlite3.Error) as error:
            raise _storage_error() from error

    async def _claim_experiment(self, name: str) -> None:
        """Claim an experiment. If that fails, log why once."""
        try:
            await self._forwarding.claim(name)
        except errors.Unavailable as error:
            if name not in self._unclaimed:
                _log.warning("taking no reports for %s: %s", name, error)
            self._unclaimed.add(name)
            raise
        self._unclaimed.discard(name)

    def _track_round(self, new_round: TrackedRound) -> None:
        """Follow a round, and erase the held reports of an older round unless its pool is full."""
        old_round = self._followed.get(new_round.round.experiment)
        if old_round is not None and new_round.round.version < old_round.round.version:
            raise ValueError("a followed version does not give way to an older one")
        self._followed[new_round.round.experiment] = new_round
        if new_round.pool is not None:
            self.held_pools.add(new_round.pool, self._deliver_batches(new_round.pool))
        if old_round is not None:
            self._drop_incomplete(old_round)

    def _drop_incomplete(self, followed: TrackedRound) -> None:
        """Erase the held reports of a version that is over, unless its full batch is being delivered."""
        if followed.pool is not None and not followed.pool.is_full:
            self.held_pools.erase_unfilled(followed.pool)

    async def _deliver_batches(self, pool: Pool) -> None:
        """Deliver a pool once it is complete, and fill a further pool if the server asks for it."""
        is_over = await self._forwarding.deliver_when_complete(pool, lambda: self._is_past(pool.round))
        if not is_over and await self._open_next_pool(pool):
            return
        await self.held_pools.end_version(pool)
        followed = self._followed[pool.round.experiment]
        if followed.pool is pool:
            self._followed[pool.round.experiment] = replace(followed, pool=None, without_pool=BatchState.OVER)

    def _is_past(self, round_: Round) -> bool:
        """Whether a newer version of the experiment is followed, or the experiment is deleted."""
        followed = self._followed[round_.experiment]
        return followed.state is BatchState.DELETED or followed.round.version > round_.version

    async def _open_next_pool(self, pool: Pool) -> bool:
        """Open a pool for another batch of a version; return False if a newer version is followed."""
        while not self._is_past(pool.round):
            try:
                await self._forwarding.claim(pool.round.experiment)
                async with self._lock:  # a newer version may have come meanwhile
                    if self._is_past(pool.round):
                        return False
                    self._track_round(
                        replace(self._followed[pool.round.experiment], pool=await pool.start_next_batch())
                    )
                self.held_pools.replace(pool)
                return True
            except errors.Unavailable as error:
                _log.warning("no further batch of %s yet: %s", pool.round.experiment, error)
            except (OSError, sqlite3.Error):
                pool.last_commit.record(is_durable=False)
            await asyncio.sleep(held_pools.RETRY_SECONDS)
        return False


def _storage_error() -> errors.Unavailable:
    return errors.Unavailable("the shuffler cannot store a round", remedy="its operator must check its disk")
