"""Tables that notebooks show, and hand on to pandas, polars, pyarrow and Parquet files."""

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

_SHOWN: Final = 20
"""Rows that are shown; all of them are handed on."""
_CELL: Final = "text-align: right; padding: 0.15em 0.7em"


def library(name: str) -> Any:
    """Import a library when somebody asks for what it makes.

    Raises
    ------
    SpecError
        If it is not installed; says what to type.
    """
    try:
        return import_module(name)
    except ImportError:
        remedy = f"pip install {name.partition('.')[0]}"
        raise SpecError(f"{name} is not installed", field=name, remedy=remedy) from None


class Tabular(ABC):
    """A result with rows, which notebooks show and data frames take."""

    @property
    @abstractmethod
    def table(self) -> "ResultTable":
        """The rows."""

    @property
    def notes(self) -> Sequence[str]:
        """Sentences that belong to the rows."""
        return ()

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary for each row, by column."""
        names = list(self.table.columns)
        return [dict(zip(names, row, strict=True)) for row in zip(*self.table.columns.values(), strict=True)]

    def to_arrow(self) -> "pyarrow.Table":
        """Return the rows as a pyarrow table; a column of words and figures becomes one of words."""
        pa = library("pyarrow")
        return pa.table({name: _array(pa, values) for name, values in self.table.columns.items()})

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the rows as a pandas data frame.

        Raises
        ------
        SpecError
            If pandas is not installed.
        """
        library("pandas")
        frame: pandas.DataFrame = self.to_arrow().to_pandas()
        return frame

    def to_polars(self) -> "polars.DataFrame":
        """Return the rows as a polars data frame.

        Raises
        ------
        SpecError
            If polars is not installed.
        """
        frame: polars.DataFrame = library("polars").from_arrow(self.to_arrow())
        return frame

    def to_parquet(self, path: "str | PathLike[str]") -> None:
        """Write the rows to a Parquet file."""
        library("pyarrow.parquet").write_table(self.to_arrow(), path)

    def __len__(self) -> int:
        return len(next(iter(self.table.columns.values()), ()))

    def __repr__(self) -> str:
        cells = self._shown()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
        ]
        return "\n".join([self.table.title, *lines, *self._more(), *self.notes])

    def _repr_html_(self) -> str:
        head, *rows = self._shown()
        body = "".join(_row(row, "td") for row in rows)
        said = "".join(f"<p>{escape(one)}</p>" for one in [*self._more(), *self.notes])
        caption = f"<caption style='text-align: left'><b>{escape(self.table.title)}</b></caption>"
        return f"<table>{caption}<thead>{_row(head, 'th')}</thead><tbody>{body}</tbody></table>{said}"

    def _shown(self) -> list[list[str]]:
        """Return the head and the first rows as texts."""
        from privateer_lab.figures import readable

        columns = self.table.columns
        rows = zip(*(values[:_SHOWN] for values in columns.values()), strict=True)
        return [list(columns), *(["" if cell is None else readable(cell) for cell in row] for row in rows)]

    def _more(self) -> list[str]:
        return [f"... and {len(self) - _SHOWN:,} more rows"] if len(self) > _SHOWN else []


@dataclass(frozen=True, repr=False)
class ResultTable(Tabular):
    """A table by itself.

    Attributes
    ----------
    title
        What it is about.
    columns
        Values by name; all columns are equally long.
    remarks
        Sentences that belong to it.

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
        """Itself."""
        return self

    @property
    def notes(self) -> Sequence[str]:
        """Sentences that belong to it."""
        return self.remarks


def table_of(title: str, rows: Iterable[Mapping[str, Any]], remarks: Iterable[str] = ()) -> ResultTable:
    """Make a table of rows; a row that lacks a column of another has None there."""
    found = list(rows)
    names = dict.fromkeys(name for row in found for name in row)
    return ResultTable(title, {name: [row.get(name) for row in found] for name in names}, tuple(remarks))


def _array(pa: Any, values: Sequence[Any]) -> Any:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # words and figures
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def _row(cells: Iterable[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag} style='{_CELL}'>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
