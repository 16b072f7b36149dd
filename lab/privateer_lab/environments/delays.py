"""How long after their choices simulated people report, in people who come in between."""

import math
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import ndtr

from privateer_core.spec.sections import Section

Array = NDArray[np.float64]

_SPREAD: Final = 2.0
"""Standard deviation of the logarithm of a heavy-tailed delay: half of them are below .14 of the mean."""


class Delay(Section):
    """The ``delay`` of a ``[population]``.

    Attributes
    ----------
    law
        ``fixed``; ``exponential``; or ``heavy-tailed``, log-normal: most are short and some are very long.
    mean
        People who come, on average, between a person's choice and the report on it.
    """

    law: Literal["fixed", "exponential", "heavy-tailed"]
    mean: float = Field(ge=0, le=1e9, allow_inf_nan=False)

    def draw(self, people: int, rng: np.random.Generator) -> Array:
        """Draw the delays of n people, shape (n,)."""
        if self.law == "fixed" or not self.mean:
            return np.full(people, self.mean)
        if self.law == "exponential":
            return rng.exponential(self.mean, people)
        return rng.lognormal(self._location, _SPREAD, people)

    def at_most(self, delays: Array) -> Array:
        """Return the probability that a delay is at most each of these; 0 for negative ones."""
        if self.law == "fixed" or not self.mean:
            return np.asarray(delays >= self.mean, np.float64)
        positive = np.maximum(delays, 0.0)
        if self.law == "exponential":
            return np.asarray(-np.expm1(-positive / self.mean))
        with np.errstate(divide="ignore"):
            return np.asarray(ndtr((np.log(positive) - self._location) / _SPREAD))

    @property
    def _location(self) -> float:
        return math.log(self.mean) - _SPREAD**2 / 2
