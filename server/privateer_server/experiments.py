"""The experiments of a running server: their last rounds in memory, as the store has them."""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from privateer.clock import Clock
from privateer.errors import Conflict, NotFound, SpecError, Unavailable, WrongEndpoint
from privateer.families import AnySpec
from privateer.phased import PhasedSpec
from privateer.serving.logs import trace
from privateer.wire.publication import decode_publication
from privateer_server.closing import Closer
from privateer_server.mending import Mender
from privateer_server.opening import SEALED_SIZE
from privateer_server.round_keys import RoundKeys
from privateer_server.rounds import OpenRound, beyond, first_round, read_stored_spec, restore, timed
from privateer_server.schedule import schedule_for
from privateer_server.store import TRANSIENT, Change, ExperimentRecord, Store
from privateer_server.store.journal import Journal

_HEADER_BYTES: Final = 1024
"""More than the header of a batch takes."""
_RETRY_SECONDS: Final = 5
"""Between two attempts to close a round while the disk is full."""
_GROWTH: Final = {
    True: ("algorithm.alpha", "algorithm.clients or experiment.horizon"),
    False: ("experiment.round_growth", "the people in all"),
}
"""What makes the rounds of phased and other experiments large."""
_log = logging.getLogger("privateer.server")


class Experiment:
    """One experiment: the last round, and what was counted.

    Attributes
    ----------
    current
        The last round published.
    report_ids
        Of the reports counted in it.
    accepted, refused
        Reports counted over all rounds, and turned away by reason.
    shuffler
        Id of the key of the shuffler whose batches it takes; empty as long as none has claimed it.
    released_at
        When the last claim was released, in seconds since 1970: claims that were signed before are void.
    retry_at
        When closing its round may be tried again after a failure, by the monotonic clock; infinite: at a restart.
    """

    def __init__(self, current: OpenRound) -> None:
        self.current = current
        self.report_ids: set[bytes] = set()
        self.accepted = 0
        self.refused: Counter[str] = Counter()
        self.shuffler = ""
        self.released_at = -math.inf
        self.retry_at = 0.0
        self._published = asyncio.Event()

    @property
    def spec(self) -> AnySpec:
        """What the experiment was created from."""
        return self.current.spec

    @property
    def status(self) -> str:
        """``open``; or over: ``finished``, or ``failed`` if a round came to no end."""
        if self.current.round.batch:
            return "open"
        return "failed" if schedule_for(self.spec).failed(self.current.state) else "finished"

    def advance(self, current: OpenRound, change: Change) -> None:
        """Follow a committed change."""
        self.accepted += change.received - self.current.received
        self.refused += Counter(change.refused)
        self.report_ids.update(change.report_ids)
        self.current = current
        if change.following:
            self.report_ids = set()
            self._published.set()
            self._published = asyncio.Event()

    def put_off(self, error: Exception, now: float) -> None:
        """Note that closing the round failed: a full disk may have room soon, a learner that fails will fail again."""
        self.retry_at = now + _RETRY_SECONDS if isinstance(error, TRANSIENT) else math.inf
        _log.error(
            "experiment %s: round %d is not closed (%s); its reports are kept, and %s tries again",
            self.current.round.experiment,
            self.current.round.version,
            trace(error),
            "a restart" if math.isinf(self.retry_at) else "the server",
        )

    async def next_publication(self, seconds: float) -> None:
        """Return once another round is published, the time is up, or the process is about to stop."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._published.wait(), seconds)

    def end_waits(self) -> None:
        """Have `next_publication` return, now and later."""
        self._published.set()


class Experiments:
    """All experiments by name.

    Parameters
    ----------
    store
        Where they are kept.
    journal, keys
        What was published last, and the keys of open rounds; keys of no open round are destroyed.
    closer
        What ends rounds, and puts new ones on record.
    report_bytes_max, batch_bytes_max
        Largest report of a person, and largest batch, that services take.
    clock
        What rounds are dated by.

    Raises
    ------
    SpecError
        If a stored experiment cannot be read.
    """

    def __init__(
        self,
        store: Store,
        journal: Journal,
        keys: RoundKeys,
        closer: Closer,
        report_bytes_max: int,
        batch_bytes_max: int,
        clock: Clock,
    ) -> None:
        self._store, self._journal, self._keys, self._clock = store, journal, keys, clock
        self._batch_bytes_max, self._report_bytes_max = batch_bytes_max, report_bytes_max
        self._closer = closer
        self._creating, self._claiming = asyncio.Lock(), asyncio.Lock()
        mender = Mender(journal, keys, self._closer, clock)
        for stored in store.experiments():
            mender.mend(stored)
        self._by_name = {stored.name: self._restored(stored) for stored in store.experiments()}
        for name in journal.experiments():
            if name not in self._by_name:
                _log.warning(
                    "experiment %s: published earlier, and not in this database; restore a backup that has it", name
                )
        keys.keep([key for experiment in self for key in self._keys_of(experiment)])

    def __iter__(self) -> Iterator[Experiment]:
        return iter(list(self._by_name.values()))

    def _keys_of(self, experiment: Experiment) -> list[bytes]:
        """Public keys of the open round, and of the next one if it is on record already."""
        entry = self._journal.last(experiment.current.round.experiment)
        following = [decode_publication(entry.following.publication).round.public_key] if entry else []
        return [experiment.current.round.public_key, *following]

    def get(self, name: str) -> Experiment:
        """The experiment of that name.

        Raises
        ------
        NotFound
            If there is none.
        """
        try:
            return self._by_name[name]
        except KeyError:
            raise NotFound("no such experiment", remedy="GET /experiments lists them") from None

    def end_waits(self) -> None:
        """Answer all long polls now, and those to come at once: the process is about to stop."""
        for experiment in self:
            experiment.end_waits()

    async def create(self, spec: AnySpec) -> tuple[Experiment, bool]:
        """The experiment of a spec, and whether it is new.

        Raises
        ------
        SpecError
            If this server cannot run the experiment or keep its promise.
        Conflict
            If the name is taken by an experiment with another spec.
        Unavailable
            If the server cannot write.
        """
        name = spec.experiment.name
        async with self._creating:
            if known := self._by_name.get(name):
                if known.spec != spec:
                    raise Conflict("the name is taken by another experiment", field="experiment.name", remedy="rename")
                return known, False
            _check_calibration(spec)
            try:
                self._by_name[name] = Experiment(await asyncio.to_thread(self._created, spec))
            except TRANSIENT:
                raise Unavailable("the server cannot store experiments now", remedy="try again later") from None
        return self._by_name[name], True

    async def claim(self, name: str, shuffler: str, signed_at: float) -> None:
        """Let one shuffler alone, by the id of its key, bring batches; the same again changes nothing.

        Two shufflers would each hold a part of a round's reports, and the part that comes second would be lost.

        Parameters
        ----------
        signed_at
            When the shuffler signed the claim, in seconds since 1970.

        Raises
        ------
        NotFound, WrongDoor
            If there is no such experiment, or its reports need no shuffler.
        Conflict
            If another shuffler has claimed it.
        """
        experiment = self.get(name)
        if experiment.current.round.model != "shuffle":
            raise WrongEndpoint("reports of this experiment go to the server", remedy="send them to the server")
        async with self._claiming:
            if experiment.shuffler not in ("", shuffler):
                raise Conflict(
                    "another shuffler takes the reports of this experiment",
                    field="shuffler",
                    remedy="report through that one, or release its claim: DELETE /experiments/NAME/shuffler",
                )
            if not experiment.shuffler:
                if signed_at <= experiment.released_at:
                    raise Conflict("the claim was released since", field="shuffler", remedy="claim it anew")
                await self._claimed(experiment, shuffler)

    async def release(self, name: str) -> None:
        """Let any shuffler claim the experiment, since the one that did is gone.

        Raises
        ------
        NotFound
            If there is no such experiment.
        """
        experiment = self.get(name)
        async with self._claiming:
            await self._claimed(experiment, "")
            experiment.released_at = self._clock.now()

    async def _claimed(self, experiment: Experiment, shuffler: str) -> None:
        await asyncio.to_thread(self._store.claim, experiment.spec.experiment.name, shuffler)
        experiment.shuffler = shuffler

    def _created(self, spec: AnySpec) -> OpenRound:
        """The first round, published; above the versions of an experiment that had the name and is lost."""
        name = spec.experiment.name
        earlier = self._journal.last(name)
        version = beyond(earlier.following.version) if earlier else 1
        public_key = self._keys.make()
        try:
            first = first_round(spec, public_key, self._clock.now(), version)
            _check_sizes(first, self._report_bytes_max, self._batch_bytes_max)
            entry = self._closer.enter(first)
            self._store.create(name, spec.model_dump_json().encode(), entry.following)
        except BaseException:
            self._keys.destroy(public_key)
            raise
        return timed(first, self._clock)

    def _restored(self, stored: ExperimentRecord) -> Experiment:
        current = restore(read_stored_spec(stored.spec), stored.current, self._keys.find)
        assert current is not None, "mended"
        experiment = Experiment(timed(current, self._clock))
        experiment.accepted, experiment.refused = stored.accepted, Counter(stored.refused)
        experiment.report_ids = set(stored.report_ids)
        experiment.shuffler = stored.shuffler
        if current.is_unlearned:
            self._learn_again(experiment)
        return experiment

    def _learn_again(self, experiment: Experiment) -> None:
        """Close a round whose reports are in but whose learning failed when they came."""
        try:
            experiment.advance(*self._closer.close(experiment.current))
        except Exception as error:  # one experiment must not keep the server from the others
            experiment.put_off(error, self._clock.monotonic())


def _check_calibration(spec: AnySpec) -> None:
    if spec.privacy.calibration == "published":
        raise SpecError(
            "the published calibration is for simulation alone",
            field="privacy.calibration",
            remedy="use tight here, or privateer simulate",
        )


def _check_sizes(first: OpenRound, report_max: int, batch_max: int) -> None:
    """Refuse an experiment that would come to a report or a batch that no request may carry, and stand still."""
    shuffled = first.round.model == "shuffle"
    for people, messages, size in schedule_for(first.spec).bulk(first.step):
        report = messages * (SEALED_SIZE + size)
        if report > report_max - _HEADER_BYTES:
            raise SpecError(
                f"a person would send {report} bytes, and services take {report_max} at once",
                field="algorithm.clients",
                remedy="raise it, so that more people share the noise, or raise privacy.epsilon",
            )
        if shuffled and people * report > batch_max - _HEADER_BYTES:
            field, others = _GROWTH[isinstance(first.spec, PhasedSpec)]
            raise SpecError(
                f"rounds of {people} reports of {report} bytes exceed the {batch_max} that this server takes at once",
                field=field,
                remedy=f"lower it, or {others}, or raise PRIVATEER_BATCH_BYTES_MAX",
            )
