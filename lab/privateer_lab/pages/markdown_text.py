"""Text and tables as Markdown that is only text, no matter who chose the words: names come from a server."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from privateer_core.errors import printable
from privateer_lab.figures import readable

_INERT: Final = str.maketrans(
    {**{mark: f"\\{mark}" for mark in "\\`*_[]|~#!"}, **{mark: f"&#{ord(mark)};" for mark in "$<>&@"}}
)
"""What Markdown would take for its own, for formulas, for HTML or for an address."""
_LINKS: Final = re.compile(r":(?=//)|(?<=www)\.", re.IGNORECASE)
"""Where some renderers guess a link."""


def inert(value: Any) -> str:
    """Write a value as text that is only text."""
    text = "" if value is None else printable(readable(value)).translate(_INERT)
    return _LINKS.sub(lambda found: f"&#{ord(found[0])};", text)


def table_of_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write rows as a table, with a column for each key of the first."""
    if not rows:
        return "Nothing yet."
    lines = ["| " + " | ".join(inert(key) for key in rows[0]) + " |", "|" + "---|" * len(rows[0])]
    return "\n".join([*lines, *("| " + " | ".join(inert(value) for value in row.values()) + " |" for row in rows)])
