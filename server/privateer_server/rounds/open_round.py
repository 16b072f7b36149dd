"""The life cycle of a round: it is published, it fills up or its deadline passes, and the learner learns from it."""

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Final

import msgspec

from privateer_core.algorithms import algorithm, parse_spec
from privateer_core.answer.conclusion import encode_answer
from privateer_core.clock import Clock
from privateer_core.codec import decode, encode
from privateer_core.mechanisms import Mechanism
from privateer_core.policies.gain_policy import GainPolicy, decode_policy
from privateer_core.policies.policy import Policy, sealed_size
from privateer_core.privacy.record import PlannedTerms, describe_terms
from privateer_core.privacy.terms import JUMP
from privateer_core.sampling.randomness import SecureNoise
from privateer_core.spec.experiment import window_grain
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import (
    Drain,
    Header,
    Publication,
    Round,
    decode_publication,
    digest,
    encode_publication,
    report_header,
)
from privateer_server.intake.decryption import Decryptor, create_unusable_public_key
from privateer_server.rounds.schedule import PolicyMix, Schedule, Step
from privateer_server.rounds.states import RoundEvent, RoundState
from privateer_server.store.records import NO_PLAN, STOPPED, ExperimentState, Plan, RoundRecord

MAX_CLOCK_DIFFERENCE_SECONDS: Final = 60  # the seconds by which a shuffler's clock may differ
GRACE_SECONDS: Final = MAX_CLOCK_DIFFERENCE_SECONDS + 30
"""The seconds after a deadline in which a shuffler may deliver: by its clock, and after a failed attempt."""
_MIN_WAIT_SECONDS: Final = 1  # the shortest wait for late reports for which a round is opened
_create_part_name: Final = partial(secrets.token_bytes, 8)
"""Creates a random name for this process's partial sum of a round."""


class RoundFacts(msgspec.Struct, frozen=True):
    """The facts of a round that the history and the privacy record need, without its policy."""

    cohort: str  # the cohort that reported
    terms: PlannedTerms  # the number of invited participants, and the randomization of their reports
    # the learner's counts before the round, such as remaining bins or actions, and whom the round invites:
    # ``asked`` participants who are drawn, or the participants of ``undecided`` boxes
    figures: dict[str, float]
    opened: float = 0.0  # when the round was published, in seconds since 1970
    is_draining: bool = False  # whether it took only reports on earlier choices


@dataclass(frozen=True, repr=False)
class OpenRound:
    """The last round of an experiment, with the data for counting its reports and learning from them."""

    schedule: Schedule  # the experiment's schedule, created once
    # round, digest, publication: the publication: parsed, as digest, and encoded
    round: Round
    digest: bytes
    publication: bytes
    step: Step  # policy and learner state
    # the mechanism's sums over the reports that this process counted in ``part``. While the round is being closed:
    # the sums over all reports, including the round's initial sums.
    total: Any
    received: int = 0  # the number of participants whose reports are counted, over all batches of the round
    state: RoundState = RoundState.OPEN
    # the deadline in seconds of the process's monotonic clock: setting the clock moves no deadline
    deadline: float = math.inf
    plan: Plan = NO_PLAN  # the operator's plan from the next publication on
    # when the round ends because of that plan, or because no report is awaited any more, by the same clock
    end_time: float = math.inf
    opened_at: float = 0.0  # when it was published, in seconds since 1970
    drain: Drain | None = None  # set if the round takes only reports on earlier choices; as published
    part: bytes = field(default_factory=_create_part_name)  # the name of this process's part of the round's sums

    @cached_property
    def header(self) -> Header:
        """The header of the reports for this round."""
        return report_header(self.round, self.digest)

    @property
    def is_taking_reports(self) -> bool:
        """Whether reports are counted: the round is open, and has participants."""
        return self.state is RoundState.OPEN and self.round.batch_size > 0

    @property
    def spec(self) -> Spec:
        """The experiment's spec while this round is open."""
        return self.schedule.spec

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism that parses and adds the reports of this round."""
        return self.step.policy.terms.mechanism

    @property
    def is_shuffled(self) -> bool:
        """Whether the round's reports come through a shuffler."""
        return self.round.endpoint == "shuffler"

    @property
    def min_reports(self) -> int:
        """The number of participants that the privacy guarantee assumes; nothing is learned from fewer."""
        return max(1, int(self.step.policy.terms.honest))

    def has_enough(self, now: float, n_participants: int) -> bool:
        """Whether the round may end with a number of participants at a time of the monotonic clock."""
        is_full = 0 < self.round.batch_size <= n_participants
        is_due = self.round.deadline > 0 and self.deadline <= now
        return is_full or (is_due and n_participants >= self.round.least)

    def event_at(self, now: float, n_participants: int) -> RoundEvent:
        """Return the event of the open round at a time of the monotonic clock, with a number of participants."""
        if 0 < self.round.batch_size <= n_participants:
            return RoundEvent.FILLED
        if not self.is_shuffled and self.has_enough(now, n_participants):  # only its shuffler closes a shuffled round
            return RoundEvent.DUE
        if self.end_time <= now:
            # Drawn participants can be replaced by others, which is better than to learn from a small batch.
            min_batch_size = self.round.fewest if self.schedule.learner.repeats else 0
            return RoundEvent.ENDED if n_participants >= max(self.min_reports, min_batch_size) else RoundEvent.CUT_SHORT
        if self.round.deadline and self.spec.failure_seconds:
            max_wait = self.spec.failure_seconds - self.step.seconds + (GRACE_SECONDS if self.is_shuffled else 0)
            return RoundEvent.EXPIRED if now >= self.deadline + max_wait else RoundEvent.REPORTED
        return RoundEvent.REPORTED

    @property
    def is_unlearned(self) -> bool:
        """Whether the round is over and the next round is not open: closing is under way, or has failed."""
        return self.state is not RoundState.OPEN and self.round.batch_size > 0

    def with_counts(self, stored_state: ExperimentState) -> "OpenRound":
        """Return the round with its stored counts."""
        return replace(self, received=stored_state.received, state=stored_state.state)

    def with_new_part(self) -> "OpenRound":
        """Return the round with a new partial sum, since it is unknown whether the store has all of the current one."""
        return replace(self, total=self.mechanism.empty(), part=_create_part_name())


def open_first_round(
    spec: Spec, public_key: bytes, now: float = 0.0, version: int = 1, initial: Callable[[Schedule], Any] | None = None
) -> OpenRound:
    """Open the first round at a time in seconds since 1970; ``initial`` makes a state other than the default."""
    schedule = Schedule(spec)
    step = schedule.open(secrets.randbits(63), version, initial(schedule) if initial else None)
    return _publish(schedule, step, lambda: public_key, now)


def open_following_round(
    closed: OpenRound, new_key: Callable[[], bytes], now: float = 0.0, decided: PolicyMix = ()
) -> OpenRound:
    """Release a closed round's sums, learn from them, and publish the next round with a new key.

    A curator's noise is drawn here; it is final once the resulting state is in the journal with the next publication.
    ``decided`` has the policies whose decisions its reports are about, if other than its own.
    """
    # The guarantee assumes more participants: nothing is released, and other participants get the same question.
    if closed.received < closed.min_reports:
        return open_round_after_miss(closed, new_key, now, is_repeated=True)
    release, rest = closed.mechanism.release_and_carry(closed.total, SecureNoise())
    return _publish_next(closed, closed.schedule.learn(closed.step, release, decided), rest, new_key, now)


def open_round_after_miss(
    closed: OpenRound,
    new_key: Callable[[], bytes],
    now: float = 0.0,
    version: int | None = None,
    is_repeated: bool = False,
) -> OpenRound:
    """Publish the round after a missed round, by default with the next version.

    ``is_repeated``: other participants are asked the same question, as they are if the operator ended the round.
    """
    state = closed.schedule.learn_from_miss(closed.step, is_repeated=is_repeated or closed.plan != NO_PLAN)
    return _publish_next(closed, state, closed.total, new_key, now, version)


def _publish_next(
    closed: OpenRound, state: Any, rest: Any, new_key: Callable[[], bytes], now: float, version: int | None = None
) -> OpenRound:
    """Publish the next round of a state by the operator's plan, with the remaining noise for later releases."""
    schedule, plan = closed.schedule, closed.plan
    drain: Drain | None = None
    if plan.spec:
        schedule = read_schedule(plan.spec)
        state = schedule.learner.apply_spec_change(state, closed.spec)
    next_version = closed.round.version + 1 if version is None else version
    step = schedule.open_next_step(state, next_version, secrets.randbits(63), is_inviting=plan.hold != STOPPED)
    if late_reports_end := _late_reports_end_time(closed, schedule, step, now):
        late_step = schedule.open_drain_round(step, secrets.randbits(63))
        if late_step.batch_size:
            best_policy = step.policy.by_context if isinstance(step.policy, GainPolicy) else step.policy
            step, drain = late_step, Drain(late_reports_end, encode(best_policy))
    if plan.hold and step.batch_size and not drain:
        step = schedule.open_next_step(state, next_version, secrets.randbits(63), is_inviting=False)
    next_round = _publish(schedule, step, new_key, now, drain)
    return replace(next_round, total=next_round.mechanism.start_total_after(closed.mechanism, rest))


def _late_reports_end_time(closed: OpenRound, schedule: Schedule, step: Step, now: float) -> int:
    """Return the time until which reports on earlier choices are awaited, in seconds since 1970; 0: not awaited.

    A pause makes no difference: new participants are not invited either way.
    """
    # A gain measurement begins after all awaited outcomes.
    is_over = not closed.round.batch_size or isinstance(closed.step.policy, GainPolicy)
    if closed.plan.hold == STOPPED or is_over or not schedule.has_late_reports(step):
        return 0
    end_time = closed.drain.until if closed.drain else math.ceil(now + longest_report_delay(schedule.spec))
    return end_time if now < end_time - _MIN_WAIT_SECONDS else 0


def longest_report_delay(spec: Spec) -> float:
    """Return the maximum seconds from a choice to its report, as the device rounds them."""
    window = spec.experiment.conversion_window_seconds
    return window + window_grain(window)


def first_unused_version(version: int) -> int:
    """Return a version above all that can have been published since ``version``, even if their record is lost."""
    return (version // JUMP + 1) * JUMP + 1


def _publish(
    schedule: Schedule, step: Step, new_key: Callable[[], bytes], now: float, drain: Drain | None = None
) -> OpenRound:
    """Return the published round of a step, with a new key if it has participants, and no reports yet."""
    spec, policy, terms = schedule.spec, step.policy, step.policy.terms
    facts = Round(
        experiment=spec.name,
        version=policy.version,
        model=spec.privacy.model,
        batch_size=step.batch_size,
        sealed_size=sealed_size(policy),
        public_key=new_key() if step.batch_size else create_unusable_public_key(),
        messages=terms.messages,
        least=step.min_reports,
        deadline=int(now) + step.seconds if step.seconds else 0,
        groups=terms.mechanism.groups,
    )
    answer = schedule.answer(step) if schedule.learner.publishes_result else None
    encoded_answer = encode_answer(answer) if answer and answer.says_something else b""
    body = encode_publication(Publication(facts, schedule.encoded_spec, encode(policy), encoded_answer, drain))
    return OpenRound(schedule, facts, digest(body), body, step, terms.mechanism.empty(), opened_at=now, drain=drain)


def build_round_record(current: OpenRound, decryptor: Decryptor | None) -> RoundRecord:
    """Return the stored record of a round, with sums encrypted by ``decryptor``, or without sums if that is None."""
    step, terms = current.step, describe_terms(current.step.policy.terms)
    figures = current.schedule.learner.figures(step.state) | _policy_figures(step.policy)
    facts = RoundFacts(step.policy.cohort, terms, figures, current.opened_at, current.drain is not None)
    return RoundRecord(
        version=current.round.version,
        batch_size=current.round.batch_size,
        seen=step.n_reported,
        received=current.received,
        round_state=current.state,
        digest=current.digest,
        facts=encode(facts),
        publication=current.publication,
        state=encode(step.state),
        total=decryptor.encrypt_sums(encode(current.total), current.digest) if decryptor else b"",
    )


def _policy_figures(policy: Policy) -> dict[str, float]:
    """Return the number of drawn participants of a policy, or of boxes whose participants report."""
    if policy.draw is not None:
        return {"asked": policy.draw.places}
    return {} if policy.n_undecided_bins is None else {"undecided": policy.n_undecided_bins}


def read_policy(spec: Spec, publication: Publication) -> Policy:
    """Decode the policy of a publication, about which its round's reports are."""
    return decode_policy(publication.policy, algorithm(spec.algorithm.name).policy)


def read_decider(spec: Spec, publication: Publication) -> Policy:
    """Decode the policy by which devices decide: the final policy while only late reports are taken."""
    drain = publication.drain
    return read_policy(spec, msgspec.structs.replace(publication, policy=drain.policy) if drain else publication)


def read_schedule(stored: bytes) -> Schedule:
    """Create a schedule from the encoded spec of a publication or a plan."""
    return Schedule(parse_spec(msgspec.json.decode(stored)))


def restore_round(
    stored: RoundRecord,
    find_decryptor: Callable[[bytes], Decryptor | None],
    plan: Plan = NO_PLAN,
    cached: Schedule | None = None,
) -> OpenRound | None:
    """Return a stored round without its reports; None if it takes reports and its key or its sums are lost."""
    blank = restore_without_sums(stored, plan, cached)
    if not blank.round.batch_size:
        return blank
    has_sums = add_stored_sums(blank, [stored.total], find_decryptor(blank.round.public_key)) is not None
    return replace(blank, state=stored.round_state) if has_sums else None


def add_stored_sums(current: OpenRound, sums: Sequence[bytes], decryptor: Decryptor | None) -> OpenRound | None:
    """Return a round with the total of its stored sums; None if a sum cannot be decrypted."""
    total = current.mechanism.empty()
    for protected in sums if current.round.batch_size else ():
        encoded = decryptor.decrypt_sums(protected, current.digest) if decryptor else None
        if encoded is None:
            return None
        total = current.mechanism.merge(total, decode(encoded, type(total)))
    return replace(current, total=total)


def restore_without_sums(stored: RoundRecord, plan: Plan = NO_PLAN, cached: Schedule | None = None) -> OpenRound:
    """Return a stored round without its sums, which are lost or must not be used, so that it can be given up."""
    publication = decode_publication(stored.publication)
    schedule = cached if cached and cached.encoded_spec == publication.spec else read_schedule(publication.spec)
    policy, facts = read_policy(schedule.spec, publication), publication.round
    state = decode(stored.state, schedule.learner.state_type)
    seconds = schedule.spec.round_seconds if facts.deadline else 0
    step = Step(
        state, policy, batch_size=facts.batch_size, n_reported=stored.seen, min_reports=facts.least, seconds=seconds
    )
    total, opened_at = policy.terms.mechanism.empty(), decode(stored.facts, RoundFacts).opened
    blank = OpenRound(schedule, facts, stored.digest, stored.publication, step, total, stored.received, plan=plan)
    return replace(blank, opened_at=opened_at, drain=publication.drain)


def with_deadlines(current: OpenRound, clock: Clock) -> OpenRound:
    """Return the round with its deadlines in this process's clock, at most as far away as when they were set."""
    deadline = end_time = math.inf
    if current.round.deadline:
        deadline = clock.monotonic() + min(current.round.deadline - clock.now(), current.step.seconds)
    if current.plan.due is not None:
        end_time = clock.monotonic() + min(current.plan.due - clock.now(), current.plan.seconds)
    if current.drain:
        seconds_left = min(current.drain.until - clock.now(), longest_report_delay(current.spec))
        end_time = min(end_time, clock.monotonic() + seconds_left)
    return replace(current, deadline=deadline, end_time=end_time)
