"""The terms of a round: what is promised, and the mechanism that keeps the promise."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

from privateer_core.accounting.accountant import account
from privateer_core.accounting.allotment import Allotment, allot
from privateer_core.accounting.events import Event, Parallel, Repeated
from privateer_core.errors import SpecError
from privateer_core.mechanisms import AnyMechanism
from privateer_core.portable import OTHER_DIGITS
from privateer_core.primitives.questions import Question
from privateer_core.privacy.trust import Promise, Trust, honest_people, noiseless, stands_alone, trust_of

JUMP: Final = 1_000_000
"""Versions up to the next multiple of it may have been published, if a database was replaced by an earlier copy."""


@dataclass(frozen=True)
class _Alone:
    """The promise of a report by itself."""

    bound: float
    delta: float = 0.0

    @property
    def local_epsilon_max(self) -> float:
        return self.bound


@dataclass(frozen=True)
class Terms:
    """Everything a device needs to randomize a report and to check what it costs."""

    # model, epsilon, delta: the promise to a person under the trust model; epsilon is infinite where nothing is
    # promised
    model: str
    epsilon: float
    delta: float
    calibration: str  # that of the trust model's row, by which a device tells whether the terms are ours
    # batch, honest: people of the round, and how many of them the promise counts on (0: the person alone)
    batch: int
    honest: int
    mechanism: AnyMechanism  # what randomizes, adds up and releases
    reports: int = 1  # reports of a person that share the promise, each of them in a round of its own

    @cached_property
    def trust(self) -> Trust:
        """The row of the trust model."""
        return trust_of(self.model)

    @property
    def messages(self) -> int:
        """Messages of one person."""
        return self.mechanism.messages

    @property
    def event(self) -> Event | None:
        """What the adversary of the promise sees of one report; None: the record."""
        return self.trust.event(self.mechanism, self.honest)

    @property
    def allotment(self) -> Allotment | None:
        """The most that the report may cost, where several share the promise; None: all of it."""
        return allotment_of(self.trust, self.epsilon, self.delta, self.reports)

    @cached_property
    def local_epsilon(self) -> float:
        """What remains of the promise if everybody else colludes; infinite where a report has no pure epsilon."""
        if self.trust.batched or self.trust.curated:
            return self.reports * self.mechanism.local_epsilon
        return self.epsilon

    @property
    def true_delta(self) -> float:
        """Delta that the accountant finds at the promised epsilon; 1 where nothing is promised."""
        if self.event is None or math.isinf(self.epsilon):
            return 1.0
        if share := self.allotment:
            return _delta(composed(share, [self.event]), self.epsilon)
        return min(1.0, _delta(self.event, self.epsilon) + self.mechanism.sampling)

    @property
    def holds(self) -> bool:
        """Whether the promise is true; an experiment without a promise breaks none."""
        if not self.trust.promises:
            return True
        if (share := self.allotment) and self.event is not None:
            # Releases that depend on each other's noise are not each an event of its own, of which several compose.
            return not self.mechanism.continues and _covered(share, self.event, self.mechanism.sampling)
        return self.true_delta <= self.delta * (1 + OTHER_DIGITS)


def allotment_of(row: Trust, epsilon: float, delta: float, reports: int) -> Allotment | None:
    """Return what one of a person's reports may cost under a trust model; None: all that is promised, or anything."""
    return allot(epsilon, delta, reports, row.delta_least) if reports > 1 and row.promises else None


def composed(share: Allotment, events: Iterable[Event]) -> Event:
    """Return what the adversary sees of all of a person's reports, each of them one of ``events``, or the allotment."""
    return Repeated(Parallel((share.each, *sorted(events, key=repr))), share.reports)


def calibrate(privacy: Promise, batch: int, question: Question, fewest: int | None = None, reports: int = 1) -> Terms:
    """Return the terms that keep a promise and say most about a question.

    privacy: the ``[privacy]`` of a spec.
    batch: people of the round.
    question: what is asked of them.
    fewest: fewest people with whom the round may close; by default all.
    reports: reports of a person that share the promise.
    """
    row = privacy.trust
    honest = honest_people(privacy, batch if fewest is None else fewest)
    if row.batched and honest < 1:
        raise SpecError("no report of a batch is assumed honest", field="privacy.honest_fraction", remedy="raise it")
    share = allotment_of(row, privacy.bound, privacy.delta, reports)
    if privacy.as_alone:
        mechanism = stands_alone().serves[type(question)].calibrate(_Alone(privacy.bound), 0, question, None)
    else:
        mechanism = row.serves[type(question)].calibrate(privacy, honest, question, share)
    return Terms(privacy.model, privacy.bound, privacy.delta, row.calibration, batch, honest, mechanism, reports)


def nobody_asked(privacy: Promise, question: Question) -> Terms:
    """Return the terms of a round that asks nobody: the promise, and a mechanism that nobody uses."""
    mechanism = noiseless(privacy, question)
    return Terms(privacy.model, privacy.bound, privacy.delta, privacy.trust.calibration, 0, 0, mechanism)


@lru_cache(maxsize=4096)
def _delta(event: Event, epsilon: float) -> float:
    return account(event).delta(epsilon)


@lru_cache(maxsize=4096)
def _covered(share: Allotment, event: Event, sampling: float) -> bool:
    return share.covers(event, sampling, OTHER_DIGITS)
