"""Contexts and rewards as the application has them, to what the policy takes. Errors name features, never values."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privateer.errors import InputError
from privateer.experiment import Feature, Reward


def context_vector(values: Mapping[str, Any], features: Mapping[str, Feature]) -> NDArray[np.float64]:
    """One person's context, shape (1, d), clipped to the features' bounds and scaled to [0, 1].

    Raises
    ------
    InputError
        If a feature is missing, unknown, not a number or NaN; names it.
    """
    unknown = set(values) - set(features)
    if unknown:
        known = ", ".join(features)
        raise InputError("the experiment has no such feature", field=sorted(unknown)[0], remedy=f"it asks for {known}")
    return np.array([[_scaled(values, name, feature) for name, feature in features.items()]])


def _scaled(values: Mapping[str, Any], name: str, feature: Feature) -> float:
    if name not in values:
        raise InputError("missing", field=name, remedy="give every feature of the experiment a number")
    value = values[name]
    if not is_number(value):
        raise InputError("must be a number, and not NaN", field=name, remedy="leave the person out if it is not known")
    return min(1.0, max(0.0, (float(value) - feature.low) / (feature.high - feature.low)))


def scaled_reward(value: float, reward: Reward) -> tuple[float, bool]:
    """A reward scaled to [0, 1], and whether it had to be clipped to its bounds.

    Raises
    ------
    InputError
        If it is not a number, or NaN.
    """
    if not is_number(value):
        raise InputError("must be a number, and not NaN", field="reward", remedy="report 0 or 1 for no or yes")
    scaled = (float(value) - reward.low) / (reward.high - reward.low)
    return min(1.0, max(0.0, scaled)), not 0.0 <= scaled <= 1.0


def is_number(value: Any) -> bool:
    """Whether an application's value is a number that floating point has, not NaN; yes and no are none."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    try:
        return not math.isnan(value)
    except OverflowError:
        return False
