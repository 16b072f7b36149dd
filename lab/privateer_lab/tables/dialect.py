"""How a CSV file is written: its encoding, separator and decimal sign, found in its first rows."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final, Self, TextIO

from privateer_core.errors import SpecError
from privateer_lab.tables import refused
from privateer_lab.tables.marks import decimal_of, has_decimal_point, has_grouping_points

_HEAD: Final = 2**18
"""Bytes that decide."""
_RECORDS: Final = 200
_SEPARATORS: Final = ",;\t|"
_GZIP: Final = b"\x1f\x8b"
_KINDS: Final = {
    b"PK\x03\x04": "is a workbook or an archive, as Excel saves, and no CSV file",
    b"\xd0\xcf\x11\xe0": "is an Excel workbook, and no CSV file",
}
_UNDEFINED: Final = b"\x81\x8d\x8f\x90\x9d"
"""Bytes that Windows-1252 does not have."""


@dataclass(frozen=True)
class Dialect:
    """How a file is written."""

    encoding: str = "utf-8-sig"  # as Python calls it
    # separator, decimal: what parts values, and the decimal sign of numbers
    separator: str = ","
    decimal: str = "."
    is_gzip: bool = False  # whether it is compressed
    # whether what is no text of the encoding is replaced, letter by letter, so that it decides nothing else
    is_utf8: bool = False

    @classmethod
    def of(cls, path: Path, field: str, *, is_known: bool = False, is_utf8: bool = False) -> Self:
        """Find how a file is written; of one whose columns are ``is_known``, only the encoding is found."""
        head = _head(path, field)
        is_gzip, encoding = path.suffix == ".gz", "utf-8-sig" if is_utf8 else _encoding(head)
        if encoding == "utf-8-sig" and b"\0" in head and b"," not in head:
            raise refused(f"{path} is no text", "save it as CSV", field)
        if is_known:
            return cls(encoding, is_gzip=is_gzip, is_utf8=is_utf8)
        text = head.decode(encoding, "replace")
        lines = text.splitlines(keepends=True)
        if len(head) == _HEAD and len(lines) > 1:
            del lines[-1]
        separator = max(_SEPARATORS, key=lambda sign: _fitness(lines, sign))
        columns = [
            [cell.strip() for cell in column] for column in zip_longest(*_parsed(lines, separator)[1:], fillvalue="")
        ]
        cells, is_comma_free = [cell for column in columns for cell in column], separator != ","
        decimal = decimal_of(cells, is_comma_free=is_comma_free)
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
        """Yield the numbers of a file's rows, from 1, and their cells; of the ``head``, without looking at quotes."""
        number = 0
        try:
            with self.open(path) as file:
                reader = csv.reader(file, delimiter=self.separator, skipinitialspace=True, strict=not head)
                for number, cells in enumerate(reader, 1):
                    yield number, cells
        except (OSError, EOFError, zlib.error):
            raise _damaged(path, field) from None
        except UnicodeError:
            raise refused(f"{path} is not UTF-8 text from row {number + 1} on", "save it as UTF-8", field) from None
        except csv.Error as error:
            if "limit" in str(error):
                limit = f"a value has more than {csv.field_size_limit():,} letters, or its quote does not end"
                message, remedy = (
                    f"row {number + 1} of {path} is not CSV: {limit}",
                    "end the quote, or shorten the value",
                )
                raise refused(message, remedy, field) from None
            remedy = f"quote it, or separate values by {'commas' if self.separator == ',' else repr(self.separator)}"
            raise refused(f"row {number + 1} of {path} is not CSV", remedy, field) from None


def _head(path: Path, field: str) -> bytes:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
        for magic, kind in _KINDS.items():
            if head.startswith(magic):
                raise refused(f"{path} {kind}", "save it as CSV, or as Parquet", field)
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                return file.read(_HEAD)
        if head.startswith(_GZIP):
            raise refused(f"{path} is compressed", "give it a name that ends in .gz", field)
        return head
    except (OSError, EOFError, zlib.error):
        raise _damaged(path, field) from None


def _damaged(path: Path, field: str) -> SpecError:
    what = "is damaged, or not compressed as its name says" if path.suffix == ".gz" else "may not be read"
    return refused(f"cannot read {path}: it {what}", "write it again, or correct its name or permissions", field)


def _encoding(head: bytes) -> str:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    try:
        io.TextIOWrapper(io.BytesIO(head[:-4] if len(head) == _HEAD else head), "utf-8").read()
    except UnicodeDecodeError as error:
        # A letter may be cut at the end.
        if error.start < len(head) - 8 or len(head) < _HEAD:
            return "latin-1" if any(byte in head for byte in _UNDEFINED) else "cp1252"
    return "utf-8-sig"


def _fitness(lines: list[str], separator: str) -> tuple[bool, float, int]:
    """Return how well a separator explains lines: whether it parts the header, evenly, into how many columns."""
    records = _parsed(lines, separator)
    width = len(records[0]) if records else 0
    even = sum(len(record) == width for record in records) / max(1, len(records))
    return width > 1, round(even, 2), width


def _parsed(lines: list[str], separator: str) -> list[list[str]]:
    records: list[list[str]] = []
    try:
        for record in csv.reader(lines, delimiter=separator, skipinitialspace=True):
            if record and any(record):
                records.append(record)
            if len(records) == _RECORDS:
                break
    except csv.Error:  # `Dialect.records` says in which row
        pass
    return records
