"""The specification of an experiment: what a TOML file says, and what everybody may read.

The sections here are common to all algorithms. Each algorithm owns a `Spec` of its own, with its further sections and
all its refusals, in `privateer_core.algorithms`.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from privateer_core.errors import SpecError
from privateer_core.primitives.questions import Question
from privateer_core.privacy.terms import Terms, allotment_of, calibrate
from privateer_core.privacy.trust import (
    BATCH_USUAL,
    TRUST,
    check_promise,
    hidden_in_batches,
    shares_out,
)
from privateer_core.spec.capabilities import Capabilities
from privateer_core.spec.columns import Block
from privateer_core.spec.context import blocks_of
from privateer_core.spec.experiment import ExperimentTable, Source
from privateer_core.spec.features import Feature
from privateer_core.spec.privacy import Privacy, idle_default
from privateer_core.spec.reward import GuardedReward, Reward
from privateer_core.spec.sections import Section


class AlgorithmSection(Section):
    """The ``[algorithm]`` of every spec; each algorithm adds its own keys."""

    name: str


class Spec(Section):
    """A whole experiment; algorithms add their sections and refusals."""

    question: ClassVar[type[Question]]
    """Which primitive the algorithm's reports are."""
    capabilities: ClassVar[Capabilities] = Capabilities()
    people_key: ClassVar[str] = "horizon"
    """The key of ``[experiment]`` that says how many people there are."""

    experiment: ExperimentTable
    reward: Reward = Reward()
    privacy: Privacy
    algorithm: AlgorithmSection
    sources: tuple[Source, ...] = Field(default=(), max_length=16)
    population: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        return self.with_defaults()

    def with_defaults(self) -> Self:
        """Fill in what depends on other keys, so that anybody who reads the spec has the same.

        Where reports are not private by themselves that is the usual batch; no local epsilon limits them then.
        """
        if not hidden_in_batches(self.privacy, self.question):
            return self
        usual = {"min_batch": BATCH_USUAL, "local_epsilon_max": idle_default("local_epsilon_max")}
        missing = {name: value for name, value in usual.items() if name not in self.privacy.model_fields_set}
        return self.model_copy(update={"privacy": self.privacy.model_copy(update=missing)})

    @model_validator(mode="after")
    def _can_be_promised(self) -> Self:
        check_promise(self.privacy, self.question)
        if self.experiment.shuffler and not self.privacy.trust.shuffled:
            detail = f"must be empty under the model '{self.privacy.model}': its reports need no shuffler"
            raise SpecError(detail, field="experiment.shuffler", remedy="remove it")
        return self

    @model_validator(mode="after")
    def _coins_may_tell_arms(self) -> Self:
        if self.privacy.arms != "as-local" or not self.privacy.trust.hides_arms:
            return self
        for wrong, detail, remedy in (
            (not self.capabilities.context_decides, "is for algorithms that choose arms by context", "remove it"),
            (
                self.experiment.reports_per_person > 1,
                "needs experiment.reports_per_person = 1: each report costs all of epsilon by itself",
                "remove one of them",
            ),
        ):
            if wrong:
                raise SpecError(f"'as-local' {detail}", field="privacy.arms", remedy=remedy)
        return self

    @model_validator(mode="after")
    def _arms_may_be_batches(self) -> Self:
        if self.privacy.arms != "grouped" or not self.privacy.trust.hides_arms:
            return self
        if not self.capabilities.coins_decide:
            detail = "'grouped' is for algorithms whose coins alone choose, no matter who a person is"
            raise SpecError(detail, field="privacy.arms", remedy="remove it")
        if self.experiment.conversion_window:
            detail = "arms that are 'grouped' have no late reports: ages would part an arm's people into small batches"
            raise SpecError(detail, field="experiment.conversion_window", remedy="remove it, or privacy.arms")
        return self

    @model_validator(mode="after")
    def _rewards_are_adjusted(self) -> Self:
        if self.reward.adjust and not self.capabilities.adjusts_rewards:
            detail = "needs an algorithm that compares arms with each other alone: others learn how high rewards are"
            raise SpecError(detail, field="reward.adjust", remedy="remove it, or set algorithm.name = 'trial'")
        return self

    @model_validator(mode="after")
    def _reports_share_the_promise(self) -> Self:
        if self.experiment.reports_per_person == 1:
            return self
        for wrong, detail in (
            (not self.capabilities.takes_several_reports, "must be 1: the algorithm asks every person once at most"),
            (not shares_out(self.privacy, self.question), f"must be 1 under the model '{self.privacy.model}' here"),
            (bool(self.sources), "must be 1 where there are sources: their people report once"),
        ):
            if wrong:
                raise SpecError(detail, field="experiment.reports_per_person", remedy="remove it")
        allotment_of(self.privacy.trust, self.privacy.bound, self.privacy.delta, self.reports)
        return self

    @model_validator(mode="after")
    def _sources_agree(self) -> Self:
        if self.sources and not self.capabilities.takes_sources:
            raise SpecError("the algorithm has no use for them", field="sources", remedy="remove them")
        if len({source.name for source in self.sources}) != len(self.sources):
            raise ValueError("sources: names must be distinct")
        for source in self.sources:
            where = f"sources.{source.name}"
            if (source.epsilon is None) != (self.privacy.epsilon is None):
                raise ValueError(f"{where}.epsilon: must be given just where privacy.epsilon is")
            if self.privacy.trust.batched and self.privacy.local_epsilon_max < (source.epsilon or 0.0):
                raise ValueError(f"{where}.epsilon: must be at most privacy.local_epsilon_max")
            self._check_shares(source, where)
        return self

    def _check_shares(self, source: Source, where: str) -> None:
        if source.shares == "unknown":
            raise ValueError(f"{where}.shares: must be public: what is learned of an arm is in proportion to them")
        if len(source.shares) != len(self.options) or abs(sum(source.shares) - 1) > 1e-6:
            raise ValueError(f"{where}.shares: must be one for each arm, with a sum of 1")

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.experiment.name

    @property
    def reports(self) -> int:
        """Reports that a device makes in all, which share the promise: one where one time of many is drawn."""
        return 1 if self.privacy.trust.draws_one else self.experiment.reports_per_person

    @property
    def groups_arms(self) -> bool:
        """Whether the people of a batch who got one arm are a batch of their own."""
        return self.privacy.arms == "grouped" and self.privacy.trust.batched

    @property
    def rewards(self) -> int:
        """Rewards that a person reports; answers of yes or no may follow them."""
        return 1

    @property
    def outcome(self) -> Reward | GuardedReward:
        """What an application reports of a person."""
        return self.reward

    def without_outcome(self, shown: Any) -> Any:
        """Return what an application would report of a person to whom something was shown, and nothing came of it."""
        value = self.outcome.without_outcome
        return dict.fromkeys(shown, value) if isinstance(shown, Mapping) else value

    @property
    def features(self) -> Mapping[str, Feature]:
        """The features of a context, in order; empty if the algorithm uses none."""
        return {}

    @property
    def asked_of_people(self) -> tuple[str, ...]:
        """Names of what an application tells of a person before the choice: features, and what adjusts the reward."""
        return tuple(dict.fromkeys([*self.features, *self.reward.adjust]))

    @property
    def blocks(self) -> tuple[Block, ...]:
        """What the columns of an encoded context are, in order."""
        return blocks_of(self.features)

    @property
    def dimension(self) -> int:
        """Number of columns of an encoded context: one a number, more for other features."""
        return sum(block.columns for block in self.blocks)

    @property
    def options(self) -> tuple[str, ...]:
        """Names of what can be chosen."""
        raise NotImplementedError

    @property
    def retired(self) -> tuple[str, ...]:
        """Those of the options that nobody gets any more."""
        return ()

    @property
    def planned_reports(self) -> int:
        """The most reports that may come: of the experiment's own people, and of its sources."""
        return int(getattr(self.experiment, self.people_key)) + sum(source.people for source in self.sources)

    @property
    def cohorts(self) -> tuple[str, ...]:
        """Names of the cohorts in the order of their rounds: sources first, the experiment's own people ("") last.

        The source with the most informative reports comes first.
        """
        sources = sorted(self.sources, key=lambda source: -(source.epsilon or 0.0))
        return (*(source.name for source in sources), "")

    def source(self, cohort: str) -> Source | None:
        """Return the source of this name; None for the experiment's own people, or a name that is not there."""
        return next((source for source in self.sources if source.name == cohort), None)

    def privacy_of(self, cohort: str) -> Privacy:
        """Return what a person of a cohort is promised."""
        source = self.source(cohort)
        return self.privacy if source is None else self.privacy.model_copy(update={"epsilon": source.epsilon})

    @property
    def learning(self) -> Self:
        """The spec as its learner sees it: without people who are asked anything else."""
        return self

    def first_batch(self, cohort: str) -> int:
        """Return the people whose reports fill a cohort's first round; 0 if it is never asked."""
        raise NotImplementedError

    def usual_question(self) -> Question:
        """Return a question as the first round asks it, without its public coins."""
        raise NotImplementedError

    def planned(self, cohort: str) -> Terms | None:
        """Return the terms of a cohort's first round as calibrated ahead of it; None if it is never asked."""
        batch = self.first_batch(cohort)
        if not batch:
            return None
        return calibrate(self.privacy_of(cohort), batch, self.usual_question(), self.fewest(batch), self.reports)

    @property
    def telling(self) -> float:
        """Share of what a report says that is about the reward of a typical option."""
        return 1.0

    @property
    def takes_turns(self) -> bool:
        """Whether a round asks about one arm alone, as soon as something is known of each."""
        return False

    @property
    def extreme_batches(self) -> tuple[int, ...]:
        """People of the first round of the experiment's own people, and of the largest; without those of no round."""
        first = self.first_batch("")
        return tuple(sorted({people for people in (first, self.largest_batch()) if people and first}))

    def largest_batch(self) -> int:
        """Return the most people of any round."""
        return self.first_batch("")

    @property
    def smallest_batch(self) -> int:
        """The fewest reports of a round that keep the promise."""
        return self.privacy.min_batch if self.privacy.trust.batched else 1

    def out_of_reach(self, cohort: str, seen: int) -> int:
        """Return how many people, after ``seen`` of a cohort, are in no round to come: by default nobody."""
        del cohort, seen
        return 0

    @property
    def least_share(self) -> float:
        """Share of a round's people with whom it may close at its deadline."""
        return 1.0

    def fewest(self, batch: int) -> int:
        """Return the fewest people with whom a round of ``batch`` may close."""
        return math.ceil(self.least_share * batch)

    @property
    def patience(self) -> float:
        """Seconds after its opening when nobody waits for a round any longer; 0: never."""
        return 0.0

    @property
    def round_seconds(self) -> int:
        """Seconds from a round's opening to its deadline; 0: it has no deadline."""
        return 0

    def concerns(self) -> list[str]:
        """Say what is allowed but is probably not meant, and what to change."""
        experiment = self.experiment
        if experiment.arrivals and not experiment.conversion_window:
            return [
                "experiment.arrivals does nothing without experiment.conversion_window: remove it, or set the window"
            ]
        if (experiment.waiting or 0.0) >= experiment.horizon:
            return [
                f"all {experiment.horizon:,} people choose in experiment.conversion_window, before somebody reports:"
                " nobody's choice is better for it. Raise experiment.horizon, or shorten the window"
            ]
        return []

    def without_people(self) -> Self:
        """Return the spec for a service, which has no use for simulated people, nor for the names of their files."""
        sources = tuple(source.model_copy(update={"population": None}) for source in self.sources)
        return self.model_copy(update={"population": None, "sources": sources})

    @classmethod
    def instances(cls) -> dict[str, Self]:
        """Return small instances by name, under every trust model and calibration, for tests and audits."""
        raise NotImplementedError


def example_promises() -> Iterator[dict[str, Any]]:
    """Yield a small ``[privacy]`` for every trust model."""
    for row in TRUST.values():
        yield {"model": row.name, **row.example}
