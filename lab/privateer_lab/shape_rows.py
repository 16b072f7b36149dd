"""Shape functions as rows with sparklines: a row for each feature and option."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from privateer_core.answer.shapes import FeatureShape, ShapeCurve, Shapes

_BARS: Final = "▁▂▃▄▅▆▇█"
_TITLE: Final = (
    "what each feature adds to the mean reward of each option, apart from the others; features that choose most come "
    "first"
)


def first_of(part: Shapes, most: int) -> Shapes:
    """Return the first features alone."""
    left = max(0, len(part.functions) - most)
    return Shapes(part.functions[:most], part.features_left + left, part.options_left)


def titled(part: Shapes) -> str:
    """Say what the rows are, and what is left out."""
    left = [_counted(part.features_left, "feature"), _counted(part.options_left, "option")]
    more = " and ".join(one for one in left if one)
    return f"{_TITLE}; not shown: {more}" if more else _TITLE


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' if number > 1 else ''}" if number else ""


def shape_rows(part: Shapes) -> list[dict[str, Any]]:
    """Return a row for each feature and option: what choosing by it gains, its shape, and its extremes."""
    return [_row(shape, curve, place) for shape in part.functions for place, curve in enumerate(shape.curves)]


def _row(shape: FeatureShape, curve: ShapeCurve, place: int) -> dict[str, Any]:
    values = [value for one in shape.curves for value in one.values]
    few = f" ({shape.cells_left:,} more levels)" if shape.cells_left else ""
    return {
        "feature": "" if place else f"{shape.feature}{few}",
        "expected gain alone": "" if place else f"{shape.gain:+z.3g}",
        "option": curve.option,
        "shape": sparkline(curve.values, min(values), max(values)),
        "least": extreme(shape, curve, min),
        "most": extreme(shape, curve, max),
    }


def sparkline(values: Sequence[float], low: float, high: float) -> str:
    """Draw values as bars of eight heights, from the lowest of all that are compared to the highest."""
    if high <= low:
        return _BARS[0] * len(values)
    return "".join(_BARS[min(7, int(8 * (value - low) / (high - low)))] for value in values)


def extreme(shape: FeatureShape, curve: ShapeCurve, which: Callable[[Sequence[float]], float]) -> str:
    """Write the least or the greatest figure of a curve, its interval, and where it is."""
    value = which(curve.values)
    place = curve.values.index(value)
    return f"{value:+z.2g} ({curve.lows[place]:+z.2g} to {curve.highs[place]:+z.2g}) at {shape.cells[place]}"
