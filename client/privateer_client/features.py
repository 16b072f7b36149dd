"""Contexts as the application has them, made into what a policy takes. Errors name features, never values."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privateer.context import encoded
from privateer.errors import InputError
from privateer.features import Feature


def context_vector(values: Mapping[str, Any], features: Mapping[str, Feature]) -> NDArray[np.float64]:
    """Return one person's context, encoded, shape (1, columns).

    Raises
    ------
    InputError
        If a feature is not given, unknown, of another kind than the spec says, or missing where the spec allows none;
        names it.
    """
    if not isinstance(values, Mapping):
        raise InputError("must be a mapping", field="context", remedy="give {name: value} for every feature")
    unknown = [name for name in values if name not in features]
    if unknown:
        known = ", ".join(features) or "no features"
        raise InputError("the experiment has no such feature", field=str(unknown[0]), remedy=f"it asks for {known}")
    numbers = [_read(values, name, feature) for name, feature in features.items()]
    return encoded(features, np.array([numbers], np.float64))


def _read(values: Mapping[str, Any], name: str, feature: Feature) -> float:
    if name not in values:
        remedy = (
            "give every feature of the experiment a value; None says that it is not known, where the spec allows it"
        )
        raise InputError("missing", field=name, remedy=remedy)
    return feature.read(name, values[name])
