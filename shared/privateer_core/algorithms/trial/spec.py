"""The spec of a trial, and everything that it refuses."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator
from typing_extensions import override

from privateer_core.algorithms.trial.coin_questions import CoinQuestion, coin_layout, questions_of
from privateer_core.algorithms.trial.learned_slopes import check_learned
from privateer_core.algorithms.trial.sections import WORDS, SegmentsSection, TrialSection, planned_looks
from privateer_core.algorithms.trial.segments import EVERYBODY, Segmentation, crossed, factor_of, names_of
from privateer_core.answer.shares import names_others
from privateer_core.errors import SpecError
from privateer_core.mechanisms.cell_pairs import PEOPLE_MAX
from privateer_core.primitives.public_coins import SlotLayout
from privateer_core.primitives.questions import KeyedHits, Question
from privateer_core.sampling.response import SYMBOLS_MAX
from privateer_core.spec.adjustment import ADJUSTMENTS_MAX, learned_names, left_over
from privateer_core.spec.arms import ARMS_FEW, ArmsSpec, ArmsTable
from privateer_core.spec.capabilities import Capabilities
from privateer_core.spec.features import Scaled
from privateer_core.spec.reward import GuardedReward, Reward
from privateer_core.spec.sections import parse_section
from privateer_core.spec.spec import example_promises

SEGMENTS_MAX: Final = 1024
_DEVIATION: Final = 0.25
_CUT: Final[Mapping[str, Any]] = {"cuts": {"x1": [0.25, 0.5, 0.75]}}
_SIXTHS: Final[Mapping[str, Any]] = {"cuts": {"x1": [0.15, 0.3, 0.5, 0.7, 0.85]}}
_NUMBERS: Final[Mapping[str, Any]] = {"low": -2.0, "high": 6.0, "kind": "numeric", "deviation": 1.0}
_ADJUSTED: Final = {**_NUMBERS, "adjust": {name: {"low": 0.0, "high": 1.0} for name in ("before", "earlier")}}
_QUARTERS: Final[Mapping[str, Any]] = {**_CUT, "shares": "equal"}


class TrialSpec(ArmsSpec):
    """An adaptive A/B test of arms against the first of them."""

    question: ClassVar[type[Question]] = KeyedHits
    capabilities: ClassVar[Capabilities] = Capabilities(
        adjusts_rewards=True, reports_one_option=True, rounds_grow=False, arms_max=ARMS_FEW
    )
    cell_least: ClassVar[tuple[int, int]] = (10, 20)  # people of a cell that the first look needs; without, with noise
    floor_least: ClassVar[float] = 1 / 1024
    """The least share of an arm: shares of coins are in units of 1/65536."""

    algorithm: TrialSection  # type: ignore[assignment] # a section of its own, with the base's key
    segments: SegmentsSection = SegmentsSection()

    @model_validator(mode="after")
    def _possible(self) -> Self:
        self._check_growth()
        self._check_segments()
        self._check_alpha()
        self._check_arm_shares()
        self._check_looks()
        self._check_effect()
        self._check_guardrails()
        if self.learned:
            check_learned(self.learned, len(self.looks), curated=self.privacy.trust.curated, numeric=self.numeric)
        return self

    def _check_growth(self) -> None:
        if self.experiment.round_growth != ArmsTable.model_fields["round_growth"].default:
            detail = "does nothing under this algorithm: each look has 1.5 times the people of the one before"
            raise SpecError(detail, field="experiment.round_growth", remedy="remove it, or set algorithm.looks")

    def _check_segments(self) -> None:
        self.segments.check_features(self.features)
        if self.segment_count > SEGMENTS_MAX:
            detail = f"make {self.segment_count} segments, at most {SEGMENTS_MAX}"
            raise SpecError(detail, field="segments.by", remedy="name fewer features, or cut them less often")
        self._check_keys()
        self.segments.check_shares(self.segment_names)

    def _check_keys(self) -> None:
        """Refuse more than a symbol of two bytes can name, with its bit."""
        curated, arms = self.privacy.trust.curated, self.arm_count if self.names_arms else 1
        most, keys = SYMBOLS_MAX // 2, self.segment_count * self.answers * arms
        if curated or keys <= most:
            return
        parts = f"{self.segment_count} segments" + (f" by {arms} arms" if arms > 1 else "")
        parts += f" by {self.answers} answers to guardrails" if self.answers > 1 else ""
        detail = f"make {keys:,} keys ({parts}), and a report can name one of {most:,}"
        field = "segments.by" if self.segments.bins is None else "segments.bins"
        remedy = f"have at most {most * self.segment_count // keys} segments, or fewer experiment.arms or guardrails"
        raise SpecError(detail, field=field, remedy=remedy)

    def _check_alpha(self) -> None:
        section, most = self.algorithm, self.alpha_most
        if not 0 <= self.alpha <= most + 1e-9:
            beyond = "beyond, effects are lost faster than regret falls"
            detail = f"must be 0 to smoothness / (2 smoothness + features) = {most:.4g}: {beyond}"
            raise SpecError(detail, field="algorithm.alpha", remedy="lower it; 0.1667 is usual")
        if section.floor is not None and section.floor > (most := 1 / self.arm_count):
            raise SpecError(f"must be at most 1 / arms = {most:.4g}", field="algorithm.floor", remedy="lower it")

    def _check_arm_shares(self) -> None:
        shares, field = self.algorithm.shares, "algorithm.shares"
        if shares is not None and (len(shares) != self.arm_count or abs(sum(shares) - 1) > 1e-6):
            raise SpecError("must be one for each arm, with a sum of 1", field=field, remedy="correct them")
        if min(self.arm_shares) < self.floor - 1e-9:
            detail = f"must be at least the floor, {self.floor:.4g}"
            raise SpecError(detail, field=field, remedy="raise it, or set a lower floor")
        if self.floor < self.floor_least:
            detail = f"leaves an arm a share of {self.floor:.2g}, at least {self.floor_least:.2g} is needed"
            raise SpecError(detail, field="algorithm.alpha", remedy="lower it, or set algorithm.floor")

    def _check_looks(self) -> None:
        """Refuse a first look that cannot say anything."""
        listed = sum(not names_others(name) for name in self.segment_names) or self.segment_count
        first, cells = self.looks[0], listed * self.arm_count  # others may be nobody
        least = cells * self.cell_least[self.privacy.trust.promises]
        if self.segments.bins is None and first < least:
            detail = f"is {first} at the first look, and {cells} segments and arms need {least} at least"
            remedy = f"raise it to {least}, or have fewer segments"
            raise SpecError(detail, field="experiment.round_size", remedy=remedy)
        if self.numeric and self.privacy.trust.curated and self.largest_batch() > PEOPLE_MAX:
            detail = f"has a look after {self.largest_batch():,} people, and sums of squares hold {PEOPLE_MAX:,}"
            raise SpecError(detail, field="experiment.horizon", remedy="lower it, or raise algorithm.looks")

    def _check_effect(self) -> None:
        if self.smallest is not None and self.smallest >= 1:
            detail = f"must be below the range of rewards, {self.reward.span:g}"
            raise SpecError(detail, field="algorithm.effect", remedy="lower it")

    def _check_guardrails(self) -> None:
        section = self.algorithm
        if section.guardrails and section.intervals == "strict":
            detail = "have no strict intervals"
            raise SpecError(detail, field="algorithm.guardrails", remedy='set algorithm.intervals = "sequential"')

    @property
    def learned(self) -> tuple[str, ...]:
        """Names of the numbers whose slopes are learned, one a look."""
        return learned_names(self.reward.adjust)

    @property
    def outcome(self) -> Reward | GuardedReward:
        """What an application reports of a person: answers, too, where there are guardrails."""
        names = self.algorithm.guardrails
        return GuardedReward(self.reward, names) if names else self.reward

    @property
    def answers(self) -> int:
        """How many answers guardrails have together, in a report that has all of them."""
        return 1 if self.questions else int(2 ** len(self.algorithm.guardrails))

    @property
    def questions(self) -> tuple[CoinQuestion, ...]:
        """What coins choose from, of which a person answers one question; empty where everybody answers all there are.

        A curator or a batch hides a whole report. Of one that stands alone, a small epsilon leaves more if it is about
        one thing.
        """
        if self.privacy.trust.curated or self.privacy.trust.batched:
            return ()
        facts, declared = 1 + len(self.algorithm.guardrails), self.segments.shares is not None
        explored = 1.0 if self.algorithm.allocation == "fixed" else self.arm_count * self.floor
        return questions_of(self.segment_count, facts, self.privacy.bound, declared, explored)

    @property
    @override
    def telling(self) -> float:
        return self.questions[0].share if self.questions else 1.0

    @property
    def share_rows(self) -> int:
        """Rows of shares of arms: a segment each, and everybody where that is asked about."""
        return self.segment_count + any(question.everybody for question in self.questions)

    @property
    def alpha_most(self) -> float:
        """The largest alpha: beta / (2 beta + d), with d the numbers that effects are smooth along, at least 1."""
        beta = self.algorithm.smoothness
        numbers = sum(isinstance(self.features[name], Scaled) for name in self.segments.by)
        return beta / (2 * beta + max(1, numbers))

    @property
    def alpha(self) -> float:
        """The exponent with which exploration fades."""
        given = self.algorithm.alpha
        return WORDS[given] * self.alpha_most if isinstance(given, str) else given

    @property
    def floor(self) -> float:
        """The least share of an arm in every policy."""
        section = self.algorithm
        if section.allocation == "fixed":
            return 0.5 * min(self.arm_shares)
        return section.floor or min(1.0, self.experiment.horizon**-self.alpha) / self.arm_count

    @property
    def arm_shares(self) -> tuple[float, ...]:
        """Planned shares of the arms, the control's first."""
        return self.algorithm.shares or (1 / self.arm_count,) * self.arm_count

    @property
    def looks(self) -> tuple[int, ...]:
        """People at every look, as planned."""
        least = max(self.experiment.round_size, self.smallest_batch)
        return planned_looks(self.experiment.horizon, least, self.algorithm.looks)

    def _batch(self, cohort: str, seen: int) -> int:
        """Return the people until the next look; what did not open is asked for with the next."""
        del cohort
        ahead = next((people - seen for people in self.looks if people > seen), 0)
        batch = min(ahead, self.largest_batch())
        # A last epoch too small for the promise is left out.
        return batch if batch >= self.smallest_batch else 0

    @override
    def out_of_reach(self, cohort: str, seen: int) -> int:
        while batch := self._batch(cohort, seen):
            seen += batch
        return max(0, self.learning_people - seen)

    def largest_batch(self) -> int:
        """Return the most people of any epoch."""
        return int(np.max(np.diff([0, *self.looks])))

    @property
    def _first_columns(self) -> Mapping[str, int]:
        starts = np.cumsum([0, *(feature.columns for feature in self.features.values())]).tolist()
        return dict(zip(self.features, starts, strict=False))

    def _cuts(self, name: str) -> tuple[float, ...]:
        """Return the cuts of a number in its own units; of bins, as often as its turn comes."""
        if self.segments.bins is None:
            return self.segments.cuts.get(name, ())
        feature, names = self.features[name], self.segments.by
        assert isinstance(feature, Scaled)
        halvings = len(range(names.index(name), self.segments.bins.bit_length() - 1, len(names)))
        return tuple(feature.value_at(place / 2**halvings) for place in range(1, 2**halvings))

    @property
    def segmentation(self) -> Segmentation:
        """How encoded contexts are in segments."""
        columns, by = self._first_columns, self.segments.by
        return Segmentation(tuple(factor_of(self.features[name], columns[name], self._cuts(name)) for name in by))

    @property
    def segment_count(self) -> int:
        """How many segments there are."""
        return self.segmentation.count

    @property
    def segment_names(self) -> tuple[str, ...]:
        """Names of the segments, in order."""
        return crossed([names_of(name, self.features[name], self._cuts(name)) for name in self.segments.by])

    @property
    def segment_shares(self) -> NDArray[np.float64]:
        """Expected shares of people by segment, (segments,)."""
        given = self.segments.shares
        if given is None or given == "equal":
            return np.full(self.segment_count, 1 / self.segment_count)
        return np.array([given[name] for name in self.segment_names])

    @property
    def names_arms(self) -> bool:
        """Whether a report names the arm beside the segment, instead of carrying the coins that chose it.

        A curator's record does; others do where somebody may see arms.
        """
        return self.privacy.arm_in_key or self.privacy.trust.curated

    def layout(self, seed: int, shares: NDArray[np.float64]) -> SlotLayout:
        """Return what coins mean while people are asked, for shares of arms (`share_rows`, arms)."""
        return coin_layout(seed, shares, self.questions)

    def asked(self, layout: SlotLayout, learned: int = ADJUSTMENTS_MAX) -> KeyedHits:
        """Return what a round asks whose choices follow a layout, when so many slopes are learned; by default all."""
        if self.names_arms:
            return replace(self.named_cells(layout), beside=learned < len(self.learned))
        return KeyedHits(SlotLayout(layout.seed, np.repeat(layout.thresholds, self.answers, axis=0)), self._expected)

    def named_cells(self, layout: SlotLayout) -> KeyedHits:
        """Return what a round asks whose reports name segment and arm."""
        return KeyedHits.of_keys(layout.keys * self.arm_count * self.answers, layout.seed, self._expected)

    @property
    def rate(self) -> float:
        """Mean reward expected under the control, from 0 to 1."""
        return self.algorithm.rate if self.reward.expected is None else self.reward.expected

    @property
    def numeric(self) -> bool:
        """Whether rewards are numbers whose variance is measured."""
        return self.reward.kind == "numeric"

    @property
    def deviation(self) -> float | None:
        """Standard deviation expected of rewards that are numbers, on the scale from 0 to 1: a quarter if not given.

        Of adjusted rewards: what numbers from before explain is no longer in it.
        """
        return self.deviation_after(ADJUSTMENTS_MAX)

    def deviation_after(self, learned: int) -> float | None:
        """Return the `deviation` of rewards when so many slopes are learned."""
        if not self.numeric:
            return None
        whole = _DEVIATION if self.reward.deviation is None else self.reward.deviation / self.reward.span
        open_ = self.learned[learned:]
        return whole * left_over({name: one for name, one in self.reward.adjust.items() if name not in open_})

    @property
    def unadjusted(self) -> Self:
        """The same experiment with rewards as they are."""
        return self.model_copy(update={"reward": self.reward.model_copy(update={"adjust": {}})})

    @property
    def _expected(self) -> float | None:
        return self.rate if self.numeric else None

    @override
    def concerns(self) -> list[str]:
        reward, found = self.reward, super().concerns()
        if self.numeric and reward.deviation is None:
            found.append(
                f"reward.deviation is not given: plans take a quarter of the range, {_DEVIATION * reward.span:g}, "
                "or what rewards of the expected mean can have"
            )
        if reward.adjust and not self.numeric:
            found.append('reward.adjust does nothing for a reward that is no or yes: set reward.kind = "numeric"')
        if not self.numeric and (reward.low, reward.high) != (0.0, 1.0):
            found.append(
                f"rewards from {reward.low:g} to {reward.high:g} are taken for no or yes: "
                'reward.kind = "numeric" would make intervals narrower if they are numbers'
            )
        return found

    @property
    def smallest(self) -> float | None:
        """The effect that matters, on the scale of rewards from 0 to 1."""
        return None if self.algorithm.effect is None else self.algorithm.effect / self.reward.span

    @override
    def usual_question(self) -> KeyedHits:
        return self.question_after(0)

    def question_after(self, learned: int) -> KeyedHits:
        """Return what a round asks at planned shares of the arms, when so many slopes are learned."""
        shares = np.tile(np.array(self.arm_shares), (self.share_rows, 1))
        return self.asked(self.layout(0, shares), learned)

    def effects(self) -> Iterator[tuple[int, int, str]]:
        """Yield segment, arm and name of every effect against the control."""
        for k, segment in enumerate(self.segment_names):
            for a, arm in enumerate(self.options[1:], 1):
                yield k, a, f"{arm}: {segment}"

    def average_effects(self) -> Iterator[tuple[int, str]]:
        """Yield arm and name of every average effect; there is none apart if everybody is one segment."""
        if self.segment_count > 1:
            yield from ((a, f"{arm}: {EVERYBODY}") for a, arm in enumerate(self.options[1:], 1))

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        promises = {str(promise["model"]): promise for promise in example_promises()}
        made = {name: cls._instance(promise) for name, promise in promises.items()}
        hidden = next(spec.privacy.model for spec in made.values() if spec.privacy.arm_in_key)
        return made | {
            f"{hidden}-hidden": cls._instance(promises[hidden] | {"arms": "hidden"}, allocation="elimination"),
            "local-one-bit": cls._instance({"model": "local", "epsilon": 0.8}, _QUARTERS, allocation="fixed"),
            "local-asked": cls._instance({"model": "local", "epsilon": 0.8}, _SIXTHS, floor=0.07),
            **{f"{model}-numeric": cls._instance(promise, reward=_NUMBERS) for model, promise in promises.items()},
            **{
                f"{name}-learns": cls._instance(promises[name], reward=_ADJUSTED)
                for name, spec in made.items()
                if spec.privacy.trust.curated
            },
        }

    @classmethod
    def _instance(
        cls,
        privacy: Mapping[str, Any],
        segments: Mapping[str, Any] = _CUT,
        reward: Mapping[str, Any] = MappingProxyType({}),
        **algorithm: Any,
    ) -> Self:
        unit = {"low": 0.0, "high": 1.0}
        data = {
            "experiment": {"name": "test", "arms": ["a", "b", "c"], "horizon": 20_000},
            "context": {"features": {"x1": unit, "x2": unit}},
            "segments": {"by": ["x1"], **segments},
            "reward": dict(reward),
            "privacy": privacy,
            "algorithm": {"name": "trial", **algorithm},
        }
        return parse_section(cls, data)
