"""The specification of an experiment that chooses one of several arms for each person, in rounds of public sizes."""

import math
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Self, get_args

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from typing_extensions import override

from privateer_core.errors import SpecError
from privateer_core.primitives.questions import KeyedHits, KeyedMeans, Question
from privateer_core.privacy.trust import check_promise
from privateer_core.spec.capabilities import ARMS_MAX, Capabilities
from privateer_core.spec.context import COLUMNS_MAX, FEATURES_MAX, Context
from privateer_core.spec.experiment import ExperimentTable
from privateer_core.spec.features import Feature
from privateer_core.spec.round_sizes import RoundSizes
from privateer_core.spec.sections import parse_section
from privateer_core.spec.spec import Spec, example_promises

ARM_NAME: Final = r"[\w .+%()!?-]{1,64}"
"""A regular expression of the names that arms may have: as people write "20% off" and "Sign up (free)"."""
ARMS_MIN = 2
ARMS_FEW: Final = 16
"""Arms at most where each is compared with others, or has a part of a matrix."""
_RARE: Final = 0.05
"""An expected reward this close to a bound, by the range, says little of a person: noise of a round hides it."""
_FEW_ROUNDS: Final = 0.3
"""Growth of rounds where each has noise of its own that is as large as what people say."""
_GAIN_MAX: Final = 0.5
_MIDDLE: Final = 0.5
_GAIN_PEOPLE: Final = 100
"""The fewest people whose mean rewards are compared where no batch needs more."""


_SHAPELESS: Final = re.compile(
    "[\\u034f\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\ufe00-\\ufe0f\\U000e0100-\\U000e01ef]"
)
"""Fillers and selectors of variants, which nobody sees; Unicode calls them letters and marks (Default_Ignorable)."""


def _as_seen(name: str) -> str:
    """Return what people see of a name: without signs that have no shape, and with one blank between words."""
    whole = _SHAPELESS.sub("", unicodedata.normalize("NFKC", name))
    return " ".join("".join(sign for sign in whole if unicodedata.category(sign) != "Cf").split())


class ArmsTable(ExperimentTable):
    """The ``[experiment]`` of algorithms that choose one of several arms for each person.

    Attributes
    ----------
    arms
        2 to 256 names of options; some algorithms take fewer.
    round_size
        Reports in the first round. By default 1,000; where batches are shuffled and rounds grow, ``privacy.min_batch``.
    round_growth
        A later round has at least this share of the people seen so far; by default 0, or .3 where ``reward.base_rate``
        says that rewards are rare and noise is added to a round.
    retired
        Those of ``arms`` that nobody gets any more. Their names stay, so that no later arm can be taken for them.
    gain_share
        Share of the people, up to .5, of whom nothing is learned: at the end they get what the policy says or the best
        single option, by public coins, and their reports tell what choosing by context gains. .05 is usual; 0: nobody
        is asked, and the gain is not measured.
    """

    arms: tuple[Annotated[str, Field(pattern=f"^{ARM_NAME}$")], ...] = Field(min_length=ARMS_MIN, max_length=ARMS_MAX)
    round_size: int = Field(default=1000, ge=1, le=1_000_000)
    round_growth: float = Field(default=0.0, ge=0, le=1, allow_inf_nan=False)
    retired: tuple[str, ...] = Field(default=(), max_length=ARMS_MAX)
    gain_share: float = Field(default=0.0, ge=0, le=_GAIN_MAX, allow_inf_nan=False)

    @model_serializer(mode="wrap")
    def _as_stored(self, dumped: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out a share of nobody: experiments of earlier versions go on with the same bytes."""
        return {name: told for name, told in dumped(self).items() if name != "gain_share" or told}

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if len(set(self.arms)) != len(self.arms):
            raise ValueError("arms: names must be distinct")
        if not all(map(_as_seen, self.arms)):
            raise ValueError("arms: each must have a name that people see")
        if len(set(map(_as_seen, self.arms))) != len(self.arms):
            raise ValueError("arms: two names look the same: they differ by blanks or by signs that nobody sees")
        if len(set(self.retired)) != len(self.retired) or not set(self.retired) <= set(self.arms):
            raise ValueError("retired: must be distinct names of arms")
        if len(self.arms) - len(self.retired) < ARMS_MIN:
            raise ValueError(f"retired: at least {ARMS_MIN} arms must be left")
        return self


@dataclass(frozen=True)
class PlannedRound:
    """A round to come: who is asked, and how many.

    Attributes
    ----------
    cohort
        A source's name; empty for the experiment's own people.
    seen
        People of the cohort whose reports opened in earlier rounds.
    batch
        Reports of the round; 0 when the experiment is over.
    """

    cohort: str
    seen: int
    batch: int


class ArmsSpec(Spec):
    """An experiment that chooses one of several arms for each person, in rounds whose sizes the spec fixes."""

    question: ClassVar[type[Question]] = KeyedMeans
    capabilities: ClassVar[Capabilities] = Capabilities((KeyedHits,), reports_one_option=True)
    """Where an algorithm chooses by context, people who measure the gain are asked for hits."""

    experiment: ArmsTable
    context: Context

    @override
    def with_defaults(self) -> Self:
        """Fill in growing rounds where rewards are rare, and a first round as small as the promise allows before."""
        spec = super().with_defaults()
        if not spec.capabilities.rounds_grow:
            return spec
        table, privacy, rate = spec.experiment, spec.privacy, spec.reward.base_rate
        defaults: dict[str, Any] = {}
        if rate is not None and "round_growth" not in table.model_fields_set and privacy.trust.hides_arms:
            share = (rate - spec.reward.low) / spec.reward.span
            defaults |= {"round_growth": _FEW_ROUNDS} if min(share, 1 - share) < _RARE else {}
        grows = defaults.get("round_growth", table.round_growth) > 0
        if grows and privacy.trust.batched and "round_size" not in table.model_fields_set:
            defaults["round_size"] = min(privacy.min_batch, table.horizon)
        # A first round that nobody named stays a default: it follows the promise where that is changed.
        keys = table.model_fields_set | (set(defaults) - {"round_size"})
        experiment = type(table).model_construct(keys, **(dict(table) | defaults))
        return spec.model_copy(update={"experiment": experiment}) if defaults else spec

    @model_validator(mode="after")
    def _not_too_large(self) -> Self:
        if self.arm_count > self.capabilities.arms_max:
            detail = f"has {self.arm_count} arms, and '{self.algorithm.name}' at most {self.capabilities.arms_max}"
            raise SpecError(detail, field="experiment.arms", remedy="have fewer, or choose another algorithm.name")
        columns = self.dimension
        if not self.capabilities.has_many_features and (len(self.features) > FEATURES_MAX or columns > COLUMNS_MAX):
            detail = f"are {len(self.features)} and make {columns} columns"
            detail += f", and '{self.algorithm.name}' has at most {FEATURES_MAX} in {COLUMNS_MAX}"
            raise SpecError(detail, field="context.features", remedy="list fewer features or levels, or see 'additive'")
        return self

    @model_validator(mode="after")
    def _rounds_hold_batches(self) -> Self:
        if self.privacy.trust.batched and self.privacy.min_batch > self.experiment.round_size:
            raise ValueError("privacy.min_batch: must be at most experiment.round_size")
        size, horizon = self.experiment.round_size, self.experiment.horizon
        if size > horizon:
            asked = (
                ", as privacy.min_batch asks" if self.privacy.trust.batched and size == self.privacy.min_batch else ""
            )
            detail = f"is {size:,}{asked}, and must be at most experiment.horizon, {horizon:,}"
            raise ValueError(f"experiment.round_size: {detail}")
        return self

    @model_validator(mode="after")
    def _outcomes_may_come_late(self) -> Self:
        alike = self.privacy.arm_in_key or not self.privacy.trust.batched
        if self.experiment.conversion_window and not alike:
            detail = "needs privacy.arms = 'seen': other reports of a batch would say when they were decided"
            raise SpecError(detail, field="experiment.conversion_window", remedy="set it so, or remove the window")
        return self

    @model_validator(mode="after")
    def _gain_can_be_measured(self) -> Self:
        table = self.experiment
        if not table.gain_share:
            return self
        for wrong, detail, remedy in (
            (not self.capabilities.further_questions, "is for algorithms that choose by context", "remove it"),
            (table.reports_per_person > 1, "needs people who report once", "remove it, or reports_per_person"),
            (
                self.learning_people < table.round_size,
                f"leaves {self.learning_people:,} people, fewer than a round",
                "lower it or experiment.round_size",
            ),
        ):
            if wrong:
                raise SpecError(detail, field="experiment.gain_share", remedy=remedy)
        check_promise(self.privacy, KeyedHits)
        return self

    @override
    def concerns(self) -> list[str]:
        return [*super().concerns(), *self.reward.concerns(self.privacy.trust.promises), *self._unmeasured()]

    def _unmeasured(self) -> Iterator[str]:
        """Say that too few people would measure the gain, so that nobody does."""
        table = self.experiment
        if table.gain_share and not self.gain_people:
            few = math.floor(table.gain_share * table.horizon)
            enough = f"it takes {self.measuring_least:,}"
            yield (
                f"experiment.gain_share asks {few:,} people what choosing by context gains, and {enough}: nobody is "
                "asked. Raise it or experiment.horizon, or remove it"
            )

    @property
    @override
    def features(self) -> Mapping[str, Feature]:
        return self.context.features

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the arms."""
        return self.experiment.arms

    @property
    def retired(self) -> tuple[str, ...]:
        """Names of the arms that nobody gets any more."""
        return self.experiment.retired

    @property
    def arm_count(self) -> int:
        """Number of arms."""
        return len(self.experiment.arms)

    @property
    def playable(self) -> tuple[bool, ...]:
        """Whether people may get each arm: those that are retired stay in their places, and nobody does."""
        return tuple(arm not in self.retired for arm in self.options)

    @property
    def gain_people(self) -> int:
        """How many people are asked what choosing by context gains; 0 where they would be too few."""
        wanted = math.floor(self.experiment.gain_share * self.experiment.horizon)
        return wanted if wanted >= self.measuring_least else 0

    @property
    def measuring_least(self) -> int:
        """The fewest people who measure what choosing by context gains."""
        return self.privacy.min_batch if self.privacy.trust.batched else _GAIN_PEOPLE

    @property
    def learning_people(self) -> int:
        """How many of the experiment's own people are asked for the learner."""
        return self.experiment.horizon - self.gain_people

    @property
    @override
    def learning(self) -> Self:
        if not self.gain_people:
            return self
        told = {"horizon": self.learning_people, "gain_share": 0.0}
        return self.model_copy(update={"experiment": self.experiment.model_copy(update=told)})

    def gain_question(self, keys: int, seed: int) -> KeyedHits:
        """Return what people are asked who measure the gain, about so many groups of them.

        What a curator releases tells how much rewards vary at no further cost.
        """
        varies = self.privacy.trust.curated or self.reward.kind == "numeric"
        usual = _MIDDLE if self.reward.expected is None else self.reward.expected
        return KeyedHits.of_keys(keys, seed, usual if varies else None)

    def next_round(self, cohort: str, seen: int) -> PlannedRound:
        """Return the round that follows when ``seen`` reports of the cohort of the last one have opened.

        Whether an honest report opens does not depend on the person, so the number is public; and what does not open
        uses up nobody's place.
        """
        cohorts = self.cohorts
        while not (batch := self._batch(cohort, seen)) and cohort:
            cohort, seen = cohorts[cohorts.index(cohort) + 1], 0
        return PlannedRound(cohort, seen, batch)

    def planned_rounds(self) -> Iterator[PlannedRound]:
        """Yield all rounds in order, as they are if every report opens."""
        planned = self.next_round(self.cohorts[0], 0)
        while planned.batch:
            yield planned
            planned = self.next_round(planned.cohort, planned.seen + planned.batch)

    @override
    def first_batch(self, cohort: str) -> int:
        return self._batch(cohort, 0)

    def _batch(self, cohort: str, seen: int) -> int:
        return self._sizes.batch(seen, self.people_of(cohort))

    @property
    def _sizes(self) -> RoundSizes:
        return RoundSizes(self.experiment.round_size, self.experiment.round_growth, self.smallest_batch)

    def people_of(self, cohort: str) -> int:
        """Return how many people of a cohort are asked for the learner, at most."""
        source = self.source(cohort)
        return self.learning_people if source is None else source.people

    @override
    def out_of_reach(self, cohort: str, seen: int) -> int:
        later = self.cohorts[self.cohorts.index(cohort) + 1 :]
        here = self._sizes.out_of_reach(seen, self.people_of(cohort))
        return here + sum(self._sizes.out_of_reach(0, self.people_of(one)) for one in later)

    def largest_batch(self) -> int:
        """Return the most reports of any round."""
        return self._sizes.largest(max(map(self.people_of, self.cohorts)))

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        """Return small instances by trust model, of an algorithm whose section needs nothing but its name."""
        unit = {"low": 0.0, "high": 1.0}
        section: Any = cls.model_fields["algorithm"].annotation
        (name,) = get_args(section.model_fields["name"].annotation)
        data = {
            "experiment": {"name": "test", "arms": ["a", "b", "c"], "horizon": 6000},
            "context": {"features": {"x1": unit, "x2": unit}},
            "algorithm": {"name": name},
        }
        return {str(one["model"]): parse_section(cls, data | {"privacy": one}) for one in example_promises()}
