"""The types of an experiment's results and policy, which every interface renders.

Here is the answer of an experiment: which option, for whom, how much better, and how sure that is. Its parts are in the
modules of this package.
"""

from typing import Final, Literal, TypeAlias, TypeVar

from privateer_core.answer.estimates import Effect, Estimate
from privateer_core.answer.facts import Displayed
from privateer_core.answer.parts import AnswerPart, Gain, Ground

ESTIMATES_MAX: Final = 1 << 16
Stage: TypeAlias = Literal["learning", "ended", "failed"]
"""Whether a learner still asks people, asks nobody any more, or came to no end."""
Ending: TypeAlias = Literal["its rule", "its horizon", "an operator", "its rows"]
"""What ended an experiment: the rule that it declared, that all the planned people were asked, or somebody; or the rows
of a table, which are all that there is of a test that others have run."""
P = TypeVar("P")


class Answer(Displayed, frozen=True):
    """The findings of a learner so far. They say nothing that is not known: before the first report there are none.

    Attributes
    ----------
    status
        Where the learner is.
    people, rounds
        How many people reported, and in how many rounds: what all figures rest on; None where that is not known.
    confidence
        The probability, 0 to 1, with which the intervals hold; None where there are none.
    recommended, ground
        The option that it recommends and what that rests on; None as long as it recommends nothing.
    ended
        Why nobody is asked any more; None as long as somebody is, or if that is not known.
    estimates
        At most 65,536, each with a name of its own.
    effects
        Differences from a control, where the algorithm compares options with one.
    gain
        What choosing by context earns, where that is measured.
    warnings
        What to look at before anybody acts on the answer.
    parts
        Whatever else was found.
    """

    status: Stage
    people: int | None
    rounds: int | None
    confidence: float | None
    recommended: str | None = None
    ground: Ground | None = None
    ended: Ending | None = None
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
        """Whether nobody is asked any more."""
        return self.status != "learning"

    @property
    def concludes(self) -> bool:
        """Whether it is about options one by one; else the policy is what was found."""
        return bool(self.estimates or self.effects or self.recommended)

    @property
    def says_something(self) -> bool:
        """Whether anything was found."""
        return bool(self.concludes or self.gain or self.parts)

    def all_of(self, kind: type[P]) -> list[P]:
        """Return the parts of a type."""
        return [part for part in self.parts if isinstance(part, kind)]

    def first_of(self, kind: type[P]) -> P | None:
        """Return the first part of a type; None if there is none."""
        return next(iter(self.all_of(kind)), None)
