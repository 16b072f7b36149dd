"""The arm that a person saw last, and the coins of the final policy; docs/sdk/choices.md says until when."""

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privateer_client.ledger.choice import KeptChoice, period_of, shown_of
from privateer_client.participation import Participation
from privateer_core.codec import decode, encode


@dataclass(frozen=True, eq=False, repr=False)
class KeptArm:
    """What stays on the device beside a choice: neither a context nor an outcome, nor coins that a report tells."""

    # coins: by which the final policy decides, (1,), or none yet, (0,)
    coins: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32))
    # name, points: what the person was shown, as `KeptChoice` has it
    name: bytes = b""
    arms: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    points: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))
    # meaning, options, period: of the choice
    meaning: bytes = b""
    options: int = 0
    period: int = 0

    @property
    def shown(self) -> Any:
        """What the person was shown last."""
        return shown_of(self.name, self.arms, self.points)

    def showing(self, choice: KeptChoice) -> Self:
        """Keep the arm of a choice, and leave its coins to its report."""
        return replace(self, name=choice.name, arms=choice.arms, points=choice.points,
            meaning=choice.meaning, options=choice.options, period=choice.period)  # fmt: skip

    def stands(self, followed: Participation, now: float) -> bool:
        """Whether it is still the person's: until it is retired, the period ends, or the experiment does."""
        if not len(self.arms) or followed.is_over or self.period != period_of(followed.spec, now):
            return False
        return self.meaning == followed.meaning(self.options) and self.shown not in followed.spec.retired


def encode_arm(arm: KeptArm) -> bytes:
    """Serialize an arm; its size does not tell which one it is."""
    return encode(arm)


def decode_arm(body: bytes) -> KeptArm:
    """Parse an arm."""
    return decode(body, KeptArm)
