"""The spec of a trial, with all checks."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self

import msgspec
import numpy as np
from pydantic import model_validator
from typing_extensions import override

from privateer_core.algorithms.trial.coin_questions import CoinQuestion, make_coin_layout, make_coin_questions
from privateer_core.algorithms.trial.learned_slopes import check_learnable_slopes
from privateer_core.algorithms.trial.sections import (
    EVERYBODY,
    Segmentation,
    SegmentsSection,
    TrialSection,
    cross_names,
    make_factor,
    name_parts,
    planned_looks,
)
from privateer_core.answer.shares import is_unlisted
from privateer_core.arrays import Array
from privateer_core.errors import SpecError
from privateer_core.mechanisms.cell_pairs import PARTICIPANTS_MAX
from privateer_core.primitives.public_coins import SlotLayout
from privateer_core.primitives.questions import KeyedHits, Question
from privateer_core.privacy.trust import Crowd, Curator, NoiseOrigin
from privateer_core.sampling.randomness import SYMBOLS_MAX
from privateer_core.spec.adjustment import ADJUSTMENTS_MAX, learned_names, remaining_deviation_factor
from privateer_core.spec.arms import ARMS_MAX_COMPARED, ArmsSpec, ArmsTable
from privateer_core.spec.features import Scaled
from privateer_core.spec.reward import GuardedReward, Reward
from privateer_core.spec.sections import parse_section
from privateer_core.spec.spec import Capabilities, example_promises

SEGMENTS_MAX: Final = 1024
_DEVIATION: Final = 0.25
_BASE_RATE: Final = 0.5  # defaults if the spec has no ``reward.standard_deviation`` or ``reward.base_rate``
_QUARTER_CUTS: Final[Mapping[str, Any]] = {"cuts": {"x1": [0.25, 0.5, 0.75]}}
_SIX_PART_CUTS: Final[Mapping[str, Any]] = {"cuts": {"x1": [0.15, 0.3, 0.5, 0.7, 0.85]}}
_NUMERIC: Final[Mapping[str, Any]] = {"low": -2.0, "high": 6.0, "kind": "numeric", "standard_deviation": 1.0}
_COVARIATES: Final = {name: {"low": 0.0, "high": 1.0} for name in ("before", "earlier")}
_QUARTERS: Final[Mapping[str, Any]] = {**_QUARTER_CUTS, "proportions": "equal"}


class TrialSpec(ArmsSpec):
    """A spec of an adaptive A/B test of arms against the first arm, the control."""

    question: ClassVar[type[Question]] = KeyedHits
    capabilities: ClassVar[Capabilities] = Capabilities(
        adjusts_rewards=True,
        reports_one_option=True,
        rounds_grow=False,
        needs_context=False,
        arms_max=ARMS_MAX_COMPARED,
    )
    min_cell_participants: ClassVar[tuple[int, int]] = (10, 20)  # of a cell at the first look, without and with noise
    min_floor: ClassVar[float] = 1 / 1024  # minimum floor of an arm's share: shares of coins are in units of 1/65536

    algorithm: TrialSection  # type: ignore[assignment] # a section of its own, with the base's key
    segments: SegmentsSection = SegmentsSection()

    @model_validator(mode="after")
    def _check_spec(self) -> Self:
        """Refuse segments, shares, looks, effects or slopes that are impossible together."""
        self._check_growth()
        self._check_segments()
        self._check_arm_shares()
        self._check_looks()
        if (self.min_relevant_effect or 0.0) >= 1:
            detail = f"must be below the range of rewards, {self.reward.span:g}"
            raise SpecError(detail, field="algorithm.minimum_detectable_effect", remedy="lower it")
        is_curated, names = self.privacy.trust.curator is Curator.SERVER, self.learned_adjustments
        if names:
            check_learnable_slopes(names, len(self.looks), is_curated=is_curated, is_numeric=self.is_numeric)
        return self

    def _check_growth(self) -> None:
        if self.experiment.min_round_fraction != ArmsTable.model_fields["min_round_fraction"].default:
            detail = "does nothing under this algorithm: each look has 1.5 times the people of the one before"
            raise SpecError(detail, field="experiment.min_round_fraction", remedy="remove it, or set algorithm.looks")

    def _check_segments(self) -> None:
        """Refuse unknown features, too many segments or keys, and shares that do not fit the segments."""
        self.segments.check_features(self.features)
        if self.segment_count > SEGMENTS_MAX:
            detail = f"make {self.segment_count} segments, at most {SEGMENTS_MAX}"
            raise SpecError(detail, field="segments.features", remedy="name fewer features, or cut them less often")
        self._check_keys()
        self.segments.check_shares(self.segment_names)

    def _check_keys(self) -> None:
        """Refuse more keys than a symbol of two bytes can encode, with its bit."""
        n_arms = self.arm_count if self.has_arm_in_report else 1
        limit, n_keys = SYMBOLS_MAX // 2, self.segment_count * self.n_answers * n_arms
        if self.privacy.trust.noise is not NoiseOrigin.DEVICES or n_keys <= limit:
            return
        parts = f"{self.segment_count} segments" + (f" by {n_arms} arms" if n_arms > 1 else "")
        parts += f" by {self.n_answers} answers to guardrails" if self.n_answers > 1 else ""
        detail = f"make {n_keys:,} keys ({parts}), and a report can name one of {limit:,}"
        field = "segments.features" if self.segments.bins is None else "segments.bins"
        remedy = f"have at most {limit * self.segment_count // n_keys} segments, or fewer experiment.arms or guardrails"
        raise SpecError(detail, field=field, remedy=remedy)

    def _check_arm_shares(self) -> None:
        """Refuse shares of another number than arms or below the floor, and a floor that is too small or too large."""
        shares, field = self.algorithm.allocation_ratio, "algorithm.allocation_ratio"
        if (self.algorithm.min_allocation or 0.0) > 1 / self.arm_count:
            detail = f"must be at most 1 / arms = {1 / self.arm_count:.4g}"
            raise SpecError(detail, field="algorithm.min_allocation", remedy="lower it")
        if shares is not None and (len(shares) != self.arm_count or abs(sum(shares) - 1) > 1e-6):
            raise SpecError("must be one for each arm, with a sum of 1", field=field, remedy="correct them")
        if min(self.arm_shares) < self.min_arm_share - 1e-9:
            detail = f"must be at least the floor, {self.min_arm_share:.4g}"
            raise SpecError(detail, field=field, remedy="raise it, or set a lower floor")
        if self.min_arm_share < self.min_floor:
            detail = f"leaves an arm a share of {self.min_arm_share:.2g}, at least {self.min_floor:.2g} is needed"
            raise SpecError(detail, field="algorithm.min_allocation", remedy="raise it, or have fewer arms")

    def _check_looks(self) -> None:
        """Refuse a first look with too few participants, and looks with too many."""
        n_listed = sum(not is_unlisted(name) for name in self.segment_names) or self.segment_count
        first_look, n_cells = self.looks[0], n_listed * self.arm_count  # unlisted levels may have no participants
        minimum = n_cells * self.min_cell_participants[self.privacy.trust.promises]
        if self.segments.bins is None and first_look < minimum:
            detail = f"is {first_look} at the first look, and {n_cells} segments and arms need {minimum} at least"
            remedy = f"raise it to {minimum}, or have fewer segments"
            raise SpecError(detail, field="experiment.round_size", remedy=remedy)
        if (
            self.is_numeric
            and self.privacy.trust.noise is not NoiseOrigin.DEVICES
            and self.largest_batch() > PARTICIPANTS_MAX
        ):
            detail = f"has a look after {self.largest_batch():,} people, and sums of squares hold {PARTICIPANTS_MAX:,}"
            raise SpecError(detail, field="experiment.horizon", remedy="lower it, or raise algorithm.looks")

    @property
    def learned_adjustments(self) -> tuple[str, ...]:
        """Names of the numbers whose slopes are learned, at a slope per look."""
        return learned_names(self.reward.covariates)

    @property
    def outcome(self) -> Reward | GuardedReward:
        """The type of an application's outcome: a reward, with answers if there are guardrails."""
        names = self.algorithm.guardrails
        return GuardedReward(self.reward, names) if names else self.reward

    @property
    def n_answers(self) -> int:
        """Number of combined answers to all guardrails in a report; 1 if reports answer a single question."""
        return 1 if self.questions else int(2 ** len(self.algorithm.guardrails))

    @property
    def questions(self) -> tuple[CoinQuestion, ...]:
        """The questions from which coins choose a participant's; empty if participants answer all questions.

        A curator or a batch hides a whole report. A locally private report with a small epsilon is more informative
        with a single question.
        """
        if self.privacy.trust.crowd is not Crowd.NOBODY:
            return ()
        n_facts, has_declared_shares = 1 + len(self.algorithm.guardrails), self.segments.proportions is not None
        explored_share = 1.0 if self.algorithm.allocation == "fixed" else self.arm_count * self.min_arm_share
        return make_coin_questions(self.segment_count, n_facts, self.privacy.bound, has_declared_shares, explored_share)

    @property
    @override
    def informative_share(self) -> float:
        return self.questions[0].share if self.questions else 1.0

    @property
    def share_rows(self) -> int:
        """Number of rows of arm shares: the segments, and all participants if a question is about them."""
        return self.segment_count + any(question.everybody for question in self.questions)

    @property
    def min_arm_share(self) -> float:
        """Minimum share of an arm in every policy."""
        section = self.algorithm
        if section.allocation == "fixed":
            return 0.5 * min(self.arm_shares)
        return section.min_allocation or self.default_min_share

    @property
    def default_min_share(self) -> float:
        """The default floor: T^(-1/(4 + 2 d)) / K for horizon T, K arms and d numeric features of segments, at least 1.

        It is between the floor that finds the most, 1 / K, and that which loses the least, T^(-1/(2 + d)) / K.
        """
        n_numbers = sum(isinstance(self.features[name], Scaled) for name in self.segments.features)
        return float(self.experiment.horizon ** (-0.5 / (2 + max(1, n_numbers)))) / self.arm_count

    @property
    def arm_shares(self) -> tuple[float, ...]:
        """Planned shares of the arms, the control's first."""
        return self.algorithm.allocation_ratio or (1 / self.arm_count,) * self.arm_count

    @property
    def looks(self) -> tuple[int, ...]:
        """Planned number of participants at every look."""
        min_look_size = max(self.experiment.round_size, self.smallest_batch)
        return planned_looks(self.experiment.horizon, min_look_size, self.algorithm.looks)

    def _batch(self, cohort: str, n_reported: int) -> int:
        """Return the number of participants until the next look; unopened reports are replaced in the next round."""
        del cohort
        n_until_look = next((n_planned - n_reported for n_planned in self.looks if n_planned > n_reported), 0)
        batch = min(n_until_look, self.largest_batch())
        # A last epoch that is too small for the promise is left out.
        return batch if batch >= self.smallest_batch else 0

    @override
    def count_unreachable(self, cohort: str, n_reported: int) -> int:
        while batch := self._batch(cohort, n_reported):
            n_reported += batch
        return max(0, self.learning_people - n_reported)

    def largest_batch(self) -> int:
        """Return the maximum batch size of an epoch."""
        return int(np.max(np.diff([0, *self.looks])))

    def _cut_points(self, name: str) -> tuple[float, ...]:
        """Return the cut points of a feature in its own units: the spec's, or those of equal bins; empty without."""
        if self.segments.bins is None:
            return self.segments.cuts.get(name, ())
        feature, names = self.features[name], self.segments.features
        assert isinstance(feature, Scaled)
        halvings = len(range(names.index(name), self.segments.bins.bit_length() - 1, len(names)))
        return tuple(feature.value_at(index / 2**halvings) for index in range(1, 2**halvings))

    @property
    def segmentation(self) -> Segmentation:
        """The segmentation of encoded contexts."""
        starts = np.cumsum([0, *(feature.columns for feature in self.features.values())]).tolist()
        columns, by = dict(zip(self.features, starts, strict=False)), self.segments.features
        factors = (make_factor(self.features[name], columns[name], self._cut_points(name)) for name in by)
        return Segmentation(tuple(factors))

    @property
    def segment_count(self) -> int:
        """Number of segments."""
        return self.segmentation.count

    @property
    def segment_names(self) -> tuple[str, ...]:
        """Names of the segments, in order."""
        by = self.segments.features
        return cross_names([name_parts(name, self.features[name], self._cut_points(name)) for name in by])

    @property
    def segment_shares(self) -> Array:
        """Expected shares of participants by segment, (segments,)."""
        shares = self.segments.proportions
        if shares is None or shares == "equal":
            return np.full(self.segment_count, 1 / self.segment_count)
        return np.array([shares[name] for name in self.segment_names])

    @property
    def has_arm_in_report(self) -> bool:
        """Whether a report contains segment and arm, instead of the coins that chose the arm.

        A curator's record does, and other reports if ``privacy.arm_visibility`` is "visible".
        """
        return self.privacy.has_arm_in_key or self.privacy.trust.noise is not NoiseOrigin.DEVICES

    def layout(self, seed: int, shares: Array) -> SlotLayout:
        """Return the layout of coins in a round with reports, for shares of arms (`share_rows`, arms)."""
        return make_coin_layout(seed, shares, self.questions)

    def make_question(self, layout: SlotLayout, n_learned: int = ADJUSTMENTS_MAX) -> KeyedHits:
        """Return the question of a round with this layout of choices, after learning ``n_learned`` slopes."""
        if self.has_arm_in_report:
            has_covariate = n_learned < len(self.learned_adjustments)
            return msgspec.structs.replace(self.make_named_question(layout), has_covariate=has_covariate)
        thresholds = np.repeat(layout.thresholds, self.n_answers, axis=0)
        return KeyedHits(SlotLayout(layout.seed, thresholds), self._expected_rate)

    def make_named_question(self, layout: SlotLayout) -> KeyedHits:
        """Return the question of a round whose reports contain segment and arm."""
        return KeyedHits.from_keys(layout.keys * self.arm_count * self.n_answers, layout.seed, self._expected_rate)

    @property
    def base_rate(self) -> float:
        """Expected mean reward of the control, in [0, 1]."""
        return _BASE_RATE if self.reward.expected_rate is None else self.reward.expected_rate

    @property
    def is_numeric(self) -> bool:
        """Whether rewards are numbers whose variance is measured."""
        return self.reward.kind == "numeric"

    @property
    def standard_deviation(self) -> float | None:
        """Expected standard deviation of numeric rewards, scaled to [0, 1]: a quarter if not given.

        It is of adjusted rewards, without the part that is explained by numbers known before the choice.
        """
        return self.standard_deviation_after(ADJUSTMENTS_MAX)

    def standard_deviation_after(self, n_learned: int) -> float | None:
        """Return the `standard_deviation` of numeric rewards after learning ``n_learned`` slopes; None for events."""
        if not self.is_numeric:
            return None
        unlearned_names, declared = self.learned_adjustments[n_learned:], self.reward.standard_deviation
        covariates = {name: entry for name, entry in self.reward.covariates.items() if name not in unlearned_names}
        deviation = _DEVIATION if declared is None else declared / self.reward.span
        return deviation * remaining_deviation_factor(covariates)

    @property
    def unadjusted(self) -> Self:
        """The spec without adjustments of rewards."""
        return self.model_copy(update={"reward": self.reward.model_copy(update={"covariates": {}})})

    @property
    def _expected_rate(self) -> float | None:
        return self.base_rate if self.is_numeric else None

    @override
    def concerns(self) -> list[str]:
        """Return the base's warnings, and those about the scale, deviation and covariates of rewards."""
        reward, concerns = self.reward, super().concerns()
        if self.is_numeric and reward.standard_deviation is None:
            concerns.append(
                f"reward.standard_deviation is not given: plans take a quarter of the range, "
                f"{_DEVIATION * reward.span:g}, or what rewards of the expected mean can have"
            )
        if reward.covariates and not self.is_numeric:
            remedy = 'set reward.kind = "numeric"'
            concerns.append(f"reward.covariates does nothing for a reward that is no or yes: {remedy}")
        if not self.is_numeric and (reward.low, reward.high) != (0.0, 1.0):
            concerns.append(
                f"rewards from {reward.low:g} to {reward.high:g} are taken for no or yes: "
                'reward.kind = "numeric" would make intervals narrower if they are numbers'
            )
        return concerns

    @property
    def min_relevant_effect(self) -> float | None:
        """Minimum relevant effect, on the scale of rewards from 0 to 1; None without one."""
        effect = self.algorithm.minimum_detectable_effect
        return None if effect is None else effect / self.reward.span

    @override
    def typical_question(self) -> KeyedHits:
        return self.question_after_learning(0)

    def question_after_learning(self, n_learned: int) -> KeyedHits:
        """Return the question of a round at planned shares of the arms, after learning ``n_learned`` slopes."""
        shares = np.tile(np.array(self.arm_shares), (self.share_rows, 1))
        return self.make_question(self.layout(0, shares), n_learned)

    def effects(self) -> Iterator[tuple[int, int, str]]:
        """Yield segment, arm and name of every effect against the control."""
        for segment_index, segment in enumerate(self.segment_names):
            for arm_index, arm in enumerate(self.options[1:], 1):
                yield segment_index, arm_index, f"{arm}: {segment}"

    def average_effects(self) -> Iterator[tuple[int, str]]:
        """Yield arm and name of every average effect, if there are several segments."""
        if self.segment_count > 1:
            yield from ((arm_index, f"{arm}: {EVERYBODY}") for arm_index, arm in enumerate(self.options[1:], 1))

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        """Return a small instance of every trust model, and further ones of questions, numbers and slopes."""
        promises = example_promises(cls.question)
        specs = {name: cls._example(promise) for name, promise in promises.items()}
        hidden = next(spec.privacy.model for spec in specs.values() if spec.privacy.has_arm_in_key)
        return specs | {
            f"{hidden}-hidden": cls._example(promises[hidden] | {"arm_visibility": "hidden"}),
            "local-one-bit": cls._example({"model": "local", "epsilon": 0.8}, _QUARTERS, allocation="fixed"),
            "local-everybody": cls._example(promises["local"], {}),
            "local-asked": cls._example({"model": "local", "epsilon": 0.8}, _SIX_PART_CUTS, min_allocation=0.07),
            **{f"{model}-numeric": cls._example(promise, reward=_NUMERIC) for model, promise in promises.items()},
            **{
                f"{name}-learns": cls._example(promises[name], reward={**_NUMERIC, "covariates": _COVARIATES})
                for name, spec in specs.items()
                if spec.privacy.trust.curator is Curator.SERVER
            },
        }

    @classmethod
    def _example(
        cls,
        privacy: Mapping[str, Any],
        segments: Mapping[str, Any] = _QUARTER_CUTS,
        reward: Mapping[str, Any] = MappingProxyType({}),
        **algorithm: Any,
    ) -> Self:
        unit = {"low": 0.0, "high": 1.0}
        context = {"context": {"features": {"x1": unit, "x2": unit}}, "segments": {"features": ["x1"], **segments}}
        data = {
            "experiment": {"name": "test", "arms": ["a", "b", "c"], "horizon": 20_000},
            **(context if segments else {}),
            "reward": dict(reward),
            "privacy": privacy,
            "algorithm": {"name": "trial", **algorithm},
        }
        return parse_section(cls, data)
