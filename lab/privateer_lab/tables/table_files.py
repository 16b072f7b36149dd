"""Sources of a table's rows: CSV files, Parquet files and data frames, each as blocks of texts by column."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np

from privateer_core.spec.columns import is_missing
from privateer_lab.tables import TABLE_FIELD, import_pyarrow, table_error
from privateer_lab.tables.data_column import Texts
from privateer_lab.tables.dialect import Dialect, check_header

_BYTES: Final = 2**20
"""Bytes that pyarrow reads at a time; also the longest row."""
_BLOCK_ROWS: Final = 2**14
"""Rows of a block of Python's reader."""
_PARQUET_BATCH_ROWS: Final = 2**16
_PARQUET_MAGIC: Final = b"PAR1"
FRAME_REMEDY: Final = "give a data frame, a pyarrow table, a dict of columns, or the path of a CSV or Parquet file"


class TableSource(ABC):
    """Rows with the same columns, with their header, a name for messages, and the field of errors."""

    # separator, decimal: the separator of its values, and the decimal sign of its numbers
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
        """Yield texts by column in blocks of rows; a missing value is an empty text."""

    def row_number(self, row: int) -> int:
        """Return the number, as in a spreadsheet, of a row that counts from 0."""
        return row + 1

    def texts(self, column: Any, name: str) -> Texts:
        """Convert a column of pyarrow to texts, with numbers in their shortest format."""
        pa = import_pyarrow(self.field)
        try:
            if pa.types.is_decimal(column.type):
                column = column.cast(pa.float64())
            texts = pa.compute.cast(column, pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            message = f"column {name!r} of {self.name} has values that are no numbers or texts"
            raise table_error(message, "leave the column out", self.field) from None
        return pa.compute.utf8_trim_whitespace(pa.compute.fill_null(texts, ""))


class CsvFile(TableSource):
    """A CSV file, plain or gzipped; rows with the remark are skipped, and by row no byte may affect other rows."""

    # Two readers share the work. Python's csv module checks encoding, quotes and widths; it counts rows as spreadsheets
    # do. pyarrow, which reads on after a wrong quote and cannot say in which row a value is, makes columns fast. It
    # takes a quote after a blank for a letter, so that Python's reader makes the columns of files that have one.

    def __init__(
        self,
        path: Path,
        header: Sequence[str] | None = None,
        remark: str | None = None,
        field: str = TABLE_FIELD,
        decimal: str | None = None,
        *,
        by_row: bool = False,
    ) -> None:
        self._path, self._remark, self._by_row = path, remark, by_row
        self._dialect = Dialect.detect(path, field, is_known=header is not None, is_utf8=by_row)
        self._header_row = 0
        if header is None:
            rows = self._dialect.records(path, field, head=True)
            self._header_row, cells = next(((row, cells) for row, cells in rows if cells), (0, []))
            header = check_header(cells, str(path), field)
        super().__init__(str(path), header, field)
        self.separator, self.decimal = self._dialect.separator, decimal or self._dialect.decimal
        self._count: int | None = None

    @property
    def rows(self) -> int:
        """The number of rows, which are checked during the count."""
        if self._count is None:
            self._count = sum(1 for _ in self._records())
        return self._count

    def row_number(self, row: int) -> int:
        """Return the number of a row, counting the header and empty lines."""
        return next(islice(self._records(), row, None))[0]

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Yield each row's number, from 1, and cells."""
        for number, cells in self._dialect.records(self._path, self.field):
            if not cells or number == self._header_row:
                continue
            if self._remark and cells[0].startswith(self._remark):
                continue
            if len(cells) != len(self.header):
                message = f"row {number} of {self.name} has {len(cells)} columns, not {len(self.header)}"
                raise table_error(message, "correct or remove it", self.field)
            yield number, cells

    def blocks(self, names: Sequence[str]) -> Iterator[dict[str, Texts]]:
        """Yield texts of a file whose `rows` are checked."""
        pa = import_pyarrow(self.field)
        if not self.rows:
            return
        if self._by_row or self._has_quotes_after_blanks():
            rows = (cells for _, cells in self._records())
            while block := list(islice(rows, _BLOCK_ROWS)):
                columns = dict(zip(self.header, zip(*block, strict=True), strict=True))
                yield {name: pa.array([text.strip() for text in columns[name]], pa.string()) for name in names}
            return
        encoding = "utf8" if self._dialect.encoding == "utf-8-sig" else self._dialect.encoding
        read = pa.csv.ReadOptions(use_threads=False, block_size=_BYTES, column_names=self.header, encoding=encoding)
        read.skip_rows_after_names = self._header_row
        # Only remarks still have another width.
        separator = self._dialect.separator
        parse = pa.csv.ParseOptions(delimiter=separator, newlines_in_values=True, invalid_row_handler=lambda _: "skip")
        convert = pa.csv.ConvertOptions(include_columns=names, column_types=dict.fromkeys(names, pa.string()))
        try:
            with pa.input_stream(self.name, compression="gzip" if self._dialect.is_gzip else None) as file:
                for batch in pa.csv.open_csv(file, read, parse, convert):
                    yield {name: pa.compute.utf8_trim_whitespace(batch.column(name)) for name in names}
        except pa.ArrowInvalid:
            message = f"{self.name} has a row of more than {_BYTES >> 20} MiB"
            raise table_error(message, "shorten it", self.field) from None

    def _has_quotes_after_blanks(self) -> bool:
        """Whether a quote may open a text after a blank."""
        with self._dialect.open(self._path) as file:
            return any(' "' in line for line in file)


class ParquetFile(TableSource):
    """A Parquet file."""

    def __init__(self, path: Path, field: str = TABLE_FIELD) -> None:
        self._path = path
        try:
            names = self._open(field).schema_arrow.names
        except (OSError, import_pyarrow(field).ArrowInvalid):
            message = f"cannot read {path}: it is no Parquet file, or damaged"
            raise table_error(message, "give the path of a CSV or Parquet file", field) from None
        super().__init__(str(path), check_header(names, str(path), field), field)
        self._columns = dict(zip(self.header, names, strict=True))

    def _open(self, field: str) -> Any:
        return import_pyarrow(field).parquet.ParquetFile(self._path)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self._open(self.field).metadata.num_rows)

    def blocks(self, names: Sequence[str]) -> Iterator[dict[str, Texts]]:
        """Yield texts in batches of rows."""
        parquet_names = [self._columns[name] for name in names]
        for batch in self._open(self.field).iter_batches(_PARQUET_BATCH_ROWS, columns=parquet_names):
            yield {name: self.texts(batch.column(self._columns[name]), name) for name in names}


class Frame(TableSource):
    """A data frame of pandas or polars, a pyarrow table, or a mapping of names to values."""

    def __init__(self, frame: Any, field: str = TABLE_FIELD, *, by_row: bool = False) -> None:
        self._by_row = by_row
        attribute = getattr(frame, "column_names", getattr(frame, "columns", []))
        names: list[Any] = list(frame if isinstance(frame, Mapping) else attribute)
        header = check_header([str(name) for name in names], "it", field, is_file=False) if names else ()
        if not header:
            raise table_error("no columns", FRAME_REMEDY, field)
        super().__init__("the frame", header, field)
        self._values = {name: _typed_column(frame[key]) for name, key in zip(header, names, strict=True)}
        lengths = {len(values) for values in self._values.values()}
        if len(lengths) > 1:
            raise table_error("its columns must have one length", "give a value for each row", field)
        self._rows = lengths.pop()

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self._rows

    def values(self, name: str) -> Any:
        """Return a frame's column as an array, (n,)."""
        values = self._values[name]
        return np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)

    def blocks(self, names: Sequence[str]) -> Iterator[dict[str, Texts]]:
        """Yield all rows."""
        columns = {name: _as_arrow(self._values[name], self.field, by_row=self._by_row) for name in names}
        yield {name: self.texts(column, name) for name, column in columns.items()}


def _typed_column(column: Any) -> Any:
    """Return a typed column unchanged, or a list of values, since numpy makes whole numbers beside a gap floats."""
    has_type = hasattr(column, "to_numpy") and getattr(column, "dtype", None) != np.dtype(object)
    return column if has_type or isinstance(column, np.ndarray) else list(column)


def _as_arrow(values: Any, field: str, *, by_row: bool) -> Any:
    """Convert values to a column of pyarrow; with ``by_row`` values of mixed types are formatted separately."""
    pa = import_pyarrow(field)
    is_mixed = isinstance(values, list) or getattr(values, "dtype", None) == np.dtype(object)
    try:
        if by_row and is_mixed:
            raise pa.ArrowInvalid
        column = values.to_arrow() if hasattr(values, "to_arrow") else pa.array(values, from_pandas=True)
    except (pa.ArrowException, OverflowError, UnicodeError):  # of several kinds
        column = pa.array([None if is_missing(value) else _format_value(value) for value in values], pa.string())
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _format_value(value: Any) -> str:
    """Format a value in its shortest form."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    is_whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if is_whole else str(value).encode(errors="replace").decode()


def find_files(path: str, field: str = "population.path") -> list[Path]:
    """Return the comma-separated files of a ``path``; refuse a file that does not exist."""
    if Path(path).is_file():
        return [Path(path)]
    files = [Path(name.strip()) for name in path.split(",")]
    for file in files:
        if not file.is_file():  # pipes and devices may have no end, and can be read but once
            message = f"cannot read {file}: there is no file of this name"
            raise table_error(message, "give the path of a CSV or Parquet file", field)
    return files


def open_table(
    path: Path,
    header: Sequence[str] | None,
    remark: str | None,
    field: str,
    decimal: str | None = None,
    *,
    by_row: bool = False,
) -> TableSource:
    """Open a file as a source, of the type of its suffix or first bytes."""
    if path.suffix == ".parquet" or _starts_with(path, _PARQUET_MAGIC):
        return ParquetFile(path, field)
    return CsvFile(path, header, remark, field, decimal, by_row=by_row)


def _starts_with(path: Path, prefix: bytes) -> bool:
    """Tell whether a file starts with these bytes; false if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(prefix)) == prefix
    except OSError:
        return False
