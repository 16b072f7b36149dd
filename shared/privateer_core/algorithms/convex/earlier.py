"""Reports on decisions of earlier policies: the direction is the one that the coins of the choice had then."""

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from privateer_core.coins import EarlierChoices
from privateer_core.contributions import KeyedSums, KeyedValues
from privateer_core.mechanisms.base import KeyedTotal


@dataclass(frozen=True)
class ByDirections:
    """Counts reports whose coins chose a direction under an earlier policy.

    Attributes
    ----------
    choices
        What the coins mean.
    """

    choices: EarlierChoices

    def tally(self, mechanism: Any, rows: bytes) -> KeyedTotal:
        """Parse reports and return their total."""
        aware: Any = msgspec.structs.replace(mechanism, layout=self.choices)
        total: KeyedTotal = aware.add(aware.empty(), aware.parse(rows))
        return total

    def simulate(self, mechanism: Any, contributions: KeyedValues, rng: np.random.Generator) -> KeyedSums:
        """Draw a release of people who decided so."""
        aware: Any = msgspec.structs.replace(mechanism, layout=self.choices)
        release: KeyedSums = aware.simulate(contributions, rng)
        return release
