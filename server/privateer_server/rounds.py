"""The life of a round: published, filled or overdue, learned from."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import msgspec

from privateer.clock import Clock
from privateer.codec import decode, encode
from privateer.families import AnySpec, parse_any_spec
from privateer.phased import PhasedSpec
from privateer.record import JUMP
from privateer.sampling.entropy import SecureNoise
from privateer.wire.publication import (
    Publication,
    Round,
    decode_publication,
    digest,
    encode_publication,
)
from privateer_server.opening import SEALED_SIZE, Opener, nobodys_key
from privateer_server.schedule import Step, schedule_for
from privateer_server.store import RoundRecord

CLOCKS_APART: Final = 60
"""Seconds by which a shuffler's clock may differ."""
GRACE: Final = CLOCKS_APART + 30
"""Seconds that a shuffler has to deliver what it held at a deadline: by its clock, and after a failed attempt."""


@dataclass(frozen=True, repr=False)
class OpenRound:
    """The last round of an experiment, with all that is needed to count its reports and to learn from them.

    Attributes
    ----------
    round, digest, publication
        What is published: parsed, named and encoded.
    step
        Policy and learner state.
    received, total
        People whose reports are counted, over all batches of the round, and the sums of these.
    taken
        Whether the round takes no more reports.
    due
        When the deadline is, in the seconds of the process's monotonic clock: setting the clock moves no deadline.
    """

    spec: AnySpec
    round: Round
    digest: bytes
    publication: bytes
    step: Step
    received: int
    total: Any
    taken: bool
    due: float = math.inf

    @property
    def policy(self) -> Any:
        """The policy that lives for the round."""
        return self.step.policy

    @property
    def state(self) -> Any:
        """The learner state that made the policy."""
        return self.step.state

    @cached_property
    def mechanism(self) -> Any:
        """What parses and adds reports of this round."""
        return self.policy.mechanism

    @property
    def enough(self) -> int:
        """People whose reports the promise counts on; nothing is learned from fewer."""
        return max(1, int(self.policy.terms.honest))

    def may_close(self, now: float, people: int) -> bool:
        """Whether the reports of these people are enough at a time of the monotonic clock."""
        return 0 < self.round.batch <= people or (
            self.round.deadline > 0 and self.due <= now and people >= self.round.least
        )

    def is_due(self, now: float, people: int) -> bool:
        """Whether it closes with these people; a shuffled round is closed by its shuffler alone."""
        return self.may_close(now if self.round.model != "shuffle" else -math.inf, people)

    def is_given_up(self, now: float) -> bool:
        """Whether the round is so long past its deadline that nobody waits for it."""
        if not (isinstance(self.spec, PhasedSpec) and self.round.deadline):
            return False
        more = self.spec.asking.patience - self.step.seconds
        grace = GRACE if self.round.model == "shuffle" else 0
        return now >= self.due + more + grace

    @property
    def is_unlearned(self) -> bool:
        """Whether its reports are in, and the next round is not published: something went wrong in between."""
        return self.taken and self.round.batch > 0


def first_round(spec: AnySpec, public_key: bytes, now: float = 0.0, version: int = 1) -> OpenRound:
    """The round that opens an experiment at a time in seconds since 1970.

    Raises
    ------
    SpecError
        If no report of the round's batch can keep the promise.
    """
    return _published(spec, schedule_for(spec).first(version), lambda: public_key, now)


def following_round(closed: OpenRound, new_key: Callable[[], bytes], now: float = 0.0) -> OpenRound:
    """The round after a closed one: releases its sums, learns, and publishes under a key of its own.

    A curator's noise is drawn here; it stands once the state made of it is in the journal with the next publication.
    A round that takes no more reports although too few opened is asked again, of other people: the promise counted on
    more, so nothing is released.
    """
    if closed.received < closed.enough:
        return round_after_none(closed, new_key, now, again=True)
    release = closed.mechanism.release(closed.total, SecureNoise())
    schedule = schedule_for(closed.spec)
    state = schedule.learner.learn(closed.state, closed.policy, release)
    step = schedule.following(closed.step, state, closed.received, closed.round.version + 1)
    return _published(closed.spec, step, new_key, now)


def round_after_none(
    closed: OpenRound,
    new_key: Callable[[], bytes],
    now: float = 0.0,
    version: int | None = None,
    *,
    again: bool = False,
) -> OpenRound:
    """The round after one of which nothing is released; by default it has the next version.

    ``again``: it asks other people the same.
    """
    schedule = schedule_for(closed.spec)
    state = schedule.missed(closed.step, again=again)
    step = schedule.following(closed.step, state, 0, version or closed.round.version + 1)
    return _published(closed.spec, step, new_key, now)


def beyond(version: int) -> int:
    """A version above all that can have been published since ``version`` was, whatever became of their record."""
    return (version // JUMP + 1) * JUMP + 1


def _published(spec: AnySpec, step: Step, new_key: Callable[[], bytes], now: float) -> OpenRound:
    mechanism = step.policy.mechanism
    facts = Round(
        experiment=spec.experiment.name,
        version=step.policy.version,
        model=spec.privacy.model,
        batch=step.batch,
        sealed_size=SEALED_SIZE + mechanism.report_size,
        public_key=new_key() if step.batch else nobodys_key(),
        messages=step.policy.terms.messages,
        least=step.least,
        deadline=int(now) + step.seconds if step.seconds else 0,
    )
    body = encode_publication(Publication(facts, spec.model_dump_json().encode(), encode(step.policy)))
    return OpenRound(spec, facts, digest(body), body, step, 0, mechanism.empty(), False)


def record(current: OpenRound, opener: Opener | None) -> RoundRecord:
    """A round as the store keeps it, with the opener of its reports; without sums, if nobody can report."""
    summary = schedule_for(current.spec).summary(current.policy)
    return RoundRecord(
        version=current.round.version,
        batch=current.round.batch,
        people=current.step.people,
        received=current.received,
        taken=current.taken,
        digest=current.digest,
        summary=msgspec.json.encode(summary),
        publication=current.publication,
        state=encode(current.state),
        total=opener.protect(encode(current.total), current.digest) if opener else b"",
    )


def read_policy(spec: AnySpec, publication: Publication) -> Any:
    """The policy in a publication of an experiment."""
    return decode(publication.policy, schedule_for(spec).policy_type)


def read_stored_spec(stored: bytes) -> AnySpec:
    """The spec that an experiment was created from."""
    return parse_any_spec(msgspec.json.decode(stored))


def restore(spec: AnySpec, stored: RoundRecord, find: Callable[[bytes], Opener | None]) -> OpenRound | None:
    """The round that a record was made of; None if it takes reports and its key or its sums are lost.

    ``find`` has the opener of a public key, if there still is one.
    """
    blank = _without_sums(spec, stored)
    if not blank.round.batch:
        return blank
    opener = find(blank.round.public_key)
    total = opener.reveal(stored.total, stored.digest) if opener else None
    if total is None:
        return None
    sums = decode(total, type(blank.mechanism.empty()))
    return replace(blank, received=stored.received, total=sums, taken=stored.taken)


def restore_lost(spec: AnySpec, stored: RoundRecord) -> OpenRound:
    """A round whose reports are not to be had, or not to be used: to be given up."""
    return replace(_without_sums(spec, stored), received=stored.received)


def _without_sums(spec: AnySpec, stored: RoundRecord) -> OpenRound:
    publication = decode_publication(stored.publication)
    policy, facts = read_policy(spec, publication), publication.round
    asking = spec.asking.seconds if isinstance(spec, PhasedSpec) and facts.deadline else None
    state = decode(stored.state, schedule_for(spec).learner.state_type)
    step = Step(policy, state, facts.batch, stored.people, facts.least, asking or 0)
    return OpenRound(spec, facts, stored.digest, stored.publication, step, 0, policy.mechanism.empty(), False)


def timed(current: OpenRound, clock: Clock) -> OpenRound:
    """The round with its deadline in this process's time, at most as far away as it was when the round opened."""
    if not current.round.deadline:
        return current
    left = min(current.round.deadline - clock.now(), current.step.seconds)
    return replace(current, due=clock.monotonic() + left)
