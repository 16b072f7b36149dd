"""How a figure grows: slopes of its logarithm in that of another, with intervals, and what a theorem promises."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from privateer_papers.reproduction import Rows

_LEVEL = 0.975
_ERRORS = 2.0
"""Standard errors by which a slope has to be above a promise before that is said."""


@dataclass(frozen=True)
class Slope:
    """A slope of logarithms."""

    value: float
    half: float  # half of its 95 % interval
    error: float  # its standard error

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.half:.2f}"

    def is_above(self, promised: float) -> bool:
        """Whether it is above what a theorem promises by more than two standard errors."""
        return self.value - _ERRORS * self.error > promised

    def beside(self, promised: float) -> str:
        """Say where it is, by its interval: above what a theorem promises, below, or as that."""
        if self.value - self.half > promised:
            return "above"
        return "below" if self.value + self.half < promised else "as"


def slope(rows: Rows, fact: str = "people", figure: str = "regret") -> Slope:
    """Return the slope of the logarithm of a figure in that of a fact.

    Least squares with an intercept for each seed, whose people are those of one problem at every value of the fact;
    errors by Student's t, from the residuals. So an interval is wide, too, where points are not on a line.
    """
    seeds = rows.values("seed")
    free = len(rows) - len(seeds) - 1
    if free < 1 or len(rows.values(fact)) < 2:
        raise LookupError("too few runs for a slope")
    x, y = (np.log([row[name] for row in rows]) for name in (fact, figure))
    for seed in seeds:
        own = np.array([row["seed"] == seed for row in rows])
        x[own] -= x[own].mean()
        y[own] -= y[own].mean()
    found = float(x @ y / (x @ x))
    error = float(np.sqrt(np.square(y - found * x).sum() / free / (x @ x)))
    return Slope(found, float(stdtrit(free, _LEVEL)) * error, error)


def draw_growth(
    axis: Any, rows: Rows, fact: str, label: str, colour: str, style: str = ".-", figure: str = "regret"
) -> tuple[list[Any], NDArray[np.float64]]:
    """Draw the mean of a figure against a fact, with a band; return the values of the fact, and the means there."""
    at, (middle, half) = rows.curve(fact, figure)
    low = np.maximum(middle - half, middle / 4)  # few seeds make intervals that reach below 0
    axis.plot(at, middle, style, color=colour, label=label)
    axis.fill_between(at, low, middle + half, color=colour, alpha=0.12, linewidth=0)
    return at, middle


def scale_growth(axis: Any, title: str, fact: str, *, size: float = 9, base: float = 10) -> None:
    """Make both axes logarithmic, where growth is a slope, and name them."""
    axis.set_title(title, fontsize=size)
    axis.set_xscale("log", base=base)
    axis.set_yscale("log")
    axis.set_xlabel(fact)
    axis.legend(fontsize=6)
