"""Figures, without a display; written as PNG and as vectors side by side."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from privateer_lab.picture import COLOURS, STYLE, in_thousands

__all__ = ["COLOURS", "from_zero", "in_thousands", "panels", "save"]

_IN_A_ROW: Final = 4


def panels(count: int, title: str, height: float = 3.4) -> tuple[Figure, Any]:
    """Return a figure and its axes, shape (count or more,), in as many rows of equal length as they need."""
    plt.rcParams.update(STYLE)
    rows = math.ceil(count / _IN_A_ROW)
    columns = math.ceil(count / rows)
    figure, axes = plt.subplots(rows, columns, figsize=(1.2 + 3.6 * columns, height * rows), squeeze=False)
    figure.suptitle(title, fontsize=11, x=0.02, ha="left")
    return figure, axes.ravel()


def from_zero(axes: Iterable[Any], label: str) -> None:
    """Name the horizontal axes, and let the vertical ones begin at 0."""
    for axis in axes:
        axis.set_xlabel(label)
        axis.set_ylim(bottom=0)
        in_thousands(axis)


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write ``stem.png`` and ``stem.svg``, which differ from run to run only as their figures do; close the figure."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    _without_formulas(figure)
    figure.tight_layout()
    paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    for path in paths:
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
    return paths


def _without_formulas(figure: Figure) -> None:
    """Write the ticks of logarithmic axes as numbers: matplotlib's own are formulas, which are not parsed here."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() == "log":
                axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
                axis.set_minor_formatter(NullFormatter())
