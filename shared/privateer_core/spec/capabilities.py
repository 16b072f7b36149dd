"""What an algorithm can do: a spec that asks for anything else is refused."""

from dataclasses import dataclass
from typing import Final

from privateer_core.primitives.questions import Question

ARMS_MAX: Final = 256


@dataclass(frozen=True)
class Capabilities:
    """The capabilities of one algorithm."""

    further_questions: tuple[type[Question], ...] = ()  # what else rounds may ask, of people of their own
    takes_sources: bool = False  # people of sources may report on arms that they played before
    takes_several_reports: bool = False  # people may come back and report again
    adjusts_rewards: bool = False  # what is learned are differences alone
    closes_early: bool = False  # a round may close with fewer people than it asks for (``least_share``)
    coins_decide: bool = False  # public coins alone choose what a person gets, no matter who they are
    context_decides: bool = False  # a person's context decides with the coins which arm they get
    reports_one_option: bool = False  # a report is about the one option that its person got, and says nothing of others
    rounds_grow: bool = True  # as ``round_growth`` says
    has_many_features: bool = False  # each feature stands for itself
    arms_max: int = ARMS_MAX
    idle_keys: frozenset[str] = frozenset()  # keys of ``[privacy]`` that do nothing
    batched_keys: frozenset[str] = frozenset()  # keys of ``[algorithm]`` that need a trust model with batches
