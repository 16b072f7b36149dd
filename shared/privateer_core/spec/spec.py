"""The public specification of an experiment, parsed from a TOML file.

The sections here are common to all algorithms. Each algorithm has a subclass of `Spec`, with further sections and all
checks, in `privateer_core.algorithms`.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self

import msgspec
from pydantic import Field, model_validator

from privateer_core.errors import SpecError
from privateer_core.primitives.questions import Question
from privateer_core.privacy.terms import Terms, calibrate, report_allotment
from privateer_core.privacy.trust import (
    BATCH_USUAL,
    TRUST,
    Crowd,
    Recipient,
    can_share_promise,
    check_promise,
    has_batch_noise,
)
from privateer_core.spec.columns import Block
from privateer_core.spec.context import list_blocks
from privateer_core.spec.experiment import ExperimentTable, Source
from privateer_core.spec.features import Feature
from privateer_core.spec.privacy import Privacy, default_of_idle_key
from privateer_core.spec.reward import GuardedReward, Reward
from privateer_core.spec.sections import Section

ARMS_MAX: Final = 256
_ROUNDING: Final = 1e-6  # by which a sum of shares may differ from 1
_PROPENSITY_MIN: Final = 1e-9
"""Minimum propensity above 0: below it not one participant of the largest source would report on the arm."""


class Capabilities(msgspec.Struct, frozen=True):
    """The capabilities of an algorithm."""

    further_questions: tuple[type[Question], ...] = ()  # further questions, for rounds with other participants
    takes_tiers: bool = False  # participants may choose between promises
    takes_sources: bool = False  # participants of sources may report on their earlier arms
    takes_several_reports: bool = False  # participants may report several times
    adjusts_rewards: bool = False  # only differences between arms are learned
    closes_early: bool = False  # a round may close with fewer reports than planned (``least_share``)
    coins_decide: bool = False  # public coins alone choose, independent of the context
    context_decides: bool = False  # the context chooses the arm, with coins
    reports_one_option: bool = False  # a report is about the participant's option alone
    rounds_grow: bool = True  # by ``min_round_fraction``
    needs_context: bool = True  # of algorithms with arms: without features they have nothing to choose by
    has_many_features: bool = False  # features have separate terms
    arms_max: int = ARMS_MAX
    idle_keys: frozenset[str] = frozenset()  # keys of ``[privacy]`` without effect
    batched_keys: frozenset[str] = frozenset()  # keys of ``[algorithm]`` that require a trust model with batches


class AlgorithmSection(Section):
    """The ``[algorithm]`` of every spec; each algorithm adds its own keys."""

    name: str


class Spec(Section):
    """The spec of a whole experiment; algorithms add sections and checks."""

    question: ClassVar[type[Question]]  # the type of question of the algorithm's reports
    capabilities: ClassVar[Capabilities] = Capabilities()
    people_key: ClassVar[str] = "horizon"  # the key of ``[experiment]`` with the number of participants

    experiment: ExperimentTable
    reward: Reward = Reward.model_construct()  # unvalidated: an import would wait for the validator
    privacy: Privacy
    algorithm: AlgorithmSection
    sources: tuple[Source, ...] = Field(default=(), max_length=16)
    population: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _apply_defaults(self) -> Self:
        return self.with_dependent_defaults()

    def with_dependent_defaults(self) -> Self:
        """Return the spec with defaults that depend on other keys.

        If reports are not private by themselves, the minimum batch has its default, and the local epsilon no effect.
        """
        if not has_batch_noise(self.privacy, self.question):
            return self
        defaults = {"min_batch": BATCH_USUAL, "local_epsilon_max": default_of_idle_key("local_epsilon_max")}
        changes = {name: value for name, value in defaults.items() if name not in self.privacy.model_fields_set}
        return self.model_copy(update={"privacy": self.privacy.model_copy(update=changes)})

    @model_validator(mode="after")
    def _check_promise(self) -> Self:
        """Refuse a promise that no mechanism keeps, and a shuffler under a model without shuffling."""
        check_promise(self.privacy, self.question)
        if self.experiment.shuffler and self.privacy.trust.endpoint is not Recipient.SHUFFLER:
            detail = f"must be empty under the model '{self.privacy.model}': its reports need no shuffler"
            raise SpecError(detail, field="experiment.shuffler", remedy="remove it")
        return self

    @model_validator(mode="after")
    def _check_arms(self) -> Self:
        """Refuse a setting of ``privacy.arm_visibility`` that the algorithm, several reports or a window rule out."""
        if not self.privacy.trust.hides_arms:
            return self
        is_as_local, is_grouped = self.privacy.arm_visibility == "as-local", self.privacy.arm_visibility == "grouped"
        if is_as_local and not self.capabilities.context_decides:
            detail = "'as-local' is for algorithms that choose arms by context"
            raise SpecError(detail, field="privacy.arm_visibility", remedy="remove it")
        if is_as_local and self.experiment.reports_per_person > 1:
            detail = "'as-local' needs experiment.reports_per_person = 1: each report costs all of epsilon by itself"
            raise SpecError(detail, field="privacy.arm_visibility", remedy="remove one of them")
        if is_grouped and not self.capabilities.coins_decide:
            detail = "'grouped' is for algorithms whose coins alone choose, no matter who a person is"
            raise SpecError(detail, field="privacy.arm_visibility", remedy="remove it")
        if is_grouped and self.experiment.conversion_window_seconds:
            detail = "arms that are 'grouped' have no late reports: ages would part an arm's people into small batches"
            raise SpecError(
                detail, field="experiment.conversion_window_seconds", remedy="remove it, or privacy.arm_visibility"
            )
        return self

    @model_validator(mode="after")
    def _check_covariates(self) -> Self:
        """Refuse covariates unless the algorithm compares arms with each other alone."""
        if self.reward.covariates and not self.capabilities.adjusts_rewards:
            detail = "needs an algorithm that compares arms with each other alone: others learn how high rewards are"
            raise SpecError(detail, field="reward.covariates", remedy="remove it, or set algorithm.name = 'trial'")
        return self

    @model_validator(mode="after")
    def _check_reports(self) -> Self:
        """Refuse several reports of a participant where algorithm, promise or sources rule them out."""
        if self.experiment.reports_per_person == 1:
            return self
        can_share = can_share_promise(self.privacy, self.question)
        for is_refused, detail in (
            (not self.capabilities.takes_several_reports, "must be 1: the algorithm asks every person once at most"),
            (not can_share, f"must be 1 under the model '{self.privacy.model}' here"),
            (bool(self.sources), "must be 1 where there are sources: their people report once"),
        ):
            if is_refused:
                raise SpecError(detail, field="experiment.reports_per_person", remedy="remove it")
        report_allotment(self.privacy.trust, self.privacy.bound, self.privacy.delta, self.reports)
        return self

    @model_validator(mode="after")
    def _check_tiers(self) -> Self:
        """Refuse tiers that the algorithm cannot combine, and whatever asks further questions or other people."""
        if not self.privacy.tiers:
            return self
        table = self.experiment
        for is_refused, detail in (
            (not self.capabilities.takes_tiers, f"are not for the algorithm '{self.algorithm.name}'"),
            (bool(self.sources), "cannot be combined with sources"),
            (table.reports_per_person > 1, "need experiment.reports_per_person = 1"),
            (getattr(table, "evaluation_fraction", 0.0) > 0, "need experiment.evaluation_fraction = 0"),
        ):
            if is_refused:
                raise SpecError(detail, field="privacy.tiers", remedy="remove one of the two")
        return self

    @model_validator(mode="after")
    def _check_sources(self) -> Self:
        """Refuse sources that the algorithm cannot use, with repeated names, or with an impossible promise."""
        if self.sources and not self.capabilities.takes_sources:
            raise SpecError("the algorithm has no use for them", field="sources", remedy="remove them")
        if len({source.name for source in self.sources}) != len(self.sources):
            raise ValueError("sources: names must be distinct")
        for source in self.sources:
            source_field = f"sources.{source.name}"
            if (source.epsilon is None) != (self.privacy.epsilon is None):
                raise ValueError(f"{source_field}.epsilon: must be given just where privacy.epsilon is")
            if self.privacy.trust.crowd is Crowd.BATCH and self.privacy.local_epsilon_max < (source.epsilon or 0.0):
                raise ValueError(f"{source_field}.epsilon: must be at most privacy.local_epsilon_max")
            self._check_source_shares(source, source_field)
        return self

    def _check_source_shares(self, source: Source, field: str) -> None:
        """Refuse a source without the shares of all arms, or else their least propensities."""
        shares, propensities = source.shares, source.min_propensities
        if (shares is None) == (propensities is None):
            detail = "must be given, or else min_propensities, where each device knows its own: one of the two"
            raise ValueError(f"{field}.shares: {detail}")
        if propensities is not None:
            if len(propensities) != len(self.options) or not 0 < sum(propensities) <= 1 + _ROUNDING:
                detail = "must be one for each arm, with a sum above 0 and at most 1"
                raise ValueError(f"{field}.min_propensities: {detail}")
            if any(0 < propensity < _PROPENSITY_MIN for propensity in propensities):
                detail = f"must be 0, or at least {_PROPENSITY_MIN:g}: not one participant would report on the arm"
                remedy = "set 0 for an arm about which nothing is learned"
                raise SpecError(detail, field=f"{field}.min_propensities", remedy=remedy)
            return
        if not isinstance(shares, tuple):
            raise ValueError(f"{field}.shares: must be one number for each arm, not 'unknown': estimates need them")
        if len(shares) != len(self.options) or abs(sum(shares) - 1) > _ROUNDING:
            raise ValueError(f"{field}.shares: must be one for each arm, with a sum of 1")

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.experiment.name

    @property
    def reports(self) -> int:
        """Number of a device's reports that share the promise: 1 if a single turn is drawn."""
        return 1 if self.privacy.trust.crowd is Crowd.NOBODY else self.experiment.reports_per_person

    @property
    def groups_arms(self) -> bool:
        """Whether a batch's participants with the same arm are a batch of their own."""
        return self.privacy.arm_visibility == "grouped" and self.privacy.trust.crowd is Crowd.BATCH

    @property
    def rewards(self) -> int:
        """Number of rewards that a participant reports, which answers of yes or no may follow."""
        return 1

    @property
    def outcome(self) -> Reward | GuardedReward:
        """The type of an application's outcome of a participant."""
        return self.reward

    def without_outcome(self, choice: Any) -> Any:
        """Return the default outcome of a participant with this choice, if no outcome occurred."""
        value = self.outcome.without_outcome
        return dict.fromkeys(choice, value) if isinstance(choice, Mapping) else value

    @property
    def features(self) -> Mapping[str, Feature]:
        """The features of a context, in order; empty if the algorithm uses none."""
        return {}

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of a participant's values that an application gives before the choice: features and covariates."""
        return tuple(dict.fromkeys([*self.features, *self.reward.covariates]))

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of columns of an encoded context, in order."""
        return list_blocks(self.features)

    @property
    def dimension(self) -> int:
        """Number of columns of an encoded context."""
        return sum(block.columns for block in self.blocks)

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options."""
        raise NotImplementedError

    @property
    def retired(self) -> tuple[str, ...]:
        """Names of retired options, which participants no longer get."""
        return ()

    @property
    def planned_reports(self) -> int:
        """Maximum number of reports: of the experiment's own participants, and of its sources."""
        return int(getattr(self.experiment, self.people_key)) + sum(source.participants for source in self.sources)

    @property
    def cohorts(self) -> tuple[str, ...]:
        """Names of the cohorts in the order of their rounds: sources first, the own participants ("") last.

        The source with the most informative reports comes first.
        """
        sources = sorted(self.sources, key=lambda source: -(source.epsilon or 0.0))
        return (*(source.name for source in sources), "")

    def source(self, cohort: str) -> Source | None:
        """Return the source with this name; None for the experiment's own participants, or an unknown name."""
        return next((source for source in self.sources if source.name == cohort), None)

    def cohort_privacy(self, cohort: str) -> Privacy:
        """Return the promise to the participants of a cohort or of a tier."""
        epsilons = {source.name: source.epsilon for source in self.sources}
        epsilons |= {tier.name: tier.epsilon for tier in self.privacy.tiers}
        is_own = cohort not in epsilons
        return self.privacy if is_own else self.privacy.model_copy(update={"epsilon": epsilons[cohort]})

    def tier_terms(self, terms: Terms, tier: str) -> Terms:
        """Return a round's terms as they are for the participants of a tier."""
        if not self.privacy.tiers:
            return terms
        return terms.for_tier(self.privacy.tier_names.index(tier), self.cohort_privacy(tier).bound)

    @property
    def learning(self) -> Self:
        """The spec of the learner, without participants with other questions."""
        return self

    def first_batch(self, cohort: str) -> int:
        """Return the batch size of a cohort's first round; 0 if the cohort has no rounds."""
        raise NotImplementedError

    def typical_question(self) -> Question:
        """Return a typical question of the first round, without its public coins."""
        raise NotImplementedError

    def first_terms(self, cohort: str) -> Terms | None:
        """Return the calibrated terms of a cohort's or tier's first round; None if it has no rounds."""
        if cohort and cohort in self.privacy.tier_names:
            own_terms = self.first_terms("")
            return own_terms and self.tier_terms(own_terms, cohort)
        if not (batch := self.first_batch(cohort)):
            return None
        privacy, n_min = self.cohort_privacy(cohort), self.min_reports(batch)
        return calibrate(privacy, batch, self.typical_question(), n_min, self.reports)

    @property
    def informative_share(self) -> float:
        """Share of a report's information that is about the reward of a typical option."""
        return 1.0

    @property
    def has_coin_plan(self) -> bool:
        """Whether coins give participants their arms until the levels of the arms are learned."""
        return False

    @property
    def has_single_arm_rounds(self) -> bool:
        """Whether rounds are about a single arm each, once all arms have been explored."""
        return False

    @property
    def extreme_batches(self) -> tuple[int, ...]:
        """Batch sizes of the first and the largest round of the experiment's own participants, if there are any."""
        first_batch = self.first_batch("")
        return tuple(sorted({batch for batch in (first_batch, self.largest_batch()) if batch and first_batch}))

    def largest_batch(self) -> int:
        """Return the maximum batch size."""
        return self.first_batch("")

    @property
    def smallest_batch(self) -> int:
        """Minimum batch size that keeps the promise."""
        return self.privacy.min_batch if self.privacy.trust.crowd is Crowd.BATCH else 1

    def count_unreachable(self, cohort: str, n_reported: int) -> int:
        """Return the number of a cohort's participants in no round after ``n_reported``, by default 0."""
        del cohort, n_reported
        return 0

    @property
    def min_share(self) -> float:
        """Minimum share of a round's participants with which it may close at its deadline."""
        return 1.0

    def min_reports(self, batch: int) -> int:
        """Return the minimum number of reports with which a round of ``batch`` may close."""
        return math.ceil(self.min_share * batch)

    @property
    def failure_seconds(self) -> float:
        """Seconds from a round's opening until it fails; 0: never."""
        return 0.0

    @property
    def round_seconds(self) -> int:
        """Seconds from a round's opening to its deadline; 0: it has no deadline."""
        return 0

    def concerns(self) -> list[str]:
        """Return warnings about settings that are allowed but probably unintended, with remedies."""
        experiment = self.experiment
        if experiment.arrivals_per_day and not experiment.conversion_window_seconds:
            return [
                "experiment.arrivals_per_day does nothing without experiment.conversion_window_seconds: remove it, or "
                "set the window"
            ]
        if (experiment.n_choices_in_window or 0.0) >= experiment.horizon:
            return [
                f"all {experiment.horizon:,} people choose in experiment.conversion_window_seconds, before somebody "
                "reports: nobody's choice is better for it. Raise experiment.horizon, or shorten the window"
            ]
        return []

    def without_people(self) -> Self:
        """Return the spec for a service, without simulated participants and the names of their files."""
        sources = tuple(source.model_copy(update={"population": None}) for source in self.sources)
        return self.model_copy(update={"population": None, "sources": sources})

    @classmethod
    def instances(cls) -> dict[str, Self]:
        """Return small instances by name, under every trust model and calibration, for tests and audits."""
        raise NotImplementedError


def example_promises(question: type[Question] | None = None) -> dict[str, dict[str, Any]]:
    """Return a small ``[privacy]`` for every trust model, or every one that serves a kind of question, by its name."""
    rows = (row for row in TRUST.values() if question is None or question in row.serves)
    return {row.name: {"model": row.name, **row.example} for row in rows}
