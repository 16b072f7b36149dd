"""The context of a spec: its features, and their encoding as columns.

A policy halves columns and does not depend on features. The number of columns and the meaning of each follow from the
spec alone. Devices, simulated participants and the load driver all use `encode_features`.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, Self, runtime_checkable

import msgspec
import numpy as np
from pydantic import Discriminator, Field, Tag, model_validator

from privateer_core.arrays import Array, Bools, Ints
from privateer_core.spec.categories import Boolean, Categorical, Hashed, Ordinal
from privateer_core.spec.columns import Block
from privateer_core.spec.features import Feature, Numeric, Ranked
from privateer_core.spec.sections import Section

if TYPE_CHECKING:
    from privateer_core.answer.facts import Condition
    from privateer_core.answer.policy_view import BinShares


FEATURES_MAX: Final = 20
COLUMNS_MAX: Final = 40  # maximum number of columns that are halved, or multiplied with each other
TABLE_FEATURES: Final = 64
TABLE_COLUMNS: Final = 320  # maximum numbers of features and columns of a table, with separate terms for each feature


@runtime_checkable
class EncodedAtOnce(Protocol):
    """Equal features that are encoded at once, since they are many."""

    def encode(self, numbers: Array) -> Array:
        """Return the columns of n participants, as `encode_features` does."""
        ...


def _feature_kind(data: Any) -> str:
    """Return the tag of a feature's type, by the keys of its table in the spec."""
    keys = data if isinstance(data, dict) else dict.fromkeys(getattr(type(data), "model_fields", {}), True)
    if "levels" in keys:
        return "<ordinal>" if keys.get("ordered") else "<categorical>"
    if "hash_buckets" in keys or "hashed" in keys:
        return "<hash_buckets>"
    return "<boolean>" if "boolean" in keys else "<ranked>" if "quantiles" in keys else "<numeric>"


AnyFeature = Annotated[
    Annotated[Numeric, Tag("<numeric>")]
    | Annotated[Ranked, Tag("<ranked>")]
    | Annotated[Categorical, Tag("<categorical>")]
    | Annotated[Hashed, Tag("<hash_buckets>")]
    | Annotated[Ordinal, Tag("<ordinal>")]
    | Annotated[Boolean, Tag("<boolean>")],
    Discriminator(_feature_kind),
]


class Context(Section):
    """The features of a context, in order."""

    features: dict[Annotated[str, Field(min_length=1, max_length=256)], AnyFeature] = Field(
        min_length=1, max_length=TABLE_FEATURES
    )

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        """Refuse unprintable names of features, and features with too many columns."""
        if not all(name.isprintable() for name in self.features):
            raise ValueError("features: names must have printable characters alone: rename the column")
        columns = sum(feature.columns for feature in self.features.values())
        if columns > TABLE_COLUMNS:
            raise ValueError(f"features: make {columns} columns, at most {TABLE_COLUMNS}: list fewer levels")
        return self


def list_blocks(features: Mapping[str, Feature]) -> tuple[Block, ...]:
    """Return the blocks of all features, in order."""
    return tuple(block for feature in features.values() for block in feature.blocks)


def name_columns(features: Mapping[str, Feature]) -> list[str]:
    """Return readable names of the columns of an encoded context."""
    blocks = ((name, block) for name, feature in features.items() for block in feature.blocks)
    return [column for name, block in blocks for column in block.column_names(name)]


def find_inhabited_boxes(features: Mapping[str, Feature], lower: Array, upper: Array) -> Bools:
    """Return which boxes can have participants, (boxes,), by their corners, (boxes, columns) each.

    Halving the bits of codes makes boxes without levels.
    """
    is_inhabited, start = np.ones(len(lower), np.bool_), 0
    for feature in features.values():
        columns = slice(start, start + feature.columns)
        is_inhabited &= feature.find_inhabited(lower[:, columns], upper[:, columns])
        start = columns.stop
    return is_inhabited


def describe_box(features: Mapping[str, Feature], lower: Array, upper: Array) -> "tuple[Condition, ...]":
    """Return a condition on each feature that a box restricts, by the box's corners, (columns,) each."""
    conditions, start = [], 0
    for name, feature in features.items():
        columns = slice(start, start + feature.columns)
        if (lower[columns] > 0).any() or (upper[columns] < 1).any():
            conditions.append(feature.condition(name, lower[columns], upper[columns]))
        start = columns.stop
    return tuple(conditions)


class EqualBins(msgspec.Struct, frozen=True):
    """Bins of equal width, with equally many along every column."""

    sides: int  # bins along each column
    columns: int  # columns of an encoded context

    @property
    def count(self) -> int:
        """Number of bins."""
        return int(self.sides**self.columns)

    def locate(self, contexts: Array) -> Ints:
        """Return the bin of each of n participants, (n,), by their contexts (n, columns) in [0, 1]."""
        indices = np.minimum((contexts * self.sides).astype(np.int64), self.sides - 1)
        return np.asarray(indices @ self.sides ** np.arange(self.columns)[::-1])

    def edges(self) -> tuple[Array, Array]:
        """Return the lower and upper corners of the bins, (bins, columns) each."""
        indices = np.arange(self.count)[:, None] // self.sides ** np.arange(self.columns)[::-1] % self.sides
        return indices / self.sides, (indices + 1) / self.sides


def describe_bins(
    features: Mapping[str, Feature], corners: tuple[Array, Array], arms: Sequence[dict[str, float]]
) -> "BinShares":
    """Return the boxes that can have participants, by their lower and upper corners, with the share of each arm."""
    from privateer_core.answer.policy_view import ArmsOfBin, BinShares

    bins = []
    for low, high, shares, is_inhabited in zip(*corners, arms, find_inhabited_boxes(features, *corners), strict=True):
        if is_inhabited:
            bins.append(ArmsOfBin(tuple(low.tolist()), tuple(high.tolist()), describe_box(features, low, high), shares))
    return BinShares(tuple(name_columns(features)), tuple(bins))


def encode_features(features: Mapping[str, Feature], numbers: Array) -> Array:
    """Return the columns of n participants, (n, columns) in [0, 1].

    features: the spec's features.
    numbers (n, features + more): results of `Feature.read`: a number; the index of a level, or the number of
        levels for an unlisted one; 1 or 0; and NaN for a missing value.
    """
    if isinstance(features, EncodedAtOnce):
        return features.encode(numbers)
    blocks = [feature.encode(column) for feature, column in zip(features.values(), numbers.T, strict=False)]
    return np.concatenate(blocks, axis=1) if blocks else np.zeros((len(numbers), 0))
