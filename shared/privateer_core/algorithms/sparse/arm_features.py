"""Features that every arm has for a person: many numbers within the same bounds."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from privateer_core.spec.columns import MISSING_PLACE
from privateer_core.spec.features import Numeric, Range
from privateer_core.spec.sections import Finite

Array = NDArray[np.float64]
FEATURES_MAX: Final = 1 << 14
_Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=128)]


class ArmContext(Range):
    """The ``[context]``: numbers of an arm for a person, such as how well a text about it fits what they read before.

    Attributes
    ----------
    features
        Their names, or how many there are: those are called x1, x2 and so on.
    low, high
        Bounds of all of them, to which devices clip.
    """

    features: Annotated[int, Field(ge=1, le=FEATURES_MAX)] | tuple[_Name, ...]
    low: Finite = -1.0
    high: Finite = 1.0

    @field_validator("features")
    @classmethod
    def _distinct(cls, features: Any) -> Any:
        if isinstance(features, tuple) and not 0 < len(set(features)) == len(features) <= FEATURES_MAX:
            raise ValueError(f"must be 1 to {FEATURES_MAX} distinct names")
        return features

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features of an arm."""
        return self.features if isinstance(self.features, tuple) else numbered(self.features)

    def of_arms(self, arms: tuple[str, ...]) -> "OfArms":
        """Return all numbers that an application gives, arm by arm."""
        return _of_arms(self.names, arms, self.low, self.high)


class OfArms(Mapping[str, Numeric]):
    """The features of a context, "x1 of a" and so on, all of them alike: they are encoded at once.

    Parameters
    ----------
    names, arms
        Names of features and of arms.
    number
        What each of them is.
    """

    def __init__(self, names: tuple[str, ...], arms: tuple[str, ...], number: Numeric) -> None:
        self._number = number
        self._keys = dict.fromkeys(f"{name} of {arm}" for arm in arms for name in names)

    def __getitem__(self, key: str) -> Numeric:
        if key not in self._keys:
            raise KeyError(key)
        return self._number

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def encoded(self, numbers: Array) -> Array:
        """Return the columns of n people, (n, columns) in [0, 1]; NaN is in the middle."""
        numbers = numbers[:, : len(self._keys)]
        return np.asarray(np.where(np.isnan(numbers), MISSING_PLACE, self._number.places(numbers)))


@lru_cache(maxsize=64)
def numbered(count: int) -> tuple[str, ...]:
    """Return the names of so many features that have none."""
    return tuple(f"x{place}" for place in range(1, count + 1))


@lru_cache(maxsize=64)
def _of_arms(names: tuple[str, ...], arms: tuple[str, ...], low: float, high: float) -> OfArms:
    return OfArms(names, arms, Numeric(low=low, high=high))
