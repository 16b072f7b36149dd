"""Shape functions as pictures, one of each feature."""

from typing import Any, Final

from privateer_core.answer import Answer
from privateer_core.answer.shapes import FeatureShape, ShapeCurve, Shapes
from privateer_lab.picture import COLOURS, GREY, Picture, label, page_drawing
from privateer_lab.shape_rows import extreme

_MARKS: Final = "osD^vP"
"""Marks of options, which people tell apart who see no colours."""
_NAMED: Final = 8
"""Cells up to which a picture names each."""


def pictures_of_shapes(answer: Answer) -> list[Picture]:
    """Return a picture of each feature's shape functions."""
    return [_picture(shape) for shapes in answer.all_of(Shapes) for shape in shapes.functions]


def _picture(shape: FeatureShape) -> Picture:
    said = "; ".join(f"{one.option}: {extreme(shape, one, min)}, {extreme(shape, one, max)}" for one in shape.curves)
    title = f"What {shape.feature} adds to the mean reward of each option. {said}."
    left = f" {shape.cells_left:,} more levels have fewer people." if shape.cells_left else ""
    caption = (
        f"{shape.feature}: what it adds to the mean reward of each option, apart from other features, with intervals "
        f"of about 95 %; on average over people it adds 0. Choosing by it alone is expected to gain {shape.gain:.3g}."
        f"{left}"
    )
    with page_drawing(title, caption, 3.0) as (picture, axis):
        axis.axhline(0, color=GREY, linewidth=0.8)
        in_line = len(shape.cells) - shape.has_missing if shape.is_ordered else 0
        for place, curve in enumerate(shape.curves):
            _draw_line(axis, curve, place, in_line)
            _draw_apart(axis, curve, place, len(shape.curves), in_line)
        _name_cells(axis, shape)
        axis.set_ylabel("adds")
        axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, fontsize=8)
    return picture


def _draw_line(axis: Any, curve: ShapeCurve, place: int, cells: int) -> None:
    """Draw the cells that follow each other, with a band."""
    colour, mark = _look(place)
    axis.fill_between(range(cells), curve.lows[:cells], curve.highs[:cells], color=colour, alpha=0.15, linewidth=0)
    axis.plot(range(cells), curve.values[:cells], color=colour, marker=mark, markersize=3, label=label(curve.option))


def _draw_apart(axis: Any, curve: ShapeCurve, place: int, count: int, first: int) -> None:
    """Draw the other cells, options beside each other."""
    values, lows, highs = curve.values[first:], curve.lows[first:], curve.highs[first:]
    beside = 0.6 * ((place + 0.5) / count - 0.5)
    cells = [first + cell + beside for cell in range(len(values))]
    below = [value - low for value, low in zip(values, lows, strict=True)]
    above = [high - value for value, high in zip(values, highs, strict=True)]
    colour, mark = _look(place)
    axis.errorbar(cells, values, [below, above], fmt=mark, markersize=4, color=colour)


def _look(place: int) -> tuple[str, str]:
    return COLOURS[place % len(COLOURS)], _MARKS[place % len(_MARKS)]


def _name_cells(axis: Any, shape: FeatureShape) -> None:
    """Name a few cells: all of a few, else those at even distances."""
    every = max(1, -(-len(shape.cells) // _NAMED))
    shown = range(0, len(shape.cells), every)
    axis.set_xticks(list(shown), [label(shape.cells[cell]) for cell in shown], rotation=25, ha="right", fontsize=7)
    axis.set_xlabel(label(shape.feature))
