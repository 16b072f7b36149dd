"""CSV files as columns. Errors name row and column, and no message carries a value."""

import csv
import gzip
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np

from privateer.errors import SpecError
from privateer_lab.environments.columns import Column, Texts, Unfit
from privateer_lab.free_memory import available_memory, check_memory

FIELD: Final = "population.path"
_MISSING: Final = ("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
_COPIES: Final = {"column": 2, "context": 3}
"""A column while it grows; contexts as they are made of columns, as they are, and in the order of the seed."""
_SAMPLE: Final = 2**18
_BLOCK: Final = 2**22
"""Bytes that pyarrow reads at a time; also the longest row."""


class Table:
    """CSV files with the same columns, one after the other.

    Parameters
    ----------
    path
        Their paths, separated by commas; plain or gzipped (``.gz``).
    header
        Names of the columns, if the files have no header.
    remark
        Rows that start with this are left out.

    Raises
    ------
    SpecError
        If a file cannot be read, has no header, or another one than the first.
    """

    # Two readers share the work. Python's csv module is strict about quotes, counts rows as a spreadsheet does, and
    # checks that all rows have the same width. pyarrow, which is neither strict nor counts, makes columns of texts fast.

    def __init__(self, path: str, header: Sequence[str] | None = None, remark: str | None = None) -> None:
        self.paths = [Path(part.strip()) for part in path.split(",")]
        for file in self.paths:
            if not file.is_file():  # pipes and devices may have no end, and can be read but once
                raise _unreadable(file)
        self._headless, self._remark = header is not None, remark
        headers = [header or _header_of(file) for file in self.paths]
        self.header = tuple(headers[0])
        for other, file in zip(headers, self.paths, strict=True):
            if tuple(other) != self.header:
                raise SpecError(f"{file} has other columns than {self.paths[0]}", field=FIELD, remedy="make them alike")

    def fill(
        self, columns: Sequence[Column], features: int, *, complete: Sequence[str] = (), drop: bool = False
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

        Raises
        ------
        SpecError
            Naming a row and column that cannot be used, or the memory that it would take, or that pyarrow is missing.
        """
        held = sum(column.bytes_per_row for column in columns)
        width = _COPIES["column"] * held + _COPIES["context"] * 8 * features
        _check_fits(self._rows_about() * width, available_memory())  # before the rows are counted, which takes a while
        names = tuple(dict.fromkeys([*(column.name for column in columns), *complete]))
        counts = [sum(1 for _ in self._rows(path)) for path in self.paths]
        read = 0
        for path, count in zip(self.paths, counts, strict=True):
            start = read
            for texts in self._blocks(path, names) if count else ():
                # Others, e.g. runs beside this one, may have taken memory in between.
                _check_fits(sum(counts) * width, available_memory() + read * held)
                self._add(columns, texts, path, read - start, drop)
                read += len(texts[names[0]])
            if read - start != count:
                raise _unreadable(path)

    def _add(self, columns: Sequence[Column], texts: dict[str, Texts], path: Path, start: int, drop: bool) -> None:
        """Append a block of texts by column; ``start`` rows of the file came before it."""
        gaps = np.stack([_missing(one) for one in texts.values()])
        complete = ~gaps.any(axis=0)
        if not drop and not complete.all():
            row = int(complete.argmin())
            column = list(texts)[int(gaps[:, row].argmax())]
            remedy = "fill it in, or set population.missing = 'drop' to leave such rows out"
            raise self._wrong(path, start + row, column, "has no value", remedy)
        for one in columns:
            try:
                one.add(texts[one.name].filter(complete))
            except Unfit as error:
                row = start + int(np.flatnonzero(complete)[error.row])
                raise self._wrong(path, row, one.name, error.what, error.remedy) from None

    def _wrong(self, path: Path, row: int, column: str, what: str, remedy: str) -> SpecError:
        """Name a row by its number in a spreadsheet; ``row`` counts those with people, from 0."""
        number = next(islice(self._rows(path), row, None))
        return SpecError(f"row {number}, column {column!r} of {path} {what}", field=FIELD, remedy=remedy)

    def _rows(self, path: Path) -> Iterator[int]:
        """Yield the numbers of rows with people, from 1 and with the header counted."""
        for number, cells in _records(path):
            if not cells or (number == 1 and not self._headless):
                continue
            if self._remark and cells[0].startswith(self._remark):
                continue
            if len(cells) != len(self.header):
                message = f"row {number} of {path} has {len(cells)} columns, not {len(self.header)}"
                raise SpecError(message, field=FIELD, remedy="correct or remove it")
            yield number

    def _blocks(self, path: Path, names: Sequence[str]) -> Iterator[dict[str, Texts]]:
        """Yield texts by column, some rows at a time, for a file whose `_rows` were checked."""
        try:
            import pyarrow as pa
            from pyarrow import compute
            from pyarrow import csv as arrow
        except ImportError:
            remedy = "install privateer-lab[workbench]"
            raise SpecError("CSV files need pyarrow, which is not here", field=FIELD, remedy=remedy) from None
        read = arrow.ReadOptions(
            use_threads=False, block_size=_BLOCK, column_names=self.header, skip_rows_after_names=not self._headless
        )
        # Only remarks still have another width.
        parse = arrow.ParseOptions(newlines_in_values=True, invalid_row_handler=lambda _: "skip")
        convert = arrow.ConvertOptions(include_columns=names, column_types=dict.fromkeys(names, pa.string()))
        try:
            with (
                pa.input_stream(str(path), compression="gzip" if path.suffix == ".gz" else None) as file,
                arrow.open_csv(file, read, parse, convert) as reader,
            ):
                for batch in reader:
                    yield {name: compute.utf8_trim_whitespace(batch.column(name)) for name in names}
        except pa.ArrowInvalid:
            message = f"{path} has a row of more than {_BLOCK >> 20} MiB"
            raise SpecError(message, field=FIELD, remedy="shorten it") from None

    def _rows_about(self) -> float:
        return sum(_rows_about(path) for path in self.paths)


def _missing(texts: Texts) -> Texts:
    import pyarrow as pa
    from pyarrow import compute

    return np.asarray(compute.is_in(texts, value_set=pa.array(_MISSING)))


def _check_fits(needed: float, free: float) -> None:
    check_memory(needed, free, what="the file", field=FIELD, remedy="use fewer rows or columns")


def _unreadable(path: Path) -> SpecError:
    return SpecError(f"cannot read {path}", field=FIELD, remedy="give the path of a CSV file")


def _header_of(path: Path) -> list[str]:
    names = [name.strip() for name in next((cells for _, cells in _records(path)), [])]
    if not names or not all(names) or len(set(names)) < len(names):
        remedy = "begin it with a row of distinct names, one a column"
        raise SpecError(f"{path} has no header", field=FIELD, remedy=remedy)
    return names


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a file, and their numbers from 1."""
    number = 0
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8-sig", newline="")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8-sig", newline="") as file
        ):
            for number, cells in enumerate(csv.reader(file, strict=True), 1):
                yield number, cells
    except (OSError, EOFError, zlib.error):
        raise _unreadable(path) from None
    except UnicodeDecodeError:
        raise SpecError(f"{path} is not UTF-8 text", field=FIELD, remedy="save it as UTF-8") from None
    except csv.Error:
        message = f"row {number + 1} of {path} is not CSV"
        raise SpecError(message, field=FIELD, remedy="quote it, or separate its values by commas") from None


def _rows_about(path: Path) -> float:
    """Estimate the rows of a file by those in its first 256 KiB."""
    try:
        with path.open("rb") as file:
            sample = file.read(_SAMPLE)
            text = zlib.decompressobj(31).decompress(sample) if path.suffix == ".gz" else sample
    except (OSError, zlib.error):
        raise _unreadable(path) from None
    return (text.count(b"\n") + 1) * path.stat().st_size / max(1, len(sample))
