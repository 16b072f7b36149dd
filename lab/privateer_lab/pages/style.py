"""How figures look: those of pages and of notebooks alike. Nothing here needs a display, or chooses one."""

from typing import Any, Final

COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#6b6b6b")
"""Colours of arms, which people with any colour vision tell apart (Okabe and Ito 2008); the dashboard has the same."""
GREY: Final = "#6b6b6b"
"""What is not decided, where no arm is ahead, and lines that only help the eye."""
BETTER: Final = COLOURS[0]
WORSE: Final = COLOURS[5]
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
