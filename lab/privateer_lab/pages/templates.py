"""Rendering of templates: self-contained HTML pages with all texts escaped, TOML, and paragraphs for terminals."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, Final

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, pass_environment
from markupsafe import Markup, escape

from privateer_core.errors import printable
from privateer_lab.render.words import format_confidence, format_figure, format_list, percent

_PACKAGE: Final = "privateer_lab"
_FOLDER: Final = "pages"
_EXPONENT_ZEROS: Final = re.compile(r"e([+-])0*(?=\d)")
"""The leading zeros of an exponent."""


@cache
def _make_environment(finalize: Callable[[Any], Any] | None, package: str = _PACKAGE) -> Environment:
    """Make the environment that looks for templates in a package, and then in the lab; pages escape all texts."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(source, _FOLDER) for source in dict.fromkeys((package, _PACKAGE))]),
        autoescape=finalize is _remove_controls,  # noqa: S701
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.do"],
    )
    filters: tuple[Callable[..., Any], ...] = (
        exact,
        lines,
        moment,
        percent,
        format_confidence,
        format_figure,
        format_list,
        rows,
    )
    environment.filters |= {function.__name__: function for function in filters}
    return environment


def render_page(name: str, package: str = _PACKAGE, **values: Any) -> str:
    """Render a page from the template of this name in ``package``, which may extend templates of the lab."""
    style = Markup((files(_PACKAGE) / _FOLDER / "style.css").read_text(encoding="utf-8"))  # noqa: S704 - our own file
    return _make_environment(_remove_controls, package).get_template(name).render(style=style, **values)


def render_toml(name: str, **values: Any) -> str:
    """Render a TOML document, in which all values are escaped for a string between quotes."""
    return _make_environment(_escape_toml).get_template(name).render(**values)


def render_paragraphs(name: str, filters: Mapping[str, Callable[..., str]], **values: Any) -> list[str]:
    """Render a template of plain text, and return its paragraphs, each in one line, without empty paragraphs."""
    environment = _make_environment(None).overlay()  # the text is for a terminal, which `printable` guards
    environment.filters = environment.filters | dict(filters)
    text = environment.get_template(name).render(**values)
    blocks = (block for block in text.split("\n\n") if block.strip())
    return [" ".join(block.split()).replace(" .", ".").replace(" ,", ",") for block in blocks]


def _remove_controls(value: Any) -> Any:
    """Replace control characters of a text, such as marks of the direction of writing; return all else unchanged."""
    return printable(value) if type(value) is str else value


def _escape_toml(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False)[1:-1].replace("\x7f", "\\u007f") if type(value) is str else value


def exact(value: float | None) -> str:
    """Format a figure with twelve significant digits, to verify it."""
    return "nothing" if value is None else _EXPONENT_ZEROS.sub(r"e\1", f"{value:.12g}")


def moment(text: str) -> str:
    """Format a time in UTC, to the minute."""
    return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def lines(text: str) -> Markup:
    """Return a text of several lines with control characters and HTML escaped."""
    return Markup("\n").join(escape(printable(line)) for line in text.splitlines())


@pass_environment
def rows(environment: Environment, structs: Iterable[Any], *columns: str) -> list[list[Any]]:
    """Return a row of fields for each struct; ``field|filter`` applies a filter."""
    pairs = [column.partition("|")[::2] for column in columns]
    filters = environment.filters
    return [
        [filters[name](getattr(struct, field)) if name else getattr(struct, field) for field, name in pairs]
        for struct in structs
    ]
