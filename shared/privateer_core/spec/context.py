"""The features of a spec together: a context, and the columns that it is encoded in.

A policy halves columns and knows nothing of features. How many columns there are, and what each of them says, is a
function of the spec alone. Devices, simulated people and the load driver all encode with `encoded`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import Discriminator, Field, Tag, model_validator

from privateer_core.spec.categories import Boolean, Categorical, Hashed, Ordinal
from privateer_core.spec.columns import Block
from privateer_core.spec.features import Feature, Numeric, Ranked
from privateer_core.spec.sections import Section

if TYPE_CHECKING:
    from privateer_core.answer.facts import Condition
    from privateer_core.answer.policy_view import BinShares

Array = NDArray[np.float64]

FEATURES_MAX: Final = 20
COLUMNS_MAX: Final = 40
"""The most columns of contexts that are halved, or multiplied with each other."""
TABLE_FEATURES: Final = 64
TABLE_COLUMNS: Final = 320
"""The most features and columns of a table, where each feature stands for itself."""


@runtime_checkable
class EncodedAtOnce(Protocol):
    """Features that are all alike, and too many to be encoded one by one."""

    def encoded(self, numbers: Array) -> Array:
        """Return the columns of n people, as `encoded` does."""
        ...


def _kind(data: Any) -> str:
    """Tell which feature a table of the spec describes, by its keys."""
    has = data if isinstance(data, dict) else dict.fromkeys(getattr(type(data), "model_fields", {}), True)
    if "levels" in has:
        return "<ordinal>" if has.get("ordered") else "<categorical>"
    if "hashed" in has:
        return "<hashed>"
    return "<boolean>" if "boolean" in has else "<ranked>" if "quantiles" in has else "<numeric>"


AnyFeature = Annotated[
    Annotated[Numeric, Tag("<numeric>")]
    | Annotated[Ranked, Tag("<ranked>")]
    | Annotated[Categorical, Tag("<categorical>")]
    | Annotated[Hashed, Tag("<hashed>")]
    | Annotated[Ordinal, Tag("<ordinal>")]
    | Annotated[Boolean, Tag("<boolean>")],
    Discriminator(_kind),
]


class Context(Section):
    """The features of a context, in order."""

    features: dict[Annotated[str, Field(min_length=1, max_length=256)], AnyFeature] = Field(
        min_length=1, max_length=TABLE_FEATURES
    )

    @model_validator(mode="after")
    def _has_names(self) -> Self:
        if not all(name.isprintable() for name in self.features):
            raise ValueError("features: names must have printable characters alone: rename the column")
        return self

    @model_validator(mode="after")
    def _has_few_columns(self) -> Self:
        columns = sum(feature.columns for feature in self.features.values())
        if columns > TABLE_COLUMNS:
            raise ValueError(f"features: make {columns} columns, at most {TABLE_COLUMNS}: list fewer levels")
        return self


def blocks_of(features: Mapping[str, Feature]) -> tuple[Block, ...]:
    """Return the blocks of all features, in order."""
    return tuple(block for feature in features.values() for block in feature.blocks)


def columns_of(features: Mapping[str, Feature]) -> list[str]:
    """Name the columns of an encoded context, for people: a number's by its feature, others by what they say of it."""
    return [column for name, feature in features.items() for block in feature.blocks for column in block.named(name)]


def inhabited(features: Mapping[str, Feature], lower: Array, upper: Array) -> NDArray[np.bool_]:
    """Tell in which boxes anybody can be, (boxes,), by their corners, (boxes, columns) each.

    Halving the bits of codes makes boxes that hold no level, and halving a number those in which nobody's is missing.
    """
    found, start = np.ones(len(lower), np.bool_), 0
    for feature in features.values():
        part = slice(start, start + feature.columns)
        found &= feature.holds(lower[:, part], upper[:, part])
        start = part.stop
    return found


def conditions_of(features: Mapping[str, Feature], lower: Array, upper: Array) -> "tuple[Condition, ...]":
    """Return whom a box holds, by its corners, (columns,) each: a condition on each feature that it restricts."""
    found, start = [], 0
    for name, feature in features.items():
        part = slice(start, start + feature.columns)
        if (lower[part] > 0).any() or (upper[part] < 1).any():
            found.append(feature.condition(name, lower[part], upper[part]))
        start = part.stop
    return tuple(found)


@dataclass(frozen=True)
class EqualBins:
    """Bins of contexts, as many along every column and as wide."""

    sides: int  # bins along each column
    columns: int  # columns of an encoded context

    @property
    def count(self) -> int:
        """Number of bins."""
        return int(self.sides**self.columns)

    def locate(self, contexts: Array) -> NDArray[np.int64]:
        """Return the bin of each of n people, (n,), by their contexts (n, columns) in [0, 1]."""
        places = np.minimum((contexts * self.sides).astype(np.int64), self.sides - 1)
        return np.asarray(places @ self.sides ** np.arange(self.columns)[::-1])

    def edges(self) -> tuple[Array, Array]:
        """Return the lower and upper corners of the bins, (bins, columns) each."""
        places = np.arange(self.count)[:, None] // self.sides ** np.arange(self.columns)[::-1] % self.sides
        return places / self.sides, (places + 1) / self.sides


def bins_of(
    features: Mapping[str, Feature], corners: tuple[Array, Array], arms: Sequence[dict[str, float]]
) -> "BinShares":
    """Return boxes in which anybody can be, by their lower and upper corners, with the share of each arm there."""
    from privateer_core.answer.policy_view import ArmsOfBin, BinShares

    boxes = zip(*corners, arms, inhabited(features, *corners), strict=True)
    bins = (
        ArmsOfBin(tuple(low.tolist()), tuple(high.tolist()), conditions_of(features, low, high), shares)
        for low, high, shares, is_inhabited in boxes
        if is_inhabited
    )
    return BinShares(tuple(columns_of(features)), tuple(bins))


def encoded(features: Mapping[str, Feature], numbers: Array) -> Array:
    """Return the columns of n people, (n, columns) in [0, 1].

    features: those of the spec.
    numbers (n, features + more): as `Feature.read` returns them: a number; the place of a level, or the number of
        levels for one that is not listed; 1 or 0; and NaN where a value is missing.
    """
    if isinstance(features, EncodedAtOnce):
        return features.encoded(numbers)
    parts = [feature.encode(column) for feature, column in zip(features.values(), numbers.T, strict=False)]
    return np.concatenate(parts, axis=1) if parts else np.zeros((len(numbers), 0))
