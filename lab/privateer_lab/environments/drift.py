"""Mean rewards that move, by a step every so many people: within a phase everybody is alike."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from privateer.population import SlideDrift, SwapDrift
from privateer_lab.environments.function import Function


class Drift(Protocol):
    """A law of motion.

    Attributes
    ----------
    period
        People in a phase: person i is in phase i // period.
    cycle
        Phases after which everything is as in the first, and which start at 0 again; 0 if that never happens.
    """

    period: int
    cycle: int

    def means(
        self, function: Function, contexts: NDArray[np.float64], phases: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Expected reward of every arm for contexts (n, d) in phases (n,); shape (n, arms)."""
        ...


class Swap:
    """In phase i, arm k of K has the mean rewards that arm k + i (mod K) began with."""

    def __init__(self, period: int, arms: int) -> None:
        self.period, self.cycle = period, arms

    def means(
        self, function: Function, contexts: NDArray[np.float64], phases: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Shape (n, arms)."""
        turned = (np.arange(self.cycle) + phases.astype(np.int64)[:, None]) % self.cycle
        return np.asarray(np.take_along_axis(function.means(contexts), turned, axis=1))


class Slide:
    """In phase i, mean rewards at x1 are those that x1 - i step began with, folded back into [0, 1] at its ends."""

    cycle = 0

    def __init__(self, period: int, step: float) -> None:
        self.period, self.step = period, step

    def means(
        self, function: Function, contexts: NDArray[np.float64], phases: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Shape (n, arms)."""
        moved = contexts.copy()
        moved[:, 0] = 1 - np.abs(1 - (contexts[:, 0] - self.step * phases) % 2)
        return function.means(moved)


def phase_of(drift: Drift, people: NDArray[np.int64]) -> NDArray[np.int64]:
    """Phases of the people after so many, shape (n,)."""
    phases = people // drift.period
    return phases % drift.cycle if drift.cycle else phases


def drift_for(section: SwapDrift | SlideDrift | None, arms: int) -> Drift | None:
    """The drift that a spec names."""
    if section is None:
        return None
    return Swap(section.period, arms) if isinstance(section, SwapDrift) else Slide(section.period, section.step)
