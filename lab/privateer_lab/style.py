"""How figures look: those of pages and of notebooks alike. Nothing here needs a display, or chooses one."""

from typing import Any, Final

COLOURS: Final = ("#1b6ca8", "#d1495b", "#2e8b57", "#edae49", "#6a4c93", "#555555")
SAFE: Final = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#f0e442", "#333333")
"""Colours that people with any colour vision tell apart (Okabe and Ito 2008)."""
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


def in_thousands(axis: Any) -> None:
    """Write large ticks of a horizontal axis as 20k."""
    axis.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k" if abs(value) >= 1000 else f"{value:g}")
