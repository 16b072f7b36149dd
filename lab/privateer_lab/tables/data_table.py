"""A table of data: the one reader of files and data frames, by which every command reads."""

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
from privateer_lab.tables import TABLE, refused, shortened
from privateer_lab.tables.columns import Column, EncodedTexts, Unfit
from privateer_lab.tables.data_column import DataColumn
from privateer_lab.tables.marks import Texts, gaps_of
from privateer_lab.tables.sources import Frame, TableSource, files_of, opened_file

SAMPLE: Final = 100_000
"""Most rows of which all columns are kept."""
_BYTES: Final = {"value": 16, "feature": 24}
"""Most memory a row: a column twice while it grows; contexts of columns, as they are, and in the order of the seed."""
_NAMED: Final = 12
_SEED: Final = 0
_PROCESS: Final = Path("/proc/meminfo")
_GROUP: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class TableRows:
    """Rows of a table: all of them, or a sample."""

    columns: Mapping[str, DataColumn]  # by name
    total: int  # rows of the table that they stand for

    @property
    def kept(self) -> int:
        """Rows that are here."""
        return next(iter(self.columns.values())).rows

    def column(self, name: str) -> DataColumn:
        """Return a column."""
        check_named([name], list(self.columns))
        return self.columns[name]

    def of(self, rows: NDArray[Any]) -> Self:
        """Return rows by a mask or by their places; they stand for as large a share of the table."""
        columns = {name: column.of_rows(rows) for name, column in self.columns.items()}
        kept = next(iter(columns.values())).rows
        return type(self)(columns, round(self.total * kept / max(1, self.kept)))


def check_named(names: Sequence[str], header: Sequence[str]) -> None:
    """Refuse a column that is not there."""
    for name in names:
        if name not in header:
            there = ", ".join(shortened(one) for one in header[:_NAMED])
            more = f" and {len(header) - _NAMED:,} more" if len(header) > _NAMED else ""
            raise SpecError("no column has this name", field=shortened(name), remedy=f"choose from {there}{more}")


def check_apart(named: Mapping[str, str | None], more: Iterable[str], option: str = "--segments") -> None:
    """Refuse a column that is named for two things."""
    seen: dict[str, str] = {}
    for role, column in [*named.items(), *((option, name) for name in more)]:
        if column and column in seen:
            detail = f"is the column of {seen[column]} too"
            raise SpecError(detail, field=f"{role} {shortened(column)}", remedy="name another column")
        if column:
            seen[column] = role


class DataTable:
    """Files or a data frame: a CSV file is text, and so is all else; what is asked for as a quantity is converted.

    source: a pandas or polars data frame, a pyarrow table, a mapping of names to values; or paths of CSV or Parquet
        files with the same columns, separated by commas. CSV files are plain or gzipped (``.gz``).
    header: names of the columns, if CSV files have no header.
    remark: rows that start with this are left out.
    missing: texts that stand for no value, beside those of `privateer_lab.tables.marks.GAPS`.
    field: the field of errors.
    decimal: the decimal sign of numbers in CSV files; by default it is found.
    by_row: whether what a row is read as may not depend on other rows: a file is UTF-8, and each value of a frame is
        spelled alone.
    """

    def __init__(
        self,
        source: Any,
        *,
        header: Sequence[str] | None = None,
        remark: str | None = None,
        missing: Sequence[str] = (),
        field: str = TABLE,
        decimal: str | None = None,
        by_row: bool = False,
    ) -> None:
        self._missing, self.field, self._by_row = tuple(missing), field, by_row
        self.sources: list[TableSource] = (
            [Frame(source, field, by_row=by_row)] if not isinstance(source, str | PathLike) else []
        )
        for path in [] if self.sources else files_of(str(source), field):
            self.sources.append(opened_file(path, header, remark, field, decimal, by_row=by_row))
        self.header = tuple(header or self.sources[0].header)
        for other in self.sources:
            if tuple(other.header) != self.header:
                others = "are expected" if header else f"{self.sources[0].name} has"
                raise refused(f"{other.name} has other columns than {others}", "make them alike", field)

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(source.rows for source in self.sources)

    def read(self, names: Sequence[str] | None = None, *, most: int | None = None) -> TableRows:
        """Return rows of some columns, or of all; or a random sample of at most so many."""
        total = self.rows
        if not total:
            raise refused("has no rows", "give a table with a row for each person", self.field)
        rows = None
        if most is not None and total > most:
            rows = np.sort(np.random.default_rng(_SEED).choice(total, most, replace=False, shuffle=False))
        columns = [EncodedTexts(name, rows) for name in names or self.header]
        self.fill(columns, 0, kept=total if rows is None else len(rows))
        return TableRows({one.name: one.column(by_row=self._by_row) for one in columns}, total)

    def arrays(self, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Return columns for a function of somebody's, (n,) each: a frame's as they are, a file's numbers as such."""
        source = self.sources[0]
        if isinstance(source, Frame):
            return {name: source.values(name) for name in names}
        columns = self.read(names).columns if names else {}
        return {name: one.texts if one.numbers is None else one.outcomes for name, one in columns.items()}

    def fill(
        self,
        columns: Sequence[Column],
        features: int,
        *,
        complete: Sequence[str] = (),
        drop: bool = False,
        kept: int | None = None,
    ) -> None:
        """Read all rows into columns.

        columns: each has a name of the header.
        features: how many features will be made of them: they take memory too.
        complete: more columns that must have a value.
        drop: leave out rows with a missing value, instead of refusing them.
        kept: how many rows columns keep, if not all.
        """
        kept = self.rows if kept is None else kept
        width = _BYTES["value"] * len(columns) + _BYTES["feature"] * features
        names = tuple(dict.fromkeys([*(column.name for column in columns), *complete]))
        self._check_fits(kept * width, available_memory())
        n_read = 0
        for source in self.sources:
            start = n_read
            for texts in source.blocks(names):
                self._add(columns, texts, source, n_read - start, drop)
                n_read += len(texts[names[0]])
                # Others, e.g. runs beside this one, may have taken memory in between.
                self._check_fits(kept * width, available_memory() + min(n_read, kept) * 8 * len(columns))
            if n_read - start != source.rows:
                raise refused(f"cannot read {source.name}: it changes", "write it first, then read it", self.field)

    def _add(
        self, columns: Sequence[Column], texts: dict[str, Texts], source: TableSource, start: int, drop: bool
    ) -> None:
        """Append a block of rows by column; ``start`` rows of the source came before it."""
        gaps = {name: gaps_of(column, self._missing) for name, column in texts.items()}
        optional = {column.name for column in columns if column.optional}
        needed = [name for name in texts if name not in optional]
        complete = ~np.any([gaps[name] for name in needed] or [np.zeros(len(gaps[columns[0].name]), bool)], axis=0)
        if not drop and not complete.all():
            row = int(complete.argmin())
            name = next(name for name in needed if gaps[name][row])
            remedy = "fill it in, set missing = true for the feature, or population.missing = 'drop' to leave rows out"
            raise self._wrong(source, start + row, name, "has no value", remedy)
        for column in columns:
            known = complete & ~gaps[column.name]
            try:
                column.add(texts[column.name].filter(known), known[complete], source.decimal)
            except Unfit as error:
                row = start + int(np.flatnonzero(known)[error.row])
                raise self._wrong(source, row, column.name, error.what, error.remedy) from None

    def _wrong(self, source: TableSource, row: int, column: str, what: str, remedy: str) -> SpecError:
        """Name a row as a spreadsheet does; ``row`` counts those of the source, from 0."""
        return refused(f"row {source.number(row)}, column {column!r} of {source.name} {what}", remedy, self.field)

    def _check_fits(self, needed: float, free: float) -> None:
        if needed > free:
            figures = f"needs {needed / 2**30:,.2f} GiB of memory, and {max(free, 0.0) / 2**30:,.2f} GiB are free"
            what = "frame" if isinstance(self.sources[0], Frame) else "file"
            raise refused(f"the {what} {figures}", "use fewer rows or columns", self.field)


def available_memory() -> float:
    """Return the bytes that this process can still use, by the system and by the container it is in."""
    return min(_of_the_system(), _of_the_container())


def _of_the_system() -> float:
    try:
        lines = _PROCESS.read_text(encoding="ascii").splitlines()
        return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _of_the_container() -> float:
    try:
        limit, used = ((_GROUP / name).read_text(encoding="ascii").strip() for name in ("memory.max", "memory.current"))
        return math.inf if limit == "max" else float(limit) - float(used)
    except OSError:
        return math.inf
