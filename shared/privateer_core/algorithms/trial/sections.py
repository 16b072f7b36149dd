"""The sections ``[algorithm]`` and ``[segments]`` of a trial's spec, and the segments that they define."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from typing import Annotated, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from privateer_core.answer.shares import CROSSING_SEPARATOR
from privateer_core.arrays import Array, Ints
from privateer_core.errors import SpecError
from privateer_core.spec.categories import MISSING, name_code
from privateer_core.spec.features import Feature, Scaled
from privateer_core.spec.reward import REWARD
from privateer_core.spec.sections import Finite, Section

EVERYBODY = "everybody"


@dataclass(frozen=True)
class Factor:
    """A feature that defines segments, by its parts."""

    # column, columns: its first column of an encoded context, and their number
    column: int
    columns: int
    codes: Ints  # shape (levels,), int64: the codes of levels, ascending; empty for numbers
    cuts: Array  # shape (parts - 1,), float64: cut points of a number; a cut point belongs to the part above
    flagged: bool = False  # whether the last column flags a missing number, which is the last part

    @property
    def parts(self) -> int:
        """Number of parts."""
        return len(self.codes) or len(self.cuts) + 1 + self.flagged

    def locate(self, contexts: Array) -> Ints:
        """Return the part of each of n participants, (n,)."""
        if len(self.codes):
            bits = contexts[:, self.column : self.column + self.columns].astype(np.int64)
            levels = np.searchsorted(self.codes, bits @ (1 << np.arange(self.columns - 1, -1, -1)))
            return np.asarray(np.minimum(levels, len(self.codes) - 1))
        parts = np.asarray(np.searchsorted(self.cuts, contexts[:, self.column], side="right"))
        return np.where(contexts[:, self.column + 1] > 0, self.parts - 1, parts) if self.flagged else parts

    def corners(self) -> tuple[Array, Array]:
        """Return the lower and upper corners of its parts, along its own columns, (parts, columns) each."""
        if len(self.codes):
            lower = ((self.codes[:, None] >> np.arange(self.columns - 1, -1, -1)) & 1) / 2
            return lower, lower + 0.5
        ends = np.concatenate([[0.0], self.cuts, [1.0]])
        lower, upper = np.zeros((self.parts, self.columns)), np.ones((self.parts, self.columns))
        lower[: len(ends) - 1, 0], upper[: len(ends) - 1, 0] = ends[:-1], ends[1:]
        if self.flagged:
            upper[:-1, -1], lower[-1, -1] = 0.5, 0.5
        return lower, upper


@dataclass(frozen=True)
class Segmentation:
    """A segmentation of participants by their encoded contexts."""

    factors: tuple[Factor, ...]

    @cached_property
    def count(self) -> int:
        """Number of segments."""
        return int(np.prod([factor.parts for factor in self.factors], dtype=np.int64))

    def locate(self, contexts: Array) -> Ints:
        """Return the segment of each of n participants; ``contexts`` (n, d) in [0, 1]."""
        segments = np.zeros(len(contexts), np.int64)
        for factor in self.factors:
            segments = segments * factor.parts + factor.locate(contexts)
        return segments

    def corners(self, n_columns: int) -> tuple[Array, Array]:
        """Return the lower and upper corners of the segments, (segments, n_columns) each."""
        lower, upper = np.zeros((self.count, n_columns)), np.ones((self.count, n_columns))
        indices, stride = np.arange(self.count), self.count
        for factor in self.factors:
            stride //= factor.parts
            columns, parts = slice(factor.column, factor.column + factor.columns), indices // stride % factor.parts
            lower[:, columns], upper[:, columns] = (corner[parts] for corner in factor.corners())
        return lower, upper


def make_factor(feature: Feature, column: int, cuts: tuple[float, ...]) -> Factor:
    """Return the factor of a feature: its levels, or the intervals between ``cuts`` in its own units."""
    block, none = feature.blocks[0], np.zeros(0, np.int64)
    if block.codes:
        return Factor(column, block.columns, np.array(block.codes, np.int64), np.zeros(0))
    assert isinstance(feature, Scaled)
    return Factor(column, feature.columns, none, feature.positions(np.array(cuts)), feature.missing)


def name_parts(name: str, feature: Feature, cuts: tuple[float, ...]) -> list[str]:
    """Return the names of a feature's parts, in order."""
    block = feature.blocks[0]
    if block.codes:
        return [f"{name}={name_code(feature, code, block.columns)}" for code in block.codes]
    ends = [f"{cut:g}" for cut in cuts]
    between = [f"{low}<={name}<{high}" for low, high in pairwise(ends)]
    names = [f"{name}<{ends[0]}", *between, f"{name}>={ends[-1]}"] if ends else [name]
    return [*names, f"{name} {MISSING}"] if feature.missing else names


def cross_names(names: list[list[str]]) -> tuple[str, ...]:
    """Return the names of segments, combined from the names of each feature's parts."""
    return tuple(CROSSING_SEPARATOR.join(parts) for parts in product(*names)) if names else (EVERYBODY,)


Share = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
LOOK_GROWTH: Final = 1.5  # ratio of the participants at a look to those at the previous look
LOOKS_MAX: Final = 40
BINS_MAX: Final = 1024


class TrialSection(Section):
    """The ``[algorithm]`` of a trial: arms against a control, the first of ``experiment.arms``."""

    name: Literal["trial"]
    # ``fixed``: shares never change. ``thompson``: an arm's share is its posterior probability of being best, and at
    # least ``min_allocation``
    allocation: Literal["fixed", "thompson"] = "thompson"
    # minimum share of an arm; by default that of `default_min_share`
    min_allocation: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    # planned shares of the arms, the control's first; equal if not given. Adaptive allocation starts from them.
    allocation_ratio: tuple[Share, ...] | None = None
    looks: int = Field(default=8, ge=1, le=LOOKS_MAX)  # maximum number of looks, each at 1.5 times the participants
    # probability of ever deciding an effect of 0, over all looks
    significance_level: float = Field(default=0.05, gt=0, lt=0.5, allow_inf_nan=False)
    # the correction for several effects: ``holm`` (family-wise error), ``bh`` (share of false discoveries) or
    # ``none``
    correction: Literal["holm", "bh", "none"] = "holm"
    # minimum_detectable_effect, power: the minimum relevant effect, in the unit of rewards; an experiment that cannot
    # detect it with this power is refused. None: no such effect.
    minimum_detectable_effect: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    power: float = Field(default=0.8, gt=0.5, lt=1, allow_inf_nan=False)
    # up to two further outcomes of yes or no that are monitored: an application reports them with the reward
    guardrails: tuple[Annotated[str, Field(pattern=r"^[\w .+-]+$", max_length=64)], ...] = Field(
        default=(), max_length=2
    )
    # rules that end it before its horizon: ``decided`` (every effect is), ``futility`` (no interval contains a relevant
    # effect), ``best`` (every segment's best arm is known). The first satisfied rule counts.
    stopping_rules: tuple[Literal["decided", "futility", "best"], ...] = ()

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        """Refuse futility without an effect, repeated rules or guardrails, and a guardrail called reward."""
        if "futility" in self.stopping_rules and self.minimum_detectable_effect is None:
            detail, remedy = "needs to know which effect matters", "set algorithm.minimum_detectable_effect"
            raise SpecError(detail, field="algorithm.stopping_rules", remedy=remedy)
        for field in ("stopping_rules", "guardrails"):
            if len(set(getattr(self, field))) != len(getattr(self, field)):
                raise SpecError("must be distinct", field=f"algorithm.{field}", remedy="name each once")
        if REWARD in self.guardrails:
            detail = f"{REWARD!r} is what the outcome itself is called"
            raise SpecError(detail, field="algorithm.guardrails", remedy="choose another name")
        return self


class SegmentsSection(Section):
    """The ``[segments]`` with effects of their own; without it all participants are one segment."""

    # features that define segments: by levels, or by cuts of numbers; several features are crossed
    features: tuple[str, ...] = Field(default=(), max_length=8)
    # cut points of numbers, in their own units, ascending; a cut point belongs to the part above
    cuts: dict[str, tuple[Finite, ...]] = Field(default_factory=dict)
    # instead of cuts, a number of equal bins, a power of 2, by halving the numbers of ``features`` in turn
    bins: int | None = Field(default=None, ge=2, le=BINS_MAX)
    # expected shares of participants by segment, or ``equal``; plans assume equal ones by default. If epsilon is too
    # small for reports to contain segments, effects are in proportion to them, and unknown shares are estimated.
    proportions: dict[str, Share] | Literal["equal"] | None = None

    @model_validator(mode="after")
    def _check_bins_and_cuts(self) -> Self:
        """Refuse repeated features, a number of bins that is no power of 2, and cuts that do not rise."""
        if len(set(self.features)) != len(self.features):
            raise SpecError("must be distinct features", field="segments.features", remedy="name each once")
        if self.bins is not None and self.bins & (self.bins - 1):
            raise SpecError("must be a power of 2", field="segments.bins", remedy="numbers are halved")
        for name, cuts in self.cuts.items():
            if not cuts or list(cuts) != sorted(set(cuts)):
                raise SpecError("must be one or more that rise", field=f"segments.cuts.{name}", remedy="sort them")
        return self

    def check_features(self, features: Mapping[str, Feature]) -> None:
        """Check that segments are of the spec's features, and that cuts are within their ranges."""
        if self.bins is not None and not self.features:
            remedy = "name a number there, or remove segments.bins"
            raise SpecError("divides segments.features, which names none", field="segments.bins", remedy=remedy)
        for name in (*self.features, *self.cuts):
            if name not in features:
                remedy = f"name some of: {', '.join(features)}" if features else "add it to context.features"
                raise SpecError(f"no feature is {name!r}", field="segments.features", remedy=remedy)
        for name in self.cuts:
            if name not in self.features:
                raise SpecError("is not in segments.features", field=f"segments.cuts.{name}", remedy="add it there")
            if not isinstance(features[name], Scaled):
                raise SpecError("has levels", field=f"segments.cuts.{name}", remedy="remove it: levels are segments")
        for name in self.features:
            self._check_feature(name, features[name])

    def _check_feature(self, name: str, feature: Feature) -> None:
        """Refuse a feature that bins or cuts cannot divide, a number without cuts, and cuts out of range."""
        is_number = isinstance(feature, Scaled)
        if self.bins is not None:
            if not is_number or feature.missing or self.cuts:
                detail = "needs numbers that are never missing, and no cuts beside it"
                raise SpecError(detail, field="segments.bins", remedy="remove it, and give segments.cuts")
        elif is_number and name not in self.cuts:
            remedy = f"add segments.cuts.{name}, or segments.bins"
            raise SpecError(f"{name!r} is a number that is not cut", field="segments.features", remedy=remedy)
        elif isinstance(feature, Scaled):
            places = feature.positions(np.array(self.cuts[name]))
            if len(set(places.tolist())) < len(places) or places[0] <= 0 or places[-1] > 1:
                detail = "must be distinct cuts above the least value and up to the largest"
                raise SpecError(detail, field=f"segments.cuts.{name}", remedy="correct them, or the feature's bounds")

    def check_shares(self, names: Sequence[str]) -> None:
        """Check that shares, if given, are one for each segment, with a sum of 1."""
        if self.proportions is None or self.proportions == "equal":
            return
        if unknown_names := sorted(set(self.proportions) - set(names)):
            detail = f"no segment is {unknown_names[0]!r}"
            raise SpecError(detail, field="segments.proportions", remedy=f"name them as: {', '.join(names)}")
        if missing_names := [name for name in names if name not in self.proportions]:
            detail = f"must be one for each segment, and {missing_names[0]!r} has none"
            raise SpecError(detail, field="segments.proportions", remedy="add it")
        if abs(sum(self.proportions.values()) - 1) > 1e-6:
            detail = f"must have a sum of 1, not {sum(self.proportions.values()):.4g}"
            raise SpecError(detail, field="segments.proportions", remedy="correct them")


def planned_looks(n_participants: int, min_look_size: int, max_looks: int) -> tuple[int, ...]:
    """Return the participants at every look: 1.5 times those before, and ``min_look_size`` more at least."""
    looks = [n_participants]
    while len(looks) < max_looks:
        previous = round(looks[0] / LOOK_GROWTH)
        if previous < min_look_size or looks[0] - previous < min_look_size:
            break
        looks.insert(0, previous)
    return tuple(looks)
