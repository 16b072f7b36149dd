"""Numbers as applications have them. No message carries one."""

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from privateer_core.errors import InputError

if TYPE_CHECKING:
    from privateer_core.spec import Reward

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


def scaled_reward(value: Any, reward: "Reward") -> tuple[float, bool]:
    """Scale a reward to [0, 1]; also tell whether it had to be clipped to its bounds.

    Raises
    ------
    InputError
        If it is not a number, or NaN.
    """
    if not is_number(value):
        raise InputError("must be a number, and not NaN", field="reward", remedy="report 0 or 1 for no or yes")
    scaled = (float(value) - reward.low) / (reward.high - reward.low)
    return min(1.0, max(0.0, scaled)), not 0.0 <= scaled <= 1.0
