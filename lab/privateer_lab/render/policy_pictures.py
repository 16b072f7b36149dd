"""Pictures of policies for pages and notebooks: a map of two features, bars of shares, and coefficients."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, Final

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch
from numpy.typing import NDArray

from privateer_core.answer.policy_view import BinShares, Coefficients, GroupShares, OptionShares, PlayCounts, Point
from privateer_core.errors import SpecError
from privateer_core.spec.categories import Boolean, Categorical, Hashed, Ordinal
from privateer_core.spec.context import encode_features, name_columns
from privateer_core.spec.features import Feature, Numeric, Ranked
from privateer_core.spec.spec import Spec
from privateer_lab.render.pictures import COLOURS, GREY, Picture, open_picture, short_label
from privateer_lab.render.words import format_figure, whole_percent

Array = NDArray[np.float64]
_MAX_BARS: Final = 30
"""Largest number of bars of a picture."""
_MAX_TEXTS: Final = 8
"""Largest number of rows that the text for readers without the picture has."""
_MAX_WRITTEN_COEFFICIENTS: Final = 200
"""Largest number of coefficients that are written as figures, too."""
_N_MAP_STEPS: Final = 160
_MIN_CERTAIN_SHARE: Final = 0.999
_WHITE_FRACTION: Final = 0.55


@singledispatch
def draw_policy(shows: Any, _spec: Spec) -> Picture:
    """Draw what a policy gives to participants, by the type of its view."""
    raise TypeError(f"no picture of {type(shows).__name__}")


@draw_policy.register
def _(shows: BinShares, spec: Spec) -> Picture:
    arms = _list_arms(spec.options, [bin_.arms for bin_ in shows.bins])
    return draw_map(spec, lambda columns: _find_shares(shows, spec, arms, columns), arms=arms)


def _find_shares(shows: BinShares, spec: Spec, arms: Sequence[str], columns: Array) -> Array:
    """Return the shares of the arms in the bins of encoded contexts, (n, arms); 0 outside of all bins."""
    names, shares = name_columns(spec.features), np.zeros((len(columns), len(arms)))
    points = [columns[:, names.index(name)] if name in names else np.full(len(columns), 0.5) for name in shows.columns]
    for bin_ in shows.bins:
        sides = zip(points, bin_.lower, bin_.upper, strict=True)
        is_inside = np.all([(low <= point) & (point <= high) for point, low, high in sides], axis=0)
        shares[is_inside] = [bin_.arms.get(arm, 0.0) for arm in arms]
    return shares


@dataclass(frozen=True)
class _MapAxis:
    """An axis of a map: a feature in steps."""

    name: str  # of the feature
    numbers: Array  # shape (steps,): the result of `Feature.read` at the middle of each step
    edges: Array  # shape (steps + 1,): the ends of the steps on the picture
    ticks: tuple[str, ...] | None = None  # names of levels at the middle of each step; None for numbers

    @classmethod
    def from_feature(cls, name: str, feature: Feature) -> "_MapAxis":
        """Make a feature's axis: its levels, or steps between its bounds."""
        if levels := _level_names(feature):
            positions = np.arange(len(levels) + 1, dtype=np.float64)
            return cls(name, positions[:-1], np.asarray(positions - 0.5), levels)
        assert isinstance(feature, Numeric | Ranked)
        edges = np.linspace(float(feature.value_at(0.0)), float(feature.value_at(1.0)), _N_MAP_STEPS + 1)
        return cls(name, np.asarray((edges[1:] + edges[:-1]) / 2), np.asarray(edges, np.float64))

    def label(self, axis: Any) -> None:
        """Name the levels on an axis of matplotlib."""
        if self.ticks is not None:
            middles = (self.edges[1:] + self.edges[:-1]) / 2
            axis.set_ticks(middles[: len(self.ticks)], labels=[short_label(tick) for tick in self.ticks])


def _level_names(feature: Feature) -> tuple[str, ...] | None:
    if isinstance(feature, Categorical | Hashed | Ordinal):
        return tuple(str(level) for level in feature.levels)
    return ("no", "yes") if isinstance(feature, Boolean) else None


def draw_map(
    spec: Spec,
    find_shares: Callable[[Array], Array],
    x: str | None = None,
    y: str | None = None,
    arms: Sequence[str] | None = None,
) -> Picture:
    """Draw the arm that people get, as a map of two features with all others at their middle; bars without features.

    ``find_shares`` returns the shares of the arms, (n, arms), for encoded contexts, (n, columns).
    """
    arms = arms or spec.options
    chosen, title = _choose_features(spec, x, y), f"{spec.name}: the arm that people get"
    if not chosen:
        shares = find_shares(np.zeros((256, spec.dimension))).mean(axis=0).tolist()
        return draw_shares(title, [("everybody", dict(zip(arms, shares, strict=True)))], arms)
    axes = [_MapAxis.from_feature(name, spec.features[name]) for name in chosen]
    x_axis, y_axis = (*axes, _MapAxis("", np.zeros(1), np.array([0.0, 1.0]), ()))[:2]
    shares = _find_shares_on_map(spec, axes, find_shares).reshape(len(y_axis.numbers), len(x_axis.numbers), -1)
    leading = np.where((shares == shares.max(axis=-1, keepdims=True)).sum(axis=-1) == 1, shares.argmax(axis=-1), -1)
    is_mixed, colours = shares.max(axis=-1) < _MIN_CERTAIN_SHARE, _arm_colours(arms)
    rgb = np.array([to_rgb(colours[arm]) for arm in arms] + [to_rgb(GREY)])[leading]
    white = np.where(is_mixed, _WHITE_FRACTION, 0.0)[..., None]
    areas = [(arm, float((leading == index).mean())) for index, arm in enumerate(arms)]
    text = ", ".join(f"{arm} on {whole_percent(area)}" for arm, area in areas if area)
    middle = [name for name in spec.features if name not in chosen]
    description = f"A map, {' across and '.join([*chosen, ''][:2])}{' up' * (len(chosen) > 1)}: {text or 'none ahead'}."
    caption = "The arm that most people get in each place; it is paler where others are tried, too."
    heights = (4.0 if y_axis.name else 2.0,)
    with open_picture(title, heights=heights, caption=caption, description=description) as (picture, (axis,)):
        axis.pcolormesh(x_axis.edges, y_axis.edges, rgb * (1 - white) + white, rasterized=True)
        axis.grid(visible=False)
        x_axis.label(axis.xaxis)
        y_axis.label(axis.yaxis)
        axis.set_xlabel(f"{x_axis.name} (of people in the middle of {', '.join(middle)})" if middle else x_axis.name)
        axis.set_ylabel(y_axis.name)
        notes = {"paler: others\nare tried, too": "#cccccc"} if is_mixed.any() else {}
        notes |= {"none is ahead": GREY} if (leading < 0).any() else {}
        _draw_legend(axis, {arm: colours[arm] for arm, area in areas if area} | notes)
    return picture


def _choose_features(spec: Spec, x: str | None, y: str | None) -> list[str]:
    """Return up to two features, the first of the spec by default; refuse unknown names."""
    features = spec.features
    for name in (x, y):
        if name is not None and name not in features:
            remedy = f"choose from {', '.join(features)}" if features else "leave it out: there is no context"
            raise SpecError("no feature has this name", field=name, remedy=remedy)
    first = x or next((name for name in features if name != y), None)
    second = y or next((name for name in features if name != first), None)
    return [name for name in (first, second) if name is not None]


def _find_shares_on_map(spec: Spec, axes: Sequence[_MapAxis], find_shares: Callable[[Array], Array]) -> Array:
    """Return shares of the arms at all points of the axes, (points, arms)."""
    grids = np.meshgrid(*(map_axis.numbers for map_axis in axes))
    contexts, names = np.empty((grids[0].size, len(spec.features))), list(spec.features)
    for index, feature in enumerate(spec.features.values()):
        if levels := _level_names(feature):
            contexts[:, index] = len(levels) // 2
        else:
            assert isinstance(feature, Numeric | Ranked)
            contexts[:, index] = feature.value_at(0.5)
    for map_axis, grid in zip(axes, grids, strict=True):
        contexts[:, names.index(map_axis.name)] = grid.ravel()
    return find_shares(encode_features(spec.features, contexts))


@draw_policy.register
def _(shows: GroupShares, spec: Spec) -> Picture:
    groups = shows.groups[:_MAX_BARS]
    omitted = "" if len(groups) == len(shows.groups) else f" The first {len(groups)} of {len(shows.groups):,} groups."
    arms = _list_arms(spec.options, [group.arms for group in shows.groups])
    title, caption = f"{spec.name}: the arm that people get", f"The share of people who are given each arm.{omitted}"
    return draw_shares(title, [(group.name, group.arms) for group in groups], arms, caption)


def draw_shares(
    title: str, rows: Sequence[tuple[str, OptionShares]], arms: Sequence[str], caption: str = ""
) -> Picture:
    """Draw each row's shares of arms as a stacked bar."""
    texts = [
        f"{name}: {', '.join(f'{arm} {whole_percent(share)}' for arm, share in shares.items())}"
        for name, shares in rows[:_MAX_TEXTS]
    ]
    text, height, colours = f"Bars of shares. {'; '.join(texts)}.", 1.3 + 0.36 * len(rows), _arm_colours(arms)
    with open_picture(title, heights=(height,), caption=caption, description=text) as (picture, (axis,)):
        for index, (_, shares) in enumerate(rows):
            start = 0.0
            for arm in arms:
                share = shares.get(arm, 0.0)
                axis.barh(-index, share, left=start, color=colours[arm], edgecolor="#fff", linewidth=0.6)
                if share >= 0.1:
                    axis.text(start + share / 2, -index, f"{share:.0%}", ha="center", va="center", fontsize=8)
                start += share
        _name_rows(axis, [name for name, _ in rows], "share of the people")
        axis.set_xlim(0, 1)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        _draw_legend(axis, colours)
    return picture


@draw_policy.register
def _(shows: PlayCounts, spec: Spec) -> Picture:
    rows = sorted(shows.plays.items(), key=lambda row: -row[1])
    caption = f"How often each is played, the first {min(_MAX_BARS, len(rows))} of {len(rows):,}."
    return _draw_bars(f"{spec.name}: what is asked", rows, caption, "times played")


@draw_policy.register
def _(shows: Point, spec: Spec) -> Picture:
    rows = list(shows.centre.items())
    radius_note = "" if shows.farthest is None else f" People's points are up to {shows.farthest:z.3g} away."
    caption = f"The centre, the first {min(_MAX_BARS, len(rows))} of {len(rows):,} coordinates.{radius_note}"
    return _draw_bars(f"{spec.name}: the point that people get", rows, caption, "coordinate")


def _draw_bars(title: str, rows: Sequence[tuple[str, float]], caption: str, axis_label: str) -> Picture:
    """Draw the first rows as bars of one colour."""
    drawn_rows = rows[:_MAX_BARS]
    text = f"Bars: {', '.join(f'{name} {format_figure(value)}' for name, value in rows[:_MAX_TEXTS])}."
    height = 1.1 + 0.26 * len(drawn_rows)
    with open_picture(title, heights=(height,), caption=caption, description=text) as (picture, (axis,)):
        axis.barh([-index for index in range(len(drawn_rows))], [value for _, value in drawn_rows], color=COLOURS[0])
        _name_rows(axis, [name for name, _ in drawn_rows], axis_label)
    return picture


@draw_policy.register
def _(shows: Coefficients, spec: Spec) -> Picture:
    columns = {**({"all arms": shows.shared} if shows.shared else {}), **shows.arms}
    terms = list(dict.fromkeys(name for arm_terms in columns.values() for name in arm_terms))
    names = terms[:_MAX_BARS]
    values = np.array([[arm_terms.get(name, np.nan) for name in names] for arm_terms in columns.values()])
    max_magnitude = float(np.nanmax(np.abs(values), initial=1e-9))
    text = f"Coefficients of {len(names)} terms for {len(shows.arms)} arms, as figures on colours from blue to red."
    omitted = "" if len(names) == len(terms) else f" The first {len(names)} of {len(terms):,} terms."
    caption = f"What each term adds to the reward of each arm: red raises it, blue lowers it.{omitted}"
    title, height = f"{spec.name}: what each term adds", 1.2 + 0.34 * len(names)
    with open_picture(title, heights=(height,), caption=caption, description=text) as (picture, (axis,)):
        axis.imshow(values.T, cmap="RdBu_r", vmin=-max_magnitude, vmax=max_magnitude, aspect="auto")
        axis.set_xticks(range(len(columns)), [short_label(name) for name in columns])
        axis.set_yticks(range(len(names)), [short_label(name) for name in names])
        axis.grid(visible=False)
        for index, value in np.ndenumerate(values) if values.size <= _MAX_WRITTEN_COEFFICIENTS else ():
            if not np.isnan(value):
                colour = "#fff" if abs(value) > 0.6 * max_magnitude else "#111"
                axis.text(*index, f"{value:z.3g}", ha="center", va="center", color=colour, fontsize=8)
    return picture


def _list_arms(options: Sequence[str], rows: Sequence[OptionShares]) -> list[str]:
    """Return the names of all arms, the options of the spec first."""
    return list(dict.fromkeys([*options, *(name for row in rows for name in row)]))


def _arm_colours(arms: Sequence[str]) -> dict[str, Any]:
    if len(arms) <= len(COLOURS):
        return dict(zip(arms, COLOURS, strict=False))
    return {arm: colormaps["tab20"](index % 20) for index, arm in enumerate(arms)}


def _name_rows(axis: Any, names: Sequence[str], label: str) -> None:
    axis.set_yticks([-index for index in range(len(names))], [short_label(name) for name in names])
    axis.set_xlabel(label)
    axis.grid(visible=False, axis="y")


def _draw_legend(axis: Any, colours: Mapping[str, Any]) -> None:
    """Draw a legend of the first arms beside the picture."""
    patches = [Patch(color=colour, label=short_label(name)) for name, colour in colours.items()]
    axis.legend(handles=patches[: 2 * len(COLOURS)], fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0))
