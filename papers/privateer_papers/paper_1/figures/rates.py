"""Paper 1, Theorems 2.5, 2.6, 3.3 and 3.4: how regret grows with people, promises and sources, beside the bounds.

For K fixed and epsilon at most 1 both bounds are, but for logarithms, n S^-((1 + beta) / (2 + 2 d)), where S is the
information: n epsilon^2, and for each source (kappa^2 n_Q epsilon_Q^2)^((2 + 2 d) / (2 + 2 d + 2 gamma)). Section 4.1
has d = 2 and the margin beta = 1 (tests check it): gaps grow linearly from where arms change places.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from privateer_lab.pages.plots import COLOURS, panels
from privateer_papers.growth import Slope, draw_growth, scale_growth, slope
from privateer_papers.paper_1.setting import HONEST, PAPER, THEIRS, instance, published, source
from privateer_papers.paper_1.setting import OURS as OUR_ALGORITHM
from privateer_papers.reproduction import OURS, Compared, Effort, Reproduction, ReproductionCase, Row, Rows, run

DIMENSION: Final = 2
MARGIN: Final = 1
EXPONENT: Final = (1 + MARGIN) / (2 + 2 * DIMENSION)
_LINES: Final = {HONEST: ".--", OURS: ".-", PAPER: ".:"}
_SHIFT: Final = 2.0


class Rate(NamedTuple):
    """What changes, as rows name it and in words, and the theorems of the lower and the upper bound."""

    fact: str
    words: str
    theorems: str


RATES: Final = {
    "n": Rate("n", "people", "Theorems 2.5 and 2.6"),
    "epsilon": Rate("epsilon", "epsilon", "Theorems 2.5 and 2.6"),
    "sources": Rate("n_aux", "people of a source like these", "Theorems 3.3 and 3.4"),
    "shifted": Rate("n_aux", "people of a source shifted by gamma 2", "Theorems 3.3 and 3.4"),
}


def information(people: int, epsilon: float, size: int = 0, aux: float = 1.0, gamma: float = 0.0) -> float:
    """Return S of people and of one source whose arms were played alike (kappa 1)."""
    power = (2 + 2 * DIMENSION) / (2 + 2 * DIMENSION + 2 * gamma)
    return float(people * epsilon**2 + (size * aux**2) ** power)


def bounds(rows: Rows, panel: str) -> tuple[list[Any], NDArray[np.float64]]:
    """Return the points of a panel, and at each the rate of its theorems, without logarithms, with constant 1."""
    points = {row[RATES[panel].fact]: row for row in rows.where(panel=panel)}
    at = sorted(points)
    return at, np.array([points[x]["n"] * points[x]["information"] ** -EXPONENT for x in at])


def promised(rows: Rows, panel: str) -> float:
    """Return the slope of the bounds over a panel's points. In people and epsilon it is the same everywhere."""
    at, rates = bounds(rows, panel)
    return float(np.polyfit(np.log(at), np.log(rates), 1)[0])


def _cases(effort: Effort) -> Iterator[ReproductionCase]:
    quick = effort.quick
    for n in (2000, 4000, 8000) if quick else (10_000, 20_000, 40_000, 80_000, 160_000):
        facts: Row = {"panel": "n", "n": n, "epsilon": 1.0, "information": information(n, 1.0)}
        yield ReproductionCase(facts, instance(n, 1.0), (HONEST,))
    people, promises = (8000, (0.5, 0.7, 1.0)) if quick else (80_000, (0.25, 0.35, 0.5, 0.7, 1.0))
    for epsilon in promises:
        facts = {"panel": "epsilon", "n": people, "epsilon": epsilon, "information": information(people, epsilon)}
        yield ReproductionCase(facts, instance(people, epsilon), (HONEST,))
    people, sizes = (4000, (1000, 4000, 16_000)) if quick else (20_000, (5000, 10_000, 20_000, 40_000, 80_000))
    for (panel, gamma), size in product({"sources": 0.0, "shifted": _SHIFT}.items(), sizes):
        content = information(people, 1.0, size, 1.0, gamma)
        facts = {"panel": panel, "n": people, "n_aux": size, "information": content}
        for policy, algorithm in ((OURS, OUR_ALGORITHM), (HONEST, THEIRS)):
            spec = instance(people, 1.0, [source("one", size, 1.0, gamma)], algorithm)
            yield ReproductionCase({**facts, "policy": policy}, spec)


def _rows(effort: Effort) -> Iterator[Row]:
    yield from run(list(_cases(effort)), effort)
    path = effort.data.get("published", "")
    for row in published(path, "sample_size_target", n_aux=(0,), epsilon=(1.0,)):
        if row["n"] >= 10_000:
            yield {**row, "panel": "n", "seed": 0, "information": information(row["n"], 1.0)}


def slopes(rows: Rows) -> dict[str, dict[str, Slope]]:
    """Return the slope of each policy that a panel has."""
    return {
        panel: {
            policy: slope(own, rate.fact)
            for (policy,), own in rows.where(panel=panel).by("policy").items()
            if len(own.values(rate.fact)) > 2
        }
        for panel, rate in RATES.items()
    }


def _draw(title: str, rows: Rows) -> Figure:
    figure, axes = panels(len(RATES), title, height=3.8)
    for axis, (panel, found) in zip(axes, slopes(rows).items(), strict=True):
        rate, own = RATES[panel], rows.where(panel=panel)
        for colour, (policy, one) in zip(COLOURS, found.items(), strict=False):
            draw_growth(axis, own.where(policy=policy), rate.fact, f"{policy}: {one}", colour, _LINES[policy])
        at, rates = bounds(rows, panel)
        axis.plot(at, rates, "--", color="#555555", label=f"bounds, constant 1: {promised(rows, panel):.2f}")
        scale_growth(axis, f"{rate.words}\n{rate.theorems}", rate.fact, size=8)
    axes[0].set_ylabel("regret")
    return figure


def _verdict(rows: Rows) -> str:
    said = [
        "Slopes of log regret in the logarithm of what changes; the bounds' without logarithms, over the same points:"
    ]
    for panel, found in slopes(rows).items():
        rate, theirs = RATES[panel], promised(rows, panel)
        figures = ", ".join(f"{policy} {one}, {one.beside(theirs)} the bounds'" for policy, one in found.items())
        said.append(f"{rate.words} ({rate.theorems}): {theirs:.2f}; {figures}.")
    return "\n".join(said)


def _faster(rows: Rows, policy: str) -> list[str]:
    """Return the panels in which a policy's slope is above the bounds' by more than two standard errors."""
    return [panel for panel, own in slopes(rows).items() if own[policy].is_above(promised(rows, panel))]


def _sentence(rows: Rows) -> str:
    ours, theirs = (len(_faster(rows, policy)) for policy in (OURS, HONEST))
    return (
        f"Of {len(RATES)} slopes of our regret {ours} are above the upper bounds', and {theirs} of those of the "
        "paper's algorithm with honest noise."
    )


def _warnings(rows: Rows) -> list[str]:
    """Say where ours is above by more than two standard errors."""
    found = slopes(rows)
    return [
        f"in {RATES[panel].words} our regret has the slope {found[panel][OURS]}, the bounds of {RATES[panel].theorems} "
        f"{promised(rows, panel):.2f}."
        for panel in _faster(rows, OURS)
    ]


def _compared(rows: Rows) -> list[Compared]:
    lines = []
    for panel, found in slopes(rows).items():
        logs = f"; in the logs {found[PAPER]}" if PAPER in found else ""
        here, ours = (str(found[policy]) for policy in (HONEST, OURS))
        lines.append(Compared(f"slope in {RATES[panel].words}", f"{promised(rows, panel):.2f}{logs}", here, ours))
    return lines


GROWTH: Final = Reproduction(
    "paper-1-rates",
    "Paper 1, Theorems 2.5 to 3.4: slopes of regret",
    _rows,
    _draw,
    _verdict,
    _sentence,
    _compared,
    minutes=20,
    reads=("published",),
    warnings=_warnings,
)
