"""The choice that a device stores until its report is made, and the arm that it stores after that."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self

import msgspec
import numpy as np

from privateer_client.participation import Participation
from privateer_core.arrays import Array, Coins, Ints
from privateer_core.codec import encode
from privateer_core.errors import InputError
from privateer_core.policies.policy import Arms, Decisions, Plays, Points
from privateer_core.privacy.terms import Terms
from privateer_core.spec.experiment import window_grain
from privateer_core.spec.spec import Spec

_BYTES_MAX: Final = 1 << 20
_DAY_SECONDS: Final = 86_400.0
_NO_DUE_TIME: Final = math.inf
_NO_NUMBERS: Final = np.zeros((1, 0))


def period_number(spec: Spec, now: float) -> int:
    """Return the number of the calendar's period of reports; 0 where a person reports once in all."""
    table = spec.experiment
    return math.floor(now / table.report_period_seconds) if table.reports_per_person > 1 else 0


def pinned_terms(spec: Spec, terms: Terms) -> str:
    """Return the terms that must be the same for all reports that share a promise."""
    table, allotment = spec.experiment, terms.allotment
    terms_by_name = {
        "reports": table.reports_per_person,
        "period": table.report_period_seconds,
        "model": terms.model,
        "epsilon": terms.epsilon if math.isfinite(terms.epsilon) else None,
        "delta": terms.delta,
        "each": allotment and allotment.each,
        "arms": spec.privacy.arm_visibility,
        "honest_fraction": spec.privacy.honest_fraction,
    }
    return msgspec.json.encode(terms_by_name, order="deterministic").decode()


@dataclass(frozen=True, eq=False, repr=False)
class StoredChoice:
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
    points: Array = field(default_factory=lambda: np.zeros((0, 0)))
    retired: tuple[str, ...] = ()  # the arms that were retired at the time of the choice
    offset: float = 0.0  # what adjusting by declared slopes subtracts from the reward
    # shape (1, learned): numbers from before whose slopes the round tells that takes the report
    numbers: Array = field(default_factory=_NO_NUMBERS.copy)

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
            meaning=participation.meaning(len(spec.options)),
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
        return replace(self, rewards=rewards, due=self.due if self.window else now // _DAY_SECONDS * _DAY_SECONDS)

    def with_corrected_due_time(self, now: float) -> "StoredChoice":
        """Return the choice with an earlier due time, if a clock that was ahead made it due too late."""
        latest = _window_end(self.window, now) if self.window else now // _DAY_SECONDS * _DAY_SECONDS
        return replace(self, due=latest) if latest < self.due < _NO_DUE_TIME else self

    def is_due(self, now: float) -> bool:
        """Whether the report may be made."""
        return now >= self.due

    def is_same_choice(self, other: "StoredChoice") -> bool:
        """Whether the two are the same choice, whatever their outcomes."""
        own_key, other_key = (self.digest, self.coins.tobytes()), (other.digest, other.coins.tobytes())
        return own_key == other_key and np.array_equal(self.contexts, other.contexts)

    def has_lapsed(self, participation: Participation, now: float) -> bool:
        """Whether the choice is no longer valid under a publication, for reasons that do not depend on arm and context.

        A due report stays valid as long as its meaning is the same. Before that, the choice lapses when another arm is
        retired; without a window also when its period ends, when no report is requested, or when it would not count.
        """
        has_same_meaning = self.meaning == participation.meaning(self.options)
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


@dataclass(frozen=True, eq=False, repr=False)
class StoredArm:
    """The arm that a device stores after the report, without context, outcome and the coins of the report."""

    # coins: by which the final policy decides, (1,), or none yet, (0,)
    coins: Coins = field(default_factory=lambda: np.zeros(0, np.uint32))
    # name, points: what the person was shown, as `StoredChoice` has it
    name: bytes = b""
    arms: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    points: Array = field(default_factory=lambda: np.zeros((0, 0)))
    # meaning, options, period: of the choice
    meaning: bytes = b""
    options: int = 0
    period: int = 0
    offset: ClassVar[float] = 0.0  # no report is made of it

    @property
    def display_value(self) -> Any:
        """The arm as the application got it."""
        return displayed_arm(self.name, self.arms, self.points)

    def with_choice(self, choice: StoredChoice) -> Self:
        """Return a copy with the arm of a choice, without the coins of the choice."""
        return replace(self, name=choice.name, arms=choice.arms, points=choice.points,
            meaning=choice.meaning, options=choice.options, period=choice.period)  # fmt: skip

    def is_valid(self, participation: Participation, now: float) -> bool:
        """Whether the arm is still valid: until it is retired, or its period or the experiment ends."""
        if not len(self.arms) or participation.is_over or self.period != period_number(participation.spec, now):
            return False
        return (
            self.meaning == participation.meaning(self.options) and self.display_value not in participation.spec.retired
        )


def displayed_arm(name: bytes, arms: Ints, points: Array) -> Any:
    """Return an arm as the application gets it: its points if it has points, else its name."""
    return Points(arms, points[None]).first_points if len(points) else name.rstrip(b"\0").decode()


def encode_choice(choice: StoredChoice) -> bytes:
    """Serialize a choice to a size that depends on the publication alone, or refuse a choice above the size limit."""
    body = encode(choice)
    if len(body) > _BYTES_MAX:
        remedy = "report without keeping the choice"
        raise InputError("too large for the ledger to keep", field="context", remedy=remedy)
    return body


def _window_end(window: float, now: float) -> float:
    """Return the end of a conversion window that starts now, rounded up to a grain that hides the exact time."""
    grain = window_grain(window)
    return math.ceil((now + window) / grain) * grain
