"""Pictures of estimates with their intervals, and of how they came about."""

import math
from collections.abc import Sequence
from typing import Any, Final

from matplotlib.figure import Figure

from privateer_core.answer import Answer
from privateer_core.answer.parts import EffectsOverTime
from privateer_lab.answer_words import Drawn, left_out, most_drawn, rows_drawn
from privateer_lab.pages.plots import in_thousands, panels
from privateer_lab.picture import BETTER, COLOURS, GREY, WORSE, whole_label

_SHOWN: Final = 8
"""Curves that one picture has, at most."""
_ESTIMATES: Final = 100
"""Estimates that one picture has, at most."""


def draw_effects(title: str, answer: Answer) -> Figure:
    """Draw estimates with their intervals, and beside them how they came about, if that is known."""
    over_time, rows = answer.first_of(EffectsOverTime), rows_drawn(answer)
    shown, all_ = rows[: most_drawn(rows, _ESTIMATES)], len(rows)
    figure, axes = panels(2 if over_time else 1, title, height=max(3.4, 0.3 * len(shown)))
    draw_rows(axes[0], shown)
    axes[0].set_xlabel(("effect" if answer.effects else "estimate") + left_out(len(shown), all_))
    if over_time:
        draw_over_time(axes[1], over_time)
    return figure


def draw_rows(axis: Any, rows: Sequence[Drawn]) -> None:
    """Draw estimates with their intervals: what is decided in blue or red and filled, what is not as a grey ring."""
    ends = [end for one in rows for end in one[1:4] if math.isfinite(end)] or [0.0]
    low, high = min(ends), max(ends)
    for place, one in enumerate(rows):
        colour = (WORSE if one.value < 0 else BETTER) if one.decided else GREY
        axis.plot((max(one.low, low), min(one.high, high)), (-place, -place), color=colour)
        face = "white" if one.decided is False else colour
        axis.plot(one.value, -place, "o", color=colour, markerfacecolor=face, markersize=4)
    if any(one.decided is not None for one in rows):
        axis.axvline(0, color=GREY, linewidth=0.8)
    axis.set_yticks([-place for place in range(len(rows))], [whole_label(one.name) for one in rows])


def draw_over_time(axis: Any, part: EffectsOverTime) -> None:
    """Draw estimates over the numbers of people, with their intervals."""
    curves = [one for one in part.effects if any(value is not None for value in one.values)]
    for number, one in enumerate(curves[:_SHOWN]):
        looks = zip(part.people, one.values, one.lows, one.highs, strict=True)
        people, values, lows, highs = zip(*(look for look in looks if look[1] is not None), strict=True)
        colour = COLOURS[number % len(COLOURS)]
        axis.plot(people, values, "o-", color=colour, markersize=3, label=whole_label(one.name))
        axis.fill_between(people, lows, highs, color=colour, alpha=0.12, linewidth=0)
    axis.axhline(0, color=GREY, linewidth=0.8)
    axis.set_xlabel("people")
    axis.set_ylabel("effect")
    in_thousands(axis)
    if curves:
        title = f"the first {_SHOWN} of {len(curves):,}" if len(curves) > _SHOWN else None
        axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1), title=title, title_fontsize=7)
