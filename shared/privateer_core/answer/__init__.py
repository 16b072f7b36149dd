"""The types of an experiment's results and policy, which every interface renders.

The answer of an experiment has the recommended option, its group, its effect and its certainty. Its parts are in the
modules of this package.
"""

from typing import Final, Literal, TypeAlias, TypeVar

from privateer_core.answer.estimates import Effect, Estimate
from privateer_core.answer.facts import Displayed
from privateer_core.answer.parts import AnswerPart, Basis, Gain

ESTIMATES_MAX: Final = 1 << 16
Stage: TypeAlias = Literal["learning", "ended", "failed"]
"""The stage of a learner: it invites people, has ended, or has failed."""
Ending: TypeAlias = Literal["its rule", "its horizon", "an operator", "its rows"]
"""The reason for the end of an experiment: its stopping rule, its horizon, or an operator; or the end of the rows of a
table, for a test that was run elsewhere."""
P = TypeVar("P")


class Answer(Displayed, frozen=True):
    """The results of a learner so far; before the first report there are none.

    Attributes
    ----------
    stage
        The stage of the learner.
    people, rounds
        Number of people who reported, and of rounds, on which all figures are based; None if unknown.
    confidence
        Coverage probability of the confidence intervals, 0 to 1; None if there are none.
    recommended, basis
        The recommended option and the basis of the recommendation; None without a recommendation.
    stop_reason
        The reason for the end; None before it, or if unknown.
    estimates
        At most 65,536, with distinct names.
    effects
        Differences from a control, where the algorithm compares options with one.
    gain
        The gain of choosing by context, if it is measured.
    warnings
        Problems to check before anybody acts on the answer.
    parts
        Further results.
    """

    stage: Stage
    people: int | None
    rounds: int | None
    confidence: float | None
    recommended: str | None = None
    basis: Basis | None = None
    stop_reason: Ending | None = None
    estimates: tuple[Estimate, ...] = ()
    effects: tuple[Effect, ...] = ()
    gain: Gain | None = None
    warnings: tuple[str, ...] = ()
    parts: tuple[AnswerPart, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if len({estimate.name for estimate in self.estimates}) < len(self.estimates):
            raise ValueError("two estimates must not have the same name")
        if len(self.estimates) > ESTIMATES_MAX or not 0 <= (self.confidence or 0) <= 1:
            raise ValueError(f"an answer has at most {ESTIMATES_MAX} estimates and a confidence of 0 to 1")

    @property
    def is_over(self) -> bool:
        """Whether the experiment has ended or failed."""
        return self.stage != "learning"

    @property
    def concludes(self) -> bool:
        """Whether it has results about single options; otherwise the policy is the result."""
        return bool(self.estimates or self.effects or self.recommended)

    @property
    def says_something(self) -> bool:
        """Whether it has any result."""
        return bool(self.concludes or self.gain or self.parts)

    def all_of(self, kind: type[P]) -> list[P]:
        """Return the parts of a type."""
        return [part for part in self.parts if isinstance(part, kind)]

    def first_of(self, kind: type[P]) -> P | None:
        """Return the first part of a type; None if there is none."""
        return next(iter(self.all_of(kind)), None)
