"""Contexts as the application has them, made into what a policy takes.

Every value has a place, also one that the spec does not allow: whether a device reports must not tell its person's
value. Errors are about names, which are the same for everybody; errors and warnings name features, never values.
"""

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privateer_core.context import encoded
from privateer_core.errors import InputError, UnfitValueWarning
from privateer_core.features import Feature


def context_vector(values: Mapping[str, Any], features: Mapping[str, Feature]) -> NDArray[np.float64]:
    """Return one person's context, encoded, shape (1, columns).

    A value of another kind than the spec says, or that it does not list or does not allow to be missing, counts as
    missing, with an `UnfitValueWarning`.

    Raises
    ------
    InputError
        If a feature is not given, or unknown; names it.
    """
    if not isinstance(values, Mapping):
        raise InputError("must be a mapping", field="context", remedy="give {name: value} for every feature")
    unknown = [name for name in values if name not in features]
    if unknown:
        known = ", ".join(features) or "no features"
        raise InputError("the experiment has no such feature", field=str(unknown[0]), remedy=f"it asks for {known}")
    numbers = [_read(values, name, feature) for name, feature in features.items()]
    return encoded(features, np.array([numbers], np.float64))


def clipped_features(values: Mapping[str, Any], features: Mapping[str, Feature]) -> tuple[str, ...]:
    """Name the features whose values are beyond the spec's bounds, and so are clipped to them."""

    def clips(name: str, feature: Feature) -> bool:
        try:
            return feature.clips(feature.read(name, values[name]))
        except InputError:
            return False

    return tuple(name for name, feature in features.items() if clips(name, feature))


def _read(values: Mapping[str, Any], name: str, feature: Feature) -> float:
    if name not in values:
        remedy = (
            "give every feature of the experiment a value; None says that it is not known, where the spec allows it"
        )
        raise InputError("missing", field=name, remedy=remedy)
    try:
        return feature.read(name, values[name])
    except InputError as error:
        warn_unfit(error)
        return math.nan


def warn_unfit(error: InputError, as_if: str = "it were missing") -> None:
    """Tell the developer, and nobody else, that a value has no place in the spec."""
    told = f"{error.field}: {error.detail}; the report is made as if {as_if} ({error.remedy})"
    warnings.warn(told, UnfitValueWarning, stacklevel=2)
