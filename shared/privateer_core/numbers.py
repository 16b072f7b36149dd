"""Numbers as applications have them. No message carries one."""

import math
from typing import Any, Final

import numpy as np

_GAPS: Final = ("NAType", "NaTType")
"""What pandas calls its missing values; nothing here imports it."""


def is_number(value: Any) -> bool:
    """Whether an application's value is a number that floating point has, and not NaN; True and False are not."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    try:
        return not math.isnan(value)
    except OverflowError:
        return False


def is_missing(value: Any) -> bool:
    """Whether an application's value is None, NaN, or what data frames write in their place."""
    if isinstance(value, float | np.floating):
        return math.isnan(value)
    return value is None or type(value).__name__ in _GAPS
