"""Pictures of a report: one for each type of a policy and of an answer, with words for those who do not see it."""

from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import Any, Final

import numpy as np
from matplotlib import colormaps
from matplotlib.patches import Patch, Rectangle

from privateer_core.answer import Answer
from privateer_core.answer.parts import EffectsOverTime
from privateer_core.answer.policy_view import (
    ArmsOfBin,
    BinShares,
    Coefficients,
    GroupShares,
    OptionShares,
    PlayCounts,
    Point,
    leading,
)
from privateer_core.spec.features import Feature, Numeric
from privateer_core.spec.spec import Spec
from privateer_lab.answer_words import Drawn, left_out, most_drawn, rows_drawn
from privateer_lab.figures import whole_percent
from privateer_lab.pages.result_pictures import draw_over_time, draw_rows
from privateer_lab.picture import COLOURS, GREY, Picture, label, page_drawing
from privateer_lab.shape_pictures import pictures_of_shapes

_BARS: Final = 30
"""Rows of a picture with bars or intervals."""
_VECTOR: Final = 400
"""Bins up to which a map is drawn as vectors, and with outlines and names."""
_MAPPED: Final = 2
"""Columns of bins that are drawn as a map."""
_ROOM: Final = 0.12
"""Least side of a bin that has room for its arm's name, as a share of the map's."""
_FIGURES: Final = 200
"""Coefficients up to which each is written, too."""


@singledispatch
def of_policy(shows: Any, _spec: Spec) -> Picture:
    """Draw what a policy gives to whom."""
    raise TypeError(f"no picture of {type(shows).__name__}")


@of_policy.register
def of_bins(shows: BinShares, spec: Spec) -> Picture:
    """Draw which arm is played where: a map of two numbers, a strip of one, or how much of the space each arm has."""
    arms = _all(spec.options, [one.arms for one in shows.bins])
    if len(shows.columns) not in range(1, _MAPPED + 1):
        return _of_volumes(shows.bins, arms)
    features, columns = [spec.features.get(name) for name in shows.columns], shows.columns
    corners = np.array([_corners(one, features) for one in shows.bins])
    low, high = corners[:, 0].min(axis=0), corners[:, 1].max(axis=0)
    where = f"{columns[0]} across and {columns[1]} up" if len(columns) > 1 else f"{columns[0]} across"
    title = f"A map, {where}, of {len(shows.bins):,} bins: the arm that is played most in each. {_led(shows.bins)}"
    grey = ", grey where several have the same share" if any(leading(one.arms) is None for one in shows.bins) else ""
    caption = f"The arm played most in each bin; paler where several are still tried{grey}."
    few, colours = len(shows.bins) <= _VECTOR, _colours(arms)
    with page_drawing(title, caption, 3.8 if len(columns) > 1 else 1.9, vector=few) as (picture, axis):
        for one, ends in zip(shows.bins, corners, strict=True):
            _draw_bin(axis, one.arms, ends, colours, high - low, outlined=few)
        axis.set_xlim(low[0], high[0])
        axis.set_ylim(low[1], high[1])
        axis.set_xlabel(label(columns[0]))
        axis.set_ylabel(label(columns[1])) if len(columns) > 1 else axis.set_yticks([])
        axis.grid(visible=False)
        _legend(axis, arms, colours)
    return picture


def _corners(one: ArmsOfBin, features: Sequence[Feature | None]) -> Any:
    """Return corners in the units of the spec's numbers, (2, 2); of one column with the height of the picture."""

    def in_units(corner: Sequence[float]) -> list[float]:
        pairs = zip(corner, features, strict=True)
        return [one.value_at(place) if isinstance(one, Numeric) else place for place, one in pairs]

    corners = np.array([in_units(one.lower), in_units(one.upper)], np.float64)
    return corners if corners.shape[1] > 1 else np.column_stack([corners, [0.0, 1.0]])


def _draw_bin(
    axis: Any, arms: OptionShares, ends: Any, colours: Mapping[str, Any], span: Any, *, outlined: bool
) -> None:
    (left, bottom), (right, top) = ends
    arm = leading(arms)
    alpha = 0.25 + 0.75 * max(0.0, max(arms.values()) * 1.5 - 0.5)
    colour = colours[arm] if arm else GREY
    axis.add_patch(Rectangle((left, bottom), right - left, top - bottom, facecolor=colour, alpha=alpha, linewidth=0))
    if not outlined:
        return
    axis.add_patch(Rectangle((left, bottom), right - left, top - bottom, fill=False, edgecolor="#fff", linewidth=0.6))
    if right - left >= _ROOM * span[0] and top - bottom >= _ROOM * span[1]:
        name = label(arm or "none ahead")
        axis.text((left + right) / 2, (bottom + top) / 2, name, ha="center", va="center", fontsize=8)


def _led(bins: Sequence[ArmsOfBin]) -> str:
    led: dict[str, int] = {}
    for one in bins:
        arm = leading(one.arms) or "none, with the same share for several,"
        led[arm] = led.get(arm, 0) + 1
    return ", ".join(f"{arm} in {count:,}" for arm, count in led.items()) + "."


def _of_volumes(bins: Sequence[ArmsOfBin], arms: Sequence[str]) -> Picture:
    """Draw the shares of all bins together: places where nobody can be are in none of them."""
    shares = dict.fromkeys(arms, 0.0)
    volumes = np.array([np.prod(np.subtract(one.upper, one.lower)) for one in bins])
    for one, volume in zip(bins, (volumes / volumes.sum()).tolist(), strict=True):
        for arm, share in one.arms.items():
            shares[arm] += volume * share
    caption = "How much of the space of features each arm has; people are not spread evenly over it."
    return _stacked([("of the space", shares)], arms, caption)


@of_policy.register
def of_groups(shows: GroupShares, spec: Spec) -> Picture:
    """Draw the share of each arm in every group of people."""
    rows = [(one.name, one.arms) for one in shows.groups]
    shown = rows[:_BARS]
    more = "" if len(shown) == len(rows) else f" The first {len(shown)} of {len(rows):,} groups."
    arms = _all(spec.options, [one for _, one in rows])
    return _stacked(shown, arms, f"The share of people who are given each arm.{more}")


def _stacked(rows: Sequence[tuple[str, OptionShares]], arms: Sequence[str], caption: str) -> Picture:
    text = "; ".join(
        f"{name}: {', '.join(f'{arm} {whole_percent(share)}' for arm, share in one.items())}" for name, one in rows[:8]
    )
    colours = _colours(arms)
    with page_drawing(f"Bars of shares. {text}.", caption, 1.1 + 0.36 * len(rows)) as (picture, axis):
        for place, (_, shares) in enumerate(rows):
            start = 0.0
            for arm in arms:
                share = shares.get(arm, 0.0)
                axis.barh(-place, share, left=start, color=colours[arm], edgecolor="#fff", linewidth=0.6)
                if share >= 0.1:
                    axis.text(start + share / 2, -place, f"{share:.0%}", ha="center", va="center", fontsize=8)
                start += share
        axis.set_yticks([-place for place in range(len(rows))], [label(name) for name, _ in rows])
        axis.set_xlim(0, 1)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axis.grid(visible=False)
        _legend(axis, arms, colours)
    return picture


@of_policy.register
def of_plays(shows: PlayCounts, _spec: Spec) -> Picture:
    """Draw how often each action is played, most often first."""
    rows = sorted(shows.plays.items(), key=lambda row: -row[1])
    caption = f"How often each is played, the first {min(_BARS, len(rows))} of {len(rows):,}."
    text = ", ".join(f"{name} {count:,} times" for name, count in rows[:8])
    return _bars(rows, f"Bars: {text}.", caption, "times played")


@of_policy.register
def of_point(shows: Point, _spec: Spec) -> Picture:
    """Draw the coordinates of a centre."""
    rows = list(shows.centre.items())
    text = ", ".join(f"{name} {at:z.3g}" for name, at in rows[:8])
    around = "" if shows.farthest is None else f" People's points are up to {shows.farthest:z.3g} away."
    caption = f"The centre, the first {min(_BARS, len(rows))} of {len(rows):,} coordinates.{around}"
    return _bars(rows, f"Bars of the centre's coordinates: {text}.", caption, "coordinate")


def _bars(rows: Sequence[tuple[str, float]], title: str, caption: str, axis_label: str) -> Picture:
    shown = rows[:_BARS]
    with page_drawing(title, caption, 0.9 + 0.26 * len(shown)) as (picture, axis):
        axis.barh([-place for place in range(len(shown))], [value for _, value in shown], color=COLOURS[0])
        axis.set_yticks([-place for place in range(len(shown))], [label(name) for name, _ in shown])
        axis.set_xlabel(axis_label)
    return picture


@of_policy.register
def of_coefficients(shows: Coefficients, _spec: Spec) -> Picture:
    """Draw the coefficients of each arm, and those of all alike, as a heat map with figures."""
    columns = {**({"all arms": shows.shared} if shows.shared else {}), **shows.arms}
    every = list(dict.fromkeys(name for one in columns.values() for name in one))
    names = every[:_BARS]
    values = np.array([[one.get(name, np.nan) for name in names] for one in columns.values()])
    reach = float(np.nanmax(np.abs(values), initial=1e-9))
    title = f"Coefficients of {len(names)} terms for {len(shows.arms)} arms, as figures on colours from blue to red."
    more = "" if len(names) == len(every) else f" The first {len(names)} of {len(every):,} terms."
    caption = f"What each term adds to the reward of each arm: red raises it, blue lowers it.{more}"
    with page_drawing(title, caption, 1.0 + 0.34 * len(names)) as (picture, axis):
        axis.imshow(values.T, cmap="RdBu_r", vmin=-reach, vmax=reach, aspect="auto")
        axis.set_xticks(range(len(columns)), [label(name) for name in columns])
        axis.set_yticks(range(len(names)), [label(name) for name in names])
        axis.grid(visible=False)
        if values.size <= _FIGURES:
            _write_figures(axis, values, reach)
    return picture


def _write_figures(axis: Any, values: Any, reach: float) -> None:
    for place, value in np.ndenumerate(values):
        if not np.isnan(value):
            ink = "#fff" if abs(value) > 0.6 * reach else "#111"
            axis.text(*place, f"{value:z.3g}", ha="center", va="center", color=ink, fontsize=8)


def of_answer(answer: Answer) -> list[Picture]:
    """Draw the estimates of an answer, how its effects came about, and its shape functions."""
    rows = rows_drawn(answer)
    over_time = [part for part in answer.all_of(EffectsOverTime) if len(part.people) > 1]
    estimated = [_of_estimates(answer, rows)] if rows else []
    return [*estimated, *map(_of_effects_over_time, over_time), *pictures_of_shapes(answer)]


def _of_estimates(answer: Answer, rows: Sequence[Drawn]) -> Picture:
    """Draw estimates with their intervals; of the effects, those of which something is known."""
    shown, effects = rows[: most_drawn(rows, _BARS)], len(answer.effects)
    text = "; ".join(f"{one.name} {one.value:z.3g} ({one.low:z.3g} to {one.high:z.3g})" for one in shown[:8])
    with_ = "" if answer.confidence is None else f" with intervals of {100 * answer.confidence:g} % confidence"
    caption = f"Estimates{with_}{left_out(len(shown), len(rows))}."
    if effects:
        caption += " Blue and red: decided better and worse. Grey rings: not decided."
    if effects > len(rows):
        caption += f" Of {effects - len(rows):,} effects too little is known to draw them; the table says why."
    with page_drawing(f"Estimates: {text}.", caption, 0.9 + 0.28 * len(shown)) as (picture, axis):
        draw_rows(axis, shown)
        axis.set_xlabel("effect" if effects else "estimate")
    return picture


def _of_effects_over_time(part: EffectsOverTime) -> Picture:
    title = "Curves of the effects over the number of people, with their intervals."
    with page_drawing(title, "How the first effects came about, with their intervals.", 3.4) as (picture, axis):
        draw_over_time(axis, part)
    return picture


def _all(options: Sequence[str], rows: Sequence[OptionShares]) -> list[str]:
    """Return all arms that are named, those of the spec first."""
    return list(dict.fromkeys([*options, *(name for row in rows for name in row)]))


def _colours(arms: Sequence[str]) -> dict[str, Any]:
    if len(arms) <= len(COLOURS):
        return dict(zip(arms, COLOURS, strict=False))
    wheel = colormaps["tab20"]
    return {arm: wheel(number % 20) for number, arm in enumerate(arms)}


def _legend(axis: Any, arms: Sequence[str], colours: Mapping[str, Any]) -> None:
    shown = arms[: 2 * len(COLOURS)]
    patches = [Patch(color=colours[arm], label=label(arm)) for arm in shown]
    axis.legend(handles=patches, loc="upper left", bbox_to_anchor=(0, -0.16), ncols=min(4, len(shown)), fontsize=8)
