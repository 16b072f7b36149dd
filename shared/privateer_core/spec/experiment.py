"""The ``[experiment]`` of every spec, and the sources, cohorts that report before its own participants."""

import re
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from privateer_core.spec.sections import NAME, Section

WINDOW_MAX: Final = 365 * 86_400  # maximum conversion window, in seconds: a year
REPORTS_MAX: Final = 1000  # maximum number of reports of a participant
PERIOD_MIN: Final = 3600
"""Minimum report period, in seconds: a device stores its number, which must not reveal a finer time."""
EPSILON_MIN: Final = 1e-9
"""Minimum epsilon of a promise: far below it, the variance of estimates is too large a number."""
_PEOPLE_MAX: Final = 10_000_000_000
_GRAINS_PER_WINDOW: Final = 100  # number of possible ends within a conversion window
_DAY_SECONDS: Final = 86_400
_ARRIVALS_MAX: Final = 1e9


def is_name(text: str) -> bool:
    """Whether a text is a valid name of an experiment."""
    return re.fullmatch(NAME, text) is not None


class Source(Section):
    """A cohort that reports on its earlier arms, before the experiment's own participants (auxiliary data)."""

    name: str = Field(pattern=NAME)  # lower-case letters, digits and dashes
    participants: int = Field(ge=1, le=1_000_000_000)  # maximum number of its reports
    # its promise, instead of the experiment's epsilon; the rest of the promise is the same
    epsilon: float | None = Field(default=None, ge=EPSILON_MIN, le=16, allow_inf_nan=False)
    # share of the cohort's participants with each arm, independent of the context, in the order of ``arms``: a public
    # behaviour policy. Their arms are secret.
    shares: tuple[Annotated[float, Field(ge=0, le=1)], ...] | Literal["unknown"] | None = None
    # instead of shares, where the behaviour policy looked at the context: the least propensity of each arm. A device
    # has its participant's own propensity, and weighs by its inverse, at most by the inverse of the least one.
    min_propensities: tuple[Annotated[float, Field(ge=0, le=1)], ...] | None = None
    population: dict[str, Any] | None = None  # the cohort in simulation; the experiment's own if not given

    @property
    def reporting_shares(self) -> tuple[float, ...] | Literal["unknown"] | None:
        """Share of the cohort's participants who report on each arm, the same for every context."""
        return self.shares if self.min_propensities is None else self.min_propensities


class ExperimentTable(Section):
    """The ``[experiment]`` of every spec."""

    name: str = Field(pattern=NAME)  # lower-case letters, digits and dashes
    horizon: int = Field(ge=1, le=_PEOPLE_MAX)  # length of the experiment: maximum number of reports, or of plays
    # seconds from a choice to its report, in which the outcome may occur. 0: devices report as soon as they know the
    # outcome.
    conversion_window_seconds: float = Field(default=0.0, ge=0, le=WINDOW_MAX, allow_inf_nan=False)
    # expected number of choices in a day, for the number in a conversion window; None: unknown
    arrivals_per_day: float | None = Field(default=None, gt=0, le=_ARRIVALS_MAX, allow_inf_nan=False)
    # maximum number of reports of a participant; the promise is for all of them together. If every report must keep it
    # by itself, a device reports once, at a turn that is drawn in advance.
    reports_per_person: int = Field(default=1, ge=1, le=REPORTS_MAX)
    # seconds: a participant reports at most once in each such period of the calendar; by default a day
    report_period_seconds: float = Field(default=86_400.0, ge=PERIOD_MIN, le=WINDOW_MAX, allow_inf_nan=False)
    # the organisation whose shuffler alone may take the reports, by the name of its file of keys; empty: any that the
    # server trusts
    shuffler: str = Field(default="", pattern=rf"^$|{NAME}")

    @property
    def n_choices_in_window(self) -> float | None:
        """Number of choices between a choice and its report; None if the number of arrivals is unknown."""
        if self.arrivals_per_day is None:
            return None if self.conversion_window_seconds else 0.0
        return self.conversion_window_seconds / _DAY_SECONDS * self.arrivals_per_day


def window_grain(window: float) -> float:
    """Return the seconds to a multiple of which devices round the end of a window, to hide the time of a choice."""
    return max(1.0, window / _GRAINS_PER_WINDOW)
