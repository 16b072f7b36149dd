"""Pages as one HTML file each: nothing of them is fetched, and text of strangers stays text."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from privateer_core.errors import printable
from privateer_lab.answer_tables import Titled
from privateer_lab.figures import percent, readable

_PACKAGE: Final = "privateer_lab"
_FOLDER: Final = "pages"
_SHORT: Final = re.compile(r"e([+-])0*(?=\d)")
"""An exponent with zeros that say nothing."""


@cache
def _environment(package: str) -> Environment:
    """Return what has the templates in the folder of pages of a package, and after them ours."""
    made = Environment(
        loader=ChoiceLoader([PackageLoader(one, _FOLDER) for one in dict.fromkeys((package, _PACKAGE))]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_inert,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: tuple[Callable[..., Any], ...] = (exact, lines, moment, percent, readable)
    made.filters |= {one.__name__: one for one in filters}
    style = (files(_PACKAGE) / _FOLDER / "style.css").read_text(encoding="utf-8")
    made.globals["style"] = Markup(style)  # noqa: S704 - it is ours
    return made


def page(name: str, package: str = _PACKAGE, **values: Any) -> str:
    """Return a page, made from the template of this name in ``package``, which may extend templates of the lab."""
    return _environment(package).get_template(name).render(**values)


class Written(NamedTuple):
    """A table whose cells are texts."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    more: int  # rows that are left out


def written(table: Titled, most: int | None = None) -> Written:
    """Return a table as texts, with so many rows at most."""
    columns = list(dict.fromkeys(name for row in table.rows for name in row))
    rows = table.rows[:most]
    cells = [["" if row.get(name) is None else readable(row[name]) for name in columns] for row in rows]
    return Written(table.title, columns, cells, len(table.rows) - len(rows))


def _inert(value: Any) -> Any:
    """Take from a text what controls a screen, such as marks that turn the direction of writing."""
    return printable(value) if type(value) is str else value


def exact(value: float | None) -> str:
    """Write a figure with all the digits that matter to anybody who checks it."""
    return "nothing" if value is None else _SHORT.sub(r"e\1", f"{value:.12g}")


def moment(text: str) -> str:
    """Write a time as people do, to the minute."""
    return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def lines(text: str) -> Markup:
    """Return a text of several lines, each of them inert."""
    return Markup("\n").join(escape(printable(line)) for line in text.splitlines())
