"""Allotments: privacy budgets of a participant's single reports, which together keep the promise of all reports."""

import math
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import (
    Approximate,
    Event,
    Gaussian,
    Pure,
    Sequential,
    ShuffledMessage,
    ShuffledResponse,
    ShuffledSubset,
)
from privateer_core.accounting.gaussian import gaussian_epsilon, gaussian_standard_deviation
from privateer_core.accounting.loss import Composition, loss_from_curve
from privateer_core.errors import SpecError
from privateer_core.portable import round_up

POINTS: Final = 64
"""Steps from 0 to the end of the grid on which curves are compared."""
_SLACK_SHARE: Final = 0.05
"""Share of delta for losses that normal noise does not cover: tails of binomials, and samplers of noise."""
_GRID_END_SHARE: Final = 0.1
"""The grid ends at the epsilon at which normal noise has this share of the slack as delta."""
_COMPOSITION_SHARE: Final = 1 - 1e-3
"""Share of delta that the composition may use. The remainder covers the last digits of other machines and grids."""
_DIGITS: Final = 4
_HONEST_REPORTS_MAX: Final = 200_000
"""Largest number of honest reports of a batch that an allotment counts on."""
_RESOLUTION: Final = 1e-3
"""Local epsilons are searched, and published, in steps of this size."""
_SEARCH_STRIDE: Final = 8
"""A search compares curves at every eighth point of the grid, and at all points at its end."""


class Allotment(msgspec.Struct, frozen=True, dict=True):
    """The privacy budget of one report: the curve of normal noise, plus a failure probability ``slack``.

    Every report whose curve is below the budget's on the grid is dominated by the same pair of distributions. So any
    ``reports`` of them, chosen adaptively or not, compose to at most the composition of that pair
    (docs/privacy/several-reports.md has the proof).

    Attributes
    ----------
    reports
        Number of reports that share the promise.
    pure
        Epsilon of each report if delta is 0; otherwise 0.
    standard_deviation, slack
        Standard deviation of normal noise at sensitivity 1, and failure probability of a report; 0 if delta is 0.
    """

    reports: int
    pure: float
    standard_deviation: float
    slack: float

    @cached_property
    def report_event(self) -> Event:
        """The event of one report, whose repetition costs the promise."""
        if self.pure:
            return Pure(self.pure)
        return Sequential((Gaussian(self.standard_deviation), Approximate(0.0, self.slack)))

    @cached_property
    def grid(self) -> tuple[tuple[float, float], ...]:
        """Pairs of an epsilon at which curves are compared, from 0 on, and the largest delta allowed at it."""
        end = self.pure or gaussian_epsilon(_GRID_END_SHARE * self.slack, self.standard_deviation)
        curve = account(self.report_event)
        return tuple((float(e), curve.delta(float(e))) for e in np.linspace(0.0, end, POINTS + 1))

    def can_cover(self, event: Event, sampling: float = 0.0, digits: float = 0.0) -> bool:
        """Whether the privacy curve of a report is nowhere above the allotment's.

        Parameters
        ----------
        event
            The event of the report's release.
        sampling
            Upper bound of delta that the sampler of noise adds.
        digits
            Relative tolerance of delta, since last digits differ between machines.
        """
        return self.find_excess(event, range(POINTS + 1), sampling, digits) is None

    def find_excess(
        self, event: Event, points: Sequence[int], sampling: float = 0.0, digits: float = 0.0
    ) -> int | None:
        """Return the first of ``points`` of the grid at which a report's curve is above the allotment's, or None.

        The other parameters are those of `can_cover`.
        """
        # More honest reports never harm, and devices have no time for millions.
        if isinstance(event, ShuffledResponse | ShuffledSubset | ShuffledMessage):
            event = replace(event, honest=min(event.honest, _HONEST_REPORTS_MAX))
        curve, grid = account(event), self.grid
        return next((i for i in points if curve.delta(grid[i][0]) + sampling > grid[i][1] * (1 + digits)), None)

    def composed_delta(self, epsilon: float) -> float:
        """Return delta at ``epsilon`` of the composition of all reports, if the allotment covers each."""
        if self.pure:
            return 0.0 if epsilon >= self.pure * self.reports else 1.0
        step = self.grid[1][0]
        pair = loss_from_curve(account(self.report_event).delta, step, (POINTS - 0.5) * step)
        return Composition(((pair, self.reports),)).delta(epsilon)


@lru_cache(maxsize=256)
def allot(epsilon: float, delta: float, reports: int, min_slack: float) -> Allotment:
    """Divide a promise among several reports of a participant, by a public rule that devices recompute.

    Parameters
    ----------
    epsilon, delta
        Promise of all reports together.
    reports
        Number of reports, at least 2.
    min_slack
        Smallest slack of a report if delta is above 0.

    Raises
    ------
    SpecError
        If ``delta`` is too small for the number of reports.
    """
    if delta == 0:
        return Allotment(reports, math.nextafter(epsilon / reports, 0.0), 0.0, 0.0)
    slack = max(_SLACK_SHARE * delta / reports, min_slack)
    if 2 * reports * slack > delta:
        detail = f"must be at least {2 * reports * slack:g} for {reports} reports a person"
        raise SpecError(detail, field="privacy.delta", remedy="raise it, or lower experiment.reports_per_person")
    standard_deviation = math.sqrt(reports) * gaussian_standard_deviation(epsilon, delta - reports * slack)
    allotment = Allotment(reports, 0.0, round_up(standard_deviation, _DIGITS), slack)
    while allotment.composed_delta(epsilon) > _COMPOSITION_SHARE * delta:
        larger_deviation = round_up(math.nextafter(allotment.standard_deviation, math.inf), _DIGITS)
        allotment = Allotment(reports, 0.0, larger_deviation, slack)
    return allotment


@lru_cache(maxsize=4096)
def allotted_local_epsilon(
    allotment: Allotment, symbols: int, batch: int, limit: float, *, n_own: int | None = None, proved: bool = True
) -> float:
    """Return the largest local epsilon, at most ``limit``, whose shuffled batch an allotment covers.

    Parameters
    ----------
    allotment
        Privacy budget of the report.
    symbols, batch, limit
        As `privateer_core.accounting.amplification.amplified_local_epsilon`.
    n_own
        Number of a participant's own symbols in subset selection; None: randomized response.
    proved
        Whether to compare at all points of the grid; without, the result is hardly larger, in a tenth of the time.

    Returns
    -------
    float
        A multiple of 0.001, or ``limit``.

    Raises
    ------
    SpecError
        If the local epsilon would be 0.
    """

    def find_excess(local_epsilon: float, points: Sequence[int]) -> int | None:
        """Return the first of the grid's points at which a report costs too much; None if there is none."""
        response = ShuffledResponse(local_epsilon, symbols, batch)
        event = response if n_own is None else ShuffledSubset(local_epsilon, symbols, n_own, batch)
        return allotment.find_excess(event, points)

    points, every_point = list(range(0, POINTS + 1, _SEARCH_STRIDE)), range(POINTS, -1, -1)
    if find_excess(limit, points) is None and not (proved and find_excess(limit, every_point) is not None):
        return limit
    low, high = 0, math.ceil(limit / _RESOLUTION)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if find_excess(middle * _RESOLUTION, points) is None else (low, middle)
        # The search goes on with a point at which its result costs too much, if there is one: smaller ones are enough
        # at the other points.
        if proved and low and high - low == 1 and (excess := find_excess(low * _RESOLUTION, every_point)) is not None:
            points, low, high = [excess], 0, low
    if not low:
        detail = f"a batch of {batch} honest reports is too small for {allotment.reports} reports a person"
        raise SpecError(detail, field="privacy.min_batch", remedy="raise it, or lower experiment.reports_per_person")
    return round(low * _RESOLUTION, 3)
