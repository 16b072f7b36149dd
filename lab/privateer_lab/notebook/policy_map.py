"""The map of a policy: which arm people get, by one or two features, in their own units."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_core.spec.categories import Boolean, Categorical, Ordinal
from privateer_core.spec.context import encoded
from privateer_core.spec.features import Feature, Numeric, Ranked
from privateer_lab.notebook.data_frames import Array
from privateer_lab.notebook.policies import LoadedPolicy
from privateer_lab.pages.style import COLOURS
from privateer_lab.picture import Picture, drawing

_STEPS: Final = 160
_SURE: Final = 0.999
_PALE: Final = 0.55


@dataclass(frozen=True)
class Side:
    """A side of a map.

    Attributes
    ----------
    name
        The feature.
    numbers
        Shape (steps,): what `Feature.read` returns at the middle of each step.
    edges
        Shape (steps + 1,): where steps end on the picture.
    ticks
        Names of levels at the middle of each step; None for numbers.
    """

    name: str
    numbers: Array
    edges: Array
    ticks: tuple[str, ...] | None = None


def draw_map(policy: LoadedPolicy, x: str | None, y: str | None) -> Picture:
    """Draw a policy.

    Raises
    ------
    SpecError
        If a feature is unknown.
    """
    sides, title = _sides(policy, x, y), f"{policy.spec.name}: the arm that people get"
    if not sides:
        return _bars(policy, title)
    across, up = sides[0], sides[1] if len(sides) > 1 else Side("", np.zeros(1), np.array([0.0, 1.0]), ())
    shares = _shares(policy, sides)
    best, sure = shares.argmax(axis=-1), shares.max(axis=-1)
    with drawing(title, height=4.0 if up.name else 2.0) as (picture, (axis,)):
        colours = _colours(best, sure)
        axis.pcolormesh(across.edges, up.edges, colours)
        axis.grid(visible=False)
        _ticks(axis.xaxis, across)
        _ticks(axis.yaxis, up)
        axis.set_xlabel(_labelled(policy, across.name, {side.name for side in sides}))
        axis.set_ylabel(up.name)
        _legend(axis, policy, best, bool((sure < _SURE).any()))
    return picture


def _sides(policy: LoadedPolicy, x: str | None, y: str | None) -> list[Side]:
    features = policy.spec.features
    for name in (x, y):
        if name is not None and name not in features:
            remedy = f"choose from {', '.join(features)}" if features else "leave it out: there is no context"
            raise SpecError("no feature has this name", field=name, remedy=remedy)
    first = x or next((name for name in features if name != y), None)
    second = y or next((name for name in features if name != first), None)
    return [_side(name, features[name]) for name in (first, second) if name is not None]


def _side(name: str, feature: Feature) -> Side:
    levels = _levels(feature)
    if levels is not None:
        places = np.arange(len(levels) + 1, dtype=np.float64)
        return Side(name, places[:-1], np.asarray(places - 0.5), levels)
    assert isinstance(feature, Numeric | Ranked)
    low, high = float(feature.value_at(0.0)), float(feature.value_at(1.0))
    edges = np.asarray(np.linspace(low, high, _STEPS + 1), np.float64)
    return Side(name, np.asarray((edges[1:] + edges[:-1]) / 2), edges)


def _levels(feature: Feature) -> tuple[str, ...] | None:
    if isinstance(feature, Categorical | Ordinal):
        return tuple(str(level) for level in feature.levels)
    return ("no", "yes") if isinstance(feature, Boolean) else None


def _middle(feature: Feature) -> float:
    """Return what `Feature.read` returns of a person in the middle."""
    levels = _levels(feature)
    if levels is not None:
        return float(len(levels) // 2)
    assert isinstance(feature, Numeric | Ranked)
    return float(feature.value_at(0.5))


def _shares(policy: LoadedPolicy, sides: list[Side]) -> Array:
    """Return shares of the arms, (steps up, steps across, arms)."""
    grids = np.meshgrid(*(side.numbers for side in sides))
    raw = np.tile([_middle(one) for one in policy.spec.features.values()], (grids[0].size, 1))
    names = list(policy.spec.features)
    for side, grid in zip(sides, grids, strict=True):
        raw[:, names.index(side.name)] = grid.ravel()
    found = policy.at(encoded(policy.spec.features, raw))
    shape = grids[0].shape if len(sides) > 1 else (1, grids[0].size)
    return found.reshape(*shape, -1)


def _colours(best: NDArray[np.int64], sure: Array) -> Array:
    """Return the colour of each place: the favourite's, paler where others are tried, too."""
    colours = np.array([[int(one[k : k + 2], 16) / 255 for k in (1, 3, 5)] for one in _palette(int(best.max()) + 1)])
    pale = np.where(sure < _SURE, _PALE, 0.0)[..., None]
    return np.asarray(colours[best] * (1 - pale) + pale)


def _palette(count: int) -> list[str]:
    return [COLOURS[k % len(COLOURS)] for k in range(count)]


def _ticks(which: Any, side: Side) -> None:
    if side.ticks is not None:
        which.set_ticks(((side.edges[1:] + side.edges[:-1]) / 2)[: len(side.ticks)], labels=side.ticks)


def _labelled(policy: LoadedPolicy, name: str, drawn: set[str]) -> str:
    rest = [one for one in policy.spec.features if one not in drawn]
    return f"{name} (of people in the middle of {', '.join(rest)})" if rest else name


def _legend(axis: Any, policy: LoadedPolicy, best: NDArray[np.int64], tries: bool) -> None:
    shown = np.unique(best).tolist()
    handles = [axis.plot([], [], "s", color=COLOURS[arm % len(COLOURS)], markersize=9)[0] for arm in shown]
    labels = [policy.arms[arm] for arm in shown]
    if tries:
        handles.append(axis.plot([], [], "s", color="#cccccc", markersize=9)[0])
        labels.append("paler: others\nare tried, too")
    axis.legend(handles, labels, fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0))


def _bars(policy: LoadedPolicy, title: str) -> Picture:
    """Draw the shares of arms where there is no context."""
    shares = policy.at(np.zeros((256, policy.spec.dimension))).mean(axis=0)
    with drawing(title, height=2.6) as (picture, (axis,)):
        axis.barh(policy.arms, shares, color=COLOURS[0])
        axis.invert_yaxis()
        axis.set_xlim(0, 1)
        axis.set_xlabel("share of the people")
        axis.grid(visible=False, axis="y")
    return picture
