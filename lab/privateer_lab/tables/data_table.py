"""A table of data: the reader of files and data frames for all commands."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_lab.tables import TABLE_FIELD, shorten, table_error
from privateer_lab.tables.data_column import Column, DataColumn, EncodedTexts, InvalidCellError, Texts, find_gaps
from privateer_lab.tables.table_files import Frame, TableSource, find_files, open_table

MAX_SAMPLE_ROWS: Final = 100_000
"""Most rows that are read into memory."""
_BYTES_PER_ROW: Final = {"value": 16, "feature": 24}
"""Peak memory of a row: a column twice while it grows; contexts as columns, as an array, and in the seed's order."""
_MAX_NAMES_SHOWN: Final = 12
_SEED: Final = 0
_MEMINFO_PATH: Final = Path("/proc/meminfo")
_CGROUP: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class TableRows:
    """Rows of a table: all of them, or a sample."""

    columns: Mapping[str, DataColumn]  # by name
    total: int  # rows of the table that they represent

    @property
    def n_rows(self) -> int:
        """The number of rows in this object."""
        return next(iter(self.columns.values())).rows

    def column(self, name: str) -> DataColumn:
        """Return a column."""
        check_columns_exist([name], list(self.columns))
        return self.columns[name]

    def select(self, rows: NDArray[Any]) -> Self:
        """Return rows by mask or index; they represent the same share of the table."""
        columns = {name: column.select_rows(rows) for name, column in self.columns.items()}
        return type(self)(columns, round(self.total * next(iter(columns.values())).rows / max(1, self.n_rows)))


def check_columns_exist(names: Sequence[str], header: Sequence[str]) -> None:
    """Refuse a column that does not exist."""
    for name in names:
        if name not in header:
            available = ", ".join(shorten(column) for column in header[:_MAX_NAMES_SHOWN])
            n_more = f" and {len(header) - _MAX_NAMES_SHOWN:,} more" if len(header) > _MAX_NAMES_SHOWN else ""
            raise SpecError("no column has this name", field=shorten(name), remedy=f"choose from {available}{n_more}")


def check_distinct_columns(named: Mapping[str, str | None], others: Iterable[str], option: str = "--segments") -> None:
    """Refuse a column with two roles."""
    role_by_column: dict[str, str] = {}
    for role, column in [*named.items(), *((option, name) for name in others)]:
        if column and column in role_by_column:
            detail = f"is the column of {role_by_column[column]} too"
            raise SpecError(detail, field=f"{role} {shorten(column)}", remedy="name another column")
        if column:
            role_by_column[column] = role


class DataTable:
    """Files or a data frame, read as text; numbers are converted on request.

    source: a pandas or polars data frame, a pyarrow table, a mapping of names to values; or paths of CSV or Parquet
        files with the same columns, separated by commas. CSV files are plain or gzipped (``.gz``).
    header: names of the columns, if CSV files have no header.
    remark: prefix of rows to be skipped.
    missing: texts of missing values, beside those of `privateer_lab.tables.data_column.GAPS`.
    field: the field of errors.
    decimal: the decimal sign of numbers in CSV files; by default it is detected.
    by_row: whether a row must be read independently of other rows: a file is UTF-8, and each value of a frame is
        formatted alone.
    """

    def __init__(
        self,
        source: Any,
        *,
        header: Sequence[str] | None = None,
        remark: str | None = None,
        missing: Sequence[str] = (),
        field: str = TABLE_FIELD,
        decimal: str | None = None,
        by_row: bool = False,
    ) -> None:
        self._missing, self.field, self._by_row = tuple(missing), field, by_row
        self.sources: list[TableSource] = []
        if isinstance(source, str | PathLike):
            for path in find_files(str(source), field):
                self.sources.append(open_table(path, header, remark, field, decimal, by_row=by_row))
        else:
            self.sources.append(Frame(source, field, by_row=by_row))
        self.header = tuple(header or self.sources[0].header)
        for other in self.sources:
            if tuple(other.header) != self.header:
                expectation = "are expected" if header else f"{self.sources[0].name} has"
                raise table_error(f"{other.name} has other columns than {expectation}", "make them alike", field)

    @property
    def rows(self) -> int:
        """The number of rows of all files."""
        return sum(source.rows for source in self.sources)

    def read(self, names: Sequence[str] | None = None, *, max_sampled_rows: int | None = None) -> TableRows:
        """Read columns, by default all; a random sample of rows if there are too many; refuse an empty table."""
        total = self.rows
        if not total:
            raise table_error("has no rows", "give a table with a row for each person", self.field)
        rows = None
        if max_sampled_rows is not None and total > max_sampled_rows:
            rows = np.sort(np.random.default_rng(_SEED).choice(total, max_sampled_rows, replace=False, shuffle=False))
        columns = [EncodedTexts(name, rows) for name in names or self.header]
        self.read_into(columns, 0, n_kept_rows=total if rows is None else len(rows))
        return TableRows({column.name: column.build_column(by_row=self._by_row) for column in columns}, total)

    def arrays(self, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Return columns for a user's function, (n,) each: a frame's unchanged, a file's as numbers or texts."""
        source = self.sources[0]
        if isinstance(source, Frame):
            return {name: source.values(name) for name in names}
        columns = self.read(names).columns if names else {}
        return {name: column.texts if column.numbers is None else column.outcomes for name, column in columns.items()}

    def read_into(
        self,
        columns: Sequence[Column],
        features: int,
        *,
        complete: Sequence[str] = (),
        drop: bool = False,
        n_kept_rows: int | None = None,
    ) -> None:
        """Read all rows into columns.

        columns: each has a name of the header.
        features: the number of features to be made from them, which need memory, too.
        complete: more columns that must have a value.
        drop: leave out rows with a missing value, instead of refusing them.
        n_kept_rows: how many rows columns keep, if not all.
        """
        n_kept_rows = self.rows if n_kept_rows is None else n_kept_rows
        width = _BYTES_PER_ROW["value"] * len(columns) + _BYTES_PER_ROW["feature"] * features
        names = tuple(dict.fromkeys([*(column.name for column in columns), *complete]))
        self._check_memory(n_kept_rows * width, available_memory())
        n_read = 0
        for source in self.sources:
            start = n_read
            for texts in source.blocks(names):
                self._append_block(columns, texts, source, n_read - start, drop)
                n_read += len(texts[names[0]])
                # Concurrent processes may have taken memory in between.
                n_bytes_filled = min(n_read, n_kept_rows) * 8 * len(columns)
                self._check_memory(n_kept_rows * width, available_memory() + n_bytes_filled)
            if n_read - start != source.rows:
                raise table_error(f"cannot read {source.name}: it changes", "write it first, then read it", self.field)

    def _append_block(
        self, columns: Sequence[Column], texts: dict[str, Texts], source: TableSource, start: int, drop: bool
    ) -> None:
        """Append a block of rows to columns; ``start`` is the index of its first row in the source."""
        gaps = {name: find_gaps(column, self._missing) for name, column in texts.items()}
        optional = {column.name for column in columns if column.optional}
        required = [name for name in texts if name not in optional]
        complete = ~np.any([gaps[name] for name in required] or [np.zeros(len(gaps[columns[0].name]), bool)], axis=0)
        if not drop and not complete.all():
            row = int(complete.argmin())
            name = next(name for name in required if gaps[name][row])
            remedy = "fill it in, set missing = true for the feature, or population.missing = 'drop' to leave rows out"
            raise self._cell_error(source, start + row, name, "has no value", remedy)
        for column in columns:
            has_value = complete & ~gaps[column.name]
            try:
                column.add(texts[column.name].filter(has_value), has_value[complete], source.decimal)
            except InvalidCellError as error:
                row = start + int(np.flatnonzero(has_value)[error.row])
                raise self._cell_error(source, row, column.name, error.detail, error.remedy) from None

    def _cell_error(self, source: TableSource, row: int, column: str, fault: str, remedy: str) -> SpecError:
        """Make the error of a cell, with the row's number in a spreadsheet; ``row`` counts from 0."""
        return table_error(
            f"row {source.row_number(row)}, column {column!r} of {source.name} {fault}", remedy, self.field
        )

    def _check_memory(self, n_bytes: float, n_free: float) -> None:
        """Refuse a table that needs more memory than is free."""
        if n_bytes > n_free:
            figures = f"needs {n_bytes / 2**30:,.2f} GiB of memory, and {max(n_free, 0.0) / 2**30:,.2f} GiB are free"
            kind = "frame" if isinstance(self.sources[0], Frame) else "file"
            raise table_error(f"the {kind} {figures}", "use fewer rows or columns", self.field)


def available_memory() -> float:
    """Return the free memory in bytes, by the limits of system and container."""
    return min(_system_memory(), _container_memory())


def _system_memory() -> float:
    """Read the bytes of memory that the system has free, or all it has if it does not say."""
    try:
        lines = _MEMINFO_PATH.read_text(encoding="ascii").splitlines()
        return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _container_memory() -> float:
    """Read the bytes that the container's limit leaves, infinite without a limit."""
    try:
        cap, used = ((_CGROUP / name).read_text(encoding="ascii").strip() for name in ("memory.max", "memory.current"))
        return math.inf if cap == "max" else float(cap) - float(used)
    except OSError:
        return math.inf
