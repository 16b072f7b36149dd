"""The spec of the additive bandit, with all checks."""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, ClassVar, Final, Literal, Self

import msgspec
import numpy as np
from pydantic import Field, model_validator
from typing_extensions import override

from privateer_core.algorithms.additive.cells import Cells, Questions, ShapeCells
from privateer_core.algorithms.additive.coin_arms import CoinArms
from privateer_core.answer.facts import NAME_MAX
from privateer_core.errors import SpecError
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.feature_sums import FeatureSums
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.primitives.public_coins import SlotLayout
from privateer_core.primitives.questions import FeatureMeans, Question
from privateer_core.privacy.terms import calibrate
from privateer_core.privacy.trust import Crowd, Curator, NoiseOrigin
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.categories import MISSING, Ordinal, name_code
from privateer_core.spec.features import Feature, Ranked, Scaled
from privateer_core.spec.half_life import HalfLife, check_half_lives, half_life_concerns, list_half_lives
from privateer_core.spec.sections import Section, parse_section
from privateer_core.spec.spec import Capabilities

_LEVEL_QUESTION_SHARE: Final = 0.6  # typical share of the question about the arm alone, early in an experiment
_TYPICAL_PART_COUNT: Final = 2  # typical number of parts of a question about a feature, early in an experiment


def arm_mean_error(spec: ArmsSpec, question: FeatureMeans, batch: int) -> float:
    """Return the standard error of an arm's mean reward, in [0, 1], from noise alone after all participants.

    ``question`` is the question of a round. All arms have equally many participants. Rounds have the noise of one of
    ``batch`` people; the variance of rewards is not included.
    """
    terms = calibrate(spec.privacy, batch, question, spec.min_reports(batch), spec.reports)
    mechanism, batches = terms.mechanism, [planned_round.batch_size for planned_round in spec.planned_rounds()]
    square_sum, residual_factor = sum(batch**2 for batch in batches), 1 + question.below**2
    if isinstance(mechanism, FeatureSums):
        noise = mechanism.value_noise / _LEVEL_QUESTION_SHARE / square_sum
    elif isinstance(mechanism, CellPairs):
        noise = residual_factor * mechanism.noise * question.features * _TYPICAL_PART_COUNT / square_sum
    else:
        assert isinstance(mechanism, NamedSymbol)
        response = mechanism.response
        noise = response.other * residual_factor if mechanism.is_named else 1 / mechanism.buckets
        noise /= response.gain**2 * _LEVEL_QUESTION_SHARE * sum(batches)
    return spec.arm_count * math.sqrt(noise)


_FEATURE_NAME_LENGTH: Final = 96  # maximum number of characters of a feature's name in a cell's name


def name_cells(name: str, feature: Feature, cells: ShapeCells) -> Iterator[str]:
    """Yield the names of a feature's cells in their order."""
    for index, description in enumerate(describe_cells(feature, cells)):
        cell_name = f"{name[:_FEATURE_NAME_LENGTH]}: {description}"
        # Names stay distinct if a screen truncates them.
        yield cell_name if len(cell_name) <= NAME_MAX else f"{cell_name[: NAME_MAX - 8]} ({index})"


def describe_cells(feature: Feature, cells: ShapeCells) -> Iterator[str]:
    """Yield descriptions of a feature's cells in their order."""
    if isinstance(feature, Ordinal):
        yield from map(str, feature.levels)
    elif isinstance(feature, Scaled):
        ends = [f"{feature.value_at(index / cells.bins):g}" for index in range(cells.bins + 1)]
        yield from (f"{low} to {high}" for low, high in pairwise(ends))
    for code in cells.codes:
        yield name_code(feature, code, cells.columns) or "no level"
    if cells.missing:
        yield MISSING


_CELL_EPSILON: Final = 4.0
"""Minimum epsilon of a locally private report for arms and cells; below, levels of arms are learned first."""
TERMS_MAX: Final = 512
"""Maximum number of terms of short features: time and memory of a round grow at least with its square."""
LONG_LEVELS: Final = 65  # minimum number of unordered levels of a long feature, whose levels are learned independently
CELLS_MAX: Final = 4096  # maximum number of terms of all features
_LEARNER_NUMBERS_MAX: Final = 1 << 22
"""Maximum of arms times the square of short features' terms: numbers in a learner's state, under all half-lives."""
_DRAW_NUMBERS_MAX: Final = 1 << 16  # maximum of arms times terms: numbers of a draw, of which a policy has 32
_LAYOUT_NUMBERS_MAX: Final = 1 << 20
"""Maximum of arms times cells of a feature times questions: numbers of a symbol's layout."""
_COIN_ROUND_SIZE: Final = 500
"""Default size of the first round with a coin plan, in which all participants get random arms."""
_NOISELESS_ROUND_SIZE: Final = 250
"""Default size of the first round without noise, in which all participants get random arms."""
_ANSWERS_MAX: Final = 1 << 18  # maximum number of answers in all groups of coins: a policy has 4 bytes for each
_FINE_BINS: Final = 32  # default number of bins of a number without noise
_QUANTILE_BINS: Final = (64, 32)
"""Default numbers of bins where there are as many intervals between quantiles: terms are learned in fewer."""
_MANY_ARMS: Final = 17  # arms from which a shuffled report says little of each, so that first rounds are large
_LARGE_ROUND_SIZE: Final = 4000
_MIN_LARGE_ROUNDS: Final = 10  # rounds of that size that a horizon must have room for
_ADVISED_CAP: Final = 6.0
_MAX_ADVISED_ERROR_RATIO: Final = 0.8  # noise that larger rounds may leave, if they are advised
_NOISY_BINS_MAX: Final = 16  # most bins where each report has its own noise: finer ones only add keys that hide others
_RARE_RATE_MAX: Final = 0.2  # maximum expected reward for which symbols report residuals that are hardly negative
_CURATED_RATE_MAX: Final = 0.5
"""The same for a curator's sums, whose noise is smaller with any lower bound of residuals above -1."""
_RARE_RATE: Final = 0.05
_MAX_RELATIVE_ERROR: Final = 0.5
"""Maximum standard error of an arm's mean reward, relative to that reward or to the differences of arms."""
_TYPICAL_ARM_DEVIATION: Final = 0.1  # typical standard deviation of mean rewards between arms, where they are about 1/2
_ROUND_GROWTHS: Final = (0.3, 0.1)
"""Default growth of rounds with a curator's noise in each, and with noise in every report."""


class AdditiveSection(Section):
    """The ``[algorithm]`` of the additive bandit."""

    name: Literal["additive"]
    # cells of a number, by default 16, or 32 without a promise, or 64 if the spec gives 65 quantiles of one: equally
    # wide within its bounds, or by rank among quantiles
    bins: int = Field(default=16, ge=2, le=64)
    # scale of posterior standard deviations in Thompson sampling
    exploration_scale: float = Field(default=0.25, gt=0, le=1, allow_inf_nan=False)
    half_life: HalfLife = None  # of evidence, where rewards may change

    @property
    def half_lives(self) -> tuple[float, ...]:
        """Half-lives under which a learner has evidence, in participants; empty without forgetting."""
        half_lives = list_half_lives(self.half_life)
        return half_lives if self.half_life == "auto" else half_lives[-1:]


class AdditiveSpec(ArmsSpec):
    """A spec of an experiment in which expected rewards are sums of shape functions."""

    question: ClassVar[type[Question]] = FeatureMeans
    capabilities: ClassVar[Capabilities] = msgspec.structs.replace(
        ArmsSpec.capabilities, takes_several_reports=True, context_decides=True, has_many_features=True
    )

    algorithm: AdditiveSection  # type: ignore[assignment] # a section of its own, with the base's key

    @override
    def with_dependent_defaults(self) -> Self:
        """Return the spec with the default size and growth of rounds, and finer default bins if there is no noise."""
        spec = super().with_dependent_defaults()
        promises, has_half_life = spec.privacy.trust.promises, spec.has_half_life
        growth = 0.0 if has_half_life else _ROUND_GROWTHS[spec.privacy.trust.noise is NoiseOrigin.DEVICES]
        defaults: dict[str, Any] = {"min_round_fraction": growth}
        if not (promises or has_half_life):
            defaults["round_size"] = _NOISELESS_ROUND_SIZE
        elif spec.has_coin_plan and spec.privacy.trust.crowd is not Crowd.BATCH:
            defaults["round_size"] = _COIN_ROUND_SIZE
        elif spec.is_amplified and spec.arm_count >= _MANY_ARMS and not has_half_life:
            defaults["round_size"] = spec._large_round_size()
        bins = {} if "bins" in spec.algorithm.model_fields_set else {"bins": spec._choose_bins()}
        sections = {"experiment": spec.experiment.with_unset(defaults), "algorithm": spec.algorithm.with_unset(bins)}
        return spec.model_copy(update=sections)

    def _choose_bins(self) -> int:
        """Return as many bins as quantiles have intervals, if a learner can hold them, or the default number."""
        default_bins = self.algorithm.bins if self.privacy.trust.promises else _FINE_BINS
        intervals = [len(each.quantiles) - 1 for each in self.features.values() if isinstance(each, Ranked)]
        for bins in () if self.privacy.trust.noise is NoiseOrigin.DEVICES else _QUANTILE_BINS:
            finer = self.model_copy(update={"algorithm": self.algorithm.model_copy(update={"bins": bins})})
            if default_bins < bins <= max(intervals, default=0) and finer._find_excess() is None:
                return bins
        return default_bins

    @model_validator(mode="after")
    def _check_spec(self) -> Self:
        """Refuse too many cells, a half-life below a round, and too many answers under a coin plan."""
        if excess := self._find_excess():
            raise excess
        check_half_lives(self.algorithm.half_lives, self.experiment.round_size)
        if self.has_coin_plan and CoinArms.count_answers(self.questions, self.arm_count) > _ANSWERS_MAX:
            detail = f"must be fewer where nobody hides a report below epsilon {_CELL_EPSILON:g}, with these features"
            remedy = "list fewer, raise privacy.epsilon, use a shuffler, or 'partition'"
            raise SpecError(detail, field="experiment.arms", remedy=remedy)
        return self

    def _find_excess(self) -> SpecError | None:
        """Return what refuses more cells, or arms times cells, than a learner, a policy or a report can hold."""
        cells, n_arms, questions = self.questions.cells, self.arm_count, self.questions
        max_short = math.inf if self.has_coin_plan else LONG_LEVELS  # the learner with a coin plan has no long features
        n_short = 1 + sum(shape.count for shape in cells.features if len(shape.codes) < max_short)
        n_keys = n_arms * int(questions.sizes.max()) * questions.count
        field, fewer_cells = "context.features", "lower algorithm.bins, or list fewer levels"
        if n_short > TERMS_MAX:
            detail = f"have {n_short - 1} cells of numbers and of features with fewer than {LONG_LEVELS} levels"
            return SpecError(f"{detail}; at most {TERMS_MAX - 1}", field=field, remedy=fewer_cells)
        if cells.count > CELLS_MAX:
            detail = f"have {cells.count - 1} cells in all; at most {CELLS_MAX - 1}"
            return SpecError(detail, field=field, remedy=fewer_cells)
        n_half_lives = max(1, len(self.algorithm.half_lives))
        if n_half_lives * n_arms * n_short**2 > _LEARNER_NUMBERS_MAX or n_arms * cells.count > _DRAW_NUMBERS_MAX:
            detail = f"have {cells.count - 1} cells, too many for {n_arms} arms"
            return SpecError(detail, field=field, remedy=f"{fewer_cells}, or have fewer arms")
        if self.privacy.trust.noise is NoiseOrigin.DEVICES and n_keys > _LAYOUT_NUMBERS_MAX:
            detail = f"have too many levels for {n_arms} arms where reports are private by themselves"
            return SpecError(detail, field=field, remedy="list fewer levels, or have fewer arms or features")
        return None

    @property
    def has_half_life(self) -> bool:
        """Whether evidence is forgotten with a half-life."""
        return bool(self.algorithm.half_lives)

    @property
    def questions(self) -> Questions:
        """The questions of reports; with noise, also about merged cells."""
        bins, trust = self.algorithm.bins, self.privacy.trust
        n_bins = min(bins, _NOISY_BINS_MAX) if trust.noise is NoiseOrigin.DEVICES else bins
        return Questions(Cells.from_features(self.features, n_bins), trust.promises)

    @property
    @override
    def has_coin_plan(self) -> bool:
        """Whether the arms' levels are learned first, from participants with random arms; others get the best arm."""
        is_locally_private = self.privacy.is_as_local or self.privacy.trust.crowd is Crowd.NOBODY
        return is_locally_private and self.privacy.bound < _CELL_EPSILON

    @property
    def is_amplified(self) -> bool:
        """Whether a batch hides reports that have little noise by themselves."""
        trust = self.privacy.trust
        return trust.crowd is Crowd.BATCH and trust.noise is NoiseOrigin.DEVICES and not self.has_coin_plan

    @property
    def counts_arms(self) -> bool:
        """Whether a curator counts participants by cell and arm, as without noise; otherwise by cell alone."""
        return not self.privacy.trust.promises

    @property
    def answer_counts(self) -> tuple[int, ...]:
        """Number of answers to each question."""
        return tuple(self.questions.sizes.tolist())

    @property
    def cell_names(self) -> list[str]:
        """Readable names of the cells of all features, in the order of terms after the intercept."""
        cells = self.questions.cells.features
        pairs = zip(self.features.items(), cells, strict=True)
        return [cell for (name, feature), shape in pairs for cell in name_cells(name, feature, shape)]

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        """Return the base's small instances, and further ones with coin plans, levels, arms, and half-lives."""
        specs, town = super().instances(), {"levels": list(range(70)), "missing": True}
        for model, spec in list(specs.items()):
            data = spec.model_dump(mode="json", exclude_none=True)
            forgetting = {"algorithm": {**data["algorithm"], "half_life": "auto"}}
            if spec.privacy.trust.crowd is Crowd.NOBODY:
                privacy = {**data["privacy"], "epsilon": _CELL_EPSILON / 2}
                specs[f"{model}-coins"] = parse_section(cls, data | {"privacy": privacy})
                specs[f"{model}-coins-half-life"] = parse_section(cls, data | forgetting | {"privacy": privacy})
            if not spec.privacy.trust.hides_arms:
                continue
            context = {"features": {**data["context"]["features"], "town": town}}
            specs[f"{model}-levels"] = parse_section(cls, data | {"context": context})
            if spec.privacy.trust.noise is not NoiseOrigin.DEVICES:
                specs[f"{model}-half-life"] = parse_section(cls, data | forgetting)
                # With so many features a participant answers all questions at once.
                arms_table = {"experiment": {**data["experiment"], "arms": [f"arm {arm}" for arm in range(20)]}}
                numbers = {f"number {index}": {"low": 0, "high": 1} for index in range(8)}
                specs[f"{model}-arms"] = parse_section(cls, data | arms_table | {"context": {"features": numbers}})
        return specs

    def make_question(self, seed: int, edges: Any, below: float = 1.0) -> FeatureMeans:
        """Return the question of a round whose coins choose by the thresholds ``edges``, (questions - 1,)."""
        n_keys = int(self.questions.sizes.max()) * self.arm_count
        layout = SlotLayout(seed, np.tile(np.asarray(edges, np.uint32), (n_keys, 1)))
        n_features = len(self.features)
        per_cell = self.experiment.round_size * n_features / (self.arm_count * (self.questions.cells.count - 1))
        return FeatureMeans(layout, self.arm_count, self.answer_counts, self.counts_arms, below, n_features, per_cell)

    def make_plan_question(self, plan: CoinArms) -> FeatureMeans:
        """Return the question of a round with a coin plan."""
        return FeatureMeans(plan.layout(self.questions), self.arm_count, self.answer_counts)

    @property
    def first_round_bound(self) -> float:
        """The absolute lower bound of residuals in the first round: small where rewards are rare."""
        expected_rate = self.reward.expected_rate
        return 1.0 if expected_rate is None or self.has_coin_plan else self.lower_bound(expected_rate)

    def lower_bound(self, max_expected: float) -> float:
        """Return the absolute lower bound of residuals where few participants expect more than ``max_expected``."""
        rate_max = _RARE_RATE_MAX if self.privacy.trust.noise is NoiseOrigin.DEVICES else _CURATED_RATE_MAX
        return max_expected / (1 - max_expected) if max_expected < rate_max else 1.0

    @override
    def concerns(self) -> list[str]:
        """Return warnings, among them of rounds too large for the half-life, and of too much noise."""
        concerns = super().concerns()
        concerns += half_life_concerns(self.algorithm.half_lives, self.largest_batch())
        return concerns + self._noise_concerns() if self.privacy.trust.promises else concerns

    def _noise_concerns(self) -> list[str]:
        """Return a warning if noise hides the mean rewards of arms, or the differences between them."""
        rate = self.reward.expected_rate
        rarer_rate = 0.5 if rate is None else min(rate, 1 - rate)
        is_rare = rarer_rate < _RARE_RATE
        if not is_rare and self.has_coin_plan:  # a report need not contain a random arm
            return []
        error, span = arm_mean_error(self, self.typical_question(), self.largest_batch()), self.reward.span
        gap = rarer_rate if is_rare else _TYPICAL_ARM_DEVIATION * 4 * rarer_rate * (1 - rarer_rate)
        if error <= _MAX_RELATIVE_ERROR * gap:
            return []
        noise = f"noise alone moves the mean reward of an option by about {_format(error * span)} after all people"
        if not is_rare:
            return [
                f"{noise}, and options are taken to differ by {_format(gap * span)}: with {self.arm_count} options it "
                f"may earn less than the best one alone.{self._advise_rounds()} List fewer options, or ask more people"
            ]
        trust = self.privacy.trust
        remedies = " use a curator," if trust.curator is Curator.NOBODY else ""
        if trust.crowd is Crowd.BATCH:
            remedies = f" raise privacy.local_epsilon_max,{remedies}"
        return [
            f"{noise}, and reward.base_rate is {self.reward.base_rate:g}: choosing by features is likely to earn no "
            f"more than chance. Ask more people,{remedies} choose 'bandit', or take a reward that is less rare"
        ]

    def _large_round_size(self) -> int:
        """Return the size of first rounds with many arms, with room for enough of them."""
        experiment = self.experiment
        return max(experiment.round_size, min(_LARGE_ROUND_SIZE, experiment.horizon // _MIN_LARGE_ROUNDS))

    def _advise_rounds(self) -> str:
        """Return the noise that larger rounds and a larger cap save under shuffling, with their risk; empty if none."""
        if not self.is_amplified:
            return ""
        privacy, question, size = self.privacy, self.typical_question(), self._large_round_size()
        cap = max(_ADVISED_CAP, privacy.local_epsilon_max)
        larger = self.model_copy(update={"privacy": privacy.model_copy(update={"local_epsilon_max": cap})})
        own = arm_mean_error(self, question, self.first_batch(""))
        least = arm_mean_error(larger, question, size)
        if least > _MAX_ADVISED_ERROR_RATIO * own:
            return ""
        guesses = [1 / (1 + math.exp(-epsilon)) for epsilon in (privacy.local_epsilon_max, cap)]
        return (
            f" With experiment.round_size = {size} and privacy.local_epsilon_max = {cap:g} first rounds have "
            f"{1 - least / own:.0%} less noise; if shuffler and server collude, they name a person's record, of two "
            f"equally likely ones, with probability {guesses[1]:.1%} at most in place of {guesses[0]:.1%}, and devices "
            f"need Limits(local_epsilon={cap:g})."
        )

    @override
    def typical_question(self) -> FeatureMeans:
        """Return the question of a first round with equal shares of questions, or of a coin plan's."""
        if self.has_coin_plan:
            return self.make_plan_question(CoinArms.uniform(self.questions, np.array(self.playable)))
        count = self.questions.count
        return self.make_question(0, np.rint(np.arange(1, count) * (1 << 16) / count), self.first_round_bound)


def _format(value: float) -> str:
    return f"{float(f'{value:.2g}'):,g}"
