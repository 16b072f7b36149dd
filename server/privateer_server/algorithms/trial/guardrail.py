"""How to ask for a second reward: which layout tells most of each metric."""

from math import exp
from typing import Final, Literal

Layout = Literal["slot", "split", "joint"]

LAYOUTS: Final[tuple[Layout, ...]] = ("slot", "split", "joint")


def information_of(layout: Layout, epsilon: float, segments: int = 1, metrics: int = 2) -> float:
    """What a report tells of one metric's mean in one of equally large segments; 1 if it says everything of everybody.

    ``slot``: a public choice of metric for each report. ``split``: one report a metric, each with its share of
    epsilon. ``joint``: one symbol of segment and all bits. A report of a
    segment's person whose symbol is kept with probability q tells q^2. Epsilon is that of the report itself.
    """
    if layout == "slot":
        return _told(epsilon, segments, 2) / metrics
    if layout == "split":
        return _told(epsilon / metrics, segments, 2)
    return _told(epsilon, segments, 2**metrics)


def best_layout(epsilon: float, segments: int = 1, metrics: int = 2) -> Layout:
    """The layout that tells most, for devices that randomize their own reports."""
    return max(LAYOUTS, key=lambda layout: information_of(layout, epsilon, segments, metrics))


def _told(epsilon: float, segments: int, answers: int) -> float:
    kept = (exp(epsilon) - 1) / (exp(epsilon) + segments * answers - 1)
    return kept**2
