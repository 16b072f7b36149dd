"""The rounds that take reports, as the server publishes them for the experiments that people report to."""

import asyncio
import logging
import sqlite3
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from privateer_core.errors import (
    Deleted,
    KeyChanged,
    PrivateerError,
    RoundClosed,
    SignatureInvalid,
    SpecError,
    Unavailable,
)
from privateer_core.serving.admission import ExperimentSize, RoundSize, ShufflerLimits, refuse
from privateer_core.serving.process import Background
from privateer_core.wire.envelope import Header, check_header
from privateer_core.wire.publication import Round, digest
from privateer_shuffler.delivery import Forwarding, Upstream, read_round
from privateer_shuffler.metrics import ShufflerMetrics
from privateer_shuffler.pool.pool import Pool, in_tenths
from privateer_shuffler.pool.round import Label
from privateer_shuffler.pool.store import PoolStore, Taken
from privateer_shuffler.pool.uploads import waiting
from privateer_shuffler.server_health import ServerHealth

_POLL_SECONDS: Final = 30
_RETRY_SECONDS: Final = 1.0
_BREATH_SECONDS: Final = 0.1
"""Pause between long polls, so that a server that never lets them wait is not flooded."""
_QUESTIONS_MAX: Final = 64
_LOOK_SECONDS: Final = 1.0
"""Pause between looks at rounds that other replicas have begun."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FollowedRound:
    """The round of an experiment, as the server published it, and the reports held for it."""

    # round, digest: what the server published, and the digest of the whole publication
    round: Round
    digest: bytes
    # the reports held. None if this shuffler takes none: another endpoint takes them, the experiment or the version is
    # over, the round misses the operator's requirements, or the next pool is being made.
    pool: Pool | None
    over: bool = False  # whether the server wants no further batch for the version
    deleted: bool = False  # whether the server has deleted the experiment


class FollowedRounds:
    """Follows experiments from the first report until they are over.

    The first publication of every version counts. The shuffler does not follow a server that shows another one later or
    goes back to an older version, not even after a restart.

    limits: the operator's own: rounds that miss them take no reports.
    pool_store: what is held and remembered; the rounds that are found there are taken up again.
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
        self._metrics = metrics
        self._background = Background()
        self._followed: dict[str, FollowedRound] = {}
        self._deliveries: dict[Pool, asyncio.Task[None]] = {}
        self._questions: dict[str, asyncio.Task[None]] = {}
        self._watched, self._unclaimed = set[str](), set[str]()
        self._taking = asyncio.Lock()

    @property
    def held(self) -> int:
        """Number of people whose reports are held, over all experiments, each round in tenths."""
        return sum(pool.shown for pool in self._deliveries)

    @property
    def pools(self) -> list[Pool]:
        """The reports held, over all experiments."""
        return list(self._deliveries)

    @property
    def full_since(self) -> float:
        """When the oldest full batch that waits for the server became full, in seconds since 1970; 0: none waits."""
        return min((pool.full_since for pool in self._deliveries if pool.full_since), default=0.0)

    @property
    def healthy(self) -> bool:
        """Whether no disk and no background task has failed."""
        return not self._background.failed and not any(pool.last_commit.has_failed for pool in self._deliveries)

    @property
    def is_taking(self) -> bool:
        """Whether reports are taken for any round."""
        return any(not pool.full for pool in self._deliveries)

    async def start(self) -> None:
        """Take up the rounds that are held: deliver the full ones and follow their experiments."""
        await self._take_up()
        if self._pool_store.shared:
            self._background.start(self._look())

    async def _look(self) -> None:
        """Take up what other replicas have begun: if they die, this one delivers it."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            with suppress(OSError):
                await self._take_up()

    async def _take_up(self) -> None:
        async with self._taking:
            found = await self._pool_store.find({pool.header.digest for pool in self._deliveries})
            for pool in sorted(found, key=lambda pool: pool.round.version):
                name, taken = pool.round.experiment, Taken(pool.round.version, pool.header.digest)
                await asyncio.to_thread(self._pool_store.note, name, taken)
                known = self._followed.get(name)
                if known is None or known.round.version < taken.version:
                    self._enter(FollowedRound(pool.round, taken.digest, pool))
                    self._watch(name)
                else:  # its batch is on its way, or it is over
                    self._deliveries[pool] = self._background.start(self._deliver(pool))

    async def stop(self) -> None:
        """Stop following and close the databases."""
        await self._background.stop()
        for pool in self._deliveries:
            await pool.close()

    async def find(self, name: str) -> FollowedRound:
        """Return the round of an experiment. At first sight ask the server, and follow the experiment from then on."""
        if name not in self._followed:
            await self._ask(name)
        followed = self._followed[name]
        if followed.deleted:
            raise Deleted("the experiment was deleted", remedy="nothing to do: it asks nobody any more")
        return followed

    async def current(self, header: Header) -> FollowedRound:
        """Return the round to compare ``header`` with. Ask the server if the header names a newer version."""
        followed = await self.find(header.experiment)
        for _ in range(2):  # the first answer may be to a question that was asked before this version was published
            if header.version > followed.round.version:
                await self._ask(header.experiment)
                followed = self._followed[header.experiment]
        return followed

    def known(self, header: Header) -> FollowedRound | None:
        """Return the round to compare ``header`` with, as `current` does; None if the server must be asked."""
        followed = self._followed.get(header.experiment)
        is_known = followed is not None and not followed.deleted and header.version <= followed.round.version
        return followed if is_known else None

    def admit(self, header: Header, followed: FollowedRound) -> Pool:
        """Return the pool that takes reports with this header."""
        check_header(header, followed.round, followed.digest, "shuffler")
        self._check(followed.round)
        if followed.over:
            raise RoundClosed("this version takes no further batch", remedy="nothing to do")
        if followed.pool is None:
            raise waiting()
        return followed.pool

    async def _ask(self, name: str) -> None:
        """Fetch the publication of ``name`` now. Everyone who asks meanwhile waits for the same answer."""
        if name not in self._questions:
            if len(self._questions) >= _QUESTIONS_MAX:
                raise Unavailable("the shuffler is fetching too many rounds at once", remedy="try again later")
            self._questions[name] = asyncio.create_task(self._fetch(name))
            self._questions[name].add_done_callback(lambda _: self._questions.pop(name))
        await asyncio.shield(self._questions[name])

    async def _fetch(self, name: str, wait: int = 0) -> None:
        known = None if self._server.has_refused else self._followed.get(name)  # a signed one ends a refusal
        try:
            body = await self._upstream.publication(name, known.digest if known else None, wait)
        except Deleted:
            await self._end(name)
            raise
        except (KeyChanged, SignatureInvalid) as error:
            self._server.refuse(error)
            raise
        if body is not None:
            self._server.accept()
            await self._take(name, body)
            self._watch(name)

    async def _end(self, name: str) -> None:
        """Drop what is held for an experiment that the server has deleted, and take no more."""
        async with self._taking:
            if (known := self._followed.get(name)) is not None and not known.deleted:
                self._followed[name] = replace(known, pool=None, over=True, deleted=True)
                # A full pool is on its way; the server answers that it is over.
                if known.pool is not None and not known.pool.full:
                    self._drop(known.pool)

    def _watch(self, name: str) -> None:
        """Follow an experiment that takes reports. One that was over may take them again at a restored server."""
        if name not in self._watched and self._followed[name].round.batch:
            self._watched.add(name)
            self._background.start(self._follow(name))

    async def _follow(self, name: str) -> None:
        while self._followed[name].round.batch and not self._followed[name].deleted:
            try:
                await self._fetch(name, _POLL_SECONDS if self._server.follows(name) else 0)
                self._server.find_again(name)
                await asyncio.sleep(_BREATH_SECONDS)
            except Deleted:
                _log.warning("%s was deleted; what was held for it is erased", name)
            except PrivateerError as error:
                self._metrics.unfollowed.inc()
                if self._server.lose(name):
                    _log.warning("cannot follow %s, and tries again: %s", name, error.detail)
                await asyncio.sleep(_RETRY_SECONDS)
        self._server.find_again(name)
        self._watched.discard(name)

    async def _take(self, name: str, body: bytes) -> None:
        """Open the round of a publication that is newer than the one known."""
        round_, mark = read_round(name, body), digest(body)
        async with self._taking:
            known, last = self._followed.get(name), await self._last(name)
            same = last is not None and (last.version, last.digest) == (round_.version, mark)
            if last is not None and not same and round_.version <= last.version:
                raise Unavailable(
                    "the server went back to another publication",
                    remedy="its operator must start it with the journal that it had (PRIVATEER_JOURNAL)",
                )
            if known is None or known.round.version < round_.version:
                over = same and last is not None and last.over
                self._enter(FollowedRound(round_, mark, None if over else await self._open(round_, mark), over))

    async def _last(self, name: str) -> Taken | None:
        """Return the newest publication that is followed, or that reports were taken for before a restart."""
        try:
            last = await asyncio.to_thread(self._pool_store.last, name)
        except (OSError, sqlite3.Error) as error:
            raise _unstored() from error
        known = self._followed.get(name)
        if known is None or (last is not None and last.version > known.round.version):
            return last
        return Taken(known.round.version, known.digest)

    def _check(self, round_: Round) -> None:
        """Refuse a round that may close with too few reports, or is too large to hold."""
        largest = RoundSize(round_.batch, round_.messages, round_.sealed_size)
        refuse(ExperimentSize(round_.fewest, [largest], is_shuffled=True).find_refusals(shuffler=self.limits))

    async def _open(self, round_: Round, mark: bytes) -> Pool | None:
        if round_.endpoint != "shuffler" or round_.batch == 0:
            return None
        try:
            self._check(round_)
            await self._claim(round_.experiment)
            await asyncio.to_thread(self._pool_store.note, round_.experiment, Taken(round_.version, mark))
            return await self._pool_store.open(Label(round_, mark))
        except SpecError as error:
            _log.warning("taking no reports for %s: %s", round_.experiment, error)
            return None
        except (OSError, sqlite3.Error) as error:
            raise _unstored() from error

    async def _claim(self, name: str) -> None:
        """Claim an experiment. If that fails, log why once."""
        try:
            await self._forwarding.claim(name)
        except Unavailable as error:
            if name not in self._unclaimed:
                _log.warning("taking no reports for %s: %s", name, error)
            self._unclaimed.add(name)
            raise
        self._unclaimed.discard(name)

    def _enter(self, new: FollowedRound) -> None:
        """Follow a round, and drop the reports held for an older one unless its pool is full."""
        old = self._followed.get(new.round.experiment)
        if old is not None and new.round.version < old.round.version:
            raise ValueError("a followed version does not give way to an older one")
        self._followed[new.round.experiment] = new
        if new.pool is not None:
            self._deliveries[new.pool] = self._background.start(self._deliver(new.pool))
        if old is not None and old.pool is not None and not old.pool.full:
            self._drop(old.pool)

    async def _deliver(self, pool: Pool) -> None:
        """Deliver a pool once it is complete, and fill another if the server asks for one."""
        over = await self._forwarding.run(pool, lambda: self._is_past(pool.round))
        if not over and await self._refill(pool):
            return
        await self._forget(pool)
        name = pool.round.experiment
        if self._followed[name].pool is pool:
            self._followed[name] = replace(self._followed[name], pool=None, over=True)

    def _is_past(self, round_: Round) -> bool:
        """Whether a newer version of an experiment is followed, or none any more."""
        followed = self._followed[round_.experiment]
        return followed.deleted or followed.round.version > round_.version

    async def _refill(self, pool: Pool) -> bool:
        """Make room for another batch of a version as soon as possible, or return False if a newer one is followed."""
        while not self._is_past(pool.round):
            try:
                await self._forwarding.claim(pool.round.experiment)
                async with self._taking:  # a newer version may have come meanwhile
                    if self._is_past(pool.round):
                        return False
                    self._enter(replace(self._followed[pool.round.experiment], pool=await pool.renew()))
                del self._deliveries[pool]
                return True
            except Unavailable as error:
                _log.warning("no further batch of %s yet: %s", pool.round.experiment, error)
            except (OSError, sqlite3.Error):
                pool.last_commit.note(is_durable=False)
            await asyncio.sleep(_RETRY_SECONDS)
        return False

    def _drop(self, pool: Pool) -> None:
        self._deliveries[pool].cancel()
        if not self._pool_store.shared:
            self._metrics.drop(pool.round.experiment, pool.shown)
        self._deliveries[pool] = self._background.start(self._abandon(pool))

    async def _abandon(self, pool: Pool) -> None:
        people = await self._forget(pool)
        if self._pool_store.shared:  # one of the replicas that drop it has erased it, and tells
            self._metrics.drop(pool.round.experiment, in_tenths(people, pool.round.batch))

    async def _forget(self, pool: Pool) -> int:
        """Remember that a version is over and erase its pool. Try again while the disk is full."""
        while True:
            try:
                await asyncio.to_thread(self._pool_store.end, pool.round.experiment, pool.round.version)
                people = await pool.forget()
            except (OSError, sqlite3.Error):
                pool.last_commit.note(is_durable=False)
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                del self._deliveries[pool]
                return people


def _unstored() -> Unavailable:
    return Unavailable("the shuffler cannot store a round", remedy="its operator must check its disk")
