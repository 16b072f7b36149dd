"""Reading CSV files row by row: what is wrong is named by row and column, and no message carries a value."""

import csv
import gzip
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from privateer.errors import SpecError
from privateer_lab.environments.column import Column, Unfit
from privateer_lab.free_memory import available_memory, check_memory

FIELD: Final = "population.path"
_MISSING: Final = frozenset(("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"))
_COPIES: Final = {"column": 2, "context": 3}
"""A column while it grows; contexts as they are made of columns, as they are, and in the order of the seed."""
_SAMPLE: Final = 2**18
_LOOK: Final = 2**16
"""Rows after which free memory is looked up again."""


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
        If a file cannot be read, has no header, or another one than the first. Pipes and devices, which may have no
        end and can be read but once, are no files.
    """

    def __init__(self, path: str, header: Sequence[str] | None = None, remark: str | None = None) -> None:
        self.paths = [Path(part.strip()) for part in path.split(",")]
        for file in self.paths:
            if not file.is_file():
                raise _unreadable(file)
        self._headless = header is not None
        self._remark = remark
        headers = [header or self._header_of(file) for file in self.paths]
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
            Each of a name in the header.
        features
            How many will be made of them: they take memory too.
        complete
            More columns that must have a value.
        drop
            Leave out rows with a missing value, instead of refusing them.

        Raises
        ------
        SpecError
            Naming the first row and column that cannot be used, or the memory that it would take.
        """
        held = sum(column.bytes_per_row for column in columns)
        width = _COPIES["column"] * held + _COPIES["context"] * 8 * features
        about, free = self._rows_about(), available_memory()
        _check_fits(about * width, free)
        rows = 0
        where = [self.header.index(column.name) for column in columns]
        also = [self.header.index(name) for name in complete]
        for path in self.paths:
            for number, cells in self._rows(path):
                gap = next((i for i in (*where, *also) if cells[i] in _MISSING), None)
                if gap is None:
                    _add(columns, [cells[i] for i in where], number, path)
                    rows += 1
                    if rows % _LOOK == 0:  # others, e.g. runs beside this one, may have taken some in between
                        free = available_memory() + rows * held
                    _check_fits(max(rows, about) * width, free)
                elif not drop:
                    remedy = "fill it in, or set population.missing = 'drop' to leave such rows out"
                    raise _wrong(number, self.header[gap], path, "has no value", remedy)

    def _rows(self, path: Path) -> Iterator[tuple[int, list[str]]]:
        """Rows with their numbers, from 1 and with the header counted, as a spreadsheet shows them."""
        for number, cells in _lines(path):
            if not cells or (number == 1 and not self._headless):
                continue
            if self._remark and cells[0].startswith(self._remark):
                continue
            if len(cells) != len(self.header):
                message = f"row {number} of {path} has {len(cells)} columns, not {len(self.header)}"
                raise SpecError(message, field=FIELD, remedy="correct or remove it")
            yield number, [cell.strip() for cell in cells]

    def _header_of(self, path: Path) -> list[str]:
        names = [name.strip() for name in next((cells for _, cells in _lines(path)), [])]
        if not names or not all(names) or len(set(names)) < len(names):
            remedy = "begin it with a row of distinct names, one a column"
            raise SpecError(f"{path} has no header", field=FIELD, remedy=remedy)
        return names

    def _rows_about(self) -> float:
        return sum(_rows_about(path) for path in self.paths)


def _check_fits(needed: float, free: float) -> None:
    check_memory(needed, free, what="the file", field=FIELD, remedy="use fewer rows or columns")


def _add(columns: Sequence[Column], cells: list[str], number: int, path: Path) -> None:
    for column, cell in zip(columns, cells, strict=True):
        try:
            column.add(cell)
        except Unfit as error:
            raise _wrong(number, column.name, path, error.what, error.remedy) from None


def _wrong(number: int, column: str, path: Path, what: str, remedy: str) -> SpecError:
    return SpecError(f"row {number}, column {column!r} of {path} {what}", field=FIELD, remedy=remedy)


def _unreadable(path: Path) -> SpecError:
    return SpecError(f"cannot read {path}", field=FIELD, remedy="give the path of a CSV file")


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    number = 0
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8-sig", newline="")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8-sig", newline="") as file
        ):
            for number, cells in enumerate(csv.reader(file, skipinitialspace=True, strict=True), 1):
                yield number, cells
    except (OSError, EOFError, zlib.error):
        raise _unreadable(path) from None
    except UnicodeDecodeError:
        raise SpecError(f"{path} is not UTF-8 text", field=FIELD, remedy="save it as UTF-8") from None
    except csv.Error:
        message = f"row {number + 1} of {path} is not CSV"
        raise SpecError(message, field=FIELD, remedy="quote it, or separate its values by commas") from None


def _rows_about(path: Path) -> float:
    """Rows of a file, by those in its first 256 KiB."""
    try:
        with path.open("rb") as file:
            sample = file.read(_SAMPLE)
            text = zlib.decompressobj(31).decompress(sample) if path.suffix == ".gz" else sample
    except (OSError, zlib.error):
        raise _unreadable(path) from None
    return (text.count(b"\n") + 1) * path.stat().st_size / max(1, len(sample))
