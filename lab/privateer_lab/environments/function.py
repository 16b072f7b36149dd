"""Mean rewards by a formula."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Function(Protocol):
    """Of contexts in the unit cube."""

    @property
    def arms(self) -> int:
        """Number of arms."""
        ...

    @property
    def features(self) -> int:
        """Number of features."""
        ...

    def means(self, contexts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Expected reward of every arm, in [0, 1]; contexts (n, d), result (n, arms)."""
        ...
