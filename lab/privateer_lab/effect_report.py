"""What an experiment has found, for people who were not there: a Markdown document and a picture."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from matplotlib.figure import Figure

from privateer_core.text import printable
from privateer_lab.output import readable
from privateer_lab.plots import COLOURS, in_thousands, panels
from privateer_lab.result_tables import INTERVAL, PEOPLE, have_estimates, is_over_time, rows_of

_CLAIM: Final = ("against", "about", "epsilon", "delta")
_NOTHING: Final = {"epsilon": "nothing is claimed", "delta": None}
_SHOWN: Final = 8
"""Curves that one picture has, at most."""
_ESTIMATES: Final = 100
"""Estimates that one picture has, at most."""
_INERT: Final = str.maketrans(
    {**{mark: f"\\{mark}" for mark in "\\`*_[]|~#!"}, **{mark: f"&#{ord(mark)};" for mark in "$<>&@"}}
)
"""What Markdown would take for its own, for formulas, for HTML or for an address."""
_LINKS: Final = re.compile(r":(?=//)|(?<=www)\.", re.IGNORECASE)
"""Where some renderers guess a link."""


def markdown(name: str, result: Mapping[str, Any], claims: Sequence[Mapping[str, Any]]) -> str:
    """Write a result as Markdown: estimates, tables, and what people were promised.

    Parameters
    ----------
    name
        Of the experiment.
    result
        As ``/result`` has it.
    claims
        Those of its certificate.
    """
    confidence = f"{100 * result['confidence']:g} %"
    said = [("recommended", result["recommended"]), ("finished", result["stopped"])]
    promised = [{key: one[key] for key in _CLAIM} | (_NOTHING if one["epsilon"] is None else {}) for one in claims]
    parts = [f"# {_cell(name)}", _rows([{"": key, " ": value} for key, value in said])]
    tables = result.get("tables", [])
    if have_estimates(tables):
        parts += [f"What follows has intervals of {confidence} confidence."]
    else:
        parts += [f"## Estimates, with intervals of {confidence} confidence", _rows(result["estimates"])]
    for table in tables:
        parts += [f"## {_cell(table['title']).capitalize()}", _rows(rows_of(table))]
    parts += [
        "## Privacy",
        "Every figure here is a function of what was released under these promises.",
        _rows(promised),
    ]
    return "\n\n".join(parts) + "\n"


def _rows(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "Nothing yet."
    lines = ["| " + " | ".join(_cell(key) for key in rows[0]) + " |", "|" + "---|" * len(rows[0])]
    return "\n".join([*lines, *("| " + " | ".join(_cell(value) for value in row.values()) + " |" for row in rows)])


def _cell(value: Any) -> str:
    """Write a value as text that is only text, whoever chose it: names come from a server."""
    text = "" if value is None else printable(readable(value)).translate(_INERT)
    return _LINKS.sub(lambda found: f"&#{ord(found[0])};", text)


def draw_effects(title: str, result: Mapping[str, Any]) -> Figure:
    """Draw estimates with their intervals, and beside them how they came about, if a table has that."""
    over_time = next((table for table in result.get("tables", []) if is_over_time(table)), None)
    shown, all_ = result["estimates"][:_ESTIMATES], len(result["estimates"])
    figure, axes = panels(2 if over_time else 1, title, height=max(3.4, 0.3 * len(shown)))
    _draw_estimates(axes[0], shown)
    axes[0].set_xlabel("effect" if len(shown) == all_ else f"effect, of the first {len(shown)} of {all_:,}")
    if over_time:
        draw_over_time(axes[1], [dict(zip(over_time["columns"], row, strict=True)) for row in over_time["rows"]])
    return figure


def _draw_estimates(axis: Any, estimates: Sequence[Mapping[str, Any]]) -> None:
    places = range(len(estimates))[::-1]
    for place, one in zip(places, estimates, strict=True):
        colour = COLOURS[5] if one["low"] <= 0 <= one["high"] else COLOURS[one["value"] < 0]
        axis.plot((one["low"], one["high"]), (place, place), color=colour)
        axis.plot(one["value"], place, "o", color=colour, markersize=4)
    axis.axvline(0, color=COLOURS[5], linewidth=0.8)
    axis.set_yticks(list(places), [_label(one["name"]) for one in estimates])


def draw_over_time(axis: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw estimates over the numbers of people, with their intervals."""
    curves: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["effect"] is not None:
            name = _label(" ".join(str(value) for key, value in row.items() if key not in INTERVAL | {PEOPLE}))
            curves.setdefault(name, []).append(row)
    for number, (name, points) in enumerate(list(curves.items())[:_SHOWN]):
        people, colour = [row["people"] for row in points], COLOURS[number % len(COLOURS)]
        axis.plot(people, [row["effect"] for row in points], "o-", color=colour, markersize=3, label=name)
        ends = ([row[end] for row in points] for end in ("low", "high"))
        axis.fill_between(people, *ends, color=colour, alpha=0.12, linewidth=0)
    axis.axhline(0, color=COLOURS[5], linewidth=0.8)
    axis.set_xlabel("people")
    axis.set_ylabel("effect")
    in_thousands(axis)
    if curves:
        axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))


def _label(name: str) -> str:
    """Write a name as a label of a picture, which leaves out those that begin with an underscore."""
    return f" {printable(name)}" if name.startswith("_") else printable(name)
