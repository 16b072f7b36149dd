"""An experiment of a running server with its last round in memory, and the refusals of a new experiment."""

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
from privateer_core.answer.people import HeldReports, People
from privateer_core.clock import Clock
from privateer_core.errors import SpecError
from privateer_core.experiment_status import Status
from privateer_core.privacy.trust import NoiseOrigin, Recipient
from privateer_core.serving.admission import ExperimentSize, RoundSize, ServerLimits, ShufflerLimits
from privateer_core.serving.logs import trace
from privateer_core.spec.spec import Spec
from privateer_server.conclusions.conclusion import conclude
from privateer_server.data import Data
from privateer_server.rounds.closing import ClosedRound
from privateer_server.rounds.open_round import OpenRound, restore_round, with_deadlines
from privateer_server.rounds.schedule import Schedule, Step, count_participants
from privateer_server.store.records import TRANSIENT_ERRORS, ExperimentRecord, ExperimentState, OutdatedState


def find_experiment_refusals(
    schedule: Schedule, first: Step, server: ServerLimits | None = None, shuffler: ShufflerLimits | None = None
) -> list[SpecError]:
    """Return all errors for which services with the given limits refuse a new experiment."""
    trust = schedule.spec.privacy.trust
    if trust.is_simulated:
        field = "algorithm.name" if trust.is_served else "privacy.model"
        detail, remedy = "is for simulation alone", "choose another here, or use privateer simulate"
        return [SpecError(detail, field=field, remedy=remedy)]
    if not first.batch_size:
        detail = "what was learned before leaves nobody to ask"
        return [SpecError(detail, field="experiment.horizon", remedy="raise it, or begin without")]
    return measure_experiment(schedule, first).find_refusals(server, shuffler)


def measure_experiment(schedule: Schedule, first: Step) -> ExperimentSize:
    """Return the sizes of an experiment's rounds and reports, for any seed of its first step."""
    spec, learner = schedule.spec, schedule.learner
    volumes = learner.list_round_volumes(first)
    rounds = [RoundSize(volume.people, volume.messages, volume.size) for volume in volumes]
    trust = spec.privacy.trust
    is_shuffled, is_shared = trust.endpoint is Recipient.SHUFFLER, trust.noise is NoiseOrigin.SERVERS
    return ExperimentSize(spec.smallest_batch, rounds, is_shuffled, learner.growth, is_shared)


_RETRY_DELAY_SECONDS: Final = 5  # the delay between two attempts to close a round while the disk is full
_LEASE_CHECK_SECONDS: Final = 1  # the delay between two checks of a round that another server closes
_log = logging.getLogger("privateer.server")


@dataclass(frozen=True)
class Snapshot:
    """The known facts of an experiment at a moment."""

    current: OpenRound  # the last round published
    n_earlier: int = 0  # reports counted in the rounds before it
    refused: Mapping[str, int] = field(default_factory=dict)  # reports refused over all rounds, by reason


class Experiment:
    """An experiment with its last published round, and its counts; ``created`` is the spec at its creation."""

    def __init__(self, current: OpenRound, created: Spec) -> None:
        self.current, self.created = current, created
        self.n_earlier = 0  # reports counted in the rounds before it
        self.refused: Counter[str] = Counter()  # reports refused over all rounds, by reason
        self.shuffler = ""  # id of the key of the shuffler that has claimed the experiment; empty without a claim
        # by the monotonic clock: when closing its round may be tried again after a failure (infinite: at a restart),
        # and when to check again whether another server has closed it
        self.retry_at = self.leased_until = 0.0
        self._published = asyncio.Event()
        self._cached_answer: tuple[bytes, Answer] | None = None
        self._cached_conclusion: tuple[tuple[bytes, Status], Conclusion] | None = None

    @property
    def spec(self) -> Spec:
        """The spec of the current publication."""
        return self.current.spec

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.current.round.experiment

    @property
    def n_accepted(self) -> int:
        """The number of reports counted over all rounds."""
        return self.n_earlier + self.current.received

    @property
    def people(self) -> People:
        """The counts of participants by state; the number of reports held by a shuffler is unknown here."""
        current = self.current
        is_held_unknown = bool(current.is_shuffled and self.shuffler and current.round.batch_size)
        n_missing = max(0, current.round.batch_size - current.received)
        return count_participants(
            current.schedule,
            current.step,
            self.n_earlier,
            HeldReports(current.received, None if is_held_unknown else 0, n_missing),
            self.refused,
            is_replaced=True,
            is_draining=current.drain is not None,
            is_unknown=is_held_unknown,
        )

    @property
    def snapshot(self) -> Snapshot:
        """The current facts of the experiment."""
        return Snapshot(self.current, self.n_earlier, dict(self.refused))

    @property
    def status(self) -> Status:
        """The current status of the experiment."""
        current = self.current
        if not current.round.batch_size and current.schedule.has_failed(current.step):
            return Status.FAILED
        if current.plan.hold:
            return Status(current.plan.hold)
        open_status = Status.DRAINING if current.drain else Status.OPEN
        return open_status if current.round.batch_size else Status.FINISHED

    @property
    def is_inviting_nobody(self) -> bool:
        """Whether no new participants are invited, although the round is open for earlier ones."""
        return bool(self.current.round.batch_size and self.current.plan.hold)

    @property
    def has_failed_closing(self) -> bool:
        """Whether closing the round has failed, and no later attempt has succeeded."""
        return self.retry_at > 0

    def answer(self, current: OpenRound) -> Answer:
        """Return the learner's answer at the start of a round, computed once for every version."""
        if self._cached_answer is None or self._cached_answer[0] != current.digest:
            self._cached_answer = current.digest, current.schedule.answer(current.step)
        return self._cached_answer[1]

    def conclusion(self, current: OpenRound, answer: Answer) -> Conclusion:
        """Return the conclusion from the answer of a round, computed once for every version and status."""
        cache_key = current.digest, self.status
        if self._cached_conclusion is None or self._cached_conclusion[0] != cache_key:
            self._cached_conclusion = cache_key, conclude(current.schedule, current.step, answer)
        return self._cached_conclusion[1]

    def advance_to(self, snapshot: Snapshot) -> None:
        """Replace the experiment's facts by a newer snapshot, and wake long polls if a round was published."""
        is_new = snapshot.current.digest != self.current.digest
        self.current, self.n_earlier, self.refused = snapshot.current, snapshot.n_earlier, Counter(snapshot.refused)
        if is_new:
            self.retry_at = 0.0
            self._published.set()
            self._published = asyncio.Event()

    def follow_round(self, closed: ClosedRound) -> None:
        """Continue with the round after a closed one."""
        self.advance_to(replace(self.snapshot, current=closed.next_round, n_earlier=self.n_earlier + closed.received))

    def note_failed_closing(self, error: Exception, now: float) -> None:
        """Record that closing the round failed: a full disk is retried soon, a failing learner only after a restart."""
        self.retry_at = now + _RETRY_DELAY_SECONDS if isinstance(error, TRANSIENT_ERRORS) else math.inf
        message = "experiment %s: round %d is not closed (%s); its reports are kept, and %s tries again"
        next_try = "a restart" if math.isinf(self.retry_at) else "the server"
        _log.error(message, self.name, self.current.round.version, trace(error), next_try)

    def note_lease(self, now: float) -> None:
        """Record that another server is closing the round: this server checks again soon."""
        self.leased_until = now + _LEASE_CHECK_SECONDS

    async def next_publication(self, seconds: float) -> None:
        """Return once another round is published, the time is up, or the process is about to stop."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._published.wait(), seconds)

    def end_waits(self) -> None:
        """End all current and later calls of `next_publication`."""
        self._published.set()


class ExperimentLoader:
    """The loader of experiments and their updates from the store."""

    def __init__(self, data: Data, clock: Clock) -> None:
        self._store, self._keys, self._clock = data.store, data.keys, clock

    def experiment(self, name: str) -> Experiment | None:
        """Load the experiment of a name, if it exists."""
        record = self._store.experiment(name)
        return self.restore(record) if record else None

    def restore(self, record: ExperimentRecord) -> Experiment:
        """Return the experiment of a record; raises the errors of `experiment`."""
        snapshot = self._build_snapshot(record)
        experiment = Experiment(snapshot.current, parse_spec(msgspec.json.decode(record.spec)))
        experiment.advance_to(snapshot)
        experiment.shuffler = record.state.shuffler
        return experiment

    def load_latest(self, name: str, snapshot: Snapshot, stored_state: ExperimentState) -> Snapshot:
        """Return the current snapshot from an earlier one and the stored state; refuse a state set back or deleted."""
        current = snapshot.current
        if stored_state.digest != current.digest:
            if stored_state.version <= current.round.version:
                raise OutdatedState("an earlier copy of the database was put back: restart the server")
            record = self._store.experiment(name)
            if record is None:
                raise OutdatedState("the experiment was deleted")
            self._keys.destroy(current.round.public_key)  # its round is over for good
            return self._build_snapshot(record, current.schedule)
        if stored_state.plan != current.plan:
            current = with_deadlines(replace(current, plan=stored_state.plan), self._clock)
        if (current.received, current.state) != (stored_state.received, stored_state.state):  # another server counted
            current = current.with_counts(stored_state)
        return Snapshot(current, snapshot.n_earlier, stored_state.refused)

    def _build_snapshot(self, record: ExperimentRecord, schedule: Schedule | None = None) -> Snapshot:
        """Return the snapshot of a record; raise `OutdatedState` if the key of its open round is lost."""
        current = restore_round(record.current, self._keys.find_decryptor, record.state.plan, schedule)
        if current is None:
            raise OutdatedState("the key of the open round is lost: restart the server")
        current = with_deadlines(current, self._clock).with_counts(record.state)
        return Snapshot(current, record.accepted - record.current.received, record.state.refused)
