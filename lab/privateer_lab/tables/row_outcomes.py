"""What came of each row of a test: values, their bounds, and whether they are numbers."""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from privateer_lab.tables.rewards import RewardBounds, turned

Array = NDArray[np.float64]
_UNIT: Final = (0.0, 1.0)


@dataclass(frozen=True)
class RowOutcomes:
    """Outcomes of rows, or of what stands for them."""

    values: Array  # shape (n,)
    # the least and the largest that count; those of the outcomes themselves, where values are made of these
    bounds: RewardBounds
    is_numeric: bool  # whether they are numbers; else 1 and 0
    is_derived: bool = False  # whether values are made of outcomes, so that they may be beyond the bounds of these

    @property
    def is_yes_or_no(self) -> bool:
        """Whether outcomes are yes or no."""
        return not self.is_numeric and self.ends == _UNIT

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the largest value."""
        if self.is_derived:
            low, high = float(self.values.min()), float(self.values.max())
            return low, high if high > low else low + 1.0  # rewards have a range, whether they vary or not
        return self.bounds.low, self.bounds.high

    @property
    def clipped(self) -> Array:
        """The values within the bounds, (n,)."""
        return self.values if self.is_derived else np.clip(self.values, self.bounds.low, self.bounds.high)

    def derived(self, values: Array) -> Self:
        """Return values that are made of these outcomes, such as means of clusters, (m,)."""
        return type(self)(values, self.bounds, True, True)

    def turned(self) -> Self:
        """Return values of which more is better where less was."""
        values, bounds = turned(self.values, self.bounds, is_binary=not self.is_numeric)
        return type(self)(values, bounds, self.is_numeric, self.is_derived)
