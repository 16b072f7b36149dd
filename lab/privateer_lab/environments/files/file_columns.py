"""Columns of CSV and Parquet files: their names, their kinds, and what a cell says."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import InputError, SpecError
from privateer_core.spec.features import Feature

Texts: TypeAlias = Any
"""A ``pyarrow.StringArray``; pyarrow is imported only where CSV files are read."""
_VALUES_MAX: Final = 1000
YES: Final = ("true", "yes", "t", "y")
NO: Final = ("false", "no", "f", "n")
_ROWS: Final = 2**16
"""Rows at a time."""


class Unfit(Exception):
    """A value that a column does not hold; says which row and what is wrong, and never the value."""

    def __init__(self, wrong: NDArray[np.bool_], what: str, remedy: str) -> None:
        super().__init__(what)
        self.row, self.what, self.remedy = int(wrong.argmax()), what, remedy


class Column(ABC):
    """One column, filled from top to bottom, a block of rows at a time.

    Attributes
    ----------
    optional
        Whether rows may have no value; NaN stands for it.
    """

    def __init__(self, name: str, *, optional: bool = False) -> None:
        self.name, self.optional = name, optional
        self._blocks: list[NDArray[Any]] = []

    @property
    def values(self) -> NDArray[Any]:
        """What was read, shape (n,)."""
        self._blocks = [np.concatenate(self._blocks)] if self._blocks else [np.empty(0)]
        return self._blocks[0]

    def add(self, texts: Texts, known: NDArray[np.bool_] | None = None) -> None:
        """Append the next rows: the values of those that are ``known``, by default all, and gaps for the others."""
        values = self.read(texts)
        if known is not None and not known.all():
            found = np.full(len(known), np.nan)
            found[known] = values
            values = found
        self._blocks.append(values)

    @abstractmethod
    def read(self, texts: Texts) -> NDArray[Any]:
        """Return the values of texts, shape (n,)."""


class Numbers(Column):
    """Finite numbers."""

    def read(self, texts: Texts) -> NDArray[np.float64]:
        """Return the numbers."""
        import pyarrow as pa

        try:
            numbers = np.asarray(texts.cast(pa.float64()))
        except pa.ArrowInvalid:  # which of them it does not say; and it does not know "+5"
            numbers = np.array([number_of(text) for text in texts.to_pylist()])
        if not np.isfinite(numbers).all():
            remedy = "correct it; or make the column 'column=value' features, or categories of population.project"
            raise Unfit(~np.isfinite(numbers), "is not a number", remedy)
        return numbers


def number_of(text: str) -> float:
    """Return the number that a text writes; NaN if it writes none."""
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan


class Values(Column):
    """A feature's values, as `privateer_core.spec.features.Feature.read` returns them.

    Parameters
    ----------
    name
        The column's name.
    feature
        Levels with or without an order, or yes or no; numbers are for `Numbers`.
    """

    def __init__(self, name: str, feature: Feature) -> None:
        super().__init__(name, optional=feature.missing)
        self._feature = feature

    def read(self, texts: Texts) -> NDArray[np.float64]:
        """Return places of levels, and 1 or 0 for yes or no."""
        encoded = texts.dictionary_encode()
        found: list[str] = encoded.dictionary.to_pylist()
        each = np.array([self._number(text) for text in found], np.float64)
        numbers: NDArray[np.float64] = each[np.asarray(encoded.indices)] if found else each
        if np.isnan(numbers).any():
            raise Unfit(np.isnan(numbers), "is not a value of the feature", "correct it, or the feature in the spec")
        return numbers

    def _number(self, text: str) -> float:
        try:
            return read_value(self._feature, self.name, text)
        except InputError:
            return math.nan


def read_value(feature: Feature, name: str, value: Any) -> float:
    """Read one value as a device does; a text also as what a file may mean by it."""
    for meaning in _interpretations(value) if isinstance(value, str) else (value,):
        try:
            return feature.read(name, meaning)
        except InputError as error:
            refusal = error
    raise refusal


def _interpretations(text: str) -> Iterator[str | int | bool]:
    """Yield what a text of a file may mean: a level, a whole number, or yes or no."""
    yield text
    number = number_of(text)
    if math.isfinite(number) and number == int(number):
        yield int(number)
    if text.lower() in YES + NO:
        yield text.lower() in YES


class Categories(Column):
    """Names by their numbers.

    Parameters
    ----------
    name
        The column's name.
    known
        Names and numbers; several names may have the same number. Otherwise names are numbered in the order in which
        they first occur.
    """

    def __init__(self, name: str, known: Mapping[str, int] | None = None) -> None:
        super().__init__(name)
        self._open = known is None
        self.names: dict[str, int] = dict(known or {})

    def read(self, texts: Texts) -> NDArray[np.int32]:
        """Return the numbers of names."""
        encoded = texts.dictionary_encode()
        found: list[str] = encoded.dictionary.to_pylist()
        for name in found if self._open else ():
            self.names.setdefault(name, len(self.names))
        each = np.array([self.names.get(name, -1) for name in found], np.int32)
        numbers: NDArray[np.int32] = each[np.asarray(encoded.indices)]
        if (numbers < 0).any():
            remedy = "correct it, or name its class in population.classes"
            raise Unfit(numbers < 0, "is not one of the classes", remedy)
        if self._open and (numbers >= _VALUES_MAX).any():
            what = f"makes more than {_VALUES_MAX:,} different values"
            raise Unfit(numbers >= _VALUES_MAX, what, "leave the column out")
        return numbers


def is_parquet(path: Path) -> bool:
    """Whether a file is named as Parquet files are."""
    return path.suffix == ".parquet"


def parquet_header(path: Path) -> list[str]:
    """Return the names of a file's columns."""
    return list(_opened(path).schema_arrow.names)


def parquet_rows(path: Path) -> int:
    """Return the number of a file's rows."""
    return int(_opened(path).metadata.num_rows)


def parquet_blocks(path: Path, names: Sequence[str]) -> Iterator[dict[str, Texts]]:
    """Yield texts by column, some rows at a time; a value that is missing is an empty text."""
    import pyarrow as pa
    from pyarrow import compute

    file = _opened(path)
    columns = {one.strip(): one for one in file.schema_arrow.names}
    for batch in file.iter_batches(_ROWS, columns=[columns[name] for name in names]):
        found = {}
        for name in names:
            try:
                texts = compute.cast(batch.column(columns[name]), pa.string())
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                message = f"column {name!r} of {path} has values that are no numbers or texts"
                raise refused(message, "leave the column out") from None
            found[name] = compute.utf8_trim_whitespace(compute.fill_null(texts, ""))
        yield found


def _opened(path: Path) -> Any:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise missing_pyarrow() from None
    try:
        return parquet.ParquetFile(path)
    except (OSError, pa.ArrowInvalid):
        raise refused(f"cannot read {path}", "give the path of a CSV or Parquet file") from None


def refused(message: str, remedy: str) -> SpecError:
    """Make the error of a file that cannot be used."""
    return SpecError(message, field="population.path", remedy=remedy)


def missing_pyarrow() -> SpecError:
    """Make the error of a machine that cannot read files of people."""
    return refused("pyarrow, which reads CSV and Parquet files, is missing", "install privateer-lab[workbench]")
