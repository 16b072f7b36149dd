"""Participation of n participants in a round: verified terms, decisions, sealed reports. A device has n = 1.

A device stores its choice until the report on it is made.
"""

import math
import os
from dataclasses import replace
from typing import Any, Final, NamedTuple, Self, cast

import msgspec
import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from privateer_client.publication_parts import decode_policy_body, digest_meaning, parse_spec_body, require_agreement
from privateer_core.arrays import Array, Coins, Ints, NDArray
from privateer_core.errors import InputError, Malformed, TermsRefused
from privateer_core.policies.past_arms import recall_arms, select_reporting_arms
from privateer_core.policies.policy import (
    Arms,
    Decisions,
    Plays,
    Points,
    Recalling,
    message_size,
    prefix_ages,
    sealed_size,
)
from privateer_core.primitives.contributions import Contributions, KeyedValues
from privateer_core.primitives.secret_values import SecretValues
from privateer_core.privacy.terms import Terms
from privateer_core.privacy.terms_verification import Limits, verify
from privateer_core.sampling.randomness import SecureNoise
from privateer_core.spec.experiment import Source, window_grain
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import (
    Header,
    Round,
    decode_publication,
    digest,
    hpke_info,
    report_header,
    split_bytes,
)

REPORT_ID_SIZE: Final = 16
_SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
_DAY_SECONDS: Final = 86_400.0
_NO_DUE_TIME: Final = math.inf
_NO_NUMBERS: Final = np.zeros((1, 0))


class SealedReport(NamedTuple):
    """A report that is sealed to the server, so that the device itself cannot decrypt it."""

    experiment: str  # identity of the experiment
    endpoint: str  # URL that the report was made for
    body: bytes  # body of the request, the same bytes each time


class Sealer:
    """A sealer of a round's reports to its public key, which is checked at once."""

    def __init__(self, round_: Round, header: Header) -> None:
        self._info = hpke_info(header, round_.model)
        try:
            self._key = X25519PublicKey.from_public_bytes(round_.public_key)
            self.seal(b"")  # a point of low order shows only now, and must not show after the report is paid for
        except ValueError:
            raise Malformed("the round's public key cannot be sealed to", remedy="fetch the policy again") from None

    def seal(self, report: bytes) -> bytes:
        """Seal a fresh report id and ``report``; the result is 64 bytes longer than the report."""
        return _SUITE.encrypt(os.urandom(REPORT_ID_SIZE) + report, self._key, info=self._info)


class Participation:
    """A publication that this device has verified, and the operations that follow it.

    body: the publication as fetched.
    name: the name of the requested experiment.
    limits: the limits of the device.
    cohort: the source that the participant belongs to; empty for the experiment's own participants.
    is_paused: whether the server announced a pause beside the publication: then it is not checked against the limits,
    and cannot be reported to.
    """

    def __init__(self, body: bytes, name: str, limits: Limits, cohort: str = "", *, is_paused: bool = False) -> None:
        publication = decode_publication(body)
        self.round, self.cohort, self.is_paused = publication.round, cohort, is_paused
        self.spec = parse_spec_body(publication.spec)
        # After the horizon participants choose by the final policy, while the round takes late reports.
        self.policy = self.decider = decode_policy_body(publication.policy, self.spec)
        self.is_draining = publication.drain is not None
        if publication.drain is not None:
            self.decider = decode_policy_body(publication.drain.policy, self.spec)
        # A device gives as much as its limits allow at most: the tiers are the spec's, the choice is the device's.
        self.tier = "" if cohort else self.spec.privacy.choose_tier(min(limits.epsilon, limits.local_epsilon))
        if self.round.batch_size:
            self.policy = self._with_tier_terms(self.policy)
            self.decider = self.policy if publication.drain is None else self.decider
        self.header = report_header(self.round, digest(body))
        self._check_agreement(name)
        if cohort not in self.spec.cohorts:
            raise InputError("the experiment has no such source", field="cohort", remedy="see the sources of its spec")
        if self.is_open:
            asked_question = self.policy.question_type(self.spec)
            verify(self.terms, self.spec, cohort or self.tier, self.round, limits, asked_question)
        self.n_sharing_reports = self.spec.reports  # of a participant, which share the promise
        self.endpoint = ""  # the URL to which this device sends reports, once it has chosen the services
        self.helper_key = b""  # the shuffler's sealing key, once it is fetched: only reports in shares need it
        self._sealer = Sealer(self.round, self.header)
        self._noise, self._meanings = SecureNoise(), dict[tuple[int, str], bytes]()

    def _with_tier_terms(self, policy: Any) -> Any:
        """Return a policy with the terms of the participant's tier, if the experiment has tiers."""
        if not self.spec.privacy.tiers:
            return policy
        return replace(policy, terms=self.spec.tier_terms(policy.terms, self.tier))

    def _check_agreement(self, name: str) -> None:
        """Refuse a publication whose parts disagree."""
        round_, spec, terms = self.round, self.spec, self.terms
        agreements = {
            "experiment": round_.experiment == spec.name == name,
            "version": round_.version == self.policy.version == self.decider.version,
            "model": round_.model == spec.privacy.model == terms.model,
            "batch_size": round_.batch_size == terms.batch_size,
            "messages": round_.messages == terms.messages,
            "groups": round_.groups == terms.mechanism.groups,
            "cohort": self.policy.cohort in spec.cohorts and not (self.is_draining and self.policy.cohort),
            "drain": not self.is_draining or spec.experiment.conversion_window_seconds > 0,
            "deadline": round_.deadline == 0 or spec.round_seconds > 0,
        }
        for fact, is_equal in agreements.items():
            require_agreement(is_equal, fact)
        # The size depends on the trust model, which is known to be one by now.
        require_agreement(round_.sealed_size == sealed_size(self.policy), "sealed_size")

    @property
    def terms(self) -> Terms:
        """The privacy terms of this round's reports."""
        return self.policy.terms

    def meaning_digest(self, options: int, cohort: str = "") -> bytes:
        """Return the cached result of `digest_meaning` of the spec with the first ``options`` arms."""
        cohort = cohort or self.tier  # a report costs no more than the tier by which the participant chose
        if (options, cohort) not in self._meanings:
            self._meanings[options, cohort] = digest_meaning(self.spec, options, cohort)
        return self._meanings[options, cohort]

    @property
    def is_open(self) -> bool:
        """Whether the round takes reports of this participant's cohort; False if the experiment is over or paused."""
        return self.round.batch_size > 0 and self.policy.cohort == self.cohort and not self.is_paused

    @property
    def is_over(self) -> bool:
        """Whether participants choose by the final policy."""
        return self.round.batch_size == 0 or self.is_draining

    @property
    def is_report_requested(self) -> bool:
        """Whether the round asks for a report on a choice that is made now, which it does only before the horizon."""
        return self.is_open and not self.is_draining

    def accepts_version(self, version: int) -> bool:
        """Whether the round takes this participant's report on a decision of the policy of this version."""
        is_late = version < self.round.version
        return self.is_open and self.policy.accepts_decisions_of(version) and (is_late or not self.is_draining)

    @property
    def is_turn_pending(self) -> bool:
        """Whether the rounds of this participant's cohort have not started yet."""
        turns = self.spec.cohorts
        return self.round.batch_size > 0 and turns.index(self.policy.cohort) < turns.index(self.cohort)

    def draw_coins(self, n_participants: int) -> NDArray[np.uint32]:
        """Draw fresh public coins, shape (n,), which must be independent of the contexts."""
        return np.frombuffer(os.urandom(4 * n_participants), dtype=np.uint32)

    def decide(self, contexts: Array, coins: NDArray[np.uint32]) -> Decisions:
        """Decide for n participants with contexts (n, d), scaled to [0, 1], and coins (n,)."""
        return cast(Decisions, self.decider.decide(contexts, coins))

    def make_reports(
        self,
        contexts: Array,
        coins: NDArray[np.uint32],
        decisions: Decisions,
        rewards: Array,
        decided: Ints | None = None,
        tiers: Ints | None = None,
    ) -> list[bytes]:
        """Randomize and seal the reports of n participants, which must be paid for before they are sent.

        contexts (n, d), coins (n,): of the decisions.
        rewards (n, ...): as the policy's ``read`` makes them.
        decided (n,): versions of the policies that decided, which the round must take (`takes`); default this one.
        tiers (n,): tiers of simulated participants, who accept all; by default all are of this device's tier.
        """
        # Coins that chose an arm reveal information about it, so the report gets others if it need not have these.
        coins = self.draw_coins(len(coins)) if self.policy.has_fresh_coins else coins
        contributions = self.policy.contribute(contexts, coins, decisions, rewards)
        if tiers is not None:
            contributions = msgspec.structs.replace(cast(KeyedValues, contributions), tiers=tiers)
        ages = np.zeros(len(coins), np.int64) if decided is None else self.round.version - decided
        return self._seal_reports(contributions, ages)

    def make_past_reports(self, contexts: Array, arms: Ints, rewards: Array, propensities: Array) -> list[bytes]:
        """Randomize and seal the reports of n participants from a source on their earlier arms (n,); see `reports`.

        Arm -1 is an arm that the spec does not list: its report has no information, and hides that, too. So does the
        report of a participant whom weighing by ``propensities`` (n,) leaves out (`select_reporting_arms`).
        """
        source, policy = cast(Source, self.spec.source(self.cohort)), cast(Recalling, self.policy)
        reporting_arms = select_reporting_arms(source, arms, propensities, self._noise)
        contributions = recall_arms(policy, contexts, self.draw_coins(len(arms)), reporting_arms, rewards)
        return self._seal_reports(contributions, np.zeros(len(arms), np.int64))

    def _seal_reports(self, contributions: Contributions, ages: Ints) -> list[bytes]:
        """Return the sealed messages of each participant, concatenated."""
        mechanism: Any = self.terms.mechanism
        rows = mechanism.randomize(contributions, self._noise)
        if self.round.is_shared:
            from privateer_client.share_sealer import ShareSealer  # few experiments have reports in shares

            sealer = ShareSealer(self.round, self.header, mechanism, self.helper_key)
            return [sealer.seal(rows[index : index + 1]) for index in range(len(rows))]
        size = message_size(self.policy)
        reports = [row.tobytes() for row in rows.reshape(len(rows), -1)]
        if self.policy.tells_age:
            reports = prefix_ages(reports, ages)
        return [b"".join(map(self._sealer.seal, split_bytes(report, size))) for report in reports]


def period_number(spec: Spec, now: float) -> int:
    """Return the number of the calendar's period of reports; 0 where a person reports once in all."""
    table = spec.experiment
    return math.floor(now / table.report_period_seconds) if table.reports_per_person > 1 else 0


class StoredChoice(SecretValues, frozen=True, eq=False):
    """A choice of a participant."""

    # decided, digest: version and digest of the publication whose policy decided
    decided: int
    digest: bytes
    meaning: bytes  # digest of what its spec says about features, rewards, arms and privacy
    options: int  # how many arms or actions it had
    # contexts, coins: shapes (1, d) and (1,): the encoded context, and the coins that chose
    contexts: Array
    coins: Coins
    # arms, actions, times: what was decided: an arm (1,), or actions (s,) and how often each is played; empty where it
    # was the other
    arms: Ints
    actions: Ints
    times: Ints
    name: bytes  # the arm's name in UTF-8, as long as the longest
    # as the policy reads them: of the outcome that counts, which is the experiment's default until one is known
    rewards: Array
    window: float  # seconds from the choice to the report
    due: float  # when the report on it may be made, in seconds since 1970; infinite: when an outcome is known
    period: int = 0  # number of the period of reports in which the person chose; 0 where they report once
    # the points of an arm that has such, shape (k, d); else empty
    points: Array = msgspec.field(default_factory=lambda: np.zeros((0, 0)))
    retired: tuple[str, ...] = ()  # the arms that were retired at the time of the choice
    offset: float = 0.0  # what adjusting by declared slopes subtracts from the reward
    # shape (1, learned): numbers from before whose slopes the round tells that takes the report
    numbers: Array = msgspec.field(default_factory=_NO_NUMBERS.copy)

    @classmethod
    def decide(
        cls,
        participation: Participation,
        contexts: Array,
        coins: Coins,
        now: float,
        offset: float = 0.0,
        numbers: Array = _NO_NUMBERS,
    ) -> Self:
        """Return the choice of a publication's policy for a participant, with the default outcome and due time."""
        spec, decisions = participation.spec, participation.decide(contexts, coins)
        no_rows, window = np.zeros(0, np.int64), spec.experiment.conversion_window_seconds
        displayed = participation.decider.present_decision(spec, decisions)
        outcome = spec.without_outcome(displayed)
        rewards, _ = participation.policy.read(spec, spec.outcome.adjusted(outcome, offset) if offset else outcome)
        n_name_bytes = max(len(name.encode()) for name in spec.options)  # the same for all participants
        return cls(
            decided=participation.round.version,
            digest=participation.header.digest,
            meaning=participation.meaning_digest(len(spec.options)),
            options=len(spec.options),
            contexts=contexts,
            coins=coins,
            arms=decisions.arms if isinstance(decisions, Arms) else no_rows,
            actions=decisions.actions if isinstance(decisions, Plays) else no_rows,
            times=decisions.times if isinstance(decisions, Plays) else no_rows,
            points=decisions.points[0] if isinstance(decisions, Points) else np.zeros((0, 0)),
            name=displayed.encode().ljust(n_name_bytes, b"\0") if isinstance(displayed, str) else b"",
            rewards=rewards,
            window=window,
            due=_window_end(window, now) if window else _NO_DUE_TIME,
            period=period_number(spec, now),
            retired=spec.retired,
            offset=offset,
            numbers=numbers,
        )

    @property
    def decisions(self) -> Decisions:
        """The decision of the policy."""
        if len(self.points):
            return Points(self.arms, self.points[None])
        return Arms(self.arms) if len(self.arms) else Plays(self.actions, self.times)

    @property
    def is_common(self) -> bool:
        """Whether the decision is the same for all participants."""
        return len(self.arms) == 0

    @property
    def display_value(self) -> Any:
        """The choice as the application got it."""
        if self.is_common:
            return dict(zip(self.actions.tolist(), self.times.tolist(), strict=True))
        return displayed_arm(self.name, self.arms, self.points)

    def with_outcome(self, rewards: Array, now: float) -> "StoredChoice":
        """Return the choice with another outcome, or unchanged if its report is due."""
        if self.is_due(now):
            return self
        # Without a window a report is due when its outcome is known: the day says enough.
        return msgspec.structs.replace(
            self, rewards=rewards, due=self.due if self.window else now // _DAY_SECONDS * _DAY_SECONDS
        )

    def with_corrected_due_time(self, now: float) -> "StoredChoice":
        """Return the choice with an earlier due time, if a clock that was ahead made it due too late."""
        latest = _window_end(self.window, now) if self.window else now // _DAY_SECONDS * _DAY_SECONDS
        return msgspec.structs.replace(self, due=latest) if latest < self.due < _NO_DUE_TIME else self

    def is_due(self, now: float) -> bool:
        """Whether the report may be made."""
        return now >= self.due

    def is_same_choice(self, other: "StoredChoice") -> bool:
        """Whether the two are the same choice, whatever their outcomes."""
        own_key, other_key = (self.digest, self.coins.tobytes()), (other.digest, other.coins.tobytes())
        return own_key == other_key and np.array_equal(self.contexts, other.contexts)

    def check_publication(self, opened: Participation) -> None:
        """Refuse a publication under which the choice has another meaning than when it was made."""
        check_same_meaning(self.meaning, opened.meaning_digest(self.options))
        if opened.round.version == self.decided and opened.header.digest != self.digest:
            detail = "the server has published another policy of this version"
            raise TermsRefused(detail, field="version", remedy="do not report")

    def has_lapsed(self, participation: Participation, now: float) -> bool:
        """Whether the choice is no longer valid under a publication, for reasons that do not depend on arm and context.

        A due report stays valid as long as its meaning is the same. Before that, the choice lapses when another arm is
        retired; without a window also when its period ends, when no report is requested, or when it would not count.
        """
        has_same_meaning = self.meaning == participation.meaning_digest(self.options)
        if self.is_due(now):
            return not (self.window or has_same_meaning)
        # It lapses with any arm, since otherwise the age of a report would reveal who had the retired arm.
        if self.window or self.retired != participation.spec.retired:
            return self.retired != participation.spec.retired
        # Another session may be ahead of this one.
        accepts = participation.policy.accepts_decisions_of
        is_accepted = self.decided > participation.round.version or accepts(self.decided)
        is_current = self.period == period_number(participation.spec, now) and has_same_meaning
        return not (participation.round.batch_size > 0 and is_accepted and is_current)

    def is_abandoned(self, now: float) -> bool:
        """Whether a due report that no round takes has waited for another window and at least a day."""
        # Without a window ``due`` is the beginning of the day on which the outcome was known.
        return now >= self.due + (max(self.window, _DAY_SECONDS) if self.window else 2 * _DAY_SECONDS)


def displayed_arm(name: bytes, arms: Ints, points: Array) -> Any:
    """Return an arm as the application gets it: its points if it has points, else its name."""
    return Points(arms, points[None]).first_points if len(points) else name.rstrip(b"\0").decode()


def _window_end(window: float, now: float) -> float:
    """Return the end of a conversion window that starts now, rounded up to a grain that hides the exact time."""
    grain = window_grain(window)
    return math.ceil((now + window) / grain) * grain


def check_same_meaning(before: bytes, now: bytes) -> None:
    """Refuse a spec under which a report has another meaning than when the person chose."""
    if before != now:
        detail = "features, arms, rewards or privacy are not those by which the person chose"
        raise TermsRefused(detail, field="spec", remedy="do not report")
