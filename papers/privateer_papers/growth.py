"""Growth of figures: slopes of logarithms with confidence intervals, and their plots."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import nan
from typing import Any

import numpy as np
from scipy.special import stdtrit

from privateer_core.arrays import Array
from privateer_papers.reproduction import Rows, TableLine

_UPPER_QUANTILE = 0.975
_MIN_STANDARD_ERRORS = 2.0
"""Number of standard errors above a promised slope for a warning."""


@dataclass(frozen=True)
class Slope:
    """A slope of logarithms."""

    value: float
    half_width: float  # half of its 95 % interval
    error: float  # its standard error
    promised: float = nan  # the paper's slope

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.half_width:.2f}"

    @property
    def is_above(self) -> bool:
        """Whether the slope is above the paper's by more than two standard errors."""
        return self.value - _MIN_STANDARD_ERRORS * self.error > self.promised

    @property
    def side(self) -> str:
        """Whether the interval is above the paper's slope, below it, or contains it, in words."""
        if self.value - self.half_width > self.promised:
            return "above"
        return "below" if self.value + self.half_width < self.promised else "as"


def fit_slope(rows: Rows, fact: str = "people", figure: str = "regret", promised: float = nan) -> Slope:
    """Return the slope of the logarithm of a figure in that of a fact.

    Least squares with an intercept for each seed, which has the same problem at every value of the fact; intervals by
    Student's t, from the residuals. So an interval is wide, too, where points are not on a line.
    """
    seeds = rows.values("seed")
    degrees_of_freedom = len(rows) - len(seeds) - 1
    if degrees_of_freedom < 1 or len(rows.values(fact)) < 2:
        raise LookupError("too few runs for a slope")
    x, y = (np.log([row[name] for row in rows]) for name in (fact, figure))
    for seed in seeds:
        is_seed = np.array([row["seed"] == seed for row in rows])
        x[is_seed] -= x[is_seed].mean()
        y[is_seed] -= y[is_seed].mean()
    estimate = float(x @ y / (x @ x))
    error = float(np.sqrt(np.square(y - estimate * x).sum() / degrees_of_freedom / (x @ x)))
    return Slope(estimate, float(stdtrit(degrees_of_freedom, _UPPER_QUANTILE)) * error, error, promised)


def rate_curve(rows: Rows, fact: str, rate: Callable[..., float], *facts: str) -> tuple[list[Any], Array]:
    """Return the values of a fact, and a paper's rate at each, as a function of the facts there."""
    points = {row[fact]: row for row in rows}
    values = sorted(points)
    return values, np.array([rate(*(points[x][name] for name in facts)) for x in values])


def log_slope(x: list[Any], y: Array) -> float:
    """Return the slope of the line through log y at log x, by least squares."""
    if len(x) < 2:
        raise LookupError("too few points for a slope")
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def plot_growth(
    axis: Any, rows: Rows, fact: str, label: str, colour: str, style: str = ".-", figure: str = "regret"
) -> tuple[list[Any], Array]:
    """Draw the mean of a figure against a fact, with a band; return the values of the fact, and the means there."""
    x, (means, widths) = rows.curve(fact, figure)
    lower = np.maximum(means - widths, means / 4)  # few seeds make intervals that reach below 0
    axis.plot(x, means, style, color=colour, label=label)
    axis.fill_between(x, lower, means + widths, color=colour, alpha=0.12, linewidth=0)
    return x, means


def label_log_axes(axis: Any, title: str, fact: str, *, size: float = 9, base: float = 10) -> None:
    """Make both axes logarithmic, so that growth is a slope, and label them."""
    axis.set_title(title, fontsize=size)
    axis.set_xscale("log", base=base)
    axis.set(yscale="log", xlabel=fact)
    axis.legend(fontsize=6)


@dataclass(frozen=True)
class SlopeClaims:
    """Slopes that a paper claims, with templates for sentence, warnings and table lines.

    Templates may name the ``claim``, its ``name``, and our slope as ``fit``.
    """

    claims: Mapping[Any, Any]  # by name
    fit: Callable[[Rows], Mapping[Any, Mapping[str, Slope | None]]]  # slopes by name and player; None: it has none
    players: tuple[str, str]  # ours and the paper's
    summary: str  # a sentence on the numbers ``ours`` and ``theirs`` of slopes above the paper's, of ``total``
    warning: str
    label: str  # of a table line
    published: str = "{fit.promised:.2f}"  # the paper's slope in a table line
    heading: str = ""  # what slopes are of
    # what is said after a warning, by the name of its claim
    notes: Mapping[Any, Callable[[Rows], Iterator[str]]] = field(default_factory=dict)

    def remarks(self, _rows: Rows) -> list[str]:
        """Say what slopes are of."""
        return [self.heading]

    def sentence(self, rows: Rows) -> str:
        """Say how many slopes are above the paper's by more than two standard errors."""
        all_fits = self.fit(rows).values()
        n_own, n_theirs = (
            sum(fit is not None and fit.is_above for fit in (fits[player] for fits in all_fits))
            for player in self.players
        )
        return self.summary.format(total=len(self.claims), ours=n_own, theirs=n_theirs)

    def warn_of_steep_slopes(self, rows: Rows) -> list[str]:
        """Return a warning for each slope of ours that is above the paper's by more than two standard errors."""
        return [
            " ".join([self._format(self.warning, name, fits), *(self.notes[name](rows) if name in self.notes else ())])
            for name, fits in self.fit(rows).items()
            if (fit := fits[self.players[0]]) and fit.is_above
        ]

    def compare(self, rows: Rows) -> list[TableLine]:
        """Return a table line for each claim, in order: the slope of the paper, of its algorithm and of ours."""
        all_fits, lines = self.fit(rows), []
        for name in self.claims:
            fits = all_fits[name]
            words = (self._format(text, name, fits) for text in (self.label, self.published))
            figures = (f"{fit} ({fit.side})" if (fit := fits[player]) else "" for player in reversed(self.players))
            lines.append(TableLine(*words, *figures))
        return lines

    def _format(self, text: str, name: Any, fits: Mapping[str, Slope | None]) -> str:
        return text.format(name=name, claim=self.claims[name], fit=fits[self.players[0]])
