"""Specs of experiments that choose an arm for each participant, in rounds of public sizes."""

import math
import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Self, get_args

import msgspec
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from typing_extensions import override

from privateer_core.errors import SpecError
from privateer_core.primitives.questions import KeyedHits, KeyedMeans, Question
from privateer_core.privacy.trust import Crowd, NoiseOrigin, check_promise
from privateer_core.spec.context import COLUMNS_MAX, FEATURES_MAX, Context
from privateer_core.spec.experiment import ExperimentTable
from privateer_core.spec.features import Feature
from privateer_core.spec.sections import parse_section
from privateer_core.spec.spec import ARMS_MAX, Capabilities, Spec, example_promises


class RoundSizes(NamedTuple):
    """The rule for the sizes of a spec's rounds."""

    first: int  # reports of the first round, and the minimum of later ones but the last
    growth: float  # a later round has at least this share of the participants so far
    fewest: int  # minimum batch size for the promise: a smaller last round is left out

    def batch_size(self, n_reported: int, n_participants: int) -> int:
        """Return the batch size after ``n_reported`` of all participants; 0: there is no further round."""
        batch = max(0, min(max(self.first, math.floor(self.growth * n_reported)), n_participants - n_reported))
        return batch if batch >= self.fewest else 0

    def max_batch(self, n_participants: int) -> int:
        """Return the maximum batch size: growth times all earlier participants, with ``n_participants`` in total."""
        return max(self.first, math.floor(self.growth / (1 + self.growth) * n_participants))

    def count_unreachable(self, n_reported: int, n_participants: int) -> int:
        """Return the number of participants in no round after ``n_reported``, if every report opens."""
        return _count_beyond_rounds(self, n_reported, n_participants)


@lru_cache(maxsize=1024)
def _count_beyond_rounds(sizes: RoundSizes, n_reported: int, n_participants: int) -> int:
    """Return the number of participants beyond the last full round, with rounds of equal size counted at once."""
    while batch := sizes.batch_size(n_reported, n_participants):
        # Rounds of equal size are counted in one step: there may be billions.
        n_equal_rounds = (n_participants - n_reported) // batch
        if sizes.growth:
            n_equal_rounds = min(n_equal_rounds, int(((batch + 1) / sizes.growth - n_reported) // batch))
        n_reported += max(1, n_equal_rounds) * batch
    return max(0, n_participants - n_reported)


ARM_NAME: Final = r"[\w .+%()!?-]+"
"""A regular expression of the names of arms, such as "20% off" and "Sign up (free)"."""
_ArmName = Annotated[str, Field(pattern=f"^{ARM_NAME}$", max_length=64)]  # {1,64} would take 20 ms to compile
ARMS_MIN = 2
ARMS_MAX_COMPARED: Final = 16
"""Maximum number of arms if each is compared with others, or has a block of a matrix."""
_RARE_RATE: Final = 0.05
"""Maximum distance of a rare mean reward from a bound, relative to the range, since a round's noise hides it."""
_RARE_GROWTH: Final = 0.3
"""Default growth of rounds with rare rewards, whose sums are as small as the noise of a round."""
_GAIN_SHARE_MAX: Final = 0.5
_DEFAULT_RATE: Final = 0.5
_MIN_GAIN_PARTICIPANTS: Final = 100
"""Minimum number of participants for measuring the gain, unless a batch needs more."""


_INVISIBLE_CHARACTERS: Final = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
"""Invisible fillers and variation selectors, which are letters and marks in Unicode (Default_Ignorable)."""


def _visible_name(name: str) -> str:
    """Return the visible text of a name, without invisible characters, and with single blanks between words."""
    normalized = _INVISIBLE_CHARACTERS.sub("", unicodedata.normalize("NFKC", name))
    return " ".join("".join(character for character in normalized if unicodedata.category(character) != "Cf").split())


class ArmsTable(ExperimentTable):
    """The ``[experiment]`` of algorithms that choose an arm for each participant."""

    # 2 to 256 names of options; some algorithms take fewer
    arms: tuple[_ArmName, ...] = Field(min_length=ARMS_MIN, max_length=ARMS_MAX)
    # reports in the first round. By default 1,000; where batches are shuffled and rounds grow, ``privacy.min_batch``.
    round_size: int = Field(default=1000, ge=1, le=1_000_000)
    # a later round has at least this share of the participants so far; by default 0, or .3 where ``reward.base_rate``
    # says that rewards are rare and noise is added to a round
    min_round_fraction: float = Field(default=0.0, ge=0, le=1, allow_inf_nan=False)
    # arms that participants no longer get. Their names stay, so that no later arm can be confused with them.
    retired_arms: tuple[str, ...] = Field(default=(), max_length=ARMS_MAX)
    # share of participants, up to .5, who measure the gain of choosing by context: at the end, public coins give them
    # the policy's arm or the best single option. The learner does not use their reports. .05 is usual.
    evaluation_fraction: float = Field(default=0.0, ge=0, le=_GAIN_SHARE_MAX, allow_inf_nan=False)

    @model_serializer(mode="wrap")
    def _serialize_for_storage(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Serialize without a share of 0, so that specs of earlier versions keep their bytes."""
        return {name: value for name, value in serialize(self).items() if name != "evaluation_fraction" or value}

    @model_validator(mode="after")
    def _check_arm_names(self) -> Self:
        """Refuse names of arms that are repeated, invisible or look the same, and too many retired arms."""
        if len(set(self.arms)) != len(self.arms):
            raise ValueError("arms: names must be distinct")
        if not all(map(_visible_name, self.arms)):
            raise ValueError("arms: each must have a name that people see")
        if len(set(map(_visible_name, self.arms))) != len(self.arms):
            raise ValueError("arms: two names look the same: they differ by blanks or by signs that nobody sees")
        if len(set(self.retired_arms)) != len(self.retired_arms) or not set(self.retired_arms) <= set(self.arms):
            raise ValueError("retired_arms: must be distinct names of arms")
        if len(self.arms) - len(self.retired_arms) < ARMS_MIN:
            raise ValueError(f"retired_arms: must leave at least {ARMS_MIN} arms")
        return self


class PlannedRound(msgspec.Struct, frozen=True):
    """A planned round: its cohort and its size."""

    cohort: str  # a source's name; empty for the experiment's own participants
    n_reported: int  # number of the cohort's reports that opened in earlier rounds
    batch_size: int  # reports of the round; 0 when the experiment is over


class ArmsSpec(Spec):
    """A spec of an experiment that chooses an arm for each participant, in rounds of fixed sizes."""

    question: ClassVar[type[Question]] = KeyedMeans
    capabilities: ClassVar[Capabilities] = Capabilities((KeyedHits,), reports_one_option=True)
    """Algorithms that choose by context measure the gain with a question of hits."""

    experiment: ArmsTable
    context: Context | None = None

    @override
    def with_dependent_defaults(self) -> Self:
        """Return the spec with growing rounds if rewards are rare, then with the promise's smallest first round."""
        spec = super().with_dependent_defaults()
        if not spec.capabilities.rounds_grow:
            return spec
        table, privacy, rate = spec.experiment, spec.privacy, spec.reward.base_rate
        defaults: dict[str, Any] = {}
        if rate is not None and "min_round_fraction" not in table.model_fields_set and privacy.trust.hides_arms:
            fraction = (rate - spec.reward.low) / spec.reward.span
            defaults |= {"min_round_fraction": _RARE_GROWTH} if min(fraction, 1 - fraction) < _RARE_RATE else {}
        is_growing = defaults.get("min_round_fraction", table.min_round_fraction) > 0
        if is_growing and privacy.trust.crowd is Crowd.BATCH and "round_size" not in table.model_fields_set:
            defaults["round_size"] = min(privacy.min_batch, table.horizon)
        # A default first round stays a default: it depends on the promise, which may be changed.
        keys = table.model_fields_set | (set(defaults) - {"round_size"})
        experiment = table.model_construct(keys, **(dict(table) | defaults))
        return spec.model_copy(update={"experiment": experiment}) if defaults else spec

    @model_validator(mode="after")
    def _check_context(self) -> Self:
        """Refuse a spec without features where the algorithm chooses by them."""
        if self.context is None and self.capabilities.needs_context:
            detail = f"is missing, and '{self.algorithm.name}' chooses by features"
            remedy = "add one, or set algorithm.name = 'bandit' or 'trial', which need none"
            raise SpecError(detail, field="context.features", remedy=remedy)
        return self

    @model_validator(mode="after")
    def _check_counts(self) -> Self:
        """Refuse more arms, features or columns than the algorithm can have."""
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
    def _check_round_size(self) -> Self:
        """Refuse a first round that is smaller than a batch, or larger than the experiment."""
        if self.privacy.trust.crowd is Crowd.BATCH and self.privacy.min_batch > self.experiment.round_size:
            raise ValueError("privacy.min_batch: must be at most experiment.round_size")
        size, horizon = self.experiment.round_size, self.experiment.horizon
        if size > horizon:
            is_min_batch = self.privacy.trust.crowd is Crowd.BATCH and size == self.privacy.min_batch
            detail = f"is {size:,}{', as privacy.min_batch asks' if is_min_batch else ''}"
            raise ValueError(f"experiment.round_size: {detail}, and must be at most experiment.horizon, {horizon:,}")
        return self

    @model_validator(mode="after")
    def _check_window(self) -> Self:
        """Refuse a conversion window where late reports of a batch would be told apart."""
        can_hide_age = self.privacy.has_arm_in_key or self.privacy.trust.crowd is not Crowd.BATCH
        if self.experiment.conversion_window_seconds and not can_hide_age:
            detail = (
                "needs privacy.arm_visibility = 'visible': other reports of a batch would say when they were decided"
            )
            field, remedy = "experiment.conversion_window_seconds", "set it so, or remove the window"
            raise SpecError(detail, field=field, remedy=remedy)
        return self

    @model_validator(mode="after")
    def _check_evaluation(self) -> Self:
        """Refuse a share of participants for the gain that the algorithm, promise or size does not allow."""
        table, field = self.experiment, "experiment.evaluation_fraction"
        if not table.evaluation_fraction:
            return self
        if not self.capabilities.further_questions:
            raise SpecError("is for algorithms that choose by context", field=field, remedy="remove it")
        if table.reports_per_person > 1:
            raise SpecError("needs experiment.reports_per_person = 1", field=field, remedy="remove one of the two")
        if self.learning_people < table.round_size:
            detail = f"leaves {self.learning_people:,} people, fewer than a round"
            raise SpecError(detail, field=field, remedy="lower it or experiment.round_size")
        check_promise(self.privacy, KeyedHits)
        return self

    @override
    def concerns(self) -> list[str]:
        """Return the base's and the reward's warnings, and one if too few participants would measure the gain."""
        concerns = super().concerns() + self.reward.concerns(self.privacy.trust.promises)
        if self.experiment.evaluation_fraction and not self.gain_people:
            n_asked = math.floor(self.experiment.evaluation_fraction * self.experiment.horizon)
            concerns.append(
                f"experiment.evaluation_fraction asks {n_asked:,} people what choosing by context gains, and it takes "
                f"{self.min_gain_participants:,}: nobody is asked. Raise it or experiment.horizon, or remove it"
            )
        return concerns

    @property
    @override
    def features(self) -> Mapping[str, Feature]:
        return {} if self.context is None else self.context.features

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the arms."""
        return self.experiment.arms

    @property
    def retired(self) -> tuple[str, ...]:
        """Names of retired arms, which participants no longer get."""
        return self.experiment.retired_arms

    @property
    def arm_count(self) -> int:
        """Number of arms."""
        return len(self.experiment.arms)

    @property
    def playable(self) -> tuple[bool, ...]:
        """Whether each arm is active; retired arms keep their index."""
        return tuple(arm not in self.retired for arm in self.options)

    @property
    def gain_people(self) -> int:
        """Number of participants who measure the gain of choosing by context; 0 if they would be too few."""
        n_wanted = math.floor(self.experiment.evaluation_fraction * self.experiment.horizon)
        return n_wanted if n_wanted >= self.min_gain_participants else 0

    @property
    def min_gain_participants(self) -> int:
        """Minimum number of participants who measure the gain of choosing by context."""
        return self.privacy.min_batch if self.privacy.trust.crowd is Crowd.BATCH else _MIN_GAIN_PARTICIPANTS

    @property
    def learning_people(self) -> int:
        """Number of the experiment's own participants whose reports are for the learner."""
        return self.experiment.horizon - self.gain_people

    @property
    @override
    def learning(self) -> Self:
        """The spec without the participants who measure the gain."""
        if not self.gain_people:
            return self
        changes = {"horizon": self.learning_people, "evaluation_fraction": 0.0}
        return self.model_copy(update={"experiment": self.experiment.model_copy(update=changes)})

    def gain_question(self, n_keys: int, seed: int) -> KeyedHits:
        """Return the question of participants who measure the gain, with a key for each of their groups.

        Releases with noise of their own, or none, have the variance of rewards at no further privacy cost.
        """
        measures_variance = self.privacy.trust.noise is not NoiseOrigin.DEVICES or self.reward.kind == "numeric"
        rate = _DEFAULT_RATE if self.reward.expected_rate is None else self.reward.expected_rate
        return KeyedHits.from_keys(n_keys, seed, rate if measures_variance else None)

    def next_round(self, cohort: str, n_reported: int) -> PlannedRound:
        """Return the round after ``n_reported`` reports of the last round's cohort have opened.

        Whether an honest report opens does not depend on the participant, so the number is public. Unopened reports
        are replaced.
        """
        cohorts = self.cohorts
        while not (batch := self._batch(cohort, n_reported)) and cohort:
            cohort, n_reported = cohorts[cohorts.index(cohort) + 1], 0
        return PlannedRound(cohort, n_reported, batch)

    def planned_rounds(self) -> Iterator[PlannedRound]:
        """Yield all rounds in order, assuming that every report opens."""
        planned = self.next_round(self.cohorts[0], 0)
        while planned.batch_size:
            yield planned
            planned = self.next_round(planned.cohort, planned.n_reported + planned.batch_size)

    @override
    def first_batch(self, cohort: str) -> int:
        return self._batch(cohort, 0)

    def _batch(self, cohort: str, n_reported: int) -> int:
        return self._sizes.batch_size(n_reported, self.count_participants(cohort))

    @property
    def _sizes(self) -> RoundSizes:
        return RoundSizes(self.experiment.round_size, self.experiment.min_round_fraction, self.smallest_batch)

    def count_participants(self, cohort: str) -> int:
        """Return the maximum number of a cohort's participants whose reports are for the learner."""
        source = self.source(cohort)
        return self.learning_people if source is None else source.participants

    @override
    def count_unreachable(self, cohort: str, n_reported: int) -> int:
        later_cohorts = self.cohorts[self.cohorts.index(cohort) + 1 :]
        pairs = [(cohort, n_reported), *((name, 0) for name in later_cohorts)]
        return sum(self._sizes.count_unreachable(n, self.count_participants(name)) for name, n in pairs)

    def largest_batch(self) -> int:
        """Return the maximum batch size."""
        return self._sizes.max_batch(max(map(self.count_participants, self.cohorts)))

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        """Return small instances by trust model, of an algorithm whose section requires only its name."""
        unit = {"low": 0.0, "high": 1.0}
        section: Any = cls.model_fields["algorithm"].annotation
        (name,) = get_args(section.model_fields["name"].annotation)
        data = {
            "experiment": {"name": "test", "arms": ["a", "b", "c"], "horizon": 6000},
            "context": {"features": {"x1": unit, "x2": unit}},
            "algorithm": {"name": name},
        }
        return {
            name: parse_section(cls, data | {"privacy": table})
            for name, table in example_promises(cls.question).items()
        }
