"""Tables of results for notebooks, with exports to pandas, polars, pyarrow and Parquet files."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

from privateer_core.errors import SpecError

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

_MAX_DISPLAYED_ROWS: Final = 20
"""Largest number of rows in a displayed table; exports have all rows."""
_CELL_STYLE: Final = "text-align: right; padding: 0.15em 0.7em"


def import_library(name: str) -> Any:
    """Import an optional library on first use; if it is not installed, the error has the command that installs it."""
    try:
        return import_module(name)
    except ImportError:
        remedy = f"pip install {name.partition('.')[0]}"
        raise SpecError(f"{name} is not installed", field=name, remedy=remedy) from None


class Tabular(ABC):
    """A result with a table of rows, for display in notebooks and for data frames."""

    @property
    @abstractmethod
    def table(self) -> "ResultTable":
        """The rows."""

    @property
    def notes(self) -> Sequence[str]:
        """Sentences about the rows."""
        return ()

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries by column."""
        names = list(self.table.columns)
        return [dict(zip(names, row, strict=True)) for row in zip(*self.table.columns.values(), strict=True)]

    def to_arrow(self) -> "pyarrow.Table":
        """Return the rows as a pyarrow table; columns of mixed types become texts."""
        pa = import_library("pyarrow")
        return pa.table({name: _build_array(pa, values) for name, values in self.table.columns.items()})

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the rows as a pandas data frame.

        Raises
        ------
        SpecError
            If pandas is not installed.
        """
        import_library("pandas")
        frame: pandas.DataFrame = self.to_arrow().to_pandas()
        return frame

    def to_polars(self) -> "polars.DataFrame":
        """Return the rows as a polars data frame.

        Raises
        ------
        SpecError
            If polars is not installed.
        """
        frame: polars.DataFrame = import_library("polars").from_arrow(self.to_arrow())
        return frame

    def to_parquet(self, path: "str | PathLike[str]") -> None:
        """Write the rows to a Parquet file."""
        import_library("pyarrow.parquet").write_table(self.to_arrow(), path)

    def __len__(self) -> int:
        return len(next(iter(self.table.columns.values()), ()))

    def __repr__(self) -> str:
        cells = self._format_cells()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(map(str.rjust, row, widths)).rstrip() for row in cells]
        return "\n".join([self.table.title, *lines, *self._truncation_note(), *self.notes])

    def _repr_html_(self) -> str:
        """Return the table as HTML, which notebooks show."""
        head, *rows = self._format_cells()
        body = "".join(_html_row(row, "td") for row in rows)
        notes = "".join(f"<p>{escape(note)}</p>" for note in [*self._truncation_note(), *self.notes])
        caption = f"<caption style='text-align: left'><b>{escape(self.table.title)}</b></caption>"
        return f"<table>{caption}<thead>{_html_row(head, 'th')}</thead><tbody>{body}</tbody></table>{notes}"

    def _format_cells(self) -> list[list[str]]:
        """Return the header and the first rows as texts."""
        from privateer_lab.render.words import format_figure

        columns = self.table.columns
        rows = zip(*(values[:_MAX_DISPLAYED_ROWS] for values in columns.values()), strict=True)
        return [list(columns), *(["" if cell is None else format_figure(cell) for cell in row] for row in rows)]

    def _truncation_note(self) -> list[str]:
        return [f"... and {len(self) - _MAX_DISPLAYED_ROWS:,} more rows"] if len(self) > _MAX_DISPLAYED_ROWS else []


@dataclass(frozen=True, repr=False)
class ResultTable(Tabular):
    """A table with a title and remarks.

    Attributes
    ----------
    title
        The table's title.
    columns
        Values by name; all columns are equally long.
    remarks
        Sentences about the table.

    Examples
    --------
    >>> from privateer_lab import ResultTable
    >>> table = ResultTable("arms", {"arm": ["left", "right"], "reward": [0.25, None]})
    >>> table
    arms
      arm  reward
     left    0.25
    right
    >>> table.to_arrow().schema.names
    ['arm', 'reward']
    """

    title: str
    columns: Mapping[str, Sequence[Any]]
    remarks: tuple[str, ...] = ()

    @property
    def table(self) -> "ResultTable":
        """The table itself."""
        return self

    @property
    def notes(self) -> Sequence[str]:
        """Sentences about the table."""
        return self.remarks


def build_table(title: str, rows: Iterable[Mapping[str, Any]], remarks: Iterable[str] = ()) -> ResultTable:
    """Build a table of rows, with None where a row lacks a column."""
    row_list = list(rows)
    names = dict.fromkeys(name for row in row_list for name in row)
    return ResultTable(title, {name: [row.get(name) for row in row_list] for name in names}, tuple(remarks))


def _build_array(pa: Any, values: Sequence[Any]) -> Any:
    """Build an Arrow array; values of mixed types become texts."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # mixed types
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def _html_row(cells: Iterable[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag} style='{_CELL_STYLE}'>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
