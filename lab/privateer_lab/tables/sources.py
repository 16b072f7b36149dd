"""Where a table's rows come from: CSV files, Parquet files and data frames, each as blocks of texts by column."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np

from privateer_core.errors import SpecError
from privateer_core.spec.columns import is_missing
from privateer_lab.tables import TABLE, arrow, refused
from privateer_lab.tables.dialect import Dialect
from privateer_lab.tables.header import checked_header
from privateer_lab.tables.marks import Texts

_BLOCK: Final = 2**20
"""Bytes that pyarrow reads at a time; also the longest row."""
_ROWS: Final = 2**14
"""Rows that Python's reader makes columns of at a time."""
_BATCH: Final = 2**16
_PARQUET: Final = b"PAR1"
FRAMES: Final = "give a data frame, a pyarrow table, a dict of columns, or the path of a CSV or Parquet file"


class TableSource(ABC):
    """Rows with the same columns.

    name: what messages call it.
    header: the names of its columns.
    field: the field of errors.
    """

    # separator, decimal: what parts its values, and the decimal sign of its numbers
    separator = ","
    decimal = "."

    def __init__(self, name: str, header: Sequence[str], field: str) -> None:
        self.name, self.header, self.field = name, tuple(header), field

    @property
    @abstractmethod
    def rows(self) -> int:
        """The number of rows."""

    @abstractmethod
    def blocks(self, names: Sequence[str]) -> Iterator[dict[str, Texts]]:
        """Yield texts by column, some rows at a time; a value that is missing is an empty text."""

    def number(self, row: int) -> int:
        """Return the number of a row, which counts from 0, as spreadsheets have it."""
        return row + 1

    def texts(self, column: Any, name: str) -> Texts:
        """Return a column of pyarrow as texts: numbers in their shortest spelling."""
        pa = arrow(self.field)
        try:
            if pa.types.is_decimal(column.type):
                column = column.cast(pa.float64())
            texts = pa.compute.cast(column, pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            message = f"column {name!r} of {self.name} has values that are no numbers or texts"
            raise refused(message, "leave the column out", self.field) from None
        return pa.compute.utf8_trim_whitespace(pa.compute.fill_null(texts, ""))


class CsvFile(TableSource):
    """A CSV file.

    path: the file, plain or gzipped.
    header: names of the columns, if the file has no header.
    remark: rows that start with this are left out.
    decimal: the decimal sign; by default it is found.
    by_row: whether no byte may decide how other rows are read.
    """

    # Two readers share the work. Python's csv module checks encoding, quotes and widths; it counts rows as spreadsheets
    # do. pyarrow, which reads on after a wrong quote and cannot say in which row a value is, makes columns fast. It
    # takes a quote after a blank for a letter, so that Python's reader makes the columns of files that have one.

    def __init__(
        self,
        path: Path,
        header: Sequence[str] | None = None,
        remark: str | None = None,
        field: str = TABLE,
        decimal: str | None = None,
        *,
        by_row: bool = False,
    ) -> None:
        self._path, self._remark, self._by_row = path, remark, by_row
        self._dialect = Dialect.of(path, field, is_known=header is not None, is_utf8=by_row)
        self._header_row = 0
        if header is None:
            rows = self._dialect.records(path, field, head=True)
            self._header_row, cells = next(((row, cells) for row, cells in rows if cells), (0, []))
            header = checked_header(cells, str(path), field)
        super().__init__(str(path), header, field)
        self.separator, self.decimal = self._dialect.separator, decimal or self._dialect.decimal
        self._count: int | None = None

    @property
    def rows(self) -> int:
        """The number of rows, which are checked while they are counted."""
        if self._count is None:
            self._count = sum(1 for _ in self._records())
        return self._count

    def number(self, row: int) -> int:
        """Return the number of a row with the header and empty lines counted."""
        return next(islice(self._records(), row, None))[0]

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the rows with their numbers, from 1."""
        for number, cells in self._dialect.records(self._path, self.field):
            if not cells or number == self._header_row:
                continue
            if self._remark and cells[0].startswith(self._remark):
                continue
            if len(cells) != len(self.header):
                message = f"row {number} of {self.name} has {len(cells)} columns, not {len(self.header)}"
                raise refused(message, "correct or remove it", self.field)
            yield number, cells

    def blocks(self, names: Sequence[str]) -> Iterator[dict[str, Texts]]:
        """Yield texts of a file whose `rows` are fine."""
        pa = arrow(self.field)
        if not self.rows:
            return
        if self._by_row or self._has_quotes_after_blanks():
            rows = (cells for _, cells in self._records())
            while block := list(islice(rows, _ROWS)):
                columns = dict(zip(self.header, zip(*block, strict=True), strict=True))
                yield {name: pa.array([text.strip() for text in columns[name]], pa.string()) for name in names}
            return
        encoding = "utf8" if self._dialect.encoding == "utf-8-sig" else self._dialect.encoding
        read = pa.csv.ReadOptions(use_threads=False, block_size=_BLOCK, column_names=self.header, encoding=encoding)
        read.skip_rows_after_names = self._header_row
        # Only remarks still have another width.
        parse = pa.csv.ParseOptions(
            delimiter=self._dialect.separator, newlines_in_values=True, invalid_row_handler=lambda _: "skip"
        )
        convert = pa.csv.ConvertOptions(include_columns=names, column_types=dict.fromkeys(names, pa.string()))
        try:
            with pa.input_stream(self.name, compression="gzip" if self._dialect.is_gzip else None) as file:
                for batch in pa.csv.open_csv(file, read, parse, convert):
                    yield {name: pa.compute.utf8_trim_whitespace(batch.column(name)) for name in names}
        except pa.ArrowInvalid:
            message = f"{self.name} has a row of more than {_BLOCK >> 20} MiB"
            raise refused(message, "shorten it", self.field) from None

    def _has_quotes_after_blanks(self) -> bool:
        """Whether a quote may open a text after a blank."""
        with self._dialect.open(self._path) as file:
            return any(' "' in line for line in file)


class ParquetFile(TableSource):
    """A Parquet file."""

    def __init__(self, path: Path, field: str = TABLE) -> None:
        self._path = path
        try:
            names = self._open(field).schema_arrow.names
        except (OSError, arrow(field).ArrowInvalid):
            message = f"cannot read {path}: it is no Parquet file, or damaged"
            raise refused(message, "give the path of a CSV or Parquet file", field) from None
        super().__init__(str(path), checked_header(names, str(path), field), field)
        self._columns = dict(zip(self.header, names, strict=True))

    def _open(self, field: str) -> Any:
        return arrow(field).parquet.ParquetFile(self._path)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self._open(self.field).metadata.num_rows)

    def blocks(self, names: Sequence[str]) -> Iterator[dict[str, Texts]]:
        """Yield texts, a batch of rows at a time."""
        wanted = [self._columns[name] for name in names]
        for batch in self._open(self.field).iter_batches(_BATCH, columns=wanted):
            yield {name: self.texts(batch.column(self._columns[name]), name) for name in names}


class Frame(TableSource):
    """A data frame of pandas or polars, a pyarrow table, or a mapping of names to values."""

    def __init__(self, frame: Any, field: str = TABLE, *, by_row: bool = False) -> None:
        self._by_row = by_row
        names = list(frame) if isinstance(frame, Mapping) else _names(frame)
        header = checked_header([str(name) for name in names], "it", field, is_file=False) if names else ()
        if not header:
            raise refused("no columns", FRAMES, field)
        super().__init__("the frame", header, field)
        self._values = {name: _column(frame[key]) for name, key in zip(header, names, strict=True)}
        lengths = {len(values) for values in self._values.values()}
        if len(lengths) > 1:
            raise refused("its columns must have one length", "give a value for each row", field)
        self._rows = lengths.pop()

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self._rows

    def values(self, name: str) -> Any:
        """Return a column as the frame has it, as an array, (n,)."""
        values = self._values[name]
        return np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)

    def blocks(self, names: Sequence[str]) -> Iterator[dict[str, Texts]]:
        """Yield all rows."""
        columns = {name: _as_arrow(self._values[name], self.field, by_row=self._by_row) for name in names}
        yield {name: self.texts(column, name) for name, column in columns.items()}


def _names(frame: Any) -> list[Any]:
    return list(getattr(frame, "column_names", getattr(frame, "columns", [])))


def _column(column: Any) -> Any:
    """Return a column of one type as it is, or its values: whole numbers beside a gap would become floats by numpy."""
    has_type = hasattr(column, "to_numpy") and getattr(column, "dtype", None) != np.dtype(object)
    return column if has_type or isinstance(column, np.ndarray) else list(column)


def _as_arrow(values: Any, field: str, *, by_row: bool) -> Any:
    """Return a column of pyarrow; ``by_row``, values of several types are spelled each alone."""
    pa = arrow(field)
    is_mixed = isinstance(values, list) or getattr(values, "dtype", None) == np.dtype(object)
    try:
        if by_row and is_mixed:
            raise pa.ArrowInvalid
        column = values.to_arrow() if hasattr(values, "to_arrow") else pa.array(values, from_pandas=True)
    except (pa.ArrowException, OverflowError, UnicodeError):  # of several kinds
        column = pa.array([None if is_missing(value) else _spelled(value) for value in values], pa.string())
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _spelled(value: Any) -> str:
    """Return a value in its shortest spelling."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    is_whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if is_whole else str(value).encode(errors="replace").decode()


def files_of(path: str, field: str = "population.path") -> list[Path]:
    """Return the files of a ``path`` that are separated by commas."""
    if Path(path).is_file():
        return [Path(path)]
    files = [Path(part.strip()) for part in path.split(",")]
    for file in files:
        if not file.is_file():  # pipes and devices may have no end, and can be read but once
            raise _no_file(file, field)
    return files


def _no_file(path: Path, field: str) -> SpecError:
    message = f"cannot read {path}: there is no file of this name"
    return refused(message, "give the path of a CSV or Parquet file", field)


def opened_file(
    path: Path,
    header: Sequence[str] | None,
    remark: str | None,
    field: str,
    decimal: str | None = None,
    *,
    by_row: bool = False,
) -> TableSource:
    """Return a file as a source, of the kind that its name or its first bytes say."""
    if path.suffix == ".parquet" or _begins(path, _PARQUET):
        return ParquetFile(path, field)
    return CsvFile(path, header, remark, field, decimal, by_row=by_row)


def _begins(path: Path, magic: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(magic)) == magic
    except OSError:
        return False
