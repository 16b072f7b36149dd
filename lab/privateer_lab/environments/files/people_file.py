"""CSV and Parquet files as columns. Errors name row and column, and no message carries a value."""

import csv
import gzip
import math
import os
import zlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np

from privateer_core.errors import SpecError
from privateer_lab.environments.files.file_columns import (
    Column,
    Texts,
    Unfit,
    is_parquet,
    missing_pyarrow,
    parquet_blocks,
    parquet_header,
    parquet_rows,
    refused,
)

_MISSING: Final = ("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
_BYTES: Final = {"value": 16, "feature": 24}
"""Most memory a row: a column twice while it grows; contexts of columns, as they are, and in the order of the seed."""
_ROW_NAMES: Final = "row"
"""What a first column without a name is called: data frames are written so, with their row numbers."""
_BLOCK: Final = 2**20
"""Bytes that pyarrow reads at a time; also the longest row."""
_ROWS: Final = 2**14
"""Rows that Python's reader makes columns of at a time."""


def files_of(path: str) -> list[Path]:
    """Return the files of a population's ``path``, separated by commas."""
    files = [Path(part.strip()) for part in path.split(",")]
    for file in files:
        if not file.is_file():  # pipes and devices may have no end, and can be read but once
            raise _unreadable(file)
    return files


class PeopleFile:
    """CSV or Parquet files with the same columns, one after the other.

    Parameters
    ----------
    path
        Their paths, separated by commas; CSV plain or gzipped (``.gz``), or ``.parquet``.
    header
        Names of the columns, if the files have no header.
    remark
        Rows that start with this are left out.
    """

    # Two readers share the work. Python's csv module checks encoding, quotes and widths; it counts rows as spreadsheets
    # do. pyarrow, which reads on after a wrong quote and cannot say in which row a value is, makes columns fast. It
    # takes a quote after a blank for a letter, so that Python's reader makes the columns of files that have one.

    def __init__(self, path: str, header: Sequence[str] | None = None, remark: str | None = None) -> None:
        self.paths = files_of(path)
        self._headless, self._remark = header is not None, remark
        headers = [_header_of(file) if header is None or is_parquet(file) else header for file in self.paths]
        self.header = tuple(header or headers[0])
        for other, file in zip(headers, self.paths, strict=True):
            if tuple(other) != self.header:
                others = "are expected" if header else f"{self.paths[0]} has"
                raise refused(f"{file} has other columns than {others}", "make them alike")

    @cached_property
    def _counts(self) -> list[int]:
        """Rows of each file, which are checked while they are counted."""
        return [parquet_rows(path) if is_parquet(path) else sum(1 for _ in self._rows(path)) for path in self.paths]

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(self._counts)

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

        Parameters
        ----------
        columns
            Each has a name of the header.
        features
            How many features will be made of them: they take memory too.
        complete
            More columns that must have a value.
        drop
            Leave out rows with a missing value, instead of refusing them.
        kept
            How many rows columns keep, if not all.
        """
        counts, kept = self._counts, self.rows if kept is None else kept
        width = _BYTES["value"] * len(columns) + _BYTES["feature"] * features
        names = tuple(dict.fromkeys([*(column.name for column in columns), *complete]))
        _check_fits(kept * width, available_memory())
        read = 0
        for path, count in zip(self.paths, counts, strict=True):
            start = read
            for texts in self._blocks(path, names) if count else ():
                self._add(columns, texts, path, read - start, drop)
                read += len(texts[names[0]])
                # Others, e.g. runs beside this one, may have taken memory in between.
                _check_fits(kept * width, available_memory() + min(read, kept) * 8 * len(columns))
            if read - start != count:
                raise _unreadable(path)

    def _add(self, columns: Sequence[Column], texts: dict[str, Texts], path: Path, start: int, drop: bool) -> None:
        """Append a block of rows by column; ``start`` rows of the file came before it."""
        gaps = {name: _is_missing(one) for name, one in texts.items()}
        optional = {one.name for one in columns if one.optional}
        needed = [name for name in texts if name not in optional]
        complete = (
            ~np.any([gaps[name] for name in needed], axis=0) if needed else np.ones(len(gaps[columns[0].name]), bool)
        )
        if not drop and not complete.all():
            row = int(complete.argmin())
            column = next(name for name in needed if gaps[name][row])
            remedy = "fill it in, set missing = true for the feature, or population.missing = 'drop' to leave rows out"
            raise self._wrong(path, start + row, column, "has no value", remedy)
        for one in columns:
            known = complete & ~gaps[one.name]
            try:
                one.add(texts[one.name].filter(known), known[complete])
            except Unfit as error:
                row = start + int(np.flatnonzero(known)[error.row])
                raise self._wrong(path, row, one.name, error.what, error.remedy) from None

    def _wrong(self, path: Path, row: int, column: str, what: str, remedy: str) -> SpecError:
        """Name a row as a spreadsheet does; ``row`` counts those of `_rows`, from 0."""
        number = row + 1 if is_parquet(path) else next(islice(self._rows(path), row, None))[0]
        return refused(f"row {number}, column {column!r} of {path} {what}", remedy)

    def _rows(self, path: Path) -> Iterator[tuple[int, list[str]]]:
        """Yield the rows that are people with their numbers, from 1 and with the header counted."""
        for number, cells in _records(path):
            if not cells or (number == 1 and not self._headless):
                continue
            if self._remark and cells[0].startswith(self._remark):
                continue
            if len(cells) != len(self.header):
                message = f"row {number} of {path} has {len(cells)} columns, not {len(self.header)}"
                raise refused(message, "correct or remove it")
            yield number, cells

    def _blocks(self, path: Path, names: Sequence[str]) -> Iterator[dict[str, Texts]]:
        """Yield texts by column, some rows at a time, of a file whose `_rows` are fine."""
        if is_parquet(path):
            yield from parquet_blocks(path, names)
            return
        try:
            import pyarrow as pa
            from pyarrow import compute
            from pyarrow import csv as arrow
        except ImportError:
            raise missing_pyarrow() from None
        if _has_quotes_after_blanks(path):
            rows = (cells for _, cells in self._rows(path))
            while block := list(islice(rows, _ROWS)):
                columns = dict(zip(self.header, zip(*block, strict=True), strict=True))
                yield {name: pa.array([text.strip() for text in columns[name]], pa.string()) for name in names}
            return
        read = arrow.ReadOptions(use_threads=False, block_size=_BLOCK, column_names=self.header)
        read.skip_rows_after_names = 0 if self._headless else 1
        # Of all rows, only remarks still have another width.
        parse = arrow.ParseOptions(newlines_in_values=True, invalid_row_handler=lambda _: "skip")
        convert = arrow.ConvertOptions(include_columns=names, column_types=dict.fromkeys(names, pa.string()))
        try:
            with pa.input_stream(str(path), compression="gzip" if path.suffix == ".gz" else None) as file:
                for batch in arrow.open_csv(file, read, parse, convert):
                    yield {name: compute.utf8_trim_whitespace(batch.column(name)) for name in names}
        except pa.ArrowInvalid:
            raise refused(f"{path} has a row of more than {_BLOCK >> 20} MiB", "shorten it") from None


def _unreadable(path: Path) -> SpecError:
    return refused(f"cannot read {path}", "give the path of a CSV or Parquet file")


def _is_missing(texts: Texts) -> Any:
    import pyarrow as pa
    from pyarrow import compute

    return np.asarray(compute.is_in(texts, value_set=pa.array(_MISSING)))


def _check_fits(needed: float, free: float) -> None:
    if needed > free:
        figures = f"needs {needed / 2**30:,.2f} GiB of memory, and {max(free, 0.0) / 2**30:,.2f} GiB are free"
        raise refused(f"the file {figures}", "use fewer rows or columns")


def _header_of(path: Path) -> list[str]:
    names = parquet_header(path) if is_parquet(path) else next((cells for _, cells in _records(path)), [])
    names = [name.strip() for name in names]
    if names and not names[0] and _ROW_NAMES not in names:
        names[0] = _ROW_NAMES
    twice = bool(names) and all(names) and len(set(names)) < len(names)
    if not names or not all(names) or twice:
        lacks = "has two columns of the same name, or no header" if twice else "has no header"
        raise refused(f"{path} {lacks}", "begin it with a row of distinct names, one a column")
    return names


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _has_quotes_after_blanks(path: Path) -> bool:
    """Whether a quote may open a text after a blank, in a file whose `_records` are fine."""
    with _opened(path) as file:
        return any(' "' in line for line in file)


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the numbers of a file's rows, from 1, and their cells."""
    number = 0
    try:
        with _opened(path) as file:
            for number, cells in enumerate(csv.reader(file, skipinitialspace=True, strict=True), 1):
                yield number, cells
    except (OSError, EOFError, zlib.error):
        raise _unreadable(path) from None
    except UnicodeDecodeError:
        raise refused(f"{path} is not UTF-8 text", "save it as UTF-8") from None
    except csv.Error:
        raise refused(f"row {number + 1} of {path} is not CSV", "quote it, or separate values by commas") from None


_PROCESS: Final = Path("/proc/meminfo")
_GROUP: Final = Path("/sys/fs/cgroup")


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
