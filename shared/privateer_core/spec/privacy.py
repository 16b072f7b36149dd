"""The ``[privacy]`` of a spec: the promise to a participant, and its assumptions."""

import math
from collections.abc import Mapping
from typing import Any, Final, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from privateer_core.errors import SpecError
from privateer_core.privacy.trust import (
    LOCAL_EPSILON_MAX,
    Crowd,
    Trust,
    default_local_epsilon,
    default_min_batch,
    local_trust,
    trust_of,
)
from privateer_core.spec.experiment import EPSILON_MIN
from privateer_core.spec.sections import NAME, Section

ArmVisibility = Literal["visible", "as-local", "grouped", "hidden"]
"""The assumption of a promise about observers of arms, in ascending order of strength."""
BATCH_MAX: Final = 1_000_000  # maximum of ``min_batch``
_TIERS_MAX: Final = 7  # beside epsilon itself


def _promise_of(fields: Mapping[str, Any]) -> tuple[str, float]:
    return str(fields["model"]), fields["epsilon"] or 0.0


class Tier(Section):
    """A promise that participants may choose instead of the experiment's own epsilon."""

    name: str = Field(pattern=NAME)  # lower-case letters, digits and dashes
    epsilon: float = Field(ge=EPSILON_MIN, le=16, allow_inf_nan=False)  # of a report of the tier's participants
    # share of the experiment's participants who are expected to take it; for plans and simulations alone
    share: float = Field(gt=0, lt=1, allow_inf_nan=False)


class Privacy(Section):
    """The promise to a participant under a trust model (`privateer_core.privacy.trust` has the models)."""

    model: str  # the trust model
    # epsilon, delta: the promise. It is about the view of the trust model's adversary: a report by itself, a shuffled
    # batch, or the publications. Without a promise neither is given.
    epsilon: float | None = Field(default=None, ge=EPSILON_MIN, le=16, allow_inf_nan=False)
    delta: float = Field(default=0.0, ge=0, lt=0.5, allow_inf_nan=False)
    # ``visible``: the promise holds against adversaries who see the arm of each participant, e.g. as its content is
    # fetched over the network. ``hidden``: it assumes that arms are hidden. ``as-local``: shuffled reports are made as
    # under the local model, with the coins that chose the arm, and keep its promise against adversaries who see arms.
    # ``grouped``: coins alone choose, and each arm's participants are a batch of their own. The promise holds against
    # adversaries who see arms as long as they do not drop or falsify reports by arm.
    arm_visibility: ArmVisibility = "visible"
    # minimum number of reports that a shuffler releases together. By default 1,000; if reports are private by
    # themselves, too, 300 from epsilon 2 and 100 from epsilon 4.
    min_batch: int = Field(default_factory=lambda keys: default_min_batch(*_promise_of(keys)), ge=1, le=BATCH_MAX)
    # the share of a batch that is assumed to follow the protocol
    honest_fraction: float = Field(default=0.9, gt=0, le=1, allow_inf_nan=False)
    # maximum epsilon of a shuffled report by itself, if shuffler and server collude. By default epsilon + 2, at least 4
    # and at most 16.
    local_epsilon_max: float = Field(
        default_factory=lambda keys: default_local_epsilon(*_promise_of(keys)),
        gt=0,
        le=LOCAL_EPSILON_MAX,
        allow_inf_nan=False,
    )
    # promises between which participants choose, beside epsilon. A device takes the highest that its limits allow.
    tiers: tuple[Tier, ...] = Field(default=(), max_length=_TIERS_MAX)

    @model_serializer(mode="wrap")
    def _serialize_for_storage(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Serialize without an empty list of tiers, so that specs without tiers keep their bytes."""
        return {name: value for name, value in serialize(self).items() if name != "tiers" or value}

    @model_validator(mode="after")
    def _check_tiers(self) -> Self:
        """Refuse tiers of reports that are not private by themselves, with repeated names, or of everybody."""
        if not self.tiers:
            return self
        names, total = [tier.name for tier in self.tiers], sum(tier.share for tier in self.tiers)
        for is_refused, detail, remedy in (
            (
                self.trust.crowd is not Crowd.NOBODY,
                "need the model 'local': under 'shuffle' a tier is a crowd of its own, too small to earn by it, and "
                "under 'central' noise is small beside the spread of rewards",
                "remove",
            ),
            (len(set(names)) != len(names), "must have distinct names", "rename"),
            (total >= 1, f"are expected to be taken by a share of {total:g}, and some take epsilon", "lower share of"),
        ):
            if is_refused:
                raise SpecError(detail, field="privacy.tiers", remedy=f"{remedy} them")
        return self

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        """Refuse a missing epsilon, a promise without a model for it, and a setting of arms that needs batches."""
        promises, model_phrase = self.trust.promises, f"under the model '{self.model}'"
        if promises and self.epsilon is None:
            raise SpecError(f"must be given {model_phrase}", field="privacy.epsilon", remedy="add it")
        for name in ("epsilon", "delta"):
            if not promises and getattr(self, name):
                detail = f"must not be given {model_phrase}, which promises nothing"
                raise SpecError(detail, field=f"privacy.{name}", remedy="remove it")
        if self.arm_visibility in ("as-local", "grouped") and promises and self.trust.crowd is Crowd.RELEASE:
            detail = f"'{self.arm_visibility}' needs reports that are private by themselves, and {model_phrase} none is"
            raise SpecError(detail, field="privacy.arm_visibility", remedy="remove it")
        return self

    @property
    def trust(self) -> Trust:
        """The row of the trust model."""
        return trust_of(self.model)

    @property
    def bound(self) -> float:
        """Epsilon of the promise, infinite without a promise."""
        return math.inf if self.epsilon is None else self.epsilon

    @property
    def tier_shares(self) -> tuple[tuple[float, float], ...]:
        """Epsilon and expected share of participants of every tier, first of the own epsilon; empty without tiers."""
        if not self.tiers:
            return ()
        own_share = 1 - sum(tier.share for tier in self.tiers)
        return ((self.bound, own_share), *((tier.epsilon, tier.share) for tier in self.tiers))

    @property
    def tier_names(self) -> tuple[str, ...]:
        """Names of all tiers, first the empty one of the own epsilon."""
        return ("", *(tier.name for tier in self.tiers))

    def choose_tier(self, limit: float) -> str:
        """Return the name of the highest tier with an epsilon of at most ``limit``, or of the lowest tier."""
        pairs = [(self.bound, ""), *((tier.epsilon, tier.name) for tier in self.tiers)]
        allowed = [pair for pair in pairs if pair[0] <= limit]
        return max(allowed)[1] if allowed else min(pairs)[1]

    @property
    def has_arm_in_key(self) -> bool:
        """Whether reports contain the arm in the randomized key, and not in the coins."""
        return self.arm_visibility == "visible" and self.trust.hides_arms

    @property
    def is_as_local(self) -> bool:
        """Whether shuffled reports are made as under the local model: each keeps epsilon by itself."""
        return self.arm_visibility == "as-local" and self.trust.crowd is Crowd.BATCH

    @property
    def local_epsilon_bound(self) -> float:
        """Maximum epsilon of a shuffled report by itself."""
        return self.bound if self.is_as_local else self.local_epsilon_max


def default_of_idle_key(name: str) -> Any:
    """Return the default of a key of ``[privacy]`` under a trust model that does not use it."""
    return getattr(Privacy(model=local_trust().name, epsilon=1.0), name)
