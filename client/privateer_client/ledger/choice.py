"""What a device keeps of what its person was shown: the choice until its report is made, and then the arm."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from privateer_client.participation import Participation
from privateer_core.codec import decode, encode
from privateer_core.errors import InputError
from privateer_core.policies.decisions import Arms, Decisions, Plays, Points
from privateer_core.privacy.terms import Terms
from privateer_core.spec.experiment import grain_of
from privateer_core.spec.spec import Spec

_BYTES_MAX: Final = 1 << 20
_DAY: Final = 86_400.0
_NEVER: Final = math.inf
_NO_NUMBERS: Final = np.zeros((1, 0))


def period_of(spec: Spec, now: float) -> int:
    """Return the number of the calendar's period of reports; 0 where a person reports once in all."""
    table = spec.experiment
    return math.floor(now / table.report_period) if table.reports_per_person > 1 else 0


def pinned(spec: Spec, terms: Terms) -> str:
    """Return what must be the same for all reports of a person that share a promise."""
    table, share = spec.experiment, terms.allotment
    parts = {
        "reports": table.reports_per_person,
        "period": table.report_period,
        "model": terms.model,
        "epsilon": terms.epsilon if math.isfinite(terms.epsilon) else None,
        "delta": terms.delta,
        "each": share and share.each,
        "arms": spec.privacy.arms,
        "honest_fraction": spec.privacy.honest_fraction,
    }
    return msgspec.json.encode(parts, order="deterministic").decode()


@dataclass(frozen=True, eq=False, repr=False)
class KeptChoice:
    """One choice of one person."""

    # decided, digest: version and digest of the publication whose policy decided
    decided: int
    digest: bytes
    meaning: bytes  # digest of what its spec says about features, rewards, arms and privacy
    options: int  # how many arms or actions it had
    # contexts, coins: shapes (1, d) and (1,): the encoded context, and the coins that chose
    contexts: NDArray[np.float64]
    coins: NDArray[np.uint32]
    # arms, actions, times: what was decided: an arm (1,), or actions (s,) and how often each is played; empty where it
    # was the other
    arms: NDArray[np.int64]
    actions: NDArray[np.int64]
    times: NDArray[np.int64]
    name: bytes  # the arm's name in UTF-8, as long as the longest
    # as the policy reads them: of the outcome that counts, which is the experiment's default until one is known
    rewards: NDArray[np.float64]
    window: float  # seconds from the choice to the report
    due: float  # when the report on it may be made, in seconds since 1970; infinite: when an outcome is known
    period: int = 0  # number of the period of reports in which the person chose; 0 where they report once
    # the points of an arm that has such, shape (k, d); else empty
    points: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))
    retired: tuple[str, ...] = ()  # the arms that nobody got any more
    offset: float = 0.0  # what adjusting by declared slopes subtracts from the reward
    # shape (1, learned): numbers from before whose slopes the round tells that takes the report
    numbers: NDArray[np.float64] = field(default_factory=_NO_NUMBERS.copy)

    @classmethod
    def made(
        cls,
        followed: Participation,
        contexts: NDArray[np.float64],
        coins: NDArray[np.uint32],
        now: float,
        offset: float = 0.0,
        numbers: NDArray[np.float64] = _NO_NUMBERS,
    ) -> Self:
        """Decide for a person by a publication."""
        spec, decisions = followed.spec, followed.decide(contexts, coins)
        none, window = np.zeros(0, np.int64), spec.experiment.conversion_window
        shown = followed.decider.shown(spec, decisions)
        nothing = spec.without_outcome(shown)
        rewards, _ = followed.policy.read(spec, spec.outcome.adjusted(nothing, offset) if offset else nothing)
        return cls(
            decided=followed.round.version,
            digest=followed.header.digest,
            meaning=followed.meaning(len(spec.options)),
            options=len(spec.options),
            contexts=contexts,
            coins=coins,
            arms=decisions.arms if isinstance(decisions, Arms) else none,
            actions=decisions.actions if isinstance(decisions, Plays) else none,
            times=decisions.times if isinstance(decisions, Plays) else none,
            points=decisions.points[0] if isinstance(decisions, Points) else np.zeros((0, 0)),
            name=shown.encode().ljust(_longest(spec), b"\0") if isinstance(shown, str) else b"",
            rewards=rewards,
            window=window,
            due=_end_of(window, now) if window else _NEVER,
            period=period_of(spec, now),
            retired=spec.retired,
            offset=offset,
            numbers=numbers,
        )

    @property
    def decisions(self) -> Decisions:
        """What was decided."""
        if len(self.points):
            return Points(self.arms, self.points[None])
        return Arms(self.arms) if len(self.arms) else Plays(self.actions, self.times)

    @property
    def is_common(self) -> bool:
        """Whether the same was decided for everybody."""
        return len(self.arms) == 0

    @property
    def shown(self) -> Any:
        """What the application was given."""
        if self.is_common:
            return dict(zip(self.actions.tolist(), self.times.tolist(), strict=True))
        return shown_of(self.name, self.arms, self.points)

    def with_outcome(self, rewards: NDArray[np.float64], now: float) -> "KeptChoice":
        """Return the choice with another outcome; once the report is due, nothing changes it."""
        if self.is_due(now):
            return self
        # Without a window a report is due when its outcome is known: the day says enough.
        return replace(self, rewards=rewards, due=self.due if self.window else now // _DAY * _DAY)

    def on_time(self, now: float) -> "KeptChoice":
        """Return the choice as if it were made now, if a clock that was ahead has made it due later than that."""
        latest = _end_of(self.window, now) if self.window else now // _DAY * _DAY
        return replace(self, due=latest) if latest < self.due < _NEVER else self

    def is_due(self, now: float) -> bool:
        """Whether the report may be made."""
        return now >= self.due

    def is_same(self, other: "KeptChoice") -> bool:
        """Whether the two are one choice, whatever came of it."""
        mine, others = (self.digest, self.coins.tobytes()), (other.digest, other.coins.tobytes())
        return mine == others and np.array_equal(self.contexts, other.contexts)

    def has_lapsed(self, followed: Participation, now: float) -> bool:
        """Whether it is no longer the person's under a publication, for reasons that do not depend on arm and context.

        A report that is due stays so as long as it means the same. Before, the choice ends once another arm is
        retired; without a window also with its period, when nobody is asked, and when no report on it would count.
        """
        means_the_same = self.meaning == followed.meaning(self.options)
        if self.is_due(now):
            return not (self.window or means_the_same)
        # Whoever had any arm: the age of a report would tell who chose anew, and so who had the one that is retired.
        if self.window or self.retired != followed.spec.retired:
            return self.retired != followed.spec.retired
        # Another session may be ahead of this one.
        counts = self.decided > followed.round.version or followed.policy.takes(self.decided)
        is_of_now = self.period == period_of(followed.spec, now) and means_the_same
        return not (followed.round.batch > 0 and counts and is_of_now)

    def is_given_up(self, now: float) -> bool:
        """Whether a report that no round takes has waited for long enough: another window, and a day at least."""
        # Without a window ``due`` is the beginning of the day on which the outcome was known.
        return now >= self.due + (max(self.window, _DAY) if self.window else 2 * _DAY)


@dataclass(frozen=True, eq=False, repr=False)
class KeptArm:
    """What stays on the device beside a choice: neither a context nor an outcome, nor coins that a report tells."""

    # coins: by which the final policy decides, (1,), or none yet, (0,)
    coins: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32))
    # name, points: what the person was shown, as `KeptChoice` has it
    name: bytes = b""
    arms: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    points: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))
    # meaning, options, period: of the choice
    meaning: bytes = b""
    options: int = 0
    period: int = 0
    offset: ClassVar[float] = 0.0  # no report is made of it

    @property
    def shown(self) -> Any:
        """What the person was shown last."""
        return shown_of(self.name, self.arms, self.points)

    def showing(self, choice: KeptChoice) -> Self:
        """Keep the arm of a choice, and leave its coins to its report."""
        return replace(self, name=choice.name, arms=choice.arms, points=choice.points,
            meaning=choice.meaning, options=choice.options, period=choice.period)  # fmt: skip

    def stands(self, followed: Participation, now: float) -> bool:
        """Whether it is still the person's: until it is retired, the period ends, or the experiment does."""
        if not len(self.arms) or followed.is_over or self.period != period_of(followed.spec, now):
            return False
        return self.meaning == followed.meaning(self.options) and self.shown not in followed.spec.retired


def shown_of(name: bytes, arms: NDArray[np.int64], points: NDArray[np.float64]) -> Any:
    """Return what an application is given for an arm: its points if it has such, else its name."""
    return Points(arms, points[None]).shown if len(points) else name.rstrip(b"\0").decode()


def _longest(spec: Spec) -> int:
    """Return the bytes of the longest name of an arm: the size of what is kept does not tell which one it is."""
    return max(len(name.encode()) for name in spec.options)


def encode_choice(choice: KeptChoice) -> bytes:
    """Serialize a choice; its size depends on the publication alone."""
    body = encode(choice)
    if len(body) > _BYTES_MAX:
        raise InputError(
            "too large for the ledger to keep", field="context", remedy="report without keeping the choice"
        )
    return body


def decode_choice(body: bytes) -> KeptChoice:
    """Parse a choice."""
    return decode(body, KeptChoice)


def encode_arm(arm: KeptArm) -> bytes:
    """Serialize an arm; its size does not tell which one it is."""
    return encode(arm)


def decode_arm(body: bytes) -> KeptArm:
    """Parse an arm."""
    return decode(body, KeptArm)


def _end_of(window: float, now: float) -> float:
    grain = grain_of(window)
    return math.ceil((now + window) / grain) * grain
