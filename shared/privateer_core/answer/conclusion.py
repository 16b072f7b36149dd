"""The conclusion of an experiment: recommended options and rules, effects, certainty, and the privacy cost."""

from datetime import UTC, datetime
from typing import ClassVar, Final, Literal, TypeAlias

import msgspec

from privateer_core.answer import Answer
from privateer_core.answer.estimates import Effect, Estimate
from privateer_core.answer.facts import Condition, Displayed
from privateer_core.answer.parts import Gain, Loss
from privateer_core.answer.people import People
from privateer_core.answer.share_source import ShareSource
from privateer_core.errors import Malformed
from privateer_core.experiment_status import Status
from privateer_core.prepared_types import cache_decoder

SIZE_MAX: Final = 4 << 20
"""Bytes of an encoded answer."""


def encode_answer(answer: Answer) -> bytes:
    """Serialize an answer as msgpack."""
    return msgspec.msgpack.encode(answer)


def decode_answer(body: bytes) -> Answer:
    """Parse a serialized answer of `encode_answer`.

    Raises
    ------
    Malformed
        If ``body`` is no answer, or is above 4 MiB.
    """
    try:
        if len(body) > SIZE_MAX:
            raise ValueError("too large")
        return msgspec.msgpack.decode(body, type=cache_decoder(Answer))
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise Malformed("not a serialized answer", field="result", remedy="fetch the policy again") from error


SENTENCE_MAX = 2048
"""Characters of a sentence."""
RULES_MAX = 7
NoRelative: TypeAlias = Literal[
    "no relative effects of segments: the control's mean in each is not estimated",
    "no relative effects: the control's mean has no interval",
    "no relative effects: the control's mean may be 0 or less",
]
"""The reason why effects of segments, or all effects, are not given relative to the control's mean."""
ConfidenceLabel: TypeAlias = Literal[
    "decided", "decided against the control", "decided on average", "almost certain", "likely", "not known"
]
"""The certainty that an option is the best: `decided` by a test, corrected for all its looks and effects, against
all others, against the control alone, or on average over all people alone; `almost certain` or `likely` by the
learner's model, from a probability of .98 or .9; otherwise it is not known."""
Finding: TypeAlias = Literal["nothing yet", "rules", "scores", "one arm", "point", "failed"]
"""The type of the result: rules by group, scores of options by features, one option for all, or a point of a set."""


class Headline(Displayed, frozen=True):
    """The main result in a sentence, and in parts.

    Attributes
    ----------
    finding
        The type of the result.
    sentence
        The result in words.
    confidence_label
        Its certainty.
    option, control
        The option that is recommended for all people, and the control; None if there is none.
    compared
        The option of the figures: the recommended one, or the best other option if the control is kept.
    value, low, high
        The difference from the control's reward, in the unit of rewards, and the ends of its confidence interval; None
        if unknown.
    """

    longest: ClassVar[int] = SENTENCE_MAX

    finding: Finding
    sentence: str
    confidence_label: ConfidenceLabel
    arm: str | None = None
    control: str | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    compared: str | None = None


class Rule(Displayed, frozen=True):
    """An option for a group of people.

    Attributes
    ----------
    people
        The group, in the words of the spec: all to whom no earlier rule applies.
    where
        The group as conditions that all hold; empty: all remaining people.
    arm
        The option of the group.
    share
        The group's share of all people.
    mean
        The option's expected mean reward in the group; None if only differences are known.
    next_best, difference
        The second best option by expected reward, and the difference; None if unknown.
    probability_best
        Lower bound of the probability that no option is better in the group, by the learner's model; None if a test
        decides instead.
    confidence_label
        The certainty in words.
    """

    longest: ClassVar[int] = SENTENCE_MAX

    people: str
    where: tuple[Condition, ...]
    arm: str
    share: float
    mean: float | None
    next_best: str | None
    difference: float | None
    probability_best: float | None
    confidence_label: ConfidenceLabel


class Rules(Displayed, frozen=True):
    """Rules that assign options to groups: the first rule that applies decides, the last is for all remaining people.

    Attributes
    ----------
    rules
        Seven at most.
    gain_kept
        The share of the policy's expected gain over one option for all that these rules keep; None if the policy gives
        all people the same option.
    people, source
        The source of the shares of people, in words and as a code.
    """

    longest: ClassVar[int] = SENTENCE_MAX

    rules: tuple[Rule, ...]
    gain_kept: float | None
    people: str
    source: ShareSource

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.rules) > RULES_MAX:
            raise ValueError(f"must have at most {RULES_MAX} rules")


class PrivacyCost(Displayed, frozen=True):
    """The privacy promise to people, in parts and in a sentence; epsilon is None without a promise.

    Attributes
    ----------
    epsilon
        The promise to people who chose no tier.
    tiers
        Epsilon of those who chose one, by its name.
    """

    longest: ClassVar[int] = SENTENCE_MAX

    model: str
    epsilon: float | None
    delta: float
    sentence: str
    tiers: dict[str, float] = msgspec.field(default_factory=dict)


class RewardUnit(Displayed, frozen=True):
    """The unit of rewards: their bounds, and a description; more is always better."""

    low: float
    high: float
    sentence: str


class Conclusion(Displayed, frozen=True):
    """The conclusion of an experiment, with all that is needed to act on it.

    Attributes
    ----------
    headline
        The main result.
    rules
        The options by group, if the algorithm chooses by context.
    gain, is_measured
        The gain of choosing by context over one option for all; and whether later participants measured it, or the
        learner's model predicts it.
    means
        The mean rewards by context and of the best single option, if known.
    over_chance
        The gain of choosing by context over random options, if it is measured.
    control, baseline
        The option that effects are relative to, and its mean reward.
    no_relative
        The reason why effects are not given relative to that mean; None if they can be.
    effects, estimates
        Differences from the control; or mean rewards of options, if the algorithm has no control.
    confidence
        Simultaneous coverage probability of the confidence intervals of effects and estimates.
    expected_losses
        Expected losses of a person with the recommended option, by option and group, decided or not.
    next_steps
        Sentences about how to increase the certainty.
    people, rounds
        Number of people who reported, and of rounds; None if unknown.
    reward
        The unit of all figures.
    privacy
        The privacy cost to people.
    warnings
        Problems to check before anybody acts on it.
    """

    longest: ClassVar[int] = SENTENCE_MAX

    headline: Headline
    people: int | None
    rounds: int | None
    reward: RewardUnit
    privacy: PrivacyCost
    rules: Rules | None = None
    gain: Gain | None = None
    is_measured: bool = False
    means: tuple[float, float] | None = None
    over_chance: Estimate | None = None
    control: str | None = None
    baseline: Estimate | None = None
    no_relative: NoRelative | None = None
    effects: tuple[Effect, ...] = ()
    estimates: tuple[Estimate, ...] = ()
    confidence: float | None = None
    expected_losses: tuple[Loss, ...] = ()
    next_steps: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def relative(self, effect: Effect) -> float | None:
        """Return an effect relative to the control's mean reward, if that is known and above 0."""
        if effect.value is None or self.baseline is None or self.baseline.low <= 0 or effect.group is not None:
            return None
        return effect.value / self.baseline.value


class PublishedAnswer(Displayed, frozen=True):
    """The answer of an experiment on a server: its status, its conclusion, and all results of its learner.

    Attributes
    ----------
    experiment, version, status, algorithm
        The experiment, the version of its policy, its status and its algorithm.
    began
        Time of its creation in its log; ISO 8601.
    people
        The account of planned people, as in ``/experiments/NAME``. None in a server's response: between two releases no
        report changes an answer.
    conclusion
        The recommendations with their certainty.
    result
        All results of the learner, in its own parts.

    Raises
    ------
    ValueError
        If a word is not printable, or ``began`` is no time.
    """

    experiment: str
    version: int
    status: Status
    algorithm: str
    began: str | None
    people: People | None
    conclusion: Conclusion
    result: Answer

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.began is None:
            return
        try:
            datetime.fromisoformat(self.began).astimezone(UTC)
        except OverflowError:
            raise ValueError("began must be a time of the years 1 to 9999") from None
