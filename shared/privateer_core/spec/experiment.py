"""The ``[experiment]`` of every spec, and the cohorts that report ahead of its own people."""

import re
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from privateer_core.spec.sections import NAME, Section

WINDOW_MAX: Final = 365 * 86_400
"""The longest conversion window, in seconds: a year."""
REPORTS_MAX: Final = 1000
"""The most reports of a person."""
PERIOD_MIN: Final = 3600
"""The shortest period of reports, in seconds: a device keeps its number, which must not tell a finer time."""
_PEOPLE_MAX: Final = 10_000_000_000
_GRAINS: Final = 100
"""Parts of a conversion window."""
_DAY: Final = 86_400
_ARRIVALS_MAX: Final = 1e9


def is_name(text: str) -> bool:
    """Whether an experiment may have this name."""
    return re.fullmatch(NAME, text) is not None


class Source(Section):
    """A cohort that reports on arms it has played before, ahead of the experiment's own people (auxiliary data)."""

    name: str = Field(pattern=NAME)  # lower-case letters, digits and dashes
    people: int = Field(ge=1, le=1_000_000_000)  # how many may report
    # what it is promised, in place of the experiment's epsilon; the rest of the promise is the same
    epsilon: float | None = Field(default=None, gt=0, le=16, allow_inf_nan=False)
    # share of the cohort's people who played each arm, whatever their context, in the order of ``arms``: a public
    # behaviour policy. Their arms themselves are secret.
    shares: tuple[Annotated[float, Field(ge=0, le=1)], ...] | Literal["unknown"]
    population: dict[str, Any] | None = None  # the cohort in simulation; the experiment's own if not given


class ExperimentTable(Section):
    """The ``[experiment]`` of every spec."""

    name: str = Field(pattern=NAME)  # lower-case letters, digits and dashes
    # how long the experiment lasts: reports that may come, or times that something is played
    horizon: int = Field(ge=1, le=_PEOPLE_MAX)
    # seconds from a choice to the report on it: its outcome may come in between. 0: devices report when they are told
    # the outcome.
    conversion_window: float = Field(default=0.0, ge=0, le=WINDOW_MAX, allow_inf_nan=False)
    # people who are expected to choose in a day; None: unknown. It says how many choose within a conversion window.
    arrivals: float | None = Field(default=None, gt=0, le=_ARRIVALS_MAX, allow_inf_nan=False)
    # how often a person may come back and report; the promise is for all of their reports together. Where every report
    # has to keep it alone, a device reports one time of so many, drawn in advance.
    reports_per_person: int = Field(default=1, ge=1, le=REPORTS_MAX)
    # seconds: in each such period of the calendar a person reports once at most; by default a day
    report_period: float = Field(default=86_400.0, ge=PERIOD_MIN, le=WINDOW_MAX, allow_inf_nan=False)
    # the organisation whose shuffler alone may take the reports, by the name of its file of keys; empty: any that the
    # server trusts
    shuffler: str = Field(default="", pattern=rf"^$|{NAME}")

    @property
    def window_grain(self) -> float:
        """Seconds, of which devices end their windows at a multiple: it tells less of when somebody chose."""
        return grain_of(self.conversion_window)

    @property
    def waiting(self) -> float | None:
        """How many people choose between a choice and the report on it; None: nobody knows how many come."""
        if not self.conversion_window:
            return 0.0
        return None if self.arrivals is None else self.conversion_window / _DAY * self.arrivals


def grain_of(window: float) -> float:
    """Return the seconds of which devices end a window at a multiple."""
    return max(1.0, window / _GRAINS)
