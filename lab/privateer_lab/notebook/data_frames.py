"""Columns of data frames, checked. Errors name the column, its constraint and the remedy, and never a value."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import InputError, SpecError
from privateer_core.spec.columns import is_missing
from privateer_core.spec.features import Feature, Numeric, Ranked
from privateer_core.spec.spec import Spec
from privateer_lab.environments.files.file_columns import read_value
from privateer_lab.notebook.tabular import library

Array: TypeAlias = NDArray[np.float64]
Columns: TypeAlias = dict[str, NDArray[Any]]
_FRAMES: Final = "give a data frame, a pyarrow table, a dict of columns, or the path of a CSV or Parquet file"


def columns_of(frame: Any, *, as_text: bool = False) -> Columns:
    """Return the columns of a data frame by name, as arrays of equal length.

    Parameters
    ----------
    frame
        A pandas or polars data frame, a pyarrow table, a mapping of names to values; or the path of a CSV or Parquet
        file.
    as_text
        Whether the columns of a CSV file are texts as they stand, so that no row decides how the others are read.

    Raises
    ------
    InputError
        If it is none of these, has no rows, or has columns of different lengths.
    """
    if isinstance(frame, str | PathLike):
        frame = _read(str(frame), as_text=as_text)
    if isinstance(frame, Mapping):
        found = {str(name): np.asarray(values) for name, values in frame.items()}
    else:
        names = getattr(frame, "column_names", getattr(frame, "columns", ()))
        found = {str(name): _values(frame[name]) for name in names}
    if not found:
        raise InputError("has no columns", field="frame", remedy=_FRAMES)
    lengths = {values.shape for values in found.values()}
    if len(lengths) > 1 or len(next(iter(lengths))) != 1:
        raise InputError("its columns must have one length", field="frame", remedy="give a value for each row")
    if not len(next(iter(found.values()))):
        raise InputError("has no rows", field="frame", remedy="give a log of at least two people")
    return found


def _read(path: str, *, as_text: bool) -> Any:
    pa, kind = library("pyarrow"), "parquet" if path.endswith(".parquet") else "csv"
    reader = library(f"pyarrow.{kind}")
    try:
        if kind == "parquet":
            return reader.read_table(path)
        types = dict.fromkeys(reader.open_csv(path).schema.names, pa.string()) if as_text else {}
        return reader.read_csv(path, convert_options=reader.ConvertOptions(column_types=types))
    except (OSError, pa.ArrowInvalid):
        raise InputError(
            f"cannot read {path}", field="frame", remedy="give the path of a CSV or Parquet file"
        ) from None


def _values(column: Any) -> NDArray[Any]:
    return np.asarray(column.to_numpy()) if hasattr(column, "to_numpy") else np.asarray(column)


def column(columns: Columns, name: str) -> NDArray[Any]:
    """Return a column by name.

    Raises
    ------
    InputError
        If there is none of this name.
    """
    if name not in columns:
        there = ", ".join(sorted(columns))
        raise InputError("the frame has no such column", field=name, remedy=f"name one of its columns: {there}")
    return columns[name]


def numbers(columns: Columns, name: str) -> Array:
    """Return a column of finite numbers; yes and no count as 1 and 0.

    Raises
    ------
    InputError
        If it is not there, has other values, or a gap.
    """
    values = column(columns, name)
    if values.dtype.kind in "OUS" and any(isinstance(one, str) for one in values.tolist()):
        raise InputError("must be numbers, and has texts", field=name, remedy="convert the column to numbers")
    try:
        found = values.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError("must be numbers", field=name, remedy="convert the column to numbers") from None
    wrong = ~np.isfinite(found)
    if wrong.any():
        detail = f"must be finite numbers: row {int(wrong.argmax()):,} of the frame, counted from 0, is NaN or infinite"
        raise InputError(detail, field=name, remedy="leave such rows out, or fill them in")
    return found


def texts(columns: Columns, name: str) -> list[str]:
    """Return a column of names; numbers are written as such.

    Raises
    ------
    InputError
        If it is not there, or has a gap.
    """
    values = column(columns, name).tolist()
    for row, value in enumerate(values):
        if is_missing(value):
            detail = f"must have a value in every row: row {row:,}, counted from 0, has none"
            raise InputError(detail, field=name, remedy="leave such rows out")
    return [str(int(one)) if isinstance(one, float) and one.is_integer() else str(one) for one in values]


def numbered(
    columns: Columns, name: str, known: Sequence[str], remedy: str = "correct it, or leave such rows out"
) -> NDArray[np.int64]:
    """Return the place of each row's name among known ones.

    Raises
    ------
    InputError
        If a name is not known.
    """
    places = {one: place for place, one in enumerate(known)}
    found = np.array([places.get(one, -1) for one in texts(columns, name)], np.int64)
    if (found < 0).any():
        row = int((found < 0).argmax())
        detail = f"row {row:,}, counted from 0, has an arm that is not one of {', '.join(known)}"
        raise InputError(detail, field=name, remedy=remedy)
    return found


def contexts_of(columns: Columns, spec: Spec) -> Array:
    """Return the features of a spec as devices read them, (n, features), from the columns of their names.

    As in a file, ``column=value`` is 1 where a column has that value and 0 elsewhere.

    Raises
    ------
    InputError
        If a column is not there, or has a value that the feature cannot have.
    """
    rows = len(next(iter(columns.values())))
    read = [_feature(columns, name, feature) for name, feature in spec.features.items()]
    return np.stack(read, axis=1) if read else np.zeros((rows, 0))


def _feature(columns: Columns, name: str, feature: Feature) -> Array:
    of, is_indicator, value = name.partition("=")
    if name not in columns and is_indicator and of in columns:
        return np.array([one == value for one in texts(columns, of)], np.float64)
    values = column(columns, name)
    if isinstance(feature, Numeric | Ranked) and not feature.missing:
        return numbers(columns, name)
    listed = values.tolist()
    meanings: dict[Any, float] = {}
    for one in listed:
        if one not in meanings and not is_missing(one):
            meanings[one] = read_value(feature, name, one)
    if feature.missing:
        return np.array([np.nan if is_missing(one) else meanings[one] for one in listed])
    if any(is_missing(one) for one in listed):
        remedy = "leave such rows out, or set missing = true for the feature in the spec"
        raise InputError("has rows without a value", field=name, remedy=remedy)
    return np.array([meanings[one] for one in listed])


def wanted(value: float, name: str, low: float, high: float) -> float:
    """Return an argument that must be between two numbers.

    Raises
    ------
    SpecError
        If it is not.
    """
    if not (isinstance(value, int | float) and low < value < high):
        raise SpecError(f"must be a number above {low:g} and below {high:g}", field=name, remedy="change it")
    return float(value)
