"""The conclusion of an experiment: which option, for whom, how much better, how sure, and what it cost in privacy."""

from datetime import UTC, datetime
from typing import ClassVar, Literal, TypeAlias

from privateer_core.answer import Answer
from privateer_core.answer.estimates import Effect, Estimate
from privateer_core.answer.export import Status
from privateer_core.answer.facts import Condition, Displayed
from privateer_core.answer.parts import Gain, Loss
from privateer_core.answer.people import People
from privateer_core.answer.shares import ShareSource

SENTENCE_MAX = 2048
"""Characters of a sentence."""
RULES_MAX = 7
NoRelative: TypeAlias = Literal[
    "no relative effects of segments: the control's mean in each is not estimated",
    "no relative effects: the control's mean has no interval",
    "no relative effects: the control's mean may be 0 or less",
]
"""Why effects are not told as shares of the control's mean: those of segments, or all."""
Sureness: TypeAlias = Literal[
    "decided", "decided against the control", "decided on average", "almost certain", "likely", "not known"
]
"""How sure it is that an option is the best: `decided` by a test that allows for all its looks and effects, against
all others, against the control alone, or for these people among all people on average alone; `almost certain` or
`likely` by the learner's model, from a probability of .98 or .9; else it is not known."""
Finding: TypeAlias = Literal["nothing yet", "rules", "scores", "one option", "point", "failed"]
"""What was found: rules for whom, scores by features of an option, one option for all, or a point of a set."""


class Headline(Displayed, frozen=True):
    """The finding in a sentence, and in parts.

    Attributes
    ----------
    finding
        What was found.
    sentence
        All of it in words.
    sureness
        How sure it is.
    option, control
        The option that is recommended for everybody, and what options are compared with; None where there is none.
    compared
        The option that the figures are of: the recommended one, or a rival where the control is kept.
    value, low, high
        How much more reward than the control's, in the unit of rewards, and the ends of the interval; None where that
        is not known.
    """

    longest: ClassVar[int] = SENTENCE_MAX

    finding: Finding
    sentence: str
    sureness: Sureness
    option: str | None = None
    control: str | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    compared: str | None = None


class Rule(Displayed, frozen=True):
    """An option for some people.

    Attributes
    ----------
    people
        Who they are, in the words of the spec: those to whom no rule before this one applies.
    where
        The same as conditions, all of which hold; none: everybody else.
    option
        The option that they get.
    share
        Their share of all people.
    mean
        The mean reward that is expected of the option for them; None where differences alone are known.
    next_best, difference
        The option that is expected to be best after it, and by how much; None where nothing is known.
    certainty
        The probability, at least, that none is better for them on average, by the learner's model; None where a test
        decides instead.
    sureness
        The same in words.
    """

    longest: ClassVar[int] = SENTENCE_MAX

    people: str
    where: tuple[Condition, ...]
    option: str
    share: float
    mean: float | None
    next_best: str | None
    difference: float | None
    certainty: float | None
    sureness: Sureness


class Rules(Displayed, frozen=True):
    """Rules for who gets what: the first that applies decides, and the last is for everybody else.

    Attributes
    ----------
    rules
        Seven at most.
    gain_kept
        The share of what the whole policy is expected to gain over one option for all that these rules keep; None where
        the policy gives everybody the same.
    people, source
        What the shares of people rest on, in words and as a code.
    """

    longest: ClassVar[int] = SENTENCE_MAX

    rules: tuple[Rule, ...]
    gain_kept: float | None
    people: str
    source: ShareSource

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.rules) > RULES_MAX:
            raise ValueError(f"there must be {RULES_MAX} rules at most")


class PrivacyCost(Displayed, frozen=True):
    """What people were promised, in parts and in a sentence; epsilon is None where nothing is promised."""

    longest: ClassVar[int] = SENTENCE_MAX

    model: str
    epsilon: float | None
    delta: float
    sentence: str


class RewardUnit(Displayed, frozen=True):
    """What rewards are: their bounds, and what they are in words; more is always better."""

    low: float
    high: float
    sentence: str


class Conclusion(Displayed, frozen=True):
    """All that a stranger must know of an experiment to act on it. It says nothing that is not known.

    Attributes
    ----------
    headline
        The finding.
    rules
        Who gets what, where an algorithm chooses by context.
    gain, is_measured
        What choosing by context earns over one option for all; and whether people who reported later measured it, or
        the learner's model expects it.
    means
        The mean rewards by context and of the best single option, where they are known.
    over_chance
        What choosing by context earns over any option by chance, where people measured it.
    control, baseline
        The option that effects are compared with, and its mean reward.
    no_relative
        Why effects are not told as shares of that mean: those of segments, or all; None where each may be.
    effects, estimates
        Differences from the control; or mean rewards of options, where the algorithm compares none with a control.
    confidence
        The probability with which the intervals of effects and estimates hold together.
    losses
        What a person loses on average who gets what is recommended, by option and group, decided or not.
    surer
        Sentences about what would make it surer.
    people, rounds
        How many people it rests on, and how many rounds were learned from; None where that is not known.
    reward
        The unit of all figures.
    privacy
        What it cost people in privacy.
    warnings
        What to look at before anybody acts on it.
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
    losses: tuple[Loss, ...] = ()
    surer: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def relative(self, effect: Effect) -> float | None:
        """Return an effect as a share of the control's mean reward, where that is known and above 0."""
        if effect.value is None or self.baseline is None or self.baseline.low <= 0 or effect.group is not None:
            return None
        return effect.value / self.baseline.value


class PublishedAnswer(Displayed, frozen=True):
    """The answer of an experiment on a server: where it stands, what follows from it, and all that its learner found.

    Attributes
    ----------
    experiment, version, status, algorithm
        Which experiment, at which version of its policy, and where it stands.
    began
        When it was created, as its log says; ISO 8601.
    people
        What has become of each of those who were planned, as ``/experiments/NAME`` says it. None in what a server
        answers: between two releases no report changes an answer.
    conclusion
        What to do, for whom, and how sure that is.
    found
        Everything that the learner found, in its own parts.

    Raises
    ------
    ValueError
        If a word is none for a screen, or ``began`` is no time.
    """

    experiment: str
    version: int
    status: Status
    algorithm: str
    began: str | None
    people: People | None
    conclusion: Conclusion
    found: Answer

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.began is None:
            return
        try:
            datetime.fromisoformat(self.began).astimezone(UTC)
        except OverflowError:
            raise ValueError("began must be a time of the years 1 to 9999") from None
