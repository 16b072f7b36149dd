"""The arm that a device stores after the report on its choice, and how choices are stored."""

import math
from typing import Any, ClassVar, Final, Self

import msgspec
import numpy as np

from privateer_client.participation import Participation, StoredChoice, displayed_arm, period_number
from privateer_core.arrays import Array, Coins, Ints
from privateer_core.codec import encode
from privateer_core.errors import InputError
from privateer_core.primitives.secret_values import SecretValues
from privateer_core.privacy.terms import Terms
from privateer_core.spec.spec import Spec

_BYTES_MAX: Final = 1 << 20


def pinned_terms(spec: Spec, terms: Terms) -> str:
    """Return the terms that must be the same for all reports that share a promise."""
    table, allotment = spec.experiment, terms.allotment
    terms_by_name = {
        "reports": table.reports_per_person,
        "period": table.report_period_seconds,
        "model": terms.model,
        "epsilon": terms.epsilon if math.isfinite(terms.epsilon) else None,
        "delta": terms.delta,
        "each": allotment and allotment.report_event,
        "arms": spec.privacy.arm_visibility,
        "honest_fraction": spec.privacy.honest_fraction,
    }
    return msgspec.json.encode(terms_by_name, order="deterministic").decode()


class StoredArm(SecretValues, frozen=True, eq=False):
    """The arm that a device stores after the report, without context, outcome and the coins of the report."""

    # coins: by which the final policy decides, (1,), or none yet, (0,)
    coins: Coins = msgspec.field(default_factory=lambda: np.zeros(0, np.uint32))
    # name, points: what the person was shown, as `StoredChoice` has it
    name: bytes = b""
    arms: Ints = msgspec.field(default_factory=lambda: np.zeros(0, np.int64))
    points: Array = msgspec.field(default_factory=lambda: np.zeros((0, 0)))
    # meaning, options, period: of the choice
    meaning: bytes = b""
    options: int = 0
    period: int = 0
    offset: ClassVar[float] = 0.0  # no report is made of it

    @property
    def display_value(self) -> Any:
        """The arm as the application got it."""
        return displayed_arm(self.name, self.arms, self.points)

    def with_choice(self, choice: StoredChoice) -> Self:
        """Return a copy with the arm of a choice, without the coins of the choice."""
        return msgspec.structs.replace(self, name=choice.name, arms=choice.arms, points=choice.points,
            meaning=choice.meaning, options=choice.options, period=choice.period)  # fmt: skip

    def is_valid(self, participation: Participation, now: float) -> bool:
        """Whether the arm is still valid: until it is retired, or its period or the experiment ends."""
        if not len(self.arms) or participation.is_over or self.period != period_number(participation.spec, now):
            return False
        return (
            self.meaning == participation.meaning_digest(self.options)
            and self.display_value not in participation.spec.retired
        )


def encode_choice(choice: StoredChoice) -> bytes:
    """Serialize a choice to a size that depends on the publication alone, or refuse a choice above the size limit."""
    body = encode(choice)
    if len(body) > _BYTES_MAX:
        remedy = "report without keeping the choice"
        raise InputError("too large for the ledger to keep", field="context", remedy=remedy)
    return body
