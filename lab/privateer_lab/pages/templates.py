"""Rendering of self-contained HTML pages from templates, with all texts escaped."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from privateer_core.errors import printable
from privateer_lab.render.figures import format_figure
from privateer_lab.render.tables import TitledTable
from privateer_lab.render.words import percent

_PACKAGE: Final = "privateer_lab"
_FOLDER: Final = "pages"
_EXPONENT_ZEROS: Final = re.compile(r"e([+-])0*(?=\d)")
"""The leading zeros of an exponent."""


@cache
def _template_environment(package: str) -> Environment:
    """Build the environment that looks for templates in a package, and then in the lab."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(source, _FOLDER) for source in dict.fromkeys((package, _PACKAGE))]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_remove_controls,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: tuple[Callable[..., Any], ...] = (exact, lines, moment, percent, format_figure)
    environment.filters |= {function.__name__: function for function in filters}
    style = (files(_PACKAGE) / _FOLDER / "style.css").read_text(encoding="utf-8")
    environment.globals["style"] = Markup(style)  # noqa: S704 - a file of this package
    return environment


def render_page(name: str, package: str = _PACKAGE, **values: Any) -> str:
    """Render a page from the template of this name in ``package``, which may extend templates of the lab."""
    return _template_environment(package).get_template(name).render(**values)


def render_paragraphs(name: str, filters: Mapping[str, Callable[..., str]], **values: Any) -> list[str]:
    """Render a template of plain text, and return its paragraphs, each in one line, without empty paragraphs."""
    environment = Environment(  # noqa: S701 - the text is for a terminal, which `printable` guards
        loader=PackageLoader(_PACKAGE, _FOLDER), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= filters
    text = environment.get_template(name).render(**values)
    blocks = (block for block in text.split("\n\n") if block.strip())
    return [" ".join(block.split()).replace(" .", ".").replace(" ,", ",") for block in blocks]


class TextTable(NamedTuple):
    """A table of texts."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    n_omitted: int  # the number of omitted rows


def format_table(table: TitledTable, max_rows: int | None = None) -> TextTable:
    """Format the cells of a table as texts, with at most ``max_rows`` rows."""
    columns = list(dict.fromkeys(name for row in table.rows for name in row))
    rows = table.rows[:max_rows]
    cells = [["" if row.get(name) is None else format_figure(row[name]) for name in columns] for row in rows]
    return TextTable(table.title, columns, cells, len(table.rows) - len(rows))


def _remove_controls(value: Any) -> Any:
    """Replace control characters of a text, such as marks of the direction of writing; return all else unchanged."""
    return printable(value) if type(value) is str else value


def exact(value: float | None) -> str:
    """Format a figure with twelve significant digits, to verify it."""
    return "nothing" if value is None else _EXPONENT_ZEROS.sub(r"e\1", f"{value:.12g}")


def moment(text: str) -> str:
    """Format a time in UTC, to the minute."""
    return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def lines(text: str) -> Markup:
    """Return a text of several lines with control characters and HTML escaped."""
    return Markup("\n").join(escape(printable(line)) for line in text.splitlines())
