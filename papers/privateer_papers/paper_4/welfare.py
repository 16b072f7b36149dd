"""Paper 4, Theorems 3.1 and 4.6: what people lose after an experiment by what it recommends, whatever alpha was.

The paper's simple regret is what anybody loses at most by the arm that is left in their bin: O(n^(-1/(2 + d)) sqrt(log
n)) for every alpha (Theorem 4.6). Regret and squared error together cannot fall below regret times error^(2/(2 + d)) of
order 1 (Theorem 3.1). Both for one covariate and for two, with effects that do not change signs where bins end.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from privateer_lab.pages.plots import COLOURS, panels
from privateer_lab.simulation.parallel import each
from privateer_papers.growth import Slope, scale_growth, slope
from privateer_papers.paper_4.frontier import matched, published
from privateer_papers.paper_4.world import World
from privateer_papers.reproduction import Compared, Effort, Reproduction, Row, Rows, told

_PHASE: Final = 0.137
_EPSILON: Final = 1.0
OURS: Final = {"ours, none": "none", "ours, central": "central", "ours, local": "local"}
"""Names in rows, and their trust models."""
THEIRS: Final = {"ConSE": None, "DP-ConSE": _EPSILON}
_PEOPLE: Final = (100_000, 1_000_000, 10_000_000, 100_000_000)
_FEW: Final = (100_000, 1_000_000, 10_000_000)
_PARTS: Final = (0.0, 0.5, 1.0)
"""Shares of the largest alpha, 1 / (2 + d)."""
_BESIDE: Final = {"ours, none": "ConSE", "ours, central": "DP-ConSE", "ours, local": ""}


def promised(dimension: int) -> float:
    """Return the exponent of n in Theorem 4.6."""
    return -1 / (2 + dimension)


def play(policy: str, dimension: int, people: int, part: float, seed: int) -> Row:
    """Return what comes of one experiment; ``product`` is that of Theorem 3.1, of regret and squared error."""
    world, alpha = World(dimension, _PHASE), part / (2 + dimension)
    if policy in OURS:
        found = matched(OURS[policy], people, alpha, _EPSILON, seed, world)
    else:
        found = published(people, alpha, THEIRS[policy], "algorithm", seed, world)
    lost = found.regret * world.uniform * people
    facts = {"policy": policy, "d": dimension, "people": people, "part": part, "seed": seed}
    return {**facts, **found._asdict(), "product": found.error**2 * lost ** (2 / (2 + dimension))}


def _rows(effort: Effort) -> Iterator[Row]:
    people = _FEW if effort.quick else _PEOPLE
    tasks = [
        (policy, dimension, count, part, seed)
        for seed, dimension, count, part, policy in product(
            range(effort.seeds), (1, 2), people, _PARTS, (*OURS, *THEIRS)
        )
    ]
    yield from each(play, tasks, effort.jobs, effort.backend)


def slopes(rows: Rows, dimension: int) -> dict[str, Slope]:
    """Return, by policy, the slope in n of what anybody loses at most, at the largest alpha."""
    own = rows.where(d=dimension, part=_PARTS[-1])
    return {policy: slope(own.where(policy=policy), "people", "worst") for policy in (*OURS, *THEIRS)}


def _last(rows: Rows) -> Rows:
    return rows.where(people=rows.values("people")[-1])


def _draw(title: str, rows: Rows) -> Figure:
    figure, axes = panels(4, title, height=3.8)
    for dimension, beside in ((1, axes[0]), (2, axes[1])):
        _draw_growth(beside, rows.where(d=dimension), dimension)
    for dimension, beside in ((1, axes[2]), (2, axes[3])):
        own = _last(rows).where(d=dimension)
        for colour, policy in zip(COLOURS, (*OURS, *THEIRS), strict=False):
            at, (middle, _) = own.where(policy=policy).curve("part", "worst")
            beside.plot(np.array(at) / (2 + dimension), middle, ".-", color=colour, label=policy)
        beside.set_title(f"d = {dimension}, n = {own[0]['people']:,}", fontsize=9)
        beside.set_yscale("log")
        beside.set_xlabel("alpha")
    axes[0].set_ylabel("loss after the experiment, at most")
    return figure


def _draw_growth(axis: Any, rows: Rows, dimension: int) -> None:
    own = rows.where(part=_PARTS[-1])
    for colour, (policy, found) in zip(COLOURS, slopes(rows, dimension).items(), strict=False):
        at, (middle, _) = own.where(policy=policy).curve("people", "worst")
        axis.plot(at, middle, ".-" if policy in OURS else ".:", color=colour, label=f"{policy}: {found}")
    counts = np.array(own.values("people"), np.float64)
    rate = np.power(counts, promised(dimension)) * np.sqrt(np.log(counts))
    axis.plot(counts, rate, "--", color="#555555", label=f"Theorem 4.6, constant 1: {promised(dimension):.2f}")
    scale_growth(axis, f"d = {dimension}, the largest alpha", "people, n")


def _verdict(rows: Rows) -> str:
    last, said = _last(rows), []
    for dimension in (1, 2):
        said.append(
            f"d = {dimension}: the most that anybody loses after the experiment, at alpha 0, half and all of "
            f"1/{2 + dimension}, n = {last[0]['people']:,}; its slope in n at the largest alpha, where Theorem 4.6 has "
            f"{promised(dimension):.2f}; and the least product of Theorem 3.1, which is of order 1 at least:"
        )
        for policy, found in slopes(rows, dimension).items():
            own = rows.where(d=dimension, policy=policy)
            worst = ", ".join(f"{one:.3f}" for one in _last(own).curve("part", "worst")[1][0])
            least = min(cell.mean("product")[0] for cell in own.by("people", "part").values())
            said.append(f"  {policy}: {worst}; {found}, {found.beside(promised(dimension))} the paper's; {least:.2g}.")
    return "\n".join(said)


def _sentence(rows: Rows) -> str:
    last = _last(rows).where(d=1)
    ours, theirs = (
        last.where(policy=policy, part=_PARTS[-1]).mean("welfare")[0] for policy in ("ours, central", "DP-ConSE")
    )
    spread = last.where(policy="ours, central").curve("part", "worst")[1][0]
    return (
        f"After {last[0]['people']:,} people with one covariate, what ours recommends loses {ours:.2g} of what a coin "
        f"loses, and what DP-ConSE leaves {theirs:.2g}; whatever alpha, nobody loses more by ours than "
        f"{max(spread):.3f}."
    )


def _warnings(rows: Rows) -> list[str]:
    """Say where what is lost falls more slowly than Theorem 4.6 has it: that is for a curator, not for ``local``."""
    return [
        f"with d = {dimension} what is lost after the experiment has, under '{OURS[policy]}', the slope {found} in n, "
        f"the paper's {promised(dimension):.2f}."
        for dimension in (1, 2)
        for policy, found in slopes(rows, dimension).items()
        if OURS.get(policy) in ("none", "central") and found.is_above(promised(dimension))
    ]


def _compared(rows: Rows) -> list[Compared]:
    lines, last = [], _last(rows)
    for dimension, (ours, theirs) in product((1, 2), _BESIDE.items()):
        found, what = slopes(rows, dimension), f"largest loss, d = {dimension}, {OURS[ours]}"
        here = str(found[theirs]) if theirs else ""
        lines.append(Compared(f"slope in n of the {what}", f"{promised(dimension):.2f}", here, str(found[ours])))
        own = last.where(d=dimension, part=_PARTS[-1])
        pair = (told(own.where(policy=one), "worst", ".3f") for one in (theirs, ours))
        lines.append(Compared(f"{what}, at the largest alpha", "", *pair))
    return lines


WELFARE: Final = Reproduction(
    "paper-4-welfare",
    "Paper 4, Theorems 3.1 and 4.6: welfare after the experiment",
    _rows,
    _draw,
    _verdict,
    _sentence,
    _compared,
    minutes=5,
    warnings=_warnings,
)
