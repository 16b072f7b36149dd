"""Contexts as the application has them, made into what a policy takes. Errors name features, never values."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privateer.errors import InputError
from privateer.numbers import is_number
from privateer.spec import Feature


def context_vector(values: Mapping[str, Any], features: Mapping[str, Feature]) -> NDArray[np.float64]:
    """Return one person's context, shape (1, d), clipped to the features' bounds and scaled to [0, 1].

    Raises
    ------
    InputError
        If a feature is missing, unknown, not a number or NaN; names it.
    """
    unknown = set(values) - set(features)
    if unknown:
        known = ", ".join(features) or "no features"
        raise InputError("the experiment has no such feature", field=sorted(unknown)[0], remedy=f"it asks for {known}")
    return np.array([[_scaled(values, name, feature) for name, feature in features.items()]], np.float64)


def _scaled(values: Mapping[str, Any], name: str, feature: Feature) -> float:
    if name not in values:
        raise InputError("missing", field=name, remedy="give every feature of the experiment a number")
    value = values[name]
    if not is_number(value):
        raise InputError("must be a number, and not NaN", field=name, remedy="leave the person out if it is not known")
    return min(1.0, max(0.0, (float(value) - feature.low) / (feature.high - feature.low)))
