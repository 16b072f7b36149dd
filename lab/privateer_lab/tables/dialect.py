"""The dialect of a CSV file: encoding, separator and decimal sign, detected from its first rows."""

import csv
import gzip
import io
import math
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final, Self, TextIO

from privateer_core.errors import SpecError
from privateer_lab.tables import TABLE_FIELD, shorten, table_error
from privateer_lab.tables.data_column import detect_decimal, has_decimal_point, has_grouping_points, parse_number

_HEAD_BYTES: Final = 2**18
"""Bytes from which the dialect is detected."""
_MAX_HEAD_RECORDS: Final = 200
_SEPARATORS: Final = ",;\t|"
_GZIP: Final = b"\x1f\x8b"
_MAGIC_ERRORS: Final = {
    b"PK\x03\x04": "is a workbook or an archive, as Excel saves, and no CSV file",
    b"\xd0\xcf\x11\xe0": "is an Excel workbook, and no CSV file",
}
_UNDEFINED: Final = b"\x81\x8d\x8f\x90\x9d"
"""Bytes that are undefined in Windows-1252."""


@dataclass(frozen=True)
class Dialect:
    """The dialect of a CSV file."""

    encoding: str = "utf-8-sig"  # as Python calls it
    # separator, decimal: the separator of values, and the decimal sign of numbers
    separator: str = ","
    decimal: str = "."
    is_gzip: bool = False  # whether it is compressed
    # whether invalid bytes are replaced one by one, so that they do not affect other rows
    is_utf8: bool = False

    @classmethod
    def detect(cls, path: Path, field: str, *, is_known: bool = False, is_utf8: bool = False) -> Self:
        """Detect the dialect of a file; with known columns, ``is_known``, only the encoding."""
        head = _read_head(path, field)
        is_gzip, encoding = path.suffix == ".gz", "utf-8-sig" if is_utf8 else _detect_encoding(head)
        if encoding == "utf-8-sig" and b"\0" in head and b"," not in head:
            raise table_error(f"{path} is no text", "save it as CSV", field)
        if is_known:
            return cls(encoding, is_gzip=is_gzip, is_utf8=is_utf8)
        lines = head.decode(encoding, "replace").splitlines(keepends=True)
        if len(head) == _HEAD_BYTES and len(lines) > 1:
            del lines[-1]
        separator = max(_SEPARATORS, key=lambda sign: _score_separator(lines, sign))
        records = _parse_records(lines, separator)[1:]
        columns = [[cell.strip() for cell in column] for column in zip_longest(*records, fillvalue="")]
        cells, is_comma_free = [cell for column in columns for cell in column], separator != ","
        decimal = detect_decimal(cells, is_comma_free=is_comma_free)
        if decimal == "." and is_comma_free and not any(map(has_decimal_point, cells)):
            decimal = "," if any(map(has_grouping_points, columns)) else "."
        return cls(encoding, separator, decimal, is_gzip, is_utf8)

    def open(self, path: Path) -> TextIO:
        """Open the file as text."""
        errors = "replace" if self.is_utf8 else "strict"
        if self.is_gzip:
            return gzip.open(path, "rt", encoding=self.encoding, errors=errors, newline="")
        return path.open(encoding=self.encoding, errors=errors, newline="")

    def records(self, path: Path, field: str, *, head: bool = False) -> Iterator[tuple[int, list[str]]]:
        """Yield the numbers of a file's rows, from 1, and their cells; for the ``head`` with lenient quotes."""
        number = 0
        try:
            with self.open(path) as file:
                reader = csv.reader(file, delimiter=self.separator, skipinitialspace=True, strict=not head)
                for number, cells in enumerate(reader, 1):
                    yield number, cells
        except (OSError, EOFError, zlib.error):
            raise _damaged_file_error(path, field) from None
        except UnicodeError:
            raise table_error(f"{path} is not UTF-8 text from row {number + 1} on", "save it as UTF-8", field) from None
        except csv.Error as error:
            if "limit" in str(error):
                limit = f"a value has more than {csv.field_size_limit():,} letters, or its quote does not end"
                message = f"row {number + 1} of {path} is not CSV: {limit}"
                raise table_error(message, "end the quote, or shorten the value", field) from None
            remedy = f"quote it, or separate values by {'commas' if self.separator == ',' else repr(self.separator)}"
            raise table_error(f"row {number + 1} of {path} is not CSV", remedy, field) from None


def _read_head(path: Path, field: str) -> bytes:
    """Read a file's first bytes, uncompressed; refuse other formats and damaged files."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        for magic, kind in _MAGIC_ERRORS.items():
            if head.startswith(magic):
                raise table_error(f"{path} {kind}", "save it as CSV, or as Parquet", field)
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                return file.read(_HEAD_BYTES)
        if head.startswith(_GZIP):
            raise table_error(f"{path} is compressed", "give it a name that ends in .gz", field)
        return head
    except (OSError, EOFError, zlib.error):
        raise _damaged_file_error(path, field) from None


def _damaged_file_error(path: Path, field: str) -> SpecError:
    problem = "is damaged, or not compressed as its name says" if path.suffix == ".gz" else "may not be read"
    return table_error(f"cannot read {path}: it {problem}", "write it again, or correct its name or permissions", field)


def _detect_encoding(head: bytes) -> str:
    """Detect the encoding of a file by its first bytes."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    try:
        io.TextIOWrapper(io.BytesIO(head[:-4] if len(head) == _HEAD_BYTES else head), "utf-8").read()
    except UnicodeDecodeError as error:
        # A character may be cut at the end.
        if error.start < len(head) - 8 or len(head) < _HEAD_BYTES:
            return "latin-1" if any(byte in head for byte in _UNDEFINED) else "cp1252"
    return "utf-8-sig"


def _score_separator(lines: list[str], separator: str) -> tuple[bool, float, int]:
    """Return the score of a separator: whether it splits the header, the share of even rows, and the width."""
    records = _parse_records(lines, separator)
    width = len(records[0]) if records else 0
    even_share = sum(len(record) == width for record in records) / max(1, len(records))
    return width > 1, round(even_share, 2), width


def _parse_records(lines: list[str], separator: str) -> list[list[str]]:
    """Parse the first records that are not empty, up to a damaged one."""
    records: list[list[str]] = []
    try:
        for record in csv.reader(lines, delimiter=separator, skipinitialspace=True):
            if record and any(record):
                records.append(record)
            if len(records) == _MAX_HEAD_RECORDS:
                break
    except csv.Error:  # `Dialect.records` says in which row
        pass
    return records


COLUMNS_MAX: Final = 2000
"""Most columns of a table, which are compared with each other."""
_ROW_NUMBERS_NAME: Final = "row"
"""Name of a first column without a name, such as the row numbers of data frames."""
_REMEDY: Final = "begin it with a row of distinct names, one a column"


def check_header(
    cells: Sequence[str], source: str, field: str = TABLE_FIELD, *, is_file: bool = True
) -> tuple[str, ...]:
    """Return the names of columns, positional where a name is empty; refuse no header, and equal names."""
    names = [cell.strip() for cell in cells]
    if not any(names):
        raise table_error(f"{source} {'is empty: it has no header' if is_file else 'has no columns'}", _REMEDY, field)
    if len(names) > COLUMNS_MAX:
        message = f"{source} has {len(names):,} columns, and at most {COLUMNS_MAX:,} are read"
        raise table_error(message, "write those that you need into a table of their own", field)
    if is_file and not any(name and math.isnan(parse_number(name)) for name in names):
        raise table_error(f"{source} has no header: its first row has numbers", _REMEDY, field)
    for index, name in enumerate(names):
        if not name:
            names[index] = f"column {index + 1}" if index or _ROW_NUMBERS_NAME in names else _ROW_NUMBERS_NAME
    name, n_equal = Counter(names).most_common(1)[0]
    if n_equal > 1:
        message = f"{source} has two columns of the same name, {shorten(name)!r}, or no header"
        raise table_error(message, _REMEDY, field)
    return tuple(names)
