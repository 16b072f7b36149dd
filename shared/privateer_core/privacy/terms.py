"""The terms of a round: the promise, and the mechanism that keeps it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Final, Self

import msgspec

from privateer_core.accounting.accountant import event_delta
from privateer_core.accounting.allotment import Allotment, allot
from privateer_core.accounting.events import Event, Parallel, Repeated
from privateer_core.errors import SpecError
from privateer_core.mechanisms import AnyMechanism
from privateer_core.mechanisms.tiered_symbol import TieredSymbol
from privateer_core.portable import RELATIVE_TOLERANCE
from privateer_core.primitives.questions import Question
from privateer_core.privacy.trust import TRUST, Crowd, Promise, Trust, count_honest, local_trust, trust_of

JUMP: Final = 1_000_000
"""Versions up to the next multiple of this may have been published, if a database was replaced by an earlier copy."""


class _LocalPromise(msgspec.Struct, frozen=True):
    """The promise of a locally private report."""

    bound: float
    local_epsilon_max: float
    delta: float = 0.0
    tier_shares: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Terms:
    """The parameters from which a device randomizes a report and checks its privacy cost."""

    # model, epsilon, delta: the promise to a participant under the trust model; epsilon is infinite without a promise
    model: str
    epsilon: float
    delta: float
    calibration: str  # the calibration, which names the accountant that it is by; devices accept `CALIBRATIONS` alone
    # batch_size, honest: participants of the round, and how many the promise counts on (0: the participant alone)
    batch_size: int
    honest: int
    mechanism: AnyMechanism  # the mechanism of randomization and release
    reports: int = 1  # number of a participant's reports that share the promise, each in a round of its own

    @cached_property
    def trust(self) -> Trust:
        """The row of the trust model."""
        return trust_of(self.model)

    @property
    def messages(self) -> int:
        """Number of messages of a participant."""
        return self.mechanism.messages

    @property
    def event(self) -> Event | None:
        """Event of a report for the adversary of the promise; None: the adversary sees the record."""
        return self.trust.event(self.mechanism, self.honest)

    @property
    def allotment(self) -> Allotment | None:
        """Privacy budget of the report, if several share the promise; None: the whole promise."""
        return report_allotment(self.trust, self.epsilon, self.delta, self.reports)

    def for_tier(self, tier: int, epsilon: float) -> Self:
        """Return the terms of participants of a tier, by its index and its promise; others than tiers are unchanged."""
        mechanism = self.mechanism
        if isinstance(mechanism, TieredSymbol) and tier < len(mechanism.channels):
            mechanism = msgspec.structs.replace(mechanism, tier=tier)
        return replace(self, epsilon=epsilon, mechanism=mechanism)

    @cached_property
    def local_epsilon(self) -> float:
        """Epsilon of the reports if all other parties collude; infinite if a report has no pure epsilon."""
        if self.trust.crowd is Crowd.NOBODY:
            return self.epsilon
        return self.reports * self.mechanism.local_epsilon

    @property
    def true_delta(self) -> float:
        """Delta by the accountant at the promised epsilon; 1 without a promise."""
        if self.event is None or math.isinf(self.epsilon):
            return 1.0
        if share := self.allotment:
            return event_delta(compose_reports(share, [self.event]), self.epsilon)
        return min(1.0, event_delta(self.event, self.epsilon) + self.mechanism.sampling)

    @property
    def keeps_promise(self) -> bool:
        """Whether the mechanism keeps the promise; true without a promise."""
        if not self.trust.promises:
            return True
        if (share := self.allotment) and self.event is not None:
            # Releases with dependent noise are not separate events, so that several do not compose.
            return not self.mechanism.continues and _is_covered(share, self.event, self.mechanism.sampling)
        return self.true_delta <= self.delta * (1 + RELATIVE_TOLERANCE)


def report_allotment(row: Trust, epsilon: float, delta: float, reports: int) -> Allotment | None:
    """Return the privacy budget of one of several reports under a trust model; None without a shared promise."""
    return allot(epsilon, delta, reports, row.delta_least) if reports > 1 and row.promises else None


def compose_reports(share: Allotment, events: Iterable[Event]) -> Event:
    """Return the event of all reports of a participant, each any one of ``events``, or the allotment's."""
    return Repeated(Parallel((share.report_event, *sorted(events, key=repr))), share.reports)


def calibrate(privacy: Promise, batch: int, question: Question, fewest: int | None = None, reports: int = 1) -> Terms:
    """Return the most informative terms for a question that keep a promise, and refuse a batch without honest reports.

    fewest: smallest number of participants with whom the round may close; by default all.
    reports: number of a participant's reports that share the promise.
    """
    row = privacy.trust
    honest = count_honest(privacy, batch if fewest is None else fewest)
    if row.crowd is Crowd.BATCH and honest < 1:
        raise SpecError("no report of a batch is assumed honest", field="privacy.honest_fraction", remedy="raise it")
    share = report_allotment(row, privacy.bound, privacy.delta, reports)
    if privacy.is_as_local:
        promise = _LocalPromise(privacy.bound, privacy.bound)
        mechanism = local_trust().serves[type(question)].calibrate(promise, 0, question, None)
    else:
        mechanism = row.serves[type(question)].calibrate(privacy, honest, question, share)
    return Terms(privacy.model, privacy.bound, privacy.delta, row.calibration, batch, honest, mechanism, reports)


def uninvited_terms(privacy: Promise, question: Question) -> Terms:
    """Return the terms of a round without participants: the promise, and a mechanism without noise."""
    row = next(row for row in TRUST.values() if not row.promises)
    mechanism = row.serves[type(question)].calibrate(privacy, 0, question, None)
    return Terms(privacy.model, privacy.bound, privacy.delta, privacy.trust.calibration, 0, 0, mechanism)


@lru_cache(maxsize=4096)
def _is_covered(share: Allotment, event: Event, sampling: float) -> bool:
    return share.can_cover(event, sampling, RELATIVE_TOLERANCE)
