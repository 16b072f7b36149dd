"""Pictures of a report, each with the words for whoever does not see it."""

import base64
import io
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from privateer_core.text import printable
from privateer_lab.bin_map import leading
from privateer_lab.effect_report import draw_rows
from privateer_lab.output import whole_percent
from privateer_lab.plots import COLOURS, panels
from privateer_lab.report.shapes import Box, Shares
from privateer_lab.result_words import Drawn, left_out, most_drawn

_ARMS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#6b6b6b")
"""The dashboard's colours, which people tell apart who see fewer."""
_BARS: Final = 30
"""Rows of a picture with bars or intervals."""
_VECTOR: Final = 400
"""Bins up to which a map is drawn as vectors, and with outlines and names."""
_LABEL: Final = 28
"""Characters of a label."""
_ROOM: Final = 0.12
"""Least side of a bin that has room for its arm's name, as a share of the map's."""


class Picture(NamedTuple):
    """A picture as an address of its own, what it shows, and its width in CSS pixels."""

    source: str
    alt: str
    caption: str
    width: int


def of_boxes(boxes: Sequence[Box], columns: Sequence[str], arms: Sequence[str]) -> Picture:
    """Draw which arm is played where: a map of two numbers, a strip of one, or how much of the space each arm has.

    Corners are in the units of the axes.
    """
    drawn = [one for one in boxes if len(one.lower) in (1, 2)]
    if len(drawn) < len(boxes):
        return _of_volumes(boxes, arms)
    figure, axes = panels(1, "", height=3.8 if len(columns) > 1 else 1.9)
    axis, colours = axes[0], _colours(arms)
    low = np.min([_corners(one)[0] for one in boxes], axis=0)
    high = np.max([_corners(one)[1] for one in boxes], axis=0)
    for one in boxes:
        _draw_box(axis, one, colours, high - low, outlined=len(boxes) <= _VECTOR)
    axis.set_xlim(low[0], high[0])
    axis.set_ylim(low[1], high[1])
    axis.set_xlabel(_label(columns[0]))
    axis.set_ylabel(_label(columns[1])) if len(columns) > 1 else axis.set_yticks([])
    axis.grid(visible=False)
    _legend(axis, arms, colours)
    where = f"{columns[0]} across and {columns[1]} up" if len(columns) > 1 else f"{columns[0]} across"
    alt = f"A map, {where}, of {len(boxes):,} bins: the arm that is played most in each. {_led(boxes)}"
    grey = ", grey where several have the same share" if any(leading(one.arms) is None for one in boxes) else ""
    caption = f"The arm played most in each bin; paler where several are still tried{grey}."
    return _picture(figure, alt, caption, len(boxes))


def _draw_box(axis: Any, one: Box, colours: dict[str, str], span: Any, *, outlined: bool) -> None:
    (left, bottom), (right, top) = _corners(one)
    arm = leading(one.arms)
    alpha = 0.25 + 0.75 * max(0.0, max(one.arms.values()) * 1.5 - 0.5)
    colour = colours[arm] if arm else COLOURS[5]
    axis.add_patch(Rectangle((left, bottom), right - left, top - bottom, facecolor=colour, alpha=alpha, linewidth=0))
    if not outlined:
        return
    axis.add_patch(Rectangle((left, bottom), right - left, top - bottom, fill=False, edgecolor="#fff", linewidth=0.6))
    if right - left >= _ROOM * span[0] and top - bottom >= _ROOM * span[1]:
        name = _label(arm or "none ahead")
        axis.text((left + right) / 2, (bottom + top) / 2, name, ha="center", va="center", fontsize=8)


def _corners(one: Box) -> Any:
    """Return the corners, of one column with the height of the picture."""
    corners = np.array([one.lower, one.upper], np.float64)
    return corners if corners.shape[1] > 1 else np.column_stack([corners, [0.0, 1.0]])


def _of_volumes(boxes: Sequence[Box], arms: Sequence[str]) -> Picture:
    """Draw the shares of all bins together: places where nobody can be are in none of them."""
    shares = dict.fromkeys(arms, 0.0)
    volumes = np.array([np.prod(np.subtract(one.upper, one.lower)) for one in boxes])
    for one, volume in zip(boxes, (volumes / volumes.sum()).tolist(), strict=True):
        for arm, share in one.arms.items():
            shares[arm] = shares.get(arm, 0.0) + volume * share
    caption = "How much of the space of features each arm has; people are not spread evenly over it."
    return _stacked([("of the space", shares)], list(shares), caption)


def of_groups(rows: Sequence[tuple[str, Shares]], arms: Sequence[str]) -> Picture:
    """Draw the share of each arm in every group of people."""
    shown = rows[:_BARS]
    more = "" if len(shown) == len(rows) else f" The first {len(shown)} of {len(rows):,} groups."
    return _stacked(shown, arms, f"The share of people who are given each arm.{more}")


def _stacked(rows: Sequence[tuple[str, Shares]], arms: Sequence[str], caption: str) -> Picture:
    figure, axes = panels(1, "", height=1.1 + 0.36 * len(rows))
    axis, colours = axes[0], _colours(arms)
    for place, (_, shares) in enumerate(rows):
        start = 0.0
        for arm in arms:
            share = shares.get(arm, 0.0)
            axis.barh(-place, share, left=start, color=colours[arm], edgecolor="#fff", linewidth=0.6)
            if share >= 0.1:
                axis.text(start + share / 2, -place, f"{share:.0%}", ha="center", va="center", fontsize=8)
            start += share
    axis.set_yticks([-place for place in range(len(rows))], [_label(name) for name, _ in rows])
    axis.set_xlim(0, 1)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axis.grid(visible=False)
    _legend(axis, arms, colours)
    told = "; ".join(
        f"{name}: {', '.join(f'{arm} {whole_percent(share)}' for arm, share in one.items())}" for name, one in rows[:8]
    )
    return _picture(figure, f"Bars of shares. {told}.", caption)


def of_counts(rows: Sequence[tuple[str, float]]) -> Picture:
    """Draw how often each thing is played."""
    shown = rows[:_BARS]
    figure, axes = panels(1, "", height=0.9 + 0.26 * len(shown))
    axes[0].barh([-place for place in range(len(shown))], [count for _, count in shown], color=COLOURS[0])
    axes[0].set_yticks([-place for place in range(len(shown))], [_label(name) for name, _ in shown])
    axes[0].set_xlabel("times played")
    told = ", ".join(f"{name} {count:g} times" for name, count in shown[:8])
    return _picture(figure, f"Bars: {told}.", f"How often each is played, the first {len(shown)} of {len(rows):,}.")


def of_coefficients(arms: dict[str, dict[str, float]]) -> Picture:
    """Draw the coefficients of each arm as a heat map with figures."""
    every = list(dict.fromkeys(name for one in arms.values() for name in one))
    names = every[:_BARS]
    values = np.array([[one.get(name, np.nan) for name in names] for one in arms.values()])
    reach = float(np.nanmax(np.abs(values), initial=1e-9))
    figure, axes = panels(1, "", height=1.0 + 0.34 * len(names))
    axes[0].imshow(values.T, cmap="RdBu_r", vmin=-reach, vmax=reach, aspect="auto")
    axes[0].set_xticks(range(len(arms)), [_label(name) for name in arms])
    axes[0].set_yticks(range(len(names)), [_label(name) for name in names])
    axes[0].grid(visible=False)
    if values.size <= 200:
        for (column, row), value in np.ndenumerate(values):
            ink = "#fff" if abs(value) > 0.6 * reach else "#111"
            axes[0].text(
                column, row, "" if np.isnan(value) else f"{value:z.3g}", ha="center", va="center", color=ink, fontsize=8
            )
    alt = f"Coefficients of {len(names)} terms for {len(arms)} arms, as figures on colours from blue to red."
    more = "" if len(names) == len(every) else f" The first {len(names)} of {len(every):,} terms."
    return _picture(figure, alt, f"What each term adds to the reward of each arm: red raises it, blue lowers it.{more}")


def of_estimates(rows: Sequence[Drawn], confidence: str, effects: int = 0) -> Picture:
    """Draw estimates with their intervals; of so many effects, of which something is known of these."""
    shown = rows[: most_drawn(rows, _BARS)]
    figure, axes = panels(1, "", height=0.9 + 0.28 * len(shown))
    draw_rows(axes[0], shown)
    axes[0].set_xlabel("effect" if effects else "estimate")
    told = "; ".join(f"{one.name} {one.value:z.3g} ({one.low:z.3g} to {one.high:z.3g})" for one in shown[:8])
    caption = f"Estimates with intervals of {confidence} confidence{left_out(len(shown), len(rows))}."
    if effects:
        caption += " Blue and red: decided better and worse. Grey rings: not decided."
    if effects > len(rows):
        caption += f" Of {effects - len(rows):,} effects too little is known to draw them; the table says why."
    return _picture(figure, f"Estimates: {told}.", caption)


def framed(figure: Figure, alt: str, caption: str) -> Picture:
    """Return a figure that somebody else drew."""
    return _picture(figure, alt, caption)


def _colours(arms: Sequence[str]) -> dict[str, str]:
    if len(arms) <= len(_ARMS):
        return dict(zip(arms, _ARMS, strict=False))
    wheel = colormaps["tab20"]
    return {arm: wheel(number % 20) for number, arm in enumerate(arms)}  # type: ignore[misc]


def _legend(axis: Any, arms: Sequence[str], colours: dict[str, str]) -> None:
    shown = arms[: 2 * len(_ARMS)]
    patches = [Patch(color=colours[arm], label=_label(arm)) for arm in shown]
    axis.legend(handles=patches, loc="upper left", bbox_to_anchor=(0, -0.16), ncols=min(4, len(shown)), fontsize=8)


def _led(boxes: Sequence[Box]) -> str:
    led: dict[str, int] = {}
    for one in boxes:
        arm = leading(one.arms) or "none, with the same share for several,"
        led[arm] = led.get(arm, 0) + 1
    return ", ".join(f"{arm} in {count:,}" for arm, count in led.items()) + "."


def _label(name: str) -> str:
    """Write a name as a label of a picture, which leaves out those that begin with an underscore."""
    short = printable(name) if len(name) <= _LABEL else printable(name[: _LABEL - 1]) + "…"
    return f" {short}" if short.startswith("_") else short


def _picture(figure: Figure, alt: str, caption: str, parts: int = 0) -> Picture:
    kind = "svg" if parts <= _VECTOR else "png"
    body = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else None
    figure.suptitle("")
    figure.savefig(body, format=kind, dpi=150, bbox_inches="tight", metadata=metadata)
    width = round(96 * float(figure.get_size_inches()[0]))
    plt.close(figure)
    media = "image/svg+xml" if kind == "svg" else "image/png"
    encoded = base64.b64encode(body.getvalue()).decode()
    return Picture(f"data:{media};base64,{encoded}", printable(alt), printable(caption), width)
