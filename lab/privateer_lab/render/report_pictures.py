"""Pictures of a report for each type of policy and result, with alternative texts."""

from collections import Counter
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
    leading_option,
)
from privateer_core.spec.features import Feature, Numeric
from privateer_core.spec.spec import Spec
from privateer_lab.render.pictures import (
    COLOURS,
    GREY,
    Picture,
    draw_over_time,
    draw_rows,
    draw_shapes,
    open_page_picture,
    short_label,
)
from privateer_lab.render.words import IntervalRow, interval_rows, max_drawn_rows, omitted_rows_note, whole_percent

_MAX_BARS: Final = 30
"""Largest number of rows of a picture with bars or intervals."""
_MAX_VECTOR_BINS: Final = 400
"""Largest number of bins of a map that is drawn as vectors, with outlines and names."""
_MAX_MAP_COLUMNS: Final = 2
"""Largest number of columns of bins that are drawn as a map."""
_MIN_LABELLED_SIDE: Final = 0.12
"""Smallest side of a bin with its arm's name in it, as a share of the map's side."""
_MAX_WRITTEN_COEFFICIENTS: Final = 200
"""Largest number of coefficients that are written as figures, too."""


@singledispatch
def draw_policy(shows: Any, _spec: Spec) -> Picture:
    """Draw the arms that a policy gives to participants."""
    raise TypeError(f"no picture of {type(shows).__name__}")


@draw_policy.register
def draw_bin_shares(shows: BinShares, spec: Spec) -> Picture:
    """Draw the arms of bins: a map of two numeric features, a strip of one, or else each arm's share of the space."""
    arms = _list_arms(spec.options, [bin_.arms for bin_ in shows.bins])
    if len(shows.columns) not in range(1, _MAX_MAP_COLUMNS + 1):
        return _draw_volume_shares(shows.bins, arms)
    features, columns = [spec.features.get(name) for name in shows.columns], shows.columns
    corners = np.array([_bin_corners(bin_, features) for bin_ in shows.bins])
    low, high = corners[:, 0].min(axis=0), corners[:, 1].max(axis=0)
    axes = f"{columns[0]} across and {columns[1]} up" if len(columns) > 1 else f"{columns[0]} across"
    title = f"A map, {axes}, of {len(shows.bins):,} bins: the arm that is played most in each. {_lead_text(shows.bins)}"
    has_tie = any(leading_option(bin_.arms) is None for bin_ in shows.bins)
    tie = ", grey where several have the same share" if has_tie else ""
    caption = f"The arm played most in each bin; paler where several are still tried{tie}."
    is_vector, colours = len(shows.bins) <= _MAX_VECTOR_BINS, _arm_colours(arms)
    with open_page_picture(title, caption, 3.8 if len(columns) > 1 else 1.9, vector=is_vector) as (picture, axis):
        for bin_, bin_corners in zip(shows.bins, corners, strict=True):
            _draw_bin(axis, bin_.arms, bin_corners, colours, high - low, has_outline=is_vector)
        axis.set_xlim(low[0], high[0])
        axis.set_ylim(low[1], high[1])
        axis.set_xlabel(short_label(columns[0]))
        axis.set_ylabel(short_label(columns[1])) if len(columns) > 1 else axis.set_yticks([])
        axis.grid(visible=False)
        _draw_legend(axis, arms, colours)
    return picture


def _bin_corners(bin_: ArmsOfBin, features: Sequence[Feature | None]) -> Any:
    """Return a bin's corners in the units of the features, (2, 2); of one column with the height of the picture."""

    def to_feature_units(corner: Sequence[float]) -> list[float]:
        pairs = zip(corner, features, strict=True)
        return [feature.value_at(position) if isinstance(feature, Numeric) else position for position, feature in pairs]

    corners = np.array([to_feature_units(bin_.lower), to_feature_units(bin_.upper)], np.float64)
    return corners if corners.shape[1] > 1 else np.column_stack([corners, [0.0, 1.0]])


def _draw_bin(
    axis: Any, arms: OptionShares, corners: Any, colours: Mapping[str, Any], map_size: Any, *, has_outline: bool
) -> None:
    """Draw a bin of a map in its leading arm's colour, with its name where it fits."""
    (left, bottom), (right, top) = corners
    arm = leading_option(arms)
    alpha = 0.25 + 0.75 * max(0.0, max(arms.values()) * 1.5 - 0.5)
    colour = colours[arm] if arm else GREY
    axis.add_patch(Rectangle((left, bottom), right - left, top - bottom, facecolor=colour, alpha=alpha, linewidth=0))
    if not has_outline:
        return
    axis.add_patch(Rectangle((left, bottom), right - left, top - bottom, fill=False, edgecolor="#fff", linewidth=0.6))
    if right - left >= _MIN_LABELLED_SIDE * map_size[0] and top - bottom >= _MIN_LABELLED_SIDE * map_size[1]:
        name = short_label(arm or "none ahead")
        axis.text((left + right) / 2, (bottom + top) / 2, name, ha="center", va="center", fontsize=8)


def _lead_text(bins: Sequence[ArmsOfBin]) -> str:
    n_bins = Counter(leading_option(bin_.arms) or "none, with the same share for several," for bin_ in bins)
    return ", ".join(f"{arm} in {count:,}" for arm, count in n_bins.items()) + "."


def _draw_volume_shares(bins: Sequence[ArmsOfBin], arms: Sequence[str]) -> Picture:
    """Draw the share of the feature space of each arm; the bins cover only possible contexts."""
    shares = dict.fromkeys(arms, 0.0)
    volumes = np.array([np.prod(np.subtract(bin_.upper, bin_.lower)) for bin_ in bins])
    for bin_, volume in zip(bins, (volumes / volumes.sum()).tolist(), strict=True):
        for arm, share in bin_.arms.items():
            shares[arm] += volume * share
    caption = "How much of the space of features each arm has; people are not spread evenly over it."
    return _draw_stacked_bars([("of the space", shares)], arms, caption)


@draw_policy.register
def draw_group_shares(shows: GroupShares, spec: Spec) -> Picture:
    """Draw the share of each arm in every group of participants."""
    rows = [(group.name, group.arms) for group in shows.groups]
    drawn_rows = rows[:_MAX_BARS]
    omitted = "" if len(drawn_rows) == len(rows) else f" The first {len(drawn_rows)} of {len(rows):,} groups."
    arms = _list_arms(spec.options, [shares for _, shares in rows])
    return _draw_stacked_bars(drawn_rows, arms, f"The share of people who are given each arm.{omitted}")


def _draw_stacked_bars(rows: Sequence[tuple[str, OptionShares]], arms: Sequence[str], caption: str) -> Picture:
    """Draw each row's shares of arms as a stacked bar."""
    texts = [(name, (f"{arm} {whole_percent(share)}" for arm, share in shares.items())) for name, shares in rows[:8]]
    text = "; ".join(f"{name}: {', '.join(arm_texts)}" for name, arm_texts in texts)
    colours = _arm_colours(arms)
    with open_page_picture(f"Bars of shares. {text}.", caption, 1.1 + 0.36 * len(rows)) as (picture, axis):
        for index, (_, shares) in enumerate(rows):
            start = 0.0
            for arm in arms:
                share = shares.get(arm, 0.0)
                axis.barh(-index, share, left=start, color=colours[arm], edgecolor="#fff", linewidth=0.6)
                if share >= 0.1:
                    axis.text(start + share / 2, -index, f"{share:.0%}", ha="center", va="center", fontsize=8)
                start += share
        axis.set_yticks([-index for index in range(len(rows))], [short_label(name) for name, _ in rows])
        axis.set_xlim(0, 1)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axis.grid(visible=False)
        _draw_legend(axis, arms, colours)
    return picture


@draw_policy.register
def draw_play_counts(shows: PlayCounts, _spec: Spec) -> Picture:
    """Draw the number of plays of each action, in descending order."""
    rows = sorted(shows.plays.items(), key=lambda row: -row[1])
    caption = f"How often each is played, the first {min(_MAX_BARS, len(rows))} of {len(rows):,}."
    text = ", ".join(f"{name} {count:,} times" for name, count in rows[:8])
    return _draw_bars(rows, f"Bars: {text}.", caption, "times played")


@draw_policy.register
def draw_centre(shows: Point, _spec: Spec) -> Picture:
    """Draw bars of the first coordinates of a policy's centre."""
    rows = list(shows.centre.items())
    text = ", ".join(f"{name} {coordinate:z.3g}" for name, coordinate in rows[:8])
    radius_note = "" if shows.farthest is None else f" People's points are up to {shows.farthest:z.3g} away."
    caption = f"The centre, the first {min(_MAX_BARS, len(rows))} of {len(rows):,} coordinates.{radius_note}"
    return _draw_bars(rows, f"Bars of the centre's coordinates: {text}.", caption, "coordinate")


def _draw_bars(rows: Sequence[tuple[str, float]], title: str, caption: str, axis_label: str) -> Picture:
    """Draw the first rows as bars of one colour."""
    drawn_rows = rows[:_MAX_BARS]
    with open_page_picture(title, caption, 0.9 + 0.26 * len(drawn_rows)) as (picture, axis):
        axis.barh([-index for index in range(len(drawn_rows))], [value for _, value in drawn_rows], color=COLOURS[0])
        axis.set_yticks([-index for index in range(len(drawn_rows))], [short_label(name) for name, _ in drawn_rows])
        axis.set_xlabel(axis_label)
    return picture


@draw_policy.register
def draw_coefficients(shows: Coefficients, _spec: Spec) -> Picture:
    """Draw the coefficients of each arm, and those shared by all arms, as a heat map with figures."""
    columns = {**({"all arms": shows.shared} if shows.shared else {}), **shows.arms}
    terms = list(dict.fromkeys(name for arm_terms in columns.values() for name in arm_terms))
    names = terms[:_MAX_BARS]
    values = np.array([[arm_terms.get(name, np.nan) for name in names] for arm_terms in columns.values()])
    max_magnitude = float(np.nanmax(np.abs(values), initial=1e-9))
    title = f"Coefficients of {len(names)} terms for {len(shows.arms)} arms, as figures on colours from blue to red."
    omitted = "" if len(names) == len(terms) else f" The first {len(names)} of {len(terms):,} terms."
    caption = f"What each term adds to the reward of each arm: red raises it, blue lowers it.{omitted}"
    with open_page_picture(title, caption, 1.0 + 0.34 * len(names)) as (picture, axis):
        axis.imshow(values.T, cmap="RdBu_r", vmin=-max_magnitude, vmax=max_magnitude, aspect="auto")
        axis.set_xticks(range(len(columns)), [short_label(name) for name in columns])
        axis.set_yticks(range(len(names)), [short_label(name) for name in names])
        axis.grid(visible=False)
        if values.size <= _MAX_WRITTEN_COEFFICIENTS:
            _write_coefficients(axis, values, max_magnitude)
    return picture


def _write_coefficients(axis: Any, values: Any, max_magnitude: float) -> None:
    """Write each coefficient into its cell of a heat map, white on dark cells."""
    for index, value in np.ndenumerate(values):
        if not np.isnan(value):
            colour = "#fff" if abs(value) > 0.6 * max_magnitude else "#111"
            axis.text(*index, f"{value:z.3g}", ha="center", va="center", color=colour, fontsize=8)


def draw_answer(answer: Answer) -> list[Picture]:
    """Draw the estimates of a result, its effects over time, and its shape functions."""
    rows = interval_rows(answer)
    over_time = [part for part in answer.all_of(EffectsOverTime) if len(part.people) > 1]
    estimated = [_draw_estimates(answer, rows)] if rows else []
    return [*estimated, *map(_draw_effects_over_time, over_time), *draw_shapes(answer)]


def _draw_estimates(answer: Answer, rows: Sequence[IntervalRow]) -> Picture:
    """Draw the estimates or the estimated effects of a result with their intervals."""
    drawn_rows, n_effects = rows[: max_drawn_rows(rows, _MAX_BARS)], len(answer.effects)
    text = "; ".join(f"{row.name} {row.value:z.3g} ({row.low:z.3g} to {row.high:z.3g})" for row in drawn_rows[:8])
    level = "" if answer.confidence is None else f" with intervals of {100 * answer.confidence:g} % confidence"
    caption = f"Estimates{level}{omitted_rows_note(len(drawn_rows), len(rows))}."
    if n_effects:
        caption += " Blue and red: decided better and worse. Grey rings: not decided."
    if n_effects > len(rows):
        caption += f" Of {n_effects - len(rows):,} effects too little is known to draw them; the table says why."
    with open_page_picture(f"Estimates: {text}.", caption, 0.9 + 0.28 * len(drawn_rows)) as (picture, axis):
        draw_rows(axis, drawn_rows)
        axis.set_xlabel("effect" if n_effects else "estimate")
    return picture


def _draw_effects_over_time(part: EffectsOverTime) -> Picture:
    """Draw effects over the number of people as a page's picture."""
    title = "Curves of the effects over the number of people, with their intervals."
    with open_page_picture(title, "How the first effects came about, with their intervals.", 3.4) as (picture, axis):
        draw_over_time(axis, part)
    return picture


def _list_arms(options: Sequence[str], rows: Sequence[OptionShares]) -> list[str]:
    """Return the names of all arms, the options of the spec first."""
    return list(dict.fromkeys([*options, *(name for row in rows for name in row)]))


def _arm_colours(arms: Sequence[str]) -> dict[str, Any]:
    if len(arms) <= len(COLOURS):
        return dict(zip(arms, COLOURS, strict=False))
    return {arm: colormaps["tab20"](index % 20) for index, arm in enumerate(arms)}


def _draw_legend(axis: Any, arms: Sequence[str], colours: Mapping[str, Any]) -> None:
    named_arms = arms[: 2 * len(COLOURS)]
    patches = [Patch(color=colours[arm], label=short_label(arm)) for arm in named_arms]
    axis.legend(handles=patches, loc="upper left", bbox_to_anchor=(0, -0.16), ncols=min(4, len(named_arms)), fontsize=8)
