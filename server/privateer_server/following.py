"""Which policies the reports of a round are about, where people report some time after they have chosen."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_TIMES: Final = 16
_LEAST: Final = 1e-3
"""Shares below this are left out."""


def shares_by_policy(
    opened: Sequence[float], opens: float, closes: float, delayed: Callable[[Array], Array], ends: float = np.inf
) -> Array:
    """Return the share of a round's reports that is about the decisions of each policy, (policies,); they sum to 1.

    As many people choose at any time, and as many report while the round is open.

    Parameters
    ----------
    opened
        When each policy began to decide, rising; each decides until the next one begins.
    opens, closes
        When the round began and ended to take reports.
    delayed
        The probability that a report comes at most so long after its choice; 0 for negative times.
    ends
        When the last choice was made.
    """
    reported = opens + (closes - opens) * (np.arange(_TIMES) + 0.5) / _TIMES
    bounds = np.minimum(np.append(opened, np.inf), ends)
    since = delayed(reported[:, None] - bounds)
    shares = (since[:, :-1] - since[:, 1:]).sum(axis=0)
    if shares.sum() <= 0:
        return np.append(np.zeros(len(opened) - 1), 1.0)
    shares = np.where(shares < _LEAST * shares.sum(), 0.0, shares)
    return np.asarray(shares / shares.sum())
