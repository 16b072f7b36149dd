"""The parts of an answer, each with a type that says how it is drawn."""

from typing import Final, Literal, TypeAlias

from privateer_core.answer.estimates import Effect, Estimate
from privateer_core.answer.facts import Bin, Displayed, Fact, Kind, Table
from privateer_core.answer.policy_view import Point
from privateer_core.answer.shapes import Shapes

Ground: TypeAlias = Literal[
    "decided against all other options",
    "decided against the control alone",
    "decided on average alone",
    "ahead, and not decided",
    "kept, as nothing is decided to be better",
    "too few people to say",
    "everybody gets it from now on",
]
"""What a recommendation rests on."""
ABOVE_CHANCE: Final = "above any option by chance"
"""Name of the estimate of what choosing by context gains over any option by coins, where that was measured."""

LOSS: Final = "what a person loses by following it"
"""Title of the losses of what is recommended."""


class Gain(Displayed, frozen=True):
    """The gain of choosing by context over one option for all.

    Attributes
    ----------
    option
        The best single option, that the choice is compared with.
    value, low, high
        The difference of mean rewards, in their units, and the ends of its interval; None where nothing is known.
    people
        How many people it is an average over; None where that is not said.
    means
        The mean rewards themselves, of the policy and of the option, where they are known.
    """

    option: str
    value: float | None
    low: float | None
    high: float | None
    people: int | None = None
    means: tuple[Estimate, ...] = ()


class Recommendation(Displayed, frozen=True):
    """A recommendation for a group of people, and what it rests on."""

    group: str
    option: str
    ground: Ground

    @property
    def is_decided(self) -> bool:
        """Whether the option is decided against all others."""
        return self.ground == "decided against all other options"


class Recommendations(Displayed, frozen=True, tag="rules", tag_field="kind"):
    """Recommendations, group by group."""

    rules: tuple[Recommendation, ...]


class MeansOfBin(Bin, frozen=True):
    """A box of contexts, and the mean reward there of each option of which something is known."""

    means: tuple[Estimate, ...]


class BinMeans(Displayed, frozen=True, tag="bin means", tag_field="kind"):
    """Mean rewards by box of contexts.

    Attributes
    ----------
    columns
        What the numbers of a corner are about.
    bins
        Those in which anybody can be. Reports may be about larger bins than those of the policy.
    confidence
        The probability with which each interval by itself holds, about.
    """

    columns: tuple[str, ...]
    bins: tuple[MeansOfBin, ...]
    confidence: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(len(one.lower) != len(self.columns) for one in self.bins):
            raise ValueError("a bin must have a side for each column")


class Intervals(Displayed, frozen=True, tag="intervals", tag_field="kind"):
    """More estimates with intervals, under a title.

    Attributes
    ----------
    title
        What they are about.
    of
        What they are figures of.
    estimates
        With the confidence of the answer.
    """

    title: str
    of: Kind
    estimates: tuple[Estimate, ...]


class Loss(Displayed, frozen=True):
    """What a person loses on average who gets an option, beside the best one.

    Attributes
    ----------
    name
        The option, and the group if it is about one.
    expected
        The mean under normal errors; None where an option has no interval.
    most
        The most that intervals leave open: where an option has none, all that rewards can differ by.
    """

    name: str
    expected: float | None
    most: float


class Losses(Displayed, frozen=True, tag="losses", tag_field="kind"):
    """Losses of what is recommended, one a group, whether it is decided or not."""

    losses: tuple[Loss, ...]


class EffectPath(Displayed, frozen=True):
    """An effect at every look; None where nothing was known of it then."""

    option: str
    group: str | None
    values: tuple[float | None, ...]
    lows: tuple[float | None, ...]
    highs: tuple[float | None, ...]

    @property
    def name(self) -> str:
        """The option, and the group if it is about one."""
        return self.option if self.group is None else f"{self.option}: {self.group}"


class EffectsOverTime(Displayed, frozen=True, tag="over time", tag_field="kind"):
    """Effects at every look.

    Attributes
    ----------
    people
        How many had reported at each look.
    effects
        Each with a figure for every look.
    """

    people: tuple[int, ...]
    effects: tuple[EffectPath, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(len(part) != len(self.people) for one in self.effects for part in (one.values, one.lows, one.highs)):
            raise ValueError("an effect over time must have a figure for every look")


class GuardrailEffects(Displayed, frozen=True, tag="guardrail", tag_field="kind"):
    """Effects on a guardrail, in shares of people who say yes."""

    name: str
    effects: tuple[Effect, ...]


class Figures(Displayed, frozen=True, tag="figures", tag_field="kind"):
    """Facts under a title."""

    title: str
    facts: tuple[Fact, ...]


class Contradiction(Displayed, frozen=True, tag="contradiction", tag_field="kind"):
    """A test of whether recent rounds contradict earlier ones, which would say that rewards have moved.

    Attributes
    ----------
    found
        Whether they do.
    evidence
        How many times as probable the releases are if rewards have moved: its decimal logarithm.
    false_alarm_rate
        The probability, at most, that this is ever found in an experiment where nothing moves.
    since
        People who had reported before the rounds that contradict earlier ones; None if none do.
    """

    found: bool
    evidence: float
    false_alarm_rate: float
    since: int | None = None


class FeatureSelection(Displayed, frozen=True, tag="features", tag_field="kind"):
    """The features found to matter by people who were asked about one feature at a time.

    Attributes
    ----------
    people
        How many were asked so.
    candidates
        How many features there were to choose from.
    kept
        Names of those that were kept; None as long as people are asked so.
    gains
        The gain of each feature, by its name; None as long as people are asked so.
    """

    people: int
    candidates: int
    kept: tuple[str, ...] | None = None
    gains: dict[str, float] | None = None


class HalfLives(Displayed, frozen=True, tag="half-lives", tag_field="kind"):
    """Half-lives, in people, with which evidence is forgotten; None stands for never.

    Attributes
    ----------
    used
        The one that the policy rests on.
    candidates
        All that were tried.
    probabilities
        How probable each is; None where the spec says which one to use.
    """

    used: float | None
    candidates: tuple[float | None, ...]
    probabilities: tuple[float, ...] | None = None


AnswerPart: TypeAlias = (
    Recommendations
    | BinMeans
    | Intervals
    | Losses
    | Point
    | EffectsOverTime
    | GuardrailEffects
    | Figures
    | Contradiction
    | FeatureSelection
    | HalfLives
    | Shapes
    | Table
)
