"""An experiment of a running server: its last round in memory, as the store has it."""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from privateer_core.algorithms import parse_spec
from privateer_core.answer import Answer
from privateer_core.answer.conclusion import Conclusion
from privateer_core.answer.export import Status
from privateer_core.answer.people import HeldReports, People
from privateer_core.clock import Clock
from privateer_core.serving.logs import trace
from privateer_core.spec.spec import Spec
from privateer_server.conclusions.conclusion import conclude
from privateer_server.data import Data
from privateer_server.rounds.account import account_of
from privateer_server.rounds.loop import Schedule
from privateer_server.rounds.open_round import OpenRound, restore, timed
from privateer_server.store.records import (
    PAUSED,
    STOPPED,
    TRANSIENT,
    Behind,
    ExperimentRecord,
    ExperimentState,
)

_RETRY_SECONDS: Final = 5
"""Between two attempts to close a round while the disk is full."""
_LEASED_SECONDS: Final = 1
"""Between two looks at whether the server that closes a round still does."""
_log = logging.getLogger("privateer.server")


@dataclass(frozen=True)
class Snapshot:
    """The facts that are known of an experiment at a moment."""

    current: OpenRound  # the last round published
    before: int = 0  # reports counted in the rounds before it
    refused: Mapping[str, int] = field(default_factory=dict)  # reports turned away over all rounds, by reason


class Experiment:
    """One experiment: the last round, and what was counted.

    current: the last round published.
    leased_until: when to look again whether the server that closes the round still does, by the same clock.
    created: what the experiment was created from.
    """

    def __init__(self, current: OpenRound, created: Spec) -> None:
        self.current, self.created = current, created
        self.before = 0  # reports counted in the rounds before it
        self.refused: Counter[str] = Counter()  # reports turned away over all rounds, by reason
        self.shuffler = ""  # id of the key of the shuffler whose batches it takes; empty as long as none has claimed it
        # when closing its round may be tried again after a failure, by the monotonic clock; infinite: at a restart
        self.retry_at = self.leased_until = 0.0
        self._published = asyncio.Event()
        self._answered: tuple[bytes, Answer] | None = None
        self._concluded: tuple[tuple[bytes, Status], Conclusion] | None = None

    @property
    def spec(self) -> Spec:
        """The spec of the current publication."""
        return self.current.spec

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.current.round.experiment

    @property
    def accepted(self) -> int:
        """Reports counted over all rounds."""
        return self.before + self.current.received

    @property
    def people(self) -> People:
        """The account of the experiment's people; what waits at a shuffler cannot be seen here."""
        current = self.current
        is_unseen = bool(current.shuffled and self.shuffler and current.round.batch)
        needed = max(0, current.round.batch - current.received)
        return account_of(
            current.schedule,
            current.step,
            self.before,
            HeldReports(current.received, None if is_unseen else 0, needed),
            self.refused,
            is_replaced=True,
            is_draining=current.drain is not None,
            is_unknown=is_unseen,
        )

    @property
    def snapshot(self) -> Snapshot:
        """Return what is known now."""
        return Snapshot(self.current, self.before, dict(self.refused))

    @property
    def status(self) -> Status:
        """``open``, ``paused``, or ``draining`` where late reports alone are awaited; or over.

        It is over when it is ``stopped``, ``finished``, or ``failed`` because a round came to no end.
        """
        current = self.current
        if not current.round.batch and current.schedule.failed(current.step):
            return "failed"
        held: dict[str, Status] = {PAUSED: "paused", STOPPED: "stopped"}
        asks: Status = "draining" if current.drain else "open"
        return held.get(current.plan.hold) or (asks if current.round.batch else "finished")

    @property
    def is_over(self) -> bool:
        """Whether nobody is asked any more."""
        return self.status not in ("open", "paused", "draining")

    @property
    def is_silent(self) -> bool:
        """Whether nobody who comes now is asked, although the round is open for those who chose before."""
        return bool(self.current.round.batch and self.current.plan.hold)

    @property
    def is_put_off(self) -> bool:
        """Whether closing the round has failed, and no attempt since has succeeded."""
        return self.retry_at > 0

    def answer(self, current: OpenRound) -> Answer:
        """Return what the learner had found when it made a round's policy; made once for every version."""
        if self._answered is None or self._answered[0] != current.digest:
            self._answered = current.digest, current.schedule.answer(current.step)
        return self._answered[1]

    def conclusion(self, current: OpenRound, answer: Answer) -> Conclusion:
        """Return what follows from the answer of a round; made once for every version and where it stands."""
        stamp = current.digest, self.status
        if self._concluded is None or self._concluded[0] != stamp:
            self._concluded = stamp, conclude(current.schedule, current.step, answer)
        return self._concluded[1]

    def advance(self, to: Snapshot) -> None:
        """Follow what is in the store."""
        is_new = to.current.digest != self.current.digest
        self.current, self.before, self.refused = to.current, to.before, Counter(to.refused)
        if is_new:
            self.retry_at = 0.0
            self._published.set()
            self._published = asyncio.Event()

    def put_off(self, error: Exception, now: float) -> None:
        """Note that closing the round failed: a full disk may have room soon, a learner that fails will fail again."""
        self.retry_at = now + _RETRY_SECONDS if isinstance(error, TRANSIENT) else math.inf
        _log.error(
            "experiment %s: round %d is not closed (%s); its reports are kept, and %s tries again",
            self.name,
            self.current.round.version,
            trace(error),
            "a restart" if math.isinf(self.retry_at) else "the server",
        )

    def wait(self, now: float) -> None:
        """Note that another server closes the round: this one looks again soon."""
        self.leased_until = now + _LEASED_SECONDS

    async def next_publication(self, seconds: float) -> None:
        """Return once another round is published, the time is up, or the process is about to stop."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._published.wait(), seconds)

    def end_waits(self) -> None:
        """Have `next_publication` return, now and later."""
        self._published.set()


class ExperimentLoader:
    """Reads experiments from the store, and what has become of them since."""

    def __init__(self, data: Data, clock: Clock) -> None:
        self._store, self._keys, self._clock = data.store, data.keys, clock

    def experiment(self, name: str) -> Experiment | None:
        """Return an experiment that this server did not know, if there is one of that name."""
        stored = self._store.experiment(name)
        return self.restored(stored) if stored else None

    def restored(self, stored: ExperimentRecord) -> Experiment:
        """Return the experiment of a record; raises what `experiment` does."""
        snapshot = self._snapshot(stored)
        experiment = Experiment(snapshot.current, parse_spec(msgspec.json.decode(stored.spec)))
        experiment.advance(snapshot)
        experiment.shuffler = stored.standing.shuffler
        return experiment

    def latest(self, name: str, known: Snapshot, standing: ExperimentState) -> Snapshot:
        """Return what became of an experiment of which this much was known."""
        current = known.current
        if standing.digest != current.digest:
            if standing.version <= current.round.version:
                raise Behind("an earlier copy of the database was put back: restart the server")
            stored = self._store.experiment(name)
            if stored is None:
                raise Behind("the experiment was deleted")
            self._keys.destroy(current.round.public_key)  # its round is over for good
            return self._snapshot(stored, current.schedule)
        if standing.plan != current.plan:
            current = timed(replace(current, plan=standing.plan), self._clock)
        return Snapshot(current.at(standing), known.before, standing.refused)

    def _snapshot(self, stored: ExperimentRecord, schedule: Schedule | None = None) -> Snapshot:
        current = restore(stored.current, self._keys.find, stored.standing.plan, schedule)
        if current is None:
            raise Behind("the key of the open round is lost: restart the server")
        before = stored.accepted - stored.current.received
        return Snapshot(timed(current, self._clock).at(stored.standing), before, stored.standing.refused)
