"""The life of a round: it is published, it fills up or its deadline passes, and the learner learns from it."""

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import msgspec

from privateer_core.algorithms import algorithm, parse_spec
from privateer_core.answer.stored import encode_answer
from privateer_core.clock import Clock
from privateer_core.codec import decode, encode
from privateer_core.mechanisms import Mechanism
from privateer_core.policies.decisions import message_size
from privateer_core.policies.gain_policy import GainPolicy, decode_policy
from privateer_core.policies.policy import Policy
from privateer_core.privacy.record import PlannedTerms, planned_of
from privateer_core.privacy.terms import JUMP
from privateer_core.sampling.entropy import SecureNoise
from privateer_core.spec.spec import Spec
from privateer_core.wire.envelope import Header, header_of
from privateer_core.wire.publication import Drain, Publication, Round, decode_publication, digest, encode_publication
from privateer_server.intake.opening import SEALED_SIZE, Opener, nobodys_key
from privateer_server.rounds.loop import Decided, Schedule, Step
from privateer_server.store.records import NO_PLAN, STOPPED, ExperimentState, Plan, RoundRecord

CLOCKS_APART: Final = 60
"""Seconds by which a shuffler's clock may differ."""
GRACE: Final = CLOCKS_APART + 30
"""Seconds that a shuffler has to deliver what it held at a deadline: by its clock, and after a failed attempt."""
_INSTANT: Final = 1
"""Seconds that are not worth another round."""
_PART_BYTES: Final = 8


def _part() -> bytes:
    """Return a name that no other process gives its part of a round's sums."""
    return secrets.token_bytes(_PART_BYTES)


class RoundFacts(msgspec.Struct, frozen=True):
    """The facts of a round that the history and the privacy record need, without its policy."""

    cohort: str  # whose turn it was to report
    terms: PlannedTerms  # how many people were asked, and how their reports were randomized
    # what the learner counted before the round, such as the bins or actions that were left, and whom the round asks:
    # ``asked`` people who are drawn, or the people of ``undecided`` boxes
    figures: dict[str, float]
    opened: float = 0.0  # when the round was published, in seconds since 1970
    drains: bool = False  # whether it took the reports of those alone who had chosen before


@dataclass(frozen=True, repr=False)
class OpenRound:
    """The last round of an experiment, with all that is needed to count its reports and to learn from them."""

    schedule: Schedule  # the experiment's schedule, made once
    # round, digest, publication: what is published: parsed, named and encoded
    round: Round
    digest: bytes
    publication: bytes
    step: Step  # policy and learner state
    # the mechanism's sums over the reports that this process counted in ``part``. While the round is being closed:
    # those over all reports, with what the round began with.
    total: Any
    received: int = 0  # the number of people whose reports are counted, over all batches of the round
    taken: bool = False  # whether the round takes no more reports
    # when the deadline is, in the seconds of the process's monotonic clock: setting the clock moves no deadline
    due: float = math.inf
    plan: Plan = NO_PLAN  # what the operator wants from the next publication on
    # when the round ends because of that, or because nobody's report is awaited any more, by the same clock
    until: float = math.inf
    opened: float = 0.0  # when it was published, in seconds since 1970
    drain: Drain | None = None  # given where the round takes the reports of those alone who chose before; as published
    given_up: bool = False  # whether the round takes no more reports, and nothing is learned from those that it has
    part: bytes = field(default_factory=_part)  # the name of this process's part of the round's sums

    @cached_property
    def header(self) -> Header:
        """The header of the reports made for it."""
        return header_of(self.round, self.digest)

    @property
    def spec(self) -> Spec:
        """The experiment's spec while this round is open."""
        return self.schedule.spec

    @property
    def mechanism(self) -> Mechanism:
        """Return what parses and adds the reports of this round."""
        return self.step.policy.terms.mechanism

    @property
    def shuffled(self) -> bool:
        """Whether reports come through a shuffler."""
        return self.round.endpoint == "shuffler"

    @property
    def enough(self) -> int:
        """The number of people whose reports the promise counts on; nothing is learned from fewer."""
        return max(1, int(self.step.policy.terms.honest))

    def may_close(self, now: float, people: int) -> bool:
        """Whether the reports of so many people are enough, at a time of the monotonic clock."""
        return 0 < self.round.batch <= people or (
            self.round.deadline > 0 and self.due <= now and people >= self.round.least
        )

    def is_due(self, now: float, people: int) -> bool:
        """Whether the round closes with so many people; only its shuffler closes a shuffled round."""
        return self.may_close(-math.inf if self.shuffled else now, people)

    def is_given_up(self, now: float) -> bool:
        """Whether the round is so long past its deadline that nobody waits for it."""
        if not (self.round.deadline and self.spec.patience):
            return False
        return now >= self.due - self.step.seconds + self.spec.patience + (GRACE if self.shuffled else 0)

    def is_ended(self, now: float) -> bool:
        """Whether the next publication is due, however full the round is."""
        return self.until <= now

    def tells(self, people: int) -> bool:
        """Whether a round that the operator ends is learned from with so many people."""
        # Where people are drawn, others can be asked the same: better than to learn from a few.
        least = self.round.fewest if self.schedule.learner.repeats else 0
        return people >= max(self.enough, least)

    @property
    def is_unlearned(self) -> bool:
        """Whether it takes no more reports and the next round is not there: it is closed just now, or that failed."""
        return (self.taken or self.given_up) and self.round.batch > 0

    def at(self, standing: ExperimentState) -> "OpenRound":
        """Return the round with the counts that the store has of it."""
        return replace(self, received=standing.received, taken=standing.taken, given_up=standing.given_up)

    def apart(self) -> "OpenRound":
        """Return the round with a new part, since it is not known what the store has of the one so far."""
        return replace(self, total=self.mechanism.empty(), part=_part())


def first_round(
    spec: Spec, public_key: bytes, now: float = 0.0, version: int = 1, begun: Callable[[Schedule], Any] | None = None
) -> OpenRound:
    """Open a new experiment at a time in seconds since 1970; ``begun`` makes the state to begin with, if it has one."""
    schedule = Schedule(spec)
    step = schedule.open(secrets.randbits(63), version, begun(schedule) if begun else None)
    return _published(schedule, step, lambda: public_key, now)


def following_round(
    closed: OpenRound, new_key: Callable[[], bytes], now: float = 0.0, decided: Decided = ()
) -> OpenRound:
    """Release a closed round's sums, learn from them, and publish the next round under a key of its own.

    A curator's noise is drawn here; it stands once the state made of it is in the journal with the next publication.
    ``decided`` says which policies its reports are about, if others than its own.
    """
    # The promise counts on more people: nothing is released, and other people are asked the same.
    if closed.received < closed.enough:
        return missed_round(closed, new_key, now, again=True)
    release, left = closed.mechanism.settle(closed.total, SecureNoise())
    return _following(closed, closed.schedule.learned(closed.step, release, decided), left, new_key, now)


def missed_round(
    closed: OpenRound, new_key: Callable[[], bytes], now: float = 0.0, version: int | None = None, again: bool = False
) -> OpenRound:
    """Publish the round after one of which nothing is released, by default with the next version.

    ``again``: other people are asked the same, as they are where the operator ended the round.
    """
    again = again or closed.plan != NO_PLAN
    return _following(closed, closed.schedule.missed(closed.step, again=again), closed.total, new_key, now, version)


def _following(
    closed: OpenRound, state: Any, left: Any, new_key: Callable[[], bytes], now: float, version: int | None = None
) -> OpenRound:
    """Publish the round that a state leads to; noise that later releases depend on goes along, under the new key."""
    following = _planned(closed, state, new_key, now, version)
    return replace(following, total=following.mechanism.resume(closed.mechanism, left))


def _planned(closed: OpenRound, state: Any, new_key: Callable[[], bytes], now: float, version: int | None) -> OpenRound:
    """Publish the round that a state leads to, as the operator planned it."""
    schedule, plan = closed.schedule, closed.plan
    if plan.spec:
        schedule = read_schedule(plan.spec)
        state = schedule.learner.changed(state, closed.spec)
    after = closed.round.version + 1 if version is None else version
    step = schedule.follow(state, after, secrets.randbits(63), asks=plan.hold != STOPPED)
    if until := _awaited_until(closed, schedule, step, now):
        late = schedule.drain(step, secrets.randbits(63))
        if late.batch:
            best = step.policy.by_context if isinstance(step.policy, GainPolicy) else step.policy
            return _published(schedule, late, new_key, now, Drain(until, encode(best)))
    if plan.hold and step.batch:
        step = schedule.follow(state, after, secrets.randbits(63), asks=False)
    return _published(schedule, step, new_key, now)


def _awaited_until(closed: OpenRound, schedule: Schedule, step: Step, now: float) -> int:
    """Return until when reports on earlier choices are awaited, in seconds since 1970; 0: they are not.

    A pause makes no difference: who comes now is asked neither way.
    """
    # Those who measure the gain came after all whose outcomes were awaited.
    is_over = not closed.round.batch or isinstance(closed.step.policy, GainPolicy)
    if closed.plan.hold == STOPPED or is_over or not schedule.awaits(step):
        return 0
    until = closed.drain.until if closed.drain else math.ceil(now + longest_wait(schedule.spec))
    return until if now < until - _INSTANT else 0


def longest_wait(spec: Spec) -> float:
    """Return the seconds from a choice to the report on it, as the device rounds them."""
    return spec.experiment.conversion_window + spec.experiment.window_grain


def beyond(version: int) -> int:
    """Return a version above all that can have been published since ``version`` was, whatever became of the record."""
    return (version // JUMP + 1) * JUMP + 1


def _published(
    schedule: Schedule, step: Step, new_key: Callable[[], bytes], now: float, drain: Drain | None = None
) -> OpenRound:
    spec, policy, terms = schedule.spec, step.policy, step.policy.terms
    facts = Round(
        experiment=spec.name,
        version=policy.version,
        model=spec.privacy.model,
        batch=step.batch,
        sealed_size=SEALED_SIZE + message_size(policy),
        public_key=new_key() if step.batch else nobodys_key(),
        messages=terms.messages,
        least=step.least,
        deadline=int(now) + step.seconds if step.seconds else 0,
        groups=terms.mechanism.groups,
    )
    found = schedule.answer(step) if schedule.learner.publishes_result else None
    encoded = encode_answer(found) if found and found.says_something else b""
    body = encode_publication(Publication(facts, schedule.encoded, encode(policy), encoded, drain))
    return OpenRound(schedule, facts, digest(body), body, step, terms.mechanism.empty(), opened=now, drain=drain)


def record(current: OpenRound, opener: Opener | None) -> RoundRecord:
    """Return a round as the store keeps it: sums are encrypted with ``opener``, and left out if nobody can report."""
    step = current.step
    figures = current.schedule.learner.figures(step.state) | _asked(step.policy)
    return RoundRecord(
        version=current.round.version,
        batch=current.round.batch,
        seen=step.seen,
        received=current.received,
        taken=current.taken,
        digest=current.digest,
        facts=encode(_facts(current, figures)),
        publication=current.publication,
        state=encode(step.state),
        total=opener.protect(encode(current.total), current.digest) if opener else b"",
        given_up=current.given_up,
    )


def _facts(current: OpenRound, figures: dict[str, float]) -> RoundFacts:
    policy = current.step.policy
    return RoundFacts(policy.cohort, planned_of(policy.terms), figures, current.opened, current.drain is not None)


def _asked(policy: Policy) -> dict[str, float]:
    """Count the people whom a policy draws, or the boxes whose people have something to report."""
    if policy.draw is not None:
        return {"asked": policy.draw.places}
    undecided = getattr(policy, "undecided", None)
    return {} if undecided is None else {"undecided": len(undecided)}


def read_policy(spec: Spec, publication: Publication) -> Policy:
    """Decode the policy in a publication of an experiment, by whose bins its round reports."""
    return decode_policy(publication.policy, algorithm(spec.algorithm.name).policy)


def read_decider(spec: Spec, publication: Publication) -> Policy:
    """Decode the policy by which people decide: the final one while late reports alone are taken."""
    drain = publication.drain
    return read_policy(spec, msgspec.structs.replace(publication, policy=drain.policy) if drain else publication)


def read_schedule(stored: bytes) -> Schedule:
    """Make a schedule from the spec of a publication or a plan."""
    return Schedule(parse_spec(msgspec.json.decode(stored)))


def restore(
    stored: RoundRecord, find: Callable[[bytes], Opener | None], plan: Plan = NO_PLAN, known: Schedule | None = None
) -> OpenRound | None:
    """Return a round without the reports that it has; None if it takes reports and its key or its sums are lost.

    find: returns the opener of a public key, if there still is one.
    plan: what the operator wants from the next publication on.
    known: a schedule of the experiment, which serves as long as the spec stays the same.
    """
    blank = restore_lost(stored, plan, known)
    if not blank.round.batch:
        return blank
    is_whole = with_sums(blank, [stored.total], find(blank.round.public_key)) is not None
    return replace(blank, taken=stored.taken, given_up=stored.given_up) if is_whole else None


def with_sums(current: OpenRound, sums: Sequence[bytes], opener: Opener | None) -> OpenRound | None:
    """Return a round with all its sums, as the store keeps them; None if one of them does not open."""
    total = current.mechanism.empty()
    for protected in sums if current.round.batch else ():
        encoded = opener.reveal(protected, current.digest) if opener else None
        if encoded is None:
            return None
        total = current.mechanism.merge(total, decode(encoded, type(total)))
    return replace(current, total=total)


def restore_lost(stored: RoundRecord, plan: Plan = NO_PLAN, known: Schedule | None = None) -> OpenRound:
    """Return a round without its sums, which are lost or must not be used, so that it can be given up."""
    publication = decode_publication(stored.publication)
    schedule = known if known and known.encoded == publication.spec else read_schedule(publication.spec)
    policy, facts = read_policy(schedule.spec, publication), publication.round
    state = decode(stored.state, schedule.learner.state_type)
    seconds = schedule.spec.round_seconds if facts.deadline else 0
    step = Step(state, policy, batch=facts.batch, seen=stored.seen, least=facts.least, seconds=seconds)
    total, opened = policy.terms.mechanism.empty(), decode(stored.facts, RoundFacts).opened
    blank = OpenRound(schedule, facts, stored.digest, stored.publication, step, total, stored.received, plan=plan)
    return replace(blank, opened=opened, drain=publication.drain)


def timed(current: OpenRound, clock: Clock) -> OpenRound:
    """Return the round with its deadline in this process's time, at most as far away as when the round opened."""
    due = until = math.inf
    if current.round.deadline:
        due = clock.monotonic() + min(current.round.deadline - clock.now(), current.step.seconds)
    if current.plan.due is not None:
        until = clock.monotonic() + min(current.plan.due - clock.now(), current.plan.seconds)
    if current.drain:
        left = min(current.drain.until - clock.now(), longest_wait(current.spec))
        until = min(until, clock.monotonic() + left)
    return replace(current, due=due, until=until)
