"""Simulated people of a phased experiment, over HTTP."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer.errors import InputError
from privateer.phased import PhasedPopulation
from privateer_client.phase import Phase
from privateer_lab.environments.linear import Linear
from privateer_lab.load.limits import LIMITS, Progress
from privateer_lab.load.wire import Wire

_LIMITS: Final = replace(LIMITS, local_epsilon=math.inf, min_batch=1)
_UPLOAD_BYTES: Final = 1 << 20
_BREATH: Final = 0.2
"""Seconds between questions, so that a server that is away is not asked all the time."""
_PATIENCE: Final = 300.0
"""Seconds that the server may take to learn from a phase, or a shuffler to deliver it."""


@dataclass
class PhaseResult:
    """What came of a load run.

    Attributes
    ----------
    people, accepted, refused
        Asked, and their reports counted, and the others by reason.
    regret, uniform_regret
        Expected rewards lost against the best action, summed over the rounds of all phases: by what was played, and by
        uniformly random actions.
    phases
        That asked somebody.
    over
        Whether the experiment came to its end.
    waits_for
        People who are missing in the phase that is open, if it waits for them.
    best_action_kept
        Whether the best action is among those left.
    bytes_sent, messages_sent
        Bodies of all uploads, and sealed messages in them.
    """

    people: int = 0
    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    regret: float = 0.0
    uniform_regret: float = 0.0
    phases: int = 0
    over: bool = False
    waits_for: int = 0
    best_action_kept: bool = True
    bytes_sent: int = 0
    messages_sent: int = 0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return vars(self) | {"refused": dict(self.refused)}


class PhasesDriver:
    """People with the numbers 0 to ``users`` - 1, those who are asked in each phase answering it."""

    def __init__(self, wire: Wire, population: PhasedPopulation, seed: int) -> None:
        self.wire, self.wanted, self.seed = wire, population, seed
        self.rng = np.random.default_rng([seed, 4])
        self.result = PhaseResult()
        self.linear: Linear | None = None

    async def run(self, users: int | None, concurrency: int, batch: int, progress: Progress) -> PhaseResult:
        """Follow the experiment to its end, or to a phase that waits for people who are not there."""
        try:
            self.result.over = await self._follow(users, concurrency, batch, progress)
        finally:
            self.result.bytes_sent = self.wire.sent
        return self.result

    async def _follow(self, users: int | None, concurrency: int, batch: int, progress: Progress) -> bool:
        phase = await self._next(None)
        if phase is not None and users is not None and users > (people := phase.spec.experiment.people):
            raise InputError(f"the experiment has {people} people", field="--users", remedy=f"at most {people}")
        while phase is not None and phase.round.batch:
            before = self._answered()
            await self._answer(phase, self._there(phase, users), concurrency, batch, progress)
            missing = phase.round.batch - (self._answered() - before)
            ends = missing <= 0 or phase.round.deadline > 0
            self.result.waits_for = 0 if ends else missing
            phase = await self._next(phase) if ends else None
        return phase is not None

    def _answered(self) -> int:
        """Reports that were counted, or came when the phase was full."""
        return self.result.accepted + self.result.refused["round-closed"]

    def _there(self, phase: Phase, users: int | None) -> int:
        """How many of those asked are among the people."""
        people = phase.spec.experiment.people
        return int(np.count_nonzero(phase.policy.asked(people) < (users or people)))

    async def _answer(self, phase: Phase, there: int, concurrency: int, batch: int, progress: Progress) -> None:
        """Have all upload their vectors; those who come when the phase is full are turned away."""
        groups = self._groups(phase, there, batch)

        async def work() -> None:
            for people in groups:
                await self._upload(phase, people)
                progress(people)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(concurrency):
                tasks.create_task(work())

    def _groups(self, phase: Phase, there: int, batch: int) -> Iterator[int]:
        most = max(1, min(batch, _UPLOAD_BYTES // phase.round.report_size))
        for start in range(0, there, most):
            yield min(most, there - start)

    async def _upload(self, phase: Phase, people: int) -> None:
        if self.linear is None:
            raise InputError("no people", field="population", remedy="name one")
        averages = self.linear.averages(people, phase.policy.support, phase.policy.plays, self.rng)
        sealed = b"".join(phase.reports(averages))
        accepted, refused = await self.wire.send(phase.header, sealed, people, phase.round.model)
        self.result.people += people
        self.result.messages_sent += people * phase.round.messages
        self.result.accepted += accepted
        self.result.refused.update(refused)

    async def _next(self, old: Phase | None) -> Phase | None:
        """The next phase; None if it does not come in time."""
        latest = time.monotonic() + _PATIENCE + (max(0.0, old.round.deadline - time.time()) if old else 0.0)
        while time.monotonic() < latest:
            body = await self.wire.fetch(old.header.digest if old else None)
            if body is not None:
                phase = Phase(body, self.wire.name, _LIMITS)
                self._count(phase)
                return phase
            await asyncio.sleep(_BREATH)
        return None

    def _count(self, phase: Phase) -> None:
        """What the phase loses, and what is left in it."""
        if self.linear is None:
            self.linear = Linear(phase.spec.model_copy(update={"population": self.wanted}), self.seed)
        lost: NDArray[np.float64] = np.max(self.linear.values) - self.linear.values
        plays = phase.policy.plays
        self.result.regret += float(plays @ lost[phase.policy.support])
        self.result.uniform_regret += float(plays.sum() * lost.mean())
        self.result.phases += phase.round.batch > 0
        self.result.best_action_kept = bool(np.isin(np.argmin(lost), phase.policy.active))
