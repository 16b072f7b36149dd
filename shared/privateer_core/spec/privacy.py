"""The ``[privacy]`` of a spec: the promise to one person, and who it counts on."""

import math
from collections.abc import Mapping
from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from privateer_core.errors import SpecError
from privateer_core.privacy.trust import (
    LOCAL_EPSILON_MOST,
    Trust,
    stands_alone,
    trust_of,
    usual_batch,
    usual_local_epsilon,
)
from privateer_core.spec.sections import Section

Arms = Literal["seen", "as-local", "grouped", "hidden"]
"""What a promise assumes of those who see arms, in the order of how much it assumes."""
BATCH_MAX: Final = 1_000_000
"""The most that ``min_batch`` may be."""


def _promised(told: Mapping[str, Any]) -> tuple[str, float]:
    return str(told["model"]), told["epsilon"] or 0.0


class Privacy(Section):
    """The promise to one person under a trust model (`privateer_core.privacy.trust` has the models)."""

    model: str  # the trust model: who sees what
    # epsilon, delta: the promise. It is about what the trust model's adversary sees: a report by itself, a shuffled
    # batch, or what is published. Where nothing is promised neither is given.
    epsilon: float | None = Field(default=None, gt=0, le=16, allow_inf_nan=False)
    delta: float = Field(default=0.0, ge=0, lt=0.5, allow_inf_nan=False)
    # ``seen``: the promise holds against somebody who also sees which arm each person got, e.g. because the arm's
    # content is fetched over the network. ``hidden``: it counts on nobody seeing that. ``as-local``: shuffled reports
    # are made as if nobody hid them, with the coins that chose the arm. Against who sees arms a report keeps what it
    # keeps where nobody shuffles. ``grouped``: coins alone choose, and each arm's people are a batch of their own. The
    # promise holds against who sees arms as long as nobody drops or falsifies reports by their arm.
    arms: Arms = "seen"
    # the fewest reports that a shuffler releases together. By default 1,000; where reports are private by themselves,
    # too, 300 from epsilon 2 and 100 from epsilon 4.
    min_batch: int = Field(default_factory=lambda told: usual_batch(*_promised(told)), ge=1, le=BATCH_MAX)
    # the share of a batch that is assumed to send what the client library sends
    honest_fraction: float = Field(default=0.9, gt=0, le=1, allow_inf_nan=False)
    # the most that a shuffled report may cost by itself, if shuffler and server collude. By default epsilon + 2, at
    # least 4 and at most 16.
    local_epsilon_max: float = Field(
        default_factory=lambda told: usual_local_epsilon(*_promised(told)),
        gt=0,
        le=LOCAL_EPSILON_MOST,
        allow_inf_nan=False,
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        promises, where = self.trust.promises, f"under the model '{self.model}'"
        if promises and self.epsilon is None:
            raise SpecError(f"must be given {where}", field="privacy.epsilon", remedy="add it")
        for name in ("epsilon", "delta"):
            if not promises and getattr(self, name):
                detail = f"must not be given {where}, which promises nothing"
                raise SpecError(detail, field=f"privacy.{name}", remedy="remove it")
        if self.arms in ("as-local", "grouped") and self.trust.hides_arms and not self.trust.batched:
            detail = f"'{self.arms}' needs reports that are private by themselves, and {where} none is"
            raise SpecError(detail, field="privacy.arms", remedy="remove it")
        return self

    @property
    def trust(self) -> Trust:
        """The row of the trust model; promises that are kept in another way have rows of their own."""
        return trust_of(self.model)

    @property
    def bound(self) -> float:
        """Epsilon of the promise, infinite without a promise."""
        return math.inf if self.epsilon is None else self.epsilon

    @property
    def arm_in_key(self) -> bool:
        """Whether reports hide the arm as they hide the bin, so that the coins of a report say nothing about it."""
        return self.arms == "seen" and self.trust.hides_arms

    @property
    def as_alone(self) -> bool:
        """Whether shuffled reports are made as those that nobody hides: each keeps epsilon by itself."""
        return self.arms == "as-local" and self.trust.batched

    @property
    def alone_most(self) -> float:
        """The most that a shuffled report may cost by itself."""
        return self.bound if self.as_alone else self.local_epsilon_max


def idle_default(name: str) -> Any:
    """Return what a key of ``[privacy]`` is where it says nothing."""
    return getattr(Privacy(model=stands_alone().name, epsilon=1.0), name)
