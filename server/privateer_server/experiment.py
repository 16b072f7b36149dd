"""One experiment of a running server: its last round in memory, as the store has it."""

import asyncio
import logging
import math
from collections import Counter
from contextlib import suppress
from typing import Any, Final

from privateer.export import Status
from privateer.serving.logs import trace
from privateer.spec import Spec
from privateer_server.rounds import OpenRound
from privateer_server.store import PAUSED, STOPPED, TRANSIENT, Change

_RETRY_SECONDS: Final = 5
"""Between two attempts to close a round while the disk is full."""
_log = logging.getLogger("privateer.server")


class Experiment:
    """One experiment: the last round, and what was counted.

    Attributes
    ----------
    current
        The last round published.
    report_ids
        Ids of the reports counted in it.
    accepted, refused
        Reports counted over all rounds, and turned away by reason.
    shuffler
        Id of the key of the shuffler whose batches it takes; empty as long as none has claimed it.
    released_at
        When the last claim was released, in seconds since 1970: claims that were signed before are void.
    retry_at
        When closing its round may be tried again after a failure, by the monotonic clock; infinite: at a restart.
    created
        What the experiment was created from.
    """

    def __init__(self, current: OpenRound, created: Spec) -> None:
        self.current, self.created = current, created
        self.report_ids: set[bytes] = set()
        self.accepted = 0
        self.refused: Counter[str] = Counter()
        self.shuffler = ""
        self.released_at = -math.inf
        self.retry_at = 0.0
        self._published = asyncio.Event()
        self._described: tuple[bytes, dict[str, Any]] = (b"", {})

    @property
    def spec(self) -> Spec:
        """The spec of the current publication."""
        return self.current.spec

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.current.round.experiment

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

    def described(self, current: OpenRound) -> dict[str, Any]:
        """Describe what the learner knew when it made a round's policy; once for every version."""
        digest, description = self._described
        if digest != current.digest:
            description = current.schedule.learner.describe(current.step.state)
            self._described = current.digest, description
        return description

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
            self.name,
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
