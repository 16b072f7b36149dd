"""The tables of a result, as people read them: what repeats or says nothing is left out."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

INTERVAL: Final = frozenset({"effect", "low", "high"})
"""Columns of a table that has estimates with their intervals; with `PEOPLE` beside them it has them over time."""
PEOPLE: Final = "people"
RATIO: Final = ("sample ratio", "as planned")
"""A fact that says whether arms are heard from as often as they are given, and what it says if they are."""
GUARDRAIL: Final = "guardrail: "
"""Titles of tables about guardrails begin so."""
Tables = Sequence[Mapping[str, Any]]


def is_over_time(table: Mapping[str, Any]) -> bool:
    """Whether a table has estimates at every look."""
    return set(table["columns"]) >= INTERVAL | {PEOPLE}


def have_estimates(tables: Tables) -> bool:
    """Whether some table has estimates as they are now, so that a list of them would repeat it."""
    return any(set(table["columns"]) >= INTERVAL and not is_over_time(table) for table in tables)


def rows_of(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each of a table's, by column; columns without any value are left out, an empty cell is ""."""
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    said = [name for name in table["columns"] if any(row[name] is not None for row in rows)]
    return [{name: "" if row[name] is None else row[name] for name in said} for row in rows]
