"""Every arm with the same chance: what an experiment earns before anything is learned."""

import numpy as np
from numpy.typing import NDArray

from privateer_lab.baselines.base import Baseline, Visitors


class Uniform(Baseline):
    """Uniformly random arms. Learns nothing, so costs no privacy."""

    def choose(self, visitors: Visitors) -> NDArray[np.int64]:
        """Arms of the next people of the round, shape (n,)."""
        return self.rng.integers(0, self.spec.arm_count, len(visitors))
