"""Sections of a trial's spec."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from privateer_core.errors import SpecError
from privateer_core.spec.features import Feature, Scaled
from privateer_core.spec.reward import REWARD
from privateer_core.spec.sections import Finite, Section

Share = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
GROWTH: Final = 1.5
"""Each look has so many times the people of the look before."""
LOOKS_MAX: Final = 40
BINS_MAX: Final = 1024
WORDS: Final = {"accuracy": 0.0, "balanced": 0.5, "welfare": 1.0}
"""What an ``alpha`` in words means, as a share of the largest: from the test alone to the least regret."""


class TrialSection(Section):
    """The ``[algorithm]`` of a trial: arms against a control, the first of ``experiment.arms``."""

    name: Literal["trial"]
    # ``fixed``: shares never change. ``matching``: an arm's share is the probability that it is the best one, as far as
    # releases tell, and at least ``floor``. ``elimination``: arms that others beat by three standard deviations drop to
    # the floor. ``proved``: the same by the boundary of a family of tests.
    allocation: Literal["fixed", "matching", "elimination", "proved"] = "matching"
    # how fast exploration fades with people n: shares of at least n^-alpha, split among the arms, always explore. 0 to
    # smoothness / (2 smoothness + features), or ``accuracy``, ``balanced`` or ``welfare``.
    alpha: float | Literal["accuracy", "balanced", "welfare"] = "balanced"
    # the least share of an arm, in place of what alpha says
    floor: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    # planned shares of the arms, the control's first; equal if not given. Adaptive allocation starts from them.
    shares: tuple[Share, ...] | None = None
    # exponent with which effects vary smoothly along numbers (beta), up to 1
    smoothness: float = Field(default=1.0, gt=0, le=1, allow_inf_nan=False)
    looks: int = Field(default=8, ge=1, le=LOOKS_MAX)  # most looks, each at 1.5 times the people of the one before
    # probability that an effect of 0 is ever called one, in all looks together
    level: float = Field(default=0.05, gt=0, lt=0.5, allow_inf_nan=False)
    # ``sequential``: repeated intervals of a group-sequential test. ``strict``: they hold at any sample size.
    intervals: Literal["sequential", "strict"] = "sequential"
    # what ``decided`` means for several effects: ``holm`` (family-wise error), ``bh`` (share of false discoveries) or
    # ``none``
    correction: Literal["holm", "bh", "none"] = "holm"
    # effect, power: the effect that matters, in units of rewards: what is too small is called so, and an experiment
    # that could not find it with this power is refused. None: whatever comes.
    effect: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    # expected mean reward under the control, from 0 for the lowest reward to 1 for the highest: what a plan reckons
    # with
    rate: float = Field(default=0.5, gt=0, lt=1)
    power: float = Field(default=0.8, gt=0.5, lt=1, allow_inf_nan=False)
    # up to two facts of yes or no that are watched beside the reward: an application reports them with it
    guardrails: tuple[Annotated[str, Field(pattern=r"^[\w .+-]{1,64}$")], ...] = Field(default=(), max_length=2)
    # what people get after the last look of whom no arm is decided to be better: the ``control``, or the arm that is
    # ``leading``, which may well be worse
    undecided: Literal["control", "leading"] = "control"
    # what ends it before its horizon: ``decided`` (every effect is), ``futility`` (no interval has an effect that
    # matters any more), ``best`` (every segment's best arm is known). The first that holds counts.
    stop: tuple[Literal["decided", "futility", "best"], ...] = ()

    @model_serializer(mode="wrap")
    def _as_stored(self, dumped: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out who keeps the control: devices of earlier versions take part."""
        return {name: told for name, told in dumped(self).items() if name != "undecided" or told != "control"}

    @model_validator(mode="after")
    def _in_use(self) -> Self:
        if "futility" in self.stop and self.effect is None:
            raise SpecError("needs to know which effect matters", field="algorithm.stop", remedy="set algorithm.effect")
        if self.intervals == "strict" and self.allocation != "fixed":
            detail = "is two or three times too wide where shares adapt"
            raise SpecError(detail, field="algorithm.intervals", remedy='set algorithm.allocation = "fixed"')
        for field in ("stop", "guardrails"):
            if len(set(getattr(self, field))) != len(getattr(self, field)):
                raise SpecError("must be distinct", field=f"algorithm.{field}", remedy="name each once")
        if REWARD in self.guardrails:
            detail = f"{REWARD!r} is what the outcome itself is called"
            raise SpecError(detail, field="algorithm.guardrails", remedy="choose another name")
        return self


class SegmentsSection(Section):
    """The ``[segments]`` of people whose effects are wanted; everybody together if not given."""

    # features that part people: by their levels, or by the cuts of their numbers; several are crossed
    by: tuple[str, ...] = Field(default=(), max_length=8)
    # where numbers are cut, in their own units, rising; a cut belongs to the part above
    cuts: dict[str, tuple[Finite, ...]] = Field(default_factory=dict)
    # instead of cuts, a power of 2: so many equal bins, by halving the numbers of ``by`` in turn
    bins: int | None = Field(default=None, ge=2, le=BINS_MAX)
    # expected shares of people by segment, or ``equal``; plans take equal ones if not given. Where an epsilon is too
    # small for reports to name segments, effects are in proportion to them, and those not given are asked.
    shares: dict[str, Share] | Literal["equal"] | None = None

    @model_validator(mode="after")
    def _well_formed(self) -> Self:
        if len(set(self.by)) != len(self.by):
            raise SpecError("must be distinct features", field="segments.by", remedy="name each once")
        if self.bins is not None and self.bins & (self.bins - 1):
            raise SpecError("must be a power of 2", field="segments.bins", remedy="numbers are halved")
        for name, cuts in self.cuts.items():
            if not cuts or list(cuts) != sorted(set(cuts)):
                raise SpecError("must be one or more that rise", field=f"segments.cuts.{name}", remedy="sort them")
        return self

    def check_features(self, features: Mapping[str, Feature]) -> None:
        """Check that segments are of features of the spec, and that cuts part people."""
        for name in (*self.by, *self.cuts):
            if name not in features:
                known = ", ".join(features)
                raise SpecError(f"no feature is {name!r}", field="segments.by", remedy=f"name some of: {known}")
        for name in self.cuts:
            if name not in self.by:
                raise SpecError("is not in segments.by", field=f"segments.cuts.{name}", remedy="add it there")
            if not isinstance(features[name], Scaled):
                raise SpecError("has levels", field=f"segments.cuts.{name}", remedy="remove it: levels are segments")
        for name in self.by:
            self._check_feature(name, features[name])

    def _check_feature(self, name: str, feature: Feature) -> None:
        number = isinstance(feature, Scaled)
        if self.bins is not None:
            if not number or feature.missing or self.cuts:
                detail = "needs numbers that are never missing, and no cuts beside it"
                raise SpecError(detail, field="segments.bins", remedy="remove it, and give segments.cuts")
        elif number and name not in self.cuts:
            remedy = f"add segments.cuts.{name}, or segments.bins"
            raise SpecError(f"{name!r} is a number that is not cut", field="segments.by", remedy=remedy)
        elif isinstance(feature, Scaled):
            places = feature.places(np.array(self.cuts[name]))
            if len(set(places.tolist())) < len(places) or places[0] <= 0 or places[-1] > 1:
                detail = "must be distinct cuts above the least value and up to the largest"
                raise SpecError(detail, field=f"segments.cuts.{name}", remedy="correct them, or the feature's bounds")

    def check_shares(self, names: Sequence[str]) -> None:
        """Check that every segment has a share, if any has."""
        if self.shares is None or self.shares == "equal":
            return
        if strange := sorted(set(self.shares) - set(names)):
            detail = f"no segment is {strange[0]!r}"
            raise SpecError(detail, field="segments.shares", remedy=f"name them as: {', '.join(names)}")
        if lacking := [name for name in names if name not in self.shares]:
            detail = f"must be one for each segment, and {lacking[0]!r} has none"
            raise SpecError(detail, field="segments.shares", remedy="add it")
        if abs(sum(self.shares.values()) - 1) > 1e-6:
            detail = f"must have a sum of 1, not {sum(self.shares.values()):.4g}"
            raise SpecError(detail, field="segments.shares", remedy="correct them")


def planned_looks(people: int, least: int, most: int) -> tuple[int, ...]:
    """Return the people at every look, the last at all ``people``: each look has 1.5 times those of the one before.

    people: all people.
    least: fewest people between two looks, and before the first.
    most: most looks.
    """
    found = [people]
    while len(found) < most:
        before = round(found[0] / GROWTH)
        if before < least or found[0] - before < least:
            break
        found.insert(0, before)
    return tuple(found)
