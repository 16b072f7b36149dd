"""The life of a round: published, filled or overdue, learned from."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import msgspec

from privateer.codec import decode, encode
from privateer.families import AnySpec, parse_any_spec
from privateer.phased import PhasedSpec
from privateer.privacy.noise import SecureNoise
from privateer.wire.publication import Publication, Round, decode_publication, digest, encode_publication
from privateer_server.courses import Step, course_for
from privateer_server.opening import SEALED_SIZE
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
    """

    spec: AnySpec
    round: Round
    digest: bytes
    publication: bytes
    step: Step
    received: int
    total: Any
    taken: bool

    @property
    def policy(self) -> Any:
        """The policy that lives for the round."""
        return self.step.policy

    @property
    def state(self) -> Any:
        """The learner state that made the policy."""
        return self.step.state

    @cached_property
    def privatizer(self) -> Any:
        """What parses and adds reports of this round."""
        return self.policy.privatizer

    @property
    def enough(self) -> int:
        """People whose reports the promise counts on; nothing is learned from fewer."""
        return max(1, int(self.policy.terms.honest))

    def is_due(self, now: float, people: int) -> bool:
        """Whether it closes with these people; a shuffled round is closed by its shuffler alone."""
        return self.round.is_due(now if self.round.model != "shuffle" else 0.0, people)

    def is_given_up(self, now: float) -> bool:
        """Whether the round is so long past its deadline that nobody waits for it."""
        if not (isinstance(self.spec, PhasedSpec) and self.round.deadline):
            return False
        more = self.spec.asking.patience - self.step.seconds
        grace = GRACE if self.round.model == "shuffle" else 0
        return now >= self.round.deadline + more + grace

    def is_over(self, now: float) -> bool:
        """Whether something is to be done without a further report."""
        return not self.taken and (self.is_given_up(now) or self.is_due(now, self.received))


def first_round(spec: AnySpec, public_key: bytes, now: float = 0.0) -> OpenRound:
    """The round that opens an experiment at a time in seconds since 1970.

    Raises
    ------
    SpecError
        If no report of the round's batch can keep the promise.
    """
    return _published(spec, course_for(spec).first(), public_key, now)


def following_round(closed: OpenRound, now: float = 0.0) -> OpenRound:
    """The round after a closed one: releases its sums, learns, and publishes.

    A curator's noise is drawn here; it stands once the state made of it is stored with the next publication.
    """
    release = closed.privatizer.release(closed.total, SecureNoise())
    course = course_for(closed.spec)
    state = course.learner.learn(closed.state, closed.policy, release)
    step = course.following(closed.step, state, closed.received)
    return _published(closed.spec, step, closed.round.public_key, now)


def round_after_none(closed: OpenRound, now: float = 0.0, *, again: bool = False) -> OpenRound:
    """The round after one of which nothing is released; ``again``: it asks other people the same."""
    course = course_for(closed.spec)
    step = course.following(closed.step, course.missed(closed.step, again=again), 0)
    return _published(closed.spec, step, closed.round.public_key, now)


def _published(spec: AnySpec, step: Step, public_key: bytes, now: float) -> OpenRound:
    privatizer = step.policy.privatizer
    facts = Round(
        experiment=spec.experiment.name,
        version=step.policy.version,
        model=spec.privacy.model,
        batch=step.batch,
        sealed_size=SEALED_SIZE + privatizer.report_size,
        public_key=public_key,
        messages=step.policy.terms.messages,
        least=step.least,
        deadline=int(now) + step.seconds if step.seconds else 0,
    )
    body = encode_publication(Publication(facts, spec.model_dump_json().encode(), encode(step.policy)))
    return OpenRound(spec, facts, digest(body), body, step, 0, privatizer.empty(), False)


def record(current: OpenRound) -> RoundRecord:
    """A round as the store keeps it."""
    summary = course_for(current.spec).summary(current.policy)
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
        total=encode(current.total),
    )


def read_policy(spec: AnySpec, publication: Publication) -> Any:
    """The policy in a publication of an experiment."""
    return decode(publication.policy, course_for(spec).policy_type)


def read_stored_spec(stored: bytes) -> AnySpec:
    """The spec that an experiment was created from."""
    return parse_any_spec(msgspec.json.decode(stored))


def restore(spec: AnySpec, stored: RoundRecord) -> OpenRound:
    """The round that a record was made of."""
    publication = decode_publication(stored.publication)
    policy, facts = read_policy(spec, publication), publication.round
    asking = spec.asking.seconds if isinstance(spec, PhasedSpec) and facts.deadline else None
    state = decode(stored.state, course_for(spec).learner.state_type)
    return OpenRound(
        spec=spec,
        round=facts,
        digest=stored.digest,
        publication=stored.publication,
        step=Step(policy, state, facts.batch, stored.people, facts.least, asking or 0),
        received=stored.received,
        total=decode(stored.total, type(policy.privatizer.empty())),
        taken=stored.taken,
    )
