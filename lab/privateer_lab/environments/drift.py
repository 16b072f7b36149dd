"""Mean rewards that move, by a step every so many people: within a phase everybody is alike."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from privateer.sections import Section

Array = NDArray[np.float64]


class Drift(Section, ABC):
    """How mean rewards move.

    Attributes
    ----------
    period
        People in a phase: person i is in phase i // period.
    """

    period: int = Field(ge=1)

    @abstractmethod
    def cycle(self, arms: int) -> int:
        """Return the phases after which all is as in the first, and which start at 0 again; 0 if there is no end."""

    @abstractmethod
    def means(self, first: Callable[[Array], Array], contexts: Array, phases: Array) -> Array:
        """Return the means, (n, arms), of contexts (n, d) in phases (n,), by what they were ``first``."""


class SwapDrift(Drift):
    """In phase i, arm k of K has the mean rewards that arm k + i (mod K) began with."""

    name: Literal["swap"]

    def cycle(self, arms: int) -> int:
        """Return the number of arms."""
        return arms

    def means(self, first: Callable[[Array], Array], contexts: Array, phases: Array) -> Array:
        """Return means with the arms turned, shape (n, arms)."""
        began = first(contexts)
        arms = began.shape[1]
        turned = (np.arange(arms) + phases.astype(np.int64)[:, None]) % arms
        return np.asarray(np.take_along_axis(began, turned, axis=1))


class SlideDrift(Drift):
    """In phase i, mean rewards at x1 are those that x1 - i step began with, folded back into [0, 1] at its ends."""

    name: Literal["slide"]
    step: float = Field(ge=-1, le=1, allow_inf_nan=False)

    def cycle(self, _arms: int) -> int:
        """Return 0."""
        return 0

    def means(self, first: Callable[[Array], Array], contexts: Array, phases: Array) -> Array:
        """Return means at the places moved, shape (n, arms)."""
        moved = contexts.copy()
        moved[:, 0] = 1 - np.abs(1 - (contexts[:, 0] - self.step * phases) % 2)
        return first(moved)
