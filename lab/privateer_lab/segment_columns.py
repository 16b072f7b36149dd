"""Segments of a test that is over: columns by which effects are told apart, as features of a spec and as contexts."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.categories import LEVELS_MAX, OTHER
from privateer_core.spec.features import Numeric
from privateer_lab.simulation.devices import scaled
from privateer_lab.tables.data_table import TableRows
from privateer_lab.tables.marks import in_order

Array: TypeAlias = NDArray[np.float64]
Segments: TypeAlias = Mapping[str, Sequence[str] | Sequence[float]]
"""Columns of segments: the values of each that make one, or where a number is cut."""
PUBLIC: Final = "give those that you know without looking at the rows"
_MISSING: Final = "missing"


def parts_of(segments: Segments | Sequence[str]) -> dict[str, list[str] | list[float]]:
    """Return the columns of segments, with their values or cuts as far as they are given."""
    if isinstance(segments, str):
        remedy = f"write segments=[{segments!r}]"
        raise SpecError("must be a list of names of columns", field="segments", remedy=remedy)
    given = segments if isinstance(segments, Mapping) else dict.fromkeys(segments, ())
    return {name: cast("list[str] | list[float]", list(values)) for name, values in given.items()}


def feature_of(rows: TableRows, name: str, given: list[str] | list[float], *, is_private: bool) -> dict[str, Any]:
    """Return the feature of a spec that a column of segments is."""
    column = rows.column(name)
    if given and not any(isinstance(one, str) for one in given):
        # What is beyond the cuts counts as the next bound, in the same segment.
        gaps = {"missing": True} if column.gaps and not is_private else {}
        return {"low": min(map(float, given)) - 1, "high": max(map(float, given)) + 1, **gaps}
    if given and is_private:
        return {"levels": given}
    if is_private:
        raise SpecError("needs values or cuts with epsilon: segments are public", field=name, remedy=PUBLIC)
    levels = given or in_order(column.counts) + ([_MISSING] if column.gaps else [])
    if len(levels) > LEVELS_MAX:
        detail = f"has {len(levels):,} values, and at most {LEVELS_MAX} make segments"
        raise SpecError(detail, field=name, remedy="give its cuts if it is a number, or leave it out")
    is_shared = len(levels).bit_count() == 1 and len(levels) < LEVELS_MAX and OTHER not in levels
    # Where others would be a part of the last level, they are one of their own, left out where there are none.
    return {"levels": [*levels, OTHER] if is_shared else levels}


def contexts_of(
    rows: TableRows, spec: ArmsSpec, parts: Mapping[str, list[str] | list[float]], *, is_private: bool
) -> Array:
    """Return the columns of segments as devices encode them, (n, columns).

    A gap is the level `_MISSING`. With a promise each row is read by itself: a number that is none is below all cuts.
    """
    values = []
    for name in parts:
        column, feature = rows.column(name), spec.features[name]
        if isinstance(feature, Numeric):
            numbers = np.append(column.quantities, np.nan)[column.places]
            below = np.where(np.isfinite(numbers), numbers, feature.low)
            values.append(below if is_private else column.read_as(feature))
        else:
            gap = feature.read(name, _MISSING)
            each = np.array([*(feature.read(name, text) for text in column.values), gap])
            values.append(each[column.places])
    return scaled(np.stack(values, axis=1), spec) if values else np.zeros((rows.kept, 0 if parts else 1))
