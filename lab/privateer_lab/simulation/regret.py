"""What was chosen, against what could have been chosen."""

from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from privateer_lab.environments import PlayedRewards

Point: TypeAlias = tuple[int, float, float, float]
"""How often anything was chosen, and the regrets of the choices, of the best constant option, and of random ones."""
_DUST: Final = 1e-12
"""What rounding adds to a sum, as a share of it."""


@dataclass
class Score:
    """Sums over all choices so far: rewards received, and what was played in expected rewards."""

    reward: float = 0.0
    played: PlayedRewards = field(default_factory=lambda: PlayedRewards(0, 0.0, 0.0, np.zeros(1)))

    def add(self, played: PlayedRewards, reward: float) -> None:
        """Count choices, and the rewards received for them."""
        self.reward += reward
        so_far = self.played
        self.played = PlayedRewards(
            so_far.times + played.times,
            so_far.expected + played.expected,
            so_far.best + played.best,
            np.asarray(so_far.by_option + played.by_option),
        )

    @property
    def regret(self) -> float:
        """Expected reward that the choices lost against the best option each time."""
        return self.played.best - self.played.expected

    @property
    def best_constant_regret(self) -> float:
        """Expected reward that the single option loses that is best on the whole; sums in two orders differ by dust."""
        lost = self.played.best - float(self.played.by_option.max())
        return lost if lost > _DUST * abs(self.played.best) else 0.0

    @property
    def uniform_regret(self) -> float:
        """Expected reward that options at random lose."""
        return self.played.best - float(self.played.by_option.mean())

    @property
    def point(self) -> Point:
        """Where the choices stand."""
        return self.played.times, self.regret, self.best_constant_regret, self.uniform_regret
