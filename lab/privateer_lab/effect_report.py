"""What an experiment has found, for people who were not there: a Markdown document and a picture."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from matplotlib.figure import Figure

from privateer_core.result import Result
from privateer_core.text import printable
from privateer_lab.output import readable
from privateer_lab.plots import COLOURS, in_thousands, panels
from privateer_lab.result_tables import INTERVAL, PEOPLE, have_estimates, is_over_time, rows_of
from privateer_lab.result_words import Drawn, left_out, most_drawn, rows_drawn, sentences

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


def markdown(name: str, result: Result, claims: Sequence[Mapping[str, Any]]) -> str:
    """Write a result as Markdown: estimates, tables, and what people were promised.

    Parameters
    ----------
    name
        Of the experiment.
    result
        What was found.
    claims
        Those of its certificate.
    """
    confidence = f"{100 * result.confidence:g} %"
    promised = [{key: one[key] for key in _CLAIM} | (_NOTHING if one["epsilon"] is None else {}) for one in claims]
    parts = [f"# {_cell(name)}", _cell(" ".join(sentences(result)))]
    tables = msgspec.to_builtins(result.tables)
    if have_estimates(tables):
        parts += [f"What follows has intervals of {confidence} confidence."]
    else:
        parts += [
            f"## Estimates, with intervals of {confidence} confidence",
            _rows(msgspec.to_builtins(result.estimates)),
        ]
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


def draw_effects(title: str, result: Result) -> Figure:
    """Draw estimates with their intervals, and beside them how they came about, if a table has that."""
    over_time = next((table for table in msgspec.to_builtins(result.tables) if is_over_time(table)), None)
    rows = rows_drawn(result)
    shown, all_ = rows[: most_drawn(rows, _ESTIMATES)], len(rows)
    figure, axes = panels(2 if over_time else 1, title, height=max(3.4, 0.3 * len(shown)))
    draw_rows(axes[0], shown)
    axes[0].set_xlabel(("effect" if result.effects else "estimate") + left_out(len(shown), all_))
    if over_time:
        draw_over_time(axes[1], [dict(zip(over_time["columns"], row, strict=True)) for row in over_time["rows"]])
    return figure


def draw_rows(axis: Any, rows: Sequence[Drawn]) -> None:
    """Draw estimates with their intervals: what is decided in blue or red and filled, what is not as a grey ring."""
    ends = [end for one in rows for end in one[1:4] if math.isfinite(end)] or [0.0]
    low, high = min(ends), max(ends)
    for place, one in enumerate(rows):
        colour = COLOURS[int(one.value < 0)] if one.decided else COLOURS[5]
        axis.plot((max(one.low, low), min(one.high, high)), (-place, -place), color=colour)
        face = "white" if one.decided is False else colour
        axis.plot(one.value, -place, "o", color=colour, markerfacecolor=face, markersize=4)
    if any(one.decided is not None for one in rows):
        axis.axvline(0, color=COLOURS[5], linewidth=0.8)
    axis.set_yticks([-place for place in range(len(rows))], [_label(one.name) for one in rows])


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
        title = f"the first {_SHOWN} of {len(curves):,}" if len(curves) > _SHOWN else None
        axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1), title=title, title_fontsize=7)


def _label(name: str) -> str:
    """Write a name as a label of a picture, which leaves out those that begin with an underscore."""
    return f" {printable(name)}" if name.startswith("_") else printable(name)
