"""What each of a person's several reports may cost, so that all of them together keep one promise."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
from msgspec.structs import replace

from privateer_core.accounting.accountant import Curve, account
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
from privateer_core.accounting.loss import Composition, from_curve
from privateer_core.errors import SpecError
from privateer_core.portable import round_up

POINTS: Final = 64
"""Steps from 0 to the end of the grid on which curves are compared."""
_SLACK: Final = 0.05
"""Share of delta that is for what normal noise does not cover: tails of binomials, and samplers of noise."""
_BEYOND: Final = 0.1
"""The grid ends where normal noise costs this share of the slack."""
_BELOW: Final = 1 - 1e-3
"""Share of delta that the composition may use: other machines' last digits, and other grids, have room."""
_DIGITS: Final = 4
_CROWD_MAX: Final = 200_000
"""The most honest reports of a batch that an allotment counts on."""
_RESOLUTION: Final = 1e-3
"""Local epsilons are searched, and published, in steps of this size."""
_FEW: Final = 8
"""A search compares at every so many points, and at all of them at its end."""


@dataclass(frozen=True)
class Allotment:
    """The most that one report may cost: that of normal noise, and a chance ``slack`` that anything goes.

    Whatever a report costs less than that on the grid is dominated by one pair of distributions, the same for all
    reports. So any ``reports`` of them, chosen on the way or not, compose to what that pair composes to
    (docs/privacy/several-reports.md has the proof).

    Attributes
    ----------
    reports
        How many share the promise.
    pure
        Epsilon of each, where delta is 0; otherwise 0.
    standard_deviation, slack
        Of normal noise at sensitivity 1, and of delta; 0 where delta is 0.
    """

    reports: int
    pure: float
    standard_deviation: float
    slack: float

    @cached_property
    def each(self) -> Event:
        """The most that a report may cost, as an event."""
        if self.pure:
            return Pure(self.pure)
        return Sequential((Gaussian(self.standard_deviation), Approximate(0.0, self.slack)))

    @property
    def curve(self) -> Curve:
        """The curve of `each`."""
        return account(self.each)

    @cached_property
    def grid(self) -> tuple[tuple[float, float], ...]:
        """The epsilons at which curves are compared, from 0 on, and the most that delta may be there."""
        end = self.pure or gaussian_epsilon(_BEYOND * self.slack, self.standard_deviation)
        return tuple((float(at), self.curve.delta(float(at))) for at in np.linspace(0.0, end, POINTS + 1))

    def covers(self, event: Event, sampling: float = 0.0, digits: float = 0.0, every: int = 1) -> bool:
        """Whether a report of this event costs no more than the allotment.

        Parameters
        ----------
        event
            What is seen of the report.
        sampling
            What the sampler of noise may add to delta.
        digits
            How much larger delta may be, relatively, since other machines compute other last digits.
        every
            Compare at every so many points; only 1 proves anything.
        """
        # More people never harm, and devices have no time for millions.
        if isinstance(event, ShuffledResponse | ShuffledSubset | ShuffledMessage):
            event = replace(event, honest=min(event.honest, _CROWD_MAX))
        curve = account(event)
        return all(curve.delta(at) + sampling <= most * (1 + digits) for at, most in self.grid[::every])

    def composed(self, epsilon: float) -> float:
        """Return delta at ``epsilon`` of all reports together, if each is covered."""
        if self.pure:
            return 0.0 if epsilon >= self.pure * self.reports else 1.0
        step = self.grid[1][0]
        pair = from_curve(self.curve.delta, step, (POINTS - 0.5) * step)
        return Composition(((pair, self.reports),)).delta(epsilon)


@lru_cache(maxsize=256)
def allot(epsilon: float, delta: float, reports: int, least: float) -> Allotment:
    """Share a promise out to several reports of a person: a public rule, which devices compute anew.

    Parameters
    ----------
    epsilon, delta
        The promise for all reports together.
    reports
        How many, 2 at least.
    least
        The least slack of a report, where delta is above 0.

    Raises
    ------
    SpecError
        If ``delta`` has no room for so many.
    """
    if delta == 0:
        return Allotment(reports, math.nextafter(epsilon / reports, 0.0), 0.0, 0.0)
    slack = max(_SLACK * delta / reports, least)
    if 2 * reports * slack > delta:
        raise SpecError(
            f"must be at least {2 * reports * slack:g} for {reports} reports a person",
            field="privacy.delta",
            remedy="raise it, or lower experiment.reports_per_person",
        )
    deviation = math.sqrt(reports) * gaussian_standard_deviation(epsilon, delta - reports * slack)
    made = Allotment(reports, 0.0, round_up(deviation, _DIGITS), slack)
    while made.composed(epsilon) > _BELOW * delta:
        more = round_up(math.nextafter(made.standard_deviation, math.inf), _DIGITS)
        made = Allotment(reports, 0.0, more, slack)
    return made


@lru_cache(maxsize=4096)
def allotted_local_epsilon(
    allotment: Allotment, symbols: int, batch: int, limit: float, *, proved: bool = True
) -> float:
    """Return the largest local epsilon, at most ``limit``, whose shuffled batch an allotment covers.

    Parameters
    ----------
    allotment
        What the report may cost.
    symbols, batch, limit
        As `privateer_core.accounting.amplification.amplified_local_epsilon`.
    proved
        Whether the result must hold; a guess, hardly larger, takes a tenth of the time.

    Returns
    -------
    float
        A multiple of 0.001, or ``limit``.

    Raises
    ------
    SpecError
        If nothing is left to say.
    """
    return _largest(lambda one: ShuffledResponse(one, symbols, batch), allotment, batch, limit, proved=proved)


@lru_cache(maxsize=4096)
def allotted_subset_epsilon(
    allotment: Allotment, symbols: int, own: int, batch: int, limit: float, *, proved: bool = True
) -> float:
    """Return the largest local epsilon of subset selection of ``own`` symbols, as `allotted_local_epsilon`."""
    return _largest(lambda one: ShuffledSubset(one, symbols, own, batch), allotment, batch, limit, proved=proved)


def _largest(
    event_of: Callable[[float], Event], allotment: Allotment, batch: int, limit: float, *, proved: bool
) -> float:
    def covered(local_epsilon: float, every: int = 1) -> bool:
        return allotment.covers(event_of(local_epsilon), every=every)

    if covered(limit, _FEW) and (not proved or covered(limit)):
        return limit
    low, high = 0, math.ceil(limit / _RESOLUTION)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if covered(middle * _RESOLUTION, _FEW) else (low, middle)
    while proved and low and not covered(low * _RESOLUTION):
        low -= 1
    if not low:
        detail = f"a batch of {batch} honest reports is too small for {allotment.reports} reports a person"
        raise SpecError(detail, field="privacy.min_batch", remedy="raise it, or lower experiment.reports_per_person")
    return round(low * _RESOLUTION, 3)
