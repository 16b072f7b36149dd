"""Pictures for pages and notebooks: style, drawing without a display, and saving."""

import base64
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from privateer_core.answer import Answer
from privateer_core.answer.parts import EffectsOverTime
from privateer_core.answer.policy_view import FeatureShape, ShapeCurve, Shapes
from privateer_core.errors import printable
from privateer_lab.notebook.tabular import import_library
from privateer_lab.render.tables import format_extreme
from privateer_lab.render.words import format_confidence, format_figure, rank_effects

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#6b6b6b")
"""Colours of arms, distinct for every kind of colour vision (Okabe and Ito 2008); the dashboard has the same."""
DASHES: Final = ("-", "--", "-.", ":")
GREY: Final = "#6b6b6b"
"""Colour of undecided estimates, of ties between arms, and of reference lines."""
POSITIVE_COLOUR: Final = COLOURS[0]
NEGATIVE_COLOUR: Final = COLOURS[5]
STYLE: Final[Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "svg.hashsalt": "privateer",
    "text.parse_math": False,  # a dollar in a name is a dollar
}
_DPI: Final = 100
_PAGE_DPI: Final = 150
_CSS_PIXELS_PER_INCH: Final = 96
_MAX_LABEL_LENGTH: Final = 28
"""Largest number of characters of a label."""


def format_ticks_in_thousands(axis: Any) -> None:
    """Format large ticks of a horizontal axis in thousands, as 20k."""
    axis.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k" if abs(value) >= 1000 else f"{value:g}")


@dataclass(frozen=True)
class Picture:
    """A figure with a title, and with texts for a page."""

    title: str  # the content in words, drawn above the figure
    figure: "Figure"  # the ``matplotlib.figure.Figure``, to change it
    caption: str = ""  # text below the figure on a page
    description: str = ""  # what readers get who do not see the figure

    def save(self, path: "str | PathLike[str]", dpi: int = 200) -> None:
        """Write the figure in the format of the path's suffix: .png, .svg, .pdf."""
        with _use_style():
            self.figure.savefig(path, dpi=dpi)

    @property
    def source(self) -> str:
        """The picture as a data URL, for a page."""
        body = io.BytesIO()
        with _use_style():
            self.figure.savefig(body, format="svg", dpi=_PAGE_DPI, metadata={"Date": None})
        return f"data:image/svg+xml;base64,{base64.b64encode(body.getvalue()).decode()}"

    @property
    def width(self) -> int:
        """Its width on a page, in CSS pixels."""
        return round(_CSS_PIXELS_PER_INCH * float(self.figure.get_size_inches()[0]))

    def _repr_png_(self) -> bytes:
        """Return the picture as PNG, which notebooks show."""
        file = io.BytesIO()
        settings: Any = {"format": "png", "metadata": {"Software": None}, "pil_kwargs": {"optimize": True}}
        with _use_style():
            self.figure.savefig(file, dpi=_DPI, **settings)
        return file.getvalue()

    def __repr__(self) -> str:
        return f"<picture: {self.title}>"


@contextmanager
def _use_style() -> Iterator[None]:
    with import_library("matplotlib").rc_context(STYLE):
        yield


@contextmanager
def open_picture(
    title: str,
    panels: int = 1,
    heights: Sequence[float] = (3.6,),
    width: float = 6.6,
    caption: str = "",
    description: str = "",
) -> Iterator[tuple[Picture, Any]]:
    """Yield a picture and its axes to draw on, row by row, with the title above; panels of a row share a scale."""
    texts = [printable(text) for text in (title, caption, description or title)]
    with _use_style():
        figure = import_library("matplotlib.figure").Figure(figsize=(width, sum(heights)), layout="constrained")
        axes = figure.subplots(len(heights), panels, squeeze=False, sharey="row", height_ratios=heights)
        figure.suptitle(texts[0], fontsize=10.5, x=0.01, ha="left")
        yield Picture(texts[0], figure, *texts[1:]), axes.ravel()


def full_label(name: str) -> str:
    """Return a name as a label of a picture; matplotlib would omit a label that begins with an underscore."""
    return f" {printable(name)}" if name.startswith("_") else printable(name)


def short_label(name: str) -> str:
    """Return a name as a label of a picture, shortened to `_MAX_LABEL_LENGTH`."""
    return full_label(name if len(name) <= _MAX_LABEL_LENGTH else f"{name[: _MAX_LABEL_LENGTH - 1]}…")


_MAX_COLUMNS: Final = 4
"""Largest number of panels of a figure side by side."""


def create_panels(count: int, title: str, height: float = 3.4) -> "tuple[Figure, Any]":
    """Create a figure and its axes, shape (count or more,), in rows of equal length."""
    rows = math.ceil(count / _MAX_COLUMNS)
    columns = math.ceil(count / rows)
    with _use_style():
        size = (1.2 + 3.6 * columns, height * rows)
        figure = import_library("matplotlib.figure").Figure(figsize=size, layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
    figure.suptitle(title, fontsize=11, x=0.02, ha="left")
    return figure, axes.ravel()


def format_axes_from_zero(axes: Iterable[Any], x_label: str) -> None:
    """Label the horizontal axes, and let the vertical axes begin at 0."""
    for axis in axes:
        axis.set_xlabel(x_label)
        axis.set_ylim(bottom=0)
        format_ticks_in_thousands(axis)


def save_figure(figure: "Figure", stem: Path) -> list[Path]:
    """Write ``stem.png`` and ``stem.svg``, byte for byte equal for equal figures."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    _write_ticks_as_numbers(figure)
    for text in figure.findobj(import_library("matplotlib.text").Text):
        text.set_parse_math(False)  # a name that was drawn without the style may have a dollar, too
    paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    with _use_style():
        for path in paths:
            figure.savefig(path, dpi=_PAGE_DPI, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths


def _write_ticks_as_numbers(figure: "Figure") -> None:
    """Format the ticks of logarithmic axes as numbers: matplotlib's are formulas, which are not parsed here."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() == "log":
                axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
                axis.set_minor_formatter(import_library("matplotlib.ticker").NullFormatter())


_MAX_CURVES: Final = 8
"""Largest number of curves of a picture."""
_MAX_ESTIMATES: Final = 40
"""Largest number of estimates of a picture, besides decided ones."""
_MAX_TEXTS: Final = 8
"""Largest number of estimates that the text for readers without the picture has."""


Interval: TypeAlias = Any
"""An `Estimate`, an `Effect`, or another object with name, value, low and high."""


def draw_answer(experiment: str, answer: Answer) -> list[Picture]:
    """Draw the estimates of a result with its effects over time, and its shape functions."""
    n_effects = len(answer.effects)
    rows = [effect for effect in rank_effects(answer.effects) if effect.value is not None]
    level = (
        "" if answer.confidence is None else f", with intervals of {format_confidence(answer.confidence)} confidence"
    )
    caption = "Blue and red: decided better and worse. Grey rings: not decided." if n_effects else ""
    if n_effects > len(rows):
        caption += f" Of {n_effects - len(rows):,} effects too little is known to draw them; the table says why."
    intervals: Sequence[Interval] = rows if n_effects else answer.estimates
    label, over_time = "difference in mean reward" if n_effects else "estimate", answer.first_of(EffectsOverTime)
    pictures = draw_shapes(answer)
    if intervals:
        over_time = over_time if over_time and len(over_time.people) > 1 else None
        title = f"{experiment}: estimates{level}"
        pictures.insert(0, draw_estimates(title, intervals, label, over_time, caption))
    return pictures


def draw_estimates(
    title: str, rows: Sequence[Interval], label: str, over_time: EffectsOverTime | None = None, caption: str = ""
) -> Picture:
    """Cut undecided rows beyond the first, put effects over time below, and write the text for screen readers."""
    drawn = rows[: max(_MAX_ESTIMATES, sum(getattr(row, "is_decided", False) for row in rows))]
    n_left = len(rows) - len(drawn)
    omitted = f"; {n_left:,} more of {len(rows):,} are not drawn, and none of them is decided" if n_left else ""
    texts = [f"{row.name} {row.value:z.3g} ({' to '.join(map(format_figure, _ends(row)))})" for row in drawn]
    heights, text = [max(1.7, 0.9 + 0.27 * len(drawn))], f"Estimates: {'; '.join(texts[:_MAX_TEXTS])}."
    heights += [3.0] if over_time else []
    with open_picture(title, heights=heights, caption=caption, description=text) as (picture, axes):
        _draw_intervals(axes[0], drawn)
        axes[0].grid(visible=False, axis="y")
        axes[0].set_xlabel(f"{label} (units of rewards){omitted}")
        if over_time:
            draw_over_time(axes[1], over_time)
    return picture


def _ends(row: Interval) -> tuple[float, float]:
    return -math.inf if row.low is None else row.low, math.inf if row.high is None else row.high


def _draw_intervals(axis: Any, rows: Sequence[Interval]) -> None:
    """Draw estimates with their intervals: decided estimates filled in blue or red, undecided as grey rings."""
    ends = [end for row in rows for end in (row.value, *_ends(row)) if math.isfinite(end)] or [0.0]
    for index, row in enumerate(rows):
        is_decided, (low, high) = getattr(row, "is_decided", None), _ends(row)
        colour = GREY if is_decided is False else NEGATIVE_COLOUR if is_decided and row.value < 0 else POSITIVE_COLOUR
        axis.plot((max(low, min(ends)), min(high, max(ends))), (-index, -index), color=colour)
        fill = "white" if is_decided is False else colour
        axis.plot(row.value, -index, "o", color=colour, markerfacecolor=fill, markersize=4)
    if any(hasattr(row, "is_decided") for row in rows):
        axis.axvline(0, color=GREY, linewidth=0.8)
    axis.set_ylim(0.6 - len(rows), 0.6)
    axis.set_yticks([-index for index in range(len(rows))], [full_label(row.name) for row in rows])


def draw_over_time(axis: Any, part: EffectsOverTime) -> None:
    """Draw estimates over the number of participants, with their intervals."""
    curves = [curve for curve in part.effects if any(value is not None for value in curve.values)]
    for index, curve in enumerate(curves[:_MAX_CURVES]):
        points = zip(part.people, curve.values, curve.lows, curve.highs, strict=True)
        people, values, lows, highs = zip(*(look for look in points if look[1] is not None), strict=True)
        colour = COLOURS[index % len(COLOURS)]
        axis.plot(people, values, "o-", color=colour, markersize=3, label=full_label(curve.name))
        axis.fill_between(people, lows, highs, color=colour, alpha=0.12, linewidth=0)
    axis.axhline(0, color=GREY, linewidth=0.8)
    axis.set_xlabel("people")
    axis.set_ylabel("effect")
    format_ticks_in_thousands(axis)
    if curves:
        title = f"the first {_MAX_CURVES} of {len(curves):,}" if len(curves) > _MAX_CURVES else None
        axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1), title=title, title_fontsize=7)


_MARKERS: Final = "osD^vP"
"""Markers of options, distinct without colours."""
_MAX_NAMED_CELLS: Final = 8
"""Largest number of cells with a name on an axis."""


def draw_shapes(answer: Answer) -> list[Picture]:
    """Draw a picture of each feature's shape functions."""
    return [_draw_shape(shape) for shapes in answer.all_of(Shapes) for shape in shapes.functions]


def _draw_shape(shape: FeatureShape) -> Picture:
    """Draw what a feature adds to each option's mean reward: curves over its cells."""
    extremes = "; ".join(
        f"{line.arm}: {format_extreme(shape, line, min)}, {format_extreme(shape, line, max)}" for line in shape.curves
    )
    text = f"What {shape.feature} adds to the mean reward of each option. {extremes}."
    omitted = f" {shape.cells_left:,} more levels have fewer people." if shape.cells_left else ""
    caption = (
        f"{shape.feature}: what it adds to the mean reward of each option, apart from other features, with intervals "
        f"of about 95 %; on average over people it adds 0. Choosing by it alone is expected to gain {shape.gain:.3g}."
        f"{omitted}"
    )
    title = f"what {shape.feature} adds"
    with open_picture(title, heights=(3.2,), caption=caption, description=text) as (picture, (axis,)):
        axis.axhline(0, color=GREY, linewidth=0.8)
        n_ordered = len(shape.cells) - shape.has_missing if shape.is_ordered else 0
        for index, curve in enumerate(shape.curves):
            _draw_curve(axis, curve, index, len(shape.curves), n_ordered)
        step = max(1, -(-len(shape.cells) // _MAX_NAMED_CELLS))  # all cells are named if they are few
        labels = [short_label(cell) for cell in shape.cells[::step]]
        axis.set_xticks(range(0, len(shape.cells), step), labels, rotation=25, ha="right", fontsize=7)
        axis.set_xlabel(short_label(shape.feature))
        axis.set_ylabel("adds")
        axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return picture


def _draw_curve(axis: Any, curve: ShapeCurve, index: int, n_curves: int, n_ordered: int) -> None:
    """Join ordered cells by a line with a band; unordered ones have error bars, options beside each other."""
    colour, marker = COLOURS[index % len(COLOURS)], _MARKERS[index % len(_MARKERS)]
    values, lows, highs, label = curve.values, curve.lows, curve.highs, short_label(curve.arm)
    cells = range(n_ordered)
    axis.fill_between(cells, lows[:n_ordered], highs[:n_ordered], color=colour, alpha=0.15, linewidth=0)
    axis.plot(cells, values[:n_ordered], color=colour, marker=marker, markersize=3, label=label)
    others = range(n_ordered, len(values))
    offset = 0.6 * ((index + 0.5) / n_curves - 0.5)
    margins = [[values[cell] - lows[cell] for cell in others], [highs[cell] - values[cell] for cell in others]]
    places = [cell + offset for cell in others]
    axis.errorbar(places, values[n_ordered:], margins, fmt=marker, markersize=4, color=colour)


_MAX_RATIO_OF_CLOSE_TICKS: Final = 100
"""Largest ratio of an axis' ends at which a decade has three ticks."""
_MIN_POINTS_FOR_RATE: Final = 4
"""Smallest number of points of a line by whose later half the constant of a rate is fitted."""


def draw_regret(axis: Any, path: Mapping[str, Any], colour: str, dashes: str, label: str, worst: str = "") -> None:
    """Draw the mean regret of a choice over the number of choices, with a band up to the worst seed."""
    n_choices, mean = path["people"], path["regret_mean"]
    axis.plot(n_choices, mean, color=colour, linestyle=dashes, label=label)
    if worst:
        axis.fill_between(n_choices, mean, path["regret_worst"], color=colour, alpha=0.18, label=worst)


def finish_regret(axis: Any, counts: str, label: str = "reward lost per choice, in its units") -> None:
    """Label the axes of a picture of regret, and make the horizontal axis logarithmic."""
    ticker = import_library("matplotlib.ticker")
    axis.set_xscale("log")
    low, high = axis.get_xlim()
    multiples = (1.0, 2.0, 5.0) if high < _MAX_RATIO_OF_CLOSE_TICKS * low else (1.0,)
    axis.xaxis.set_major_locator(ticker.LogLocator(subs=multiples))
    axis.xaxis.set_minor_formatter(ticker.NullFormatter())
    format_ticks_in_thousands(axis)
    axis.set_ylim(bottom=0)
    axis.set_xlabel(f"{counts} so far")
    axis.set_ylabel(label)


def _draw_rate(axis: Any, dimension: int, epsilon: float | None, path: Mapping[str, Any]) -> None:
    """Draw the minimax rate with its constant fitted, and say what half of epsilon and another feature cost by it."""
    import numpy as np

    from privateer_lab.render.minimax_rate import MinimaxRate  # a terminal that takes colours from here draws none

    people, mean_regrets = (np.array(path[key], np.float64) for key in ("people", "regret_mean"))
    if len(people) < _MIN_POINTS_FOR_RATE or not (mean_regrets > 0).all():
        return
    rate = MinimaxRate(dimension, epsilon)
    end, regret = float(people[-1]), float(rate.mean_regret(people)[-1])
    cost = f"another feature: {MinimaxRate(dimension + 1, epsilon).count_people(regret) / end:.2g} times the people"
    if epsilon is not None:
        cost = f"half of epsilon: {MinimaxRate(dimension, epsilon / 2).count_people(regret) / end:.2g} times,\n{cost}"
    curve = rate.fit_constant(people, mean_regrets) * rate.mean_regret(people)
    at = "no privacy" if epsilon is None else f"epsilon {epsilon:g}"
    label = f"minimax rate, {at}:\n{cost}"
    axis.plot(people, np.minimum(curve, mean_regrets.max()), "--", color=GREY, linewidth=0.9, label=label)


def draw_plan(name: str, counts: str, outcomes: Sequence[Mapping[str, Any]], dimension: int = 0) -> Picture:
    """Draw the regret of a plan's promises: a panel for each trust model, a line for each epsilon.

    With features, their number is ``dimension``, and a dashed line has the minimax rate where it is known.
    """
    from privateer_core.privacy.trust import TRUST  # other pictures, and colours for terminals, load no mechanisms

    models = list(dict.fromkeys(row["model"] for row in outcomes))
    epsilons = list(dict.fromkeys(row["epsilon"] for row in outcomes))
    title = f"{name}: reward lost per choice, by trust model"
    width = max(6.6, 2.2 + 1.7 * len(models)) + bool(dimension)
    with open_picture(title, len(models), heights=(3.3,), width=width) as (picture, axes):
        for axis, model in zip(axes, models, strict=True):
            for row in (row for row in outcomes if row["model"] == model):
                index = epsilons.index(row["epsilon"])
                path = {key: [point[key] for point in row["path"]] for key in row["path"][0]}
                promise = "no privacy" if row["epsilon"] is None else f"epsilon {row['epsilon']:g}"
                draw_regret(axis, path, COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)], promise, " ")
                if dimension and not TRUST[model].hides_arms:  # a rate is known where no crowd hides reports
                    _draw_rate(axis, dimension, row["epsilon"], path)
            best = outcomes[0]["best_constant_regret"] / outcomes[0]["people"]
            axis.axhline(best, color=GREY, linestyle=":", linewidth=0.8, label="the best arm for everybody")
            axis.set_title(model, fontsize=9)
        for axis in axes:  # once all is drawn, since they share a scale
            finish_regret(axis, counts, *([] if axis is axes[0] else [""]))
        labelled = (zip(*axis.get_legend_handles_labels(), strict=True) for axis in axes)
        lines = {text: line for pairs in labelled for line, text in pairs if text.strip()}
        axes[-1].legend(lines.values(), lines.keys(), fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return picture
