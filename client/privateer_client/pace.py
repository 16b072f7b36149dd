"""How long a device waits: for one answer, between tries, and until it leaves a report for later."""

import math
import secrets
from dataclasses import dataclass
from time import monotonic
from typing import Final

from privateer.errors import InputError

_FIRST: Final = 0.25
_MOST: Final = 30.0
"""Seconds that the first and the longest pause may take, before what the door asks for."""
_DOUBLINGS: Final = 16
_RANDOM: Final = secrets.SystemRandom()


@dataclass(frozen=True)
class Pace:
    """Times that depend on answers and chance alone, never on what a report says.

    Attributes
    ----------
    timeout
        Seconds for one request and its whole answer.
    patience
        Seconds after which no new try begins.

    Raises
    ------
    InputError
        If one is out of range.
    """

    timeout: float = 10.0
    patience: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.timeout < math.inf:
            raise InputError("must be above 0 and finite", field="timeout", remedy="10 seconds are usual")
        if not 0 <= self.patience < math.inf:
            raise InputError("must be at least 0 and finite", field="patience", remedy="10 seconds are usual")

    def now(self) -> float:
        """Seconds on a clock that nobody sets."""
        return monotonic()

    def backoff(self, tries: int) -> float:
        """Seconds to pause after that many tries: anywhere up to a bound that doubles, so that devices spread."""
        return _RANDOM.uniform(0.0, min(_MOST, _FIRST * 2.0 ** min(tries - 1, _DOUBLINGS)))
