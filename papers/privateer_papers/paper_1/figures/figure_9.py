"""Paper 1, Figure 9: what the quality of the auxiliary data changes: rare arms, shifted people, order."""

from collections.abc import Iterator
from itertools import product
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from privateer_lab.pages.plots import COLOURS, from_zero, panels
from privateer_papers.paper_1 import setting
from privateer_papers.paper_1.setting import PAPER, instance, published, source, two_sources
from privateer_papers.reproduction import OURS, Effort, Reproduction, ReproductionCase, Row, Rows, lines, run

_KAPPAS: Final = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_GAMMAS: Final = tuple(round(0.2 * step, 1) for step in range(11))
_SIZES: Final = (10_000, 50_000)
_AUX: Final = {"kappa": (1.0, 8.0), "gamma": (2.0, 8.0)}
"""Epsilons of the sources, by panel."""
_ORDERS: Final = {"first_sup": (8.0, 2.0), "first_inf": (2.0, 8.0)}
"""The better source first, or last; the names are those of the logs."""


def _rows(effort: Effort) -> Iterator[Row]:
    n, sizes = (4000, (2000,)) if effort.quick else (40_000, _SIZES)
    kappas, gammas = ((0.0, 1.0), (0.0, 2.0)) if effort.quick else (_KAPPAS, _GAMMAS)
    people = (2000,) if effort.quick else (10_000, 80_000)
    yield from run(
        [
            *(_case("kappa", n, *point) for point in product(sizes, _AUX["kappa"], (0.2,), kappas)),
            *(_case("gamma", n, *point) for point in product(sizes, _AUX["gamma"], gammas, (1.0,))),
            *(_ordered(*case) for case in product(people, (1.0, 2.0), _ORDERS, (OURS, "honest"))),
        ],
        effort,
    )
    for panel, epsilons in _AUX.items():
        drawn = {"n": (n,), "M": (2,), "epsilon": (2.0,), "n_aux": sizes, "eps_aux": [f"{aux:g}" for aux in epsilons]}
        yield from ({**row, "panel": panel} for row in published(effort.published, panel, **drawn))


def _case(panel: str, n: int, size: int, aux: float, gamma: float, kappa: float) -> ReproductionCase:
    facts = {"panel": panel, "n": n, "n_aux": size, "eps_aux": f"{aux:g}", "gamma": gamma, "kappa": kappa}
    return ReproductionCase({**facts, "epsilon": 2.0}, instance(n, 2.0, two_sources(size, aux, gamma, kappa)))


def _ordered(n: int, epsilon: float, order: str, policy: str) -> ReproductionCase:
    # In the paper's algorithm sources come as listed; in ours names are all that changes.
    algorithm = setting.OURS if policy == OURS else setting.THEIRS
    sources = [source(f"s{place}", min(10_000, n), aux, 0.2) for place, aux in enumerate(_ORDERS[order])]
    facts = {"panel": "order", "policy": policy, "epsilon": epsilon, "n": n, "order": order}
    return ReproductionCase(facts, instance(n, epsilon, sources, algorithm))


def _draw(title: str, rows: Rows) -> Figure:
    figure, axes = panels(3, title, height=3.8)
    for axis, panel in zip(axes, _AUX, strict=False):
        ours, paper = (rows.where(panel=panel, policy=policy) for policy in (OURS, PAPER))
        groups: list[tuple[Row, str]] = [
            ({"n_aux": size, "eps_aux": aux}, f"{size:,} at epsilon {aux}")
            for size, aux in sorted(ours.by("n_aux", "eps_aux"))
        ]
        lines(axis, ours, panel, groups)
        lines(axis, paper, panel, groups, ":")
        from_zero([axis], panel)
        axis.legend(fontsize=6)
    axes[0].set_ylabel("regret (solid: ours; dotted: published, leaks)")
    _draw_orders(axes[2], rows.where(panel="order"))
    return figure


def _draw_orders(axis: Any, rows: Rows) -> None:
    bars = {}
    names = {"honest": "paper, honest", OURS: "ours"}
    words = {"first_sup": "better first", "first_inf": "better last"}
    for policy, order in product(names, words):
        found = rows.where(policy=policy, order=order).by("n", "epsilon")
        bars[f"{names[policy]}\n{words[order]}"] = np.mean([some.mean()[0] / n for (n, _), some in found.items()])
    colours = [COLOURS[1], COLOURS[1], COLOURS[0], COLOURS[0]]
    axis.bar_label(axis.bar(list(bars), list(bars.values()), color=colours), fmt="%.3f", fontsize=7)
    axis.set_title("order: regret a person", fontsize=9)
    axis.tick_params(axis="x", labelsize=6)


def _verdict(rows: Rows) -> str:
    sentences = []
    for panel, words in (("kappa", "arms played alike (kappa 1) or not (kappa 0)"), ("gamma", "shifted people")):
        ours, paper = (_span(rows.where(panel=panel, policy=policy), panel) for policy in (OURS, PAPER))
        sentences.append(f"With {words} our regret is {ours}" + (f", the published {paper}." if paper else "."))
    ordered = rows.where(panel="order", policy=OURS)
    last, first = (ordered.where(order=order).by("n", "epsilon") for order in ("first_inf", "first_sup"))
    gaps = [last[cell].mean()[0] / first[cell].mean()[0] - 1 for cell in first]
    sentences.append(
        f"The order of sources changes it by {min(gaps):+.0%} to {max(gaps):+.0%}: the better one begins, "
        "whatever the order of the spec."
    )
    return " ".join(sentences)


def _span(rows: Rows, panel: str) -> str:
    """Return the smallest and the largest mean regret of a line's points; nothing without rows."""
    found = [some.mean()[0] for some in rows.by("n_aux", "eps_aux", panel).values()]
    return f"{min(found):,.0f} to {max(found):,.0f}" if found else ""


FIGURE_9: Final = Reproduction(
    "paper-1-figure-9", "Paper 1, Figure 9: quality and order of the sources", _rows, _draw, _verdict
)
