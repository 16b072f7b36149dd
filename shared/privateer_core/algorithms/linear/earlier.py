"""Reports on decisions of earlier policies: the class of a person is the one that the coins of the choice had then."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.analyzers import Analyzer
from privateer_core.contributions import BoundedVectors, VectorSums
from privateer_core.vectors import VectorTotal

Coins = NDArray[np.uint32]


@dataclass(frozen=True)
class ByClasses(Analyzer):
    """Counts reports whose coins had other classes when they chose.

    Attributes
    ----------
    classes
        How many classes the round has.
    of
        Returns the class of each of the coins.
    """

    classes: int
    of: Callable[[Coins], NDArray[np.int64]]

    @override
    def tally(self, mechanism: Any, rows: bytes) -> VectorTotal:
        alone: Any = msgspec.structs.replace(mechanism, classes=1)
        reports = alone.parse(rows)
        own = self.of(reports["slot"])
        parts = [alone.add(alone.empty(), reports[own == one]).sums for one in range(self.classes)]
        return VectorTotal(len(reports), np.concatenate(parts))

    @override
    def simulate(self, mechanism: Any, contributions: BoundedVectors, rng: np.random.Generator) -> VectorSums:
        alone: Any = msgspec.structs.replace(mechanism, classes=1)
        own = self.of(contributions.coins)
        parts = [
            alone.simulate(BoundedVectors(contributions.coins[own == one], contributions.values[own == one]), rng)
            for one in range(self.classes)
        ]
        noise = sum(part.noise for part in parts) / self.classes
        return VectorSums(len(contributions), np.concatenate([part.sums for part in parts]), noise)
