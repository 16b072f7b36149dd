"""The lead of a log's best single option over the option of which that is least certain."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_lab.analysis.clusters import cluster_standard_error
from privateer_lab.planning.expectation.expected import Unit
from privateer_lab.tables import shorten

_DETECTION_ERRORS: Final = 2.8
"""Standard errors of a difference that a log shows in four cases of five."""
_MAX_LOG_RATIO: Final = 100.0
"""Rows of the largest log that is advised, in logs as large as this one."""
_ROUNDING_ERROR: Final = 1e-12


@dataclass(frozen=True)
class OptionLead:
    """How much more the best single option earns than another, in the reward's unit."""

    best: str
    other: str
    difference: float
    margin: float  # two standard errors
    n_rows: int  # of the log

    @property
    def is_clear(self) -> bool:
        """Whether it is beyond two standard errors."""
        return self.difference > self.margin

    def explain(self, unit: Unit) -> str:
        """Name the best single option and how sure that is, or say that rows do not tell, and how many would."""
        best, other = repr(shorten(self.best)), repr(shorten(self.other))
        comparison = f"{unit.points(self.difference)} ({unit.margin(self.margin)}) more than {other}"
        if self.is_clear:
            return f"One option for all: {best}. In these rows it earns {comparison}, which comes next."
        ratio = (_DETECTION_ERRORS * self.margin / 2 / max(self.difference, _ROUNDING_ERROR * self.margin)) ** 2
        n_needed = f"{float(f'{ratio * self.n_rows:.1g}'):,.0f}"
        remedy = f" If it is none, a log of about {n_needed} rows shows it." if ratio <= _MAX_LOG_RATIO else ""
        return (
            f"These rows do not tell which option is best: {best} earns {comparison} in them, which may be chance."
            f"{remedy}"
        )


def find_lead(
    options: Sequence[str], rewards: NDArray[np.float64], units: NDArray[np.int64], span: float
) -> OptionLead:
    """Return the least certain lead of the best option, from estimates of rewards in [0, 1], (n, options)."""
    best = int(rewards.mean(axis=0).argmax())
    leads = rewards[:, [best]] - rewards
    errors = [span * cluster_standard_error(lead, units) for lead in leads.T]
    others = [arm for arm in range(len(options)) if arm != best]
    differences = (span * leads.mean(axis=0)).tolist()
    other = min(others, key=lambda arm: differences[arm] / max(errors[arm], _ROUNDING_ERROR * span))
    return OptionLead(options[best], options[other], differences[other], 2 * errors[other], len(rewards))
