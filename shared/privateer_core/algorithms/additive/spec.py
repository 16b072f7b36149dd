"""The spec of the additive bandit, with all refusals."""

import math
from dataclasses import replace
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import Field, field_validator, model_validator
from typing_extensions import override

from privateer_core.algorithms.additive.cell_names import named
from privateer_core.algorithms.additive.cells import Cells, Questions
from privateer_core.algorithms.additive.coin_arms import CoinArms
from privateer_core.algorithms.additive.level_error import level_error
from privateer_core.errors import SpecError
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.public_coins import SlotLayout
from privateer_core.primitives.questions import FeatureMeans, Question
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.capabilities import Capabilities
from privateer_core.spec.memory import check_rounds, checked_memory, concerns_of_rounds
from privateer_core.spec.sections import Section, parse_section

_ALONE: Final = 4.0
"""Epsilon of a report that stands alone from which on it names arms and cells; below, levels of arms come first."""
TERMS_MAX: Final = 512
"""Terms of numbers and of few levels, at most: time and memory of a round grow with their square, and beyond."""
LONG_FROM: Final = 65
"""A feature with so many levels without an order has each of them learned for itself."""
CELLS_MAX: Final = 4096
"""Terms of all features, at most."""
_HELD_MAX: Final = 1 << 22
"""Arms times the square of short features' terms: numbers that a learner keeps."""
_TOLD_MAX: Final = 1 << 16
"""Arms times terms: numbers of a draw of a policy, of which devices fetch 32."""
_KEYS_MAX: Final = 1 << 20
"""Arms times the cells of a feature, times questions: numbers of a symbol's layout."""
_SMALL: Final = 500
"""People of a first round where levels of arms come first: in that round everybody gets an arm by coins."""
_SMALLEST: Final = 250
"""People of a first round without noise: all of them get an arm at random, and so few say enough to do better."""
_ANSWERS_MAX: Final = 1 << 18
"""Answers in all groups of coins, at most: a policy has 4 bytes of each."""
_FINE: Final = 32
"""Cells of a number where no noise is added."""
MOST_BELOW: Final = 0.2
"""Residuals are differences where nearly everybody has less than so much expected; beyond, scaled ones tell more."""
_RARE: Final = 0.05
_TOLD: Final = 0.5
"""Noise in the mean reward of an arm, by that reward or by what arms differ by, above which reports tell too little."""
_APART: Final = 0.1
"""Standard deviation of what arms typically differ by for everybody, where expected rewards are about 1/2."""
_GROWTH: Final = (0.3, 0.1)
"""How rounds grow where a curator adds noise to each, and where every report has noise of its own."""


class AdditiveSection(Section):
    """The ``[algorithm]`` of the additive bandit."""

    name: Literal["additive"]
    # cells of a number, by default 16, or 32 where nothing is promised: equally wide within its bounds, or by rank
    # where the spec gives quantiles
    bins: int = Field(default=16, ge=2, le=64)
    # how far coins move what is known of an arm, in standard deviations
    exploration: float = Field(default=0.25, gt=0, le=1, allow_inf_nan=False)
    # how what was learned fades, where rewards move: people after whose reports it counts half; ``none``, as if not
    # given: it never fades
    memory: float | Literal["none"] | None = None

    @field_validator("memory", mode="before")
    @classmethod
    def _half_life(cls, memory: Any) -> Any:
        return checked_memory(memory, ("none",))

    @property
    def half_life(self) -> float:
        """People after whose reports what was learned counts half; infinite if it never fades."""
        return self.memory if isinstance(self.memory, float) else math.inf


class AdditiveSpec(ArmsSpec):
    """An experiment whose arms have rewards that are sums of shape functions."""

    question: ClassVar[type[Question]] = FeatureMeans
    capabilities: ClassVar[Capabilities] = replace(
        ArmsSpec.capabilities, takes_several_reports=True, context_decides=True, has_many_features=True
    )

    algorithm: AdditiveSection  # type: ignore[assignment] # a section of its own, with the base's key

    @model_validator(mode="after")
    def _usual_rounds(self) -> Self:
        """Fill in how rounds begin and grow, so that anybody who reads the spec has the same; it stays a default."""
        growth = 0.0 if self.forgets else _GROWTH[0 if self.privacy.trust.curated else 1]
        table, usual = self.experiment, {"round_growth": growth}
        if not (self.privacy.trust.promises or self.forgets):
            usual["round_size"] = _SMALLEST
        elif self.starts_from_levels and not self.privacy.trust.batched:
            usual["round_size"] = _SMALL
        more = {key: one for key, one in usual.items() if key not in table.model_fields_set}
        if not more:
            return self
        filled = type(table).model_construct(table.model_fields_set | set(more), **(dict(table) | more))
        return self.model_copy(update={"experiment": filled})

    @model_validator(mode="after")
    def _usual_bins(self) -> Self:
        """Fill in finer cells of numbers where nothing is noisy; they stay a default."""
        table = self.algorithm
        if self.privacy.trust.promises or "bins" in table.model_fields_set:
            return self
        filled = type(table).model_construct(table.model_fields_set | {"bins"}, **(dict(table) | {"bins": _FINE}))
        return self.model_copy(update={"algorithm": filled})

    @model_validator(mode="after")
    def _possible(self) -> Self:
        self._check_size()
        check_rounds(self.algorithm.half_life, self.experiment.round_size)
        if self.starts_from_levels and CoinArms.answers(self.questions, self.arm_count) > _ANSWERS_MAX:
            detail = f"must be fewer where nobody hides a report below epsilon {_ALONE:g}, with these features"
            remedy = "list fewer, raise privacy.epsilon, use a shuffler, or 'partition'"
            raise SpecError(detail, field="experiment.arms", remedy=remedy)
        return self

    def _check_size(self) -> None:
        """Refuse more cells, or more arms by cells, than a learner, a policy or a report has room for."""
        cells, arms, questions = self.questions.cells, self.arm_count, self.questions
        # The learner that begins with levels of arms has no long features.
        all_short = self.starts_from_levels
        short = 1 + sum(one.count for one in cells.features if all_short or len(one.codes) < LONG_FROM)
        keys = arms * int(questions.sizes.max()) * questions.count
        fewer = "lower algorithm.bins, or list fewer levels"
        for wrong, detail, remedy in (
            (
                short > TERMS_MAX,
                f"have {short - 1} cells of numbers and of features with fewer than {LONG_FROM} levels; at most "
                f"{TERMS_MAX - 1}",
                fewer,
            ),
            (cells.count > CELLS_MAX, f"have {cells.count - 1} cells in all; at most {CELLS_MAX - 1}", fewer),
            (
                arms * short**2 > _HELD_MAX or arms * cells.count > _TOLD_MAX,
                f"have {cells.count - 1} cells, too many for {arms} arms",
                f"{fewer}, or have fewer arms",
            ),
            (
                not self.privacy.trust.curated and keys > _KEYS_MAX,
                f"have too many levels for {arms} arms where reports are private by themselves",
                "list fewer levels, or have fewer arms or features",
            ),
        ):
            if wrong:
                raise SpecError(detail, field="context.features", remedy=remedy)

    @property
    def forgets(self) -> bool:
        """Whether what was learned fades."""
        return self.algorithm.half_life < math.inf

    @property
    def questions(self) -> Questions:
        """What people may be asked: in merged cells, too, where noise makes them say more."""
        return Questions(Cells.of(self.features, self.algorithm.bins), self.privacy.trust.promises)

    @property
    def starts_from_levels(self) -> bool:
        """Whether levels of arms are learned first, from people who get an arm by coins; others get the best one."""
        alone = self.privacy.as_alone or self.privacy.trust.draws_one
        return alone and self.privacy.bound < _ALONE

    @property
    def counts_arms(self) -> bool:
        """Whether a curator counts people by cell and arm: where no noise comes to it. Else it counts by cell."""
        return not self.privacy.trust.promises

    def ball_of(self, below: float) -> Ball:
        """Return where the vectors are that a curator gets, of residuals that are never below minus ``below``."""
        parts = int(self.questions.starts[-1])
        return Ball("l2", 1.0, parts * (self.arm_count + (self.arm_count if self.counts_arms else 1)), below)

    @property
    def cell_names(self) -> list[str]:
        """Names of the cells of all features, for people, in the order of terms after the first."""
        cells = self.questions.cells.features
        pairs = zip(self.features.items(), cells, strict=True)
        return [said for (name, feature), own in pairs for said in named(name, feature, own)]

    @classmethod
    @override
    def instances(cls) -> dict[str, Self]:
        found, told = super().instances(), {"levels": list(range(70)), "missing": True}
        for model, spec in list(found.items()):
            data = spec.model_dump(mode="json", exclude_none=True)
            if spec.privacy.trust.draws_one:
                weak = parse_section(cls, data | {"privacy": {**data["privacy"], "epsilon": _ALONE / 2}})
                found[f"{model}-coins"] = weak
            if not spec.privacy.trust.hides_arms:
                continue
            context = {"features": {**data["context"]["features"], "town": told}}
            found[f"{model}-levels"] = parse_section(cls, data | {"context": context})
            if spec.privacy.trust.curated:
                # So many features that everybody answers all questions at once.
                many = {"experiment": {**data["experiment"], "arms": [f"arm {arm}" for arm in range(20)]}}
                numbers = {f"number {place}": {"low": 0, "high": 1} for place in range(8)}
                found[f"{model}-arms"] = parse_section(cls, data | many | {"context": {"features": numbers}})
        return found

    def asked(self, seed: int, edges: Any, below: float = 1.0) -> FeatureMeans:
        """Return what a round asks, whose coins choose the question by these ``edges``, (questions - 1,)."""
        keys = int(self.questions.sizes.max()) * self.arm_count
        layout = SlotLayout(seed, np.tile(np.asarray(edges, np.uint32), (keys, 1)))
        answers, features = self.arm_count * int(self.questions.starts[-1]), len(self.features)
        people = self.experiment.round_size * features / (self.arm_count * (self.questions.cells.count - 1))
        ball = self.ball_of(below)
        return FeatureMeans(ball, seed, layout=layout, answers=answers, features=features, people=people)

    def asked_by(self, plan: CoinArms) -> FeatureMeans:
        """Return what a round with this plan asks."""
        return FeatureMeans(self.ball_of(1.0), layout=plan.layout(self.questions))

    @property
    def usual_below(self) -> float:
        """What residuals of a first round are never below: as little as is expected, where rewards are rare."""
        expected = self.reward.expected
        if expected is None or self.starts_from_levels or expected >= MOST_BELOW:
            return 1.0
        return expected / (1 - expected)

    @override
    def concerns(self) -> list[str]:
        """Say that rounds are too large for the memory, or that reports tell too little of an arm."""
        found = super().concerns()
        if self.forgets:
            found += concerns_of_rounds(self.algorithm.half_life, self.largest_batch())
        return found + self._concerns_of_noise() if self.privacy.trust.promises else found

    def _concerns_of_noise(self) -> list[str]:
        """Say that noise hides the mean rewards of arms: rare ones, or differences between many."""
        rate = self.reward.expected
        rarer = 0.5 if rate is None else min(rate, 1 - rate)
        rare = rarer < _RARE
        if not rare and self.starts_from_levels:  # nobody has to name an arm that coins gave
            return []
        error, span = level_error(self, self.usual_question()), self.reward.span
        differ = rarer if rare else _APART * 4 * rarer * (1 - rarer)
        if error <= _TOLD * differ:
            return []
        noise = f"noise alone moves the mean reward of an option by about {_digits(error * span)} after all people"
        if not rare:
            return [
                f"{noise}, and options are taken to differ by {_digits(differ * span)}: with {self.arm_count} options "
                "it may earn less than the best one alone. List fewer options, or ask more people"
            ]
        trust = self.privacy.trust
        less = "" if trust.curated else " use a curator,"
        if trust.batched and not trust.curated:
            less = f" raise privacy.local_epsilon_max,{less}"
        return [
            f"{noise}, and reward.base_rate is {self.reward.base_rate:g}: choosing by features is likely to earn no "
            f"more than chance. Ask more people,{less} choose 'bandit', or take a reward that is less rare"
        ]

    @override
    def usual_question(self) -> FeatureMeans:
        if self.starts_from_levels:
            return self.asked_by(CoinArms.even(self.questions, np.array(self.playable)))
        count = self.questions.count
        return self.asked(0, np.rint(np.arange(1, count) * (1 << 16) / count), self.usual_below)


def _digits(value: float) -> str:
    """Write a number with two digits."""
    return f"{float(f'{value:.2g}'):,g}"
