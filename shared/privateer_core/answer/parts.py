"""The parts of an answer, each with a type that determines its display."""

from typing import Final, Literal, TypeAlias

from privateer_core.answer.estimates import Effect, Estimate
from privateer_core.answer.facts import Bin, Displayed, Fact, Kind, Table
from privateer_core.answer.policy_view import Point, Shapes

Basis: TypeAlias = Literal[
    "decided against all other options",
    "decided against the control alone",
    "decided on average alone",
    "ahead, and not decided",
    "kept, as nothing is decided to be better",
    "too few people to say",
    "everybody gets it from now on",
]
"""The basis of a recommendation."""
ABOVE_CHANCE: Final = "above any option by chance"
"""Name of the estimate of the gain of choosing by context over random options."""

LOSS: Final = "what a person loses by following it"
"""Title of the losses of what is recommended."""


class Gain(Displayed, frozen=True):
    """The gain of choosing by context over one option for all.

    Attributes
    ----------
    arm
        The best single option, to which the choice is compared.
    value, low, high
        The difference of mean rewards, in their unit, and the ends of its confidence interval; None if unknown.
    people
        Number of people of the average; None if not given.
    means
        The mean rewards of the policy and of the option, if known.
    """

    arm: str
    value: float | None
    low: float | None
    high: float | None
    people: int | None = None
    means: tuple[Estimate, ...] = ()


class Recommendation(Displayed, frozen=True):
    """A recommendation for a group of people, and its basis."""

    group: str
    arm: str
    basis: Basis

    @property
    def is_decided(self) -> bool:
        """Whether the option is decided against all others."""
        return self.basis == "decided against all other options"


class Recommendations(Displayed, frozen=True, tag="rules", tag_field="kind"):
    """Recommendations, group by group."""

    rules: tuple[Recommendation, ...]


class MeansOfBin(Bin, frozen=True):
    """A box of contexts, with mean rewards of options, as far as known."""

    means: tuple[Estimate, ...]


class BinMeans(Displayed, frozen=True, tag="bin means", tag_field="kind"):
    """Mean rewards by box of contexts.

    Attributes
    ----------
    columns
        Names of the numbers of a corner.
    bins
        Bins that can have people. Reports may be about larger bins than those of the policy.
    confidence
        Approximate coverage probability of each single confidence interval.
    """

    columns: tuple[str, ...]
    bins: tuple[MeansOfBin, ...]
    confidence: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(len(bin_.lower) != len(self.columns) for bin_ in self.bins):
            raise ValueError("a bin must have a side for each column")


class Intervals(Displayed, frozen=True, tag="intervals", tag_field="kind"):
    """Further estimates with confidence intervals, under a title.

    Attributes
    ----------
    title
        The subject of the estimates.
    of
        The type of their figures.
    estimates
        With the confidence of the answer.
    """

    title: str
    of: Kind
    estimates: tuple[Estimate, ...]


class Loss(Displayed, frozen=True):
    """The expected loss of a person with an option, relative to the best option.

    Attributes
    ----------
    name
        The option, and the group if it is about one.
    expected
        The mean under normal errors; None if an option has no interval.
    most
        The maximum within the confidence intervals; the range of rewards if an option has none.
    """

    name: str
    expected: float | None
    most: float


class Losses(Displayed, frozen=True, tag="losses", tag_field="kind"):
    """Losses of recommended options by group, decided or not."""

    expected_losses: tuple[Loss, ...]


class EffectPath(Displayed, frozen=True):
    """An effect at every look; None where it was unknown."""

    arm: str
    group: str | None
    values: tuple[float | None, ...]
    lows: tuple[float | None, ...]
    highs: tuple[float | None, ...]

    @property
    def name(self) -> str:
        """The option, and the group if it is about one."""
        return self.arm if self.group is None else f"{self.arm}: {self.group}"


class EffectsOverTime(Displayed, frozen=True, tag="over time", tag_field="kind"):
    """Effects at every look.

    Attributes
    ----------
    people
        Number of people who had reported at each look.
    effects
        Each with a figure for every look.
    """

    people: tuple[int, ...]
    effects: tuple[EffectPath, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(len(row) != len(self.people) for path in self.effects for row in (path.values, path.lows, path.highs)):
            raise ValueError("an effect over time must have a figure for every look")


class GuardrailEffects(Displayed, frozen=True, tag="guardrail", tag_field="kind"):
    """Effects on a guardrail, in shares of people who say yes."""

    name: str
    effects: tuple[Effect, ...]


class Figures(Displayed, frozen=True, tag="figures", tag_field="kind"):
    """Facts under a title."""

    title: str
    facts: tuple[Fact, ...]


class DriftTest(Displayed, frozen=True, tag="drift test", tag_field="kind"):
    """A test of whether rewards have changed, so that recent rounds contradict earlier ones.

    Attributes
    ----------
    detected
        Whether a change is detected.
    evidence
        Decimal logarithm of the likelihood ratio of the releases, of changed and constant rewards.
    false_alarm_rate
        Maximum probability of ever detecting a change in an experiment with constant rewards.
    since
        Number of people who had reported before the contradicting rounds; None if there are none.
    """

    detected: bool
    evidence: float
    false_alarm_rate: float
    since: int | None = None


class FeatureSelection(Displayed, frozen=True, tag="features", tag_field="kind"):
    """The selection of features, from reports about one feature at a time.

    Attributes
    ----------
    people
        Number of people with these reports.
    candidates
        Number of features before the selection.
    kept
        Names of the selected features; None before the selection.
    gains
        The gain of each feature, by its name; None before the selection.
    """

    people: int
    candidates: int
    kept: tuple[str, ...] | None = None
    gains: dict[str, float] | None = None


class HalfLives(Displayed, frozen=True, tag="half-lives", tag_field="kind"):
    """Half-lives of evidence, in people; None: evidence is never forgotten.

    Attributes
    ----------
    used
        The half-life of the policy.
    candidates
        All candidates.
    probabilities
        Posterior probability of each; None if the spec sets the half-life.
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
    | DriftTest
    | FeatureSelection
    | HalfLives
    | Shapes
    | Table
)
