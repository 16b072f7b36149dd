"""Paper 1, Figures 8 and 9: what auxiliary data change, by their size, their quality and their order.

Figure 8 has regret against the size of the auxiliary data; Figure 9 what rare arms, shifted people and the order of
sources change.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any, Final

from matplotlib.figure import Figure

from privateer_lab.pages.plots import from_zero, panels
from privateer_papers.paper_1.setting import OURS as OUR_ALGORITHM
from privateer_papers.paper_1.setting import PAPER, instance, published, source, two_sources
from privateer_papers.paper_1.setting import THEIRS as THEIR_ALGORITHM
from privateer_papers.reproduction import (
    OURS,
    Compared,
    Effort,
    Reproduction,
    ReproductionCase,
    Row,
    Rows,
    lines,
    run,
    told,
)

_FIGURE_8_SIZES: Final = (0, 10_000, 20_000, 50_000, 100_000)
_FIGURE_8_GAMMAS: Final = (0.0, 0.2, 2.0)
_TARGETS: Final = (1.0, 2.0)
_FIGURE_8_AUX: Final = (1.0, 2.0, 4.0, 8.0)


def _rows_of_figure_8(effort: Effort) -> Iterator[Row]:
    n, sizes = (4000, (0, 2000)) if effort.quick else (80_000, _FIGURE_8_SIZES)
    gammas, targets = ((0.0, 2.0), (1.0,)) if effort.quick else (_FIGURE_8_GAMMAS, _TARGETS)
    cases = []
    for epsilon in targets:
        cases.append(ReproductionCase({"epsilon": epsilon, "n_aux": 0}, instance(n, epsilon)))
        for gamma, aux, size in product(gammas, _FIGURE_8_AUX, sizes[1:]):
            facts = {"epsilon": epsilon, "gamma": gamma, "eps_aux": f"{aux:g}", "n_aux": size}
            cases.append(ReproductionCase(facts, instance(n, epsilon, two_sources(size, aux, gamma))))
    yield from run(cases, effort)
    drawn = {"n": (n,), "n_aux": sizes, "gamma": gammas, "epsilon": targets}
    yield from published(effort.data.get("published", ""), "sample_size_source", M=(2,), kappa=(1.0,), **drawn)


def _draw_figure_8(title: str, rows: Rows) -> Figure:
    panes = list(product(rows.values("epsilon"), rows.values("gamma")))
    figure, axes = panels(len(panes), title)
    groups: list[tuple[Row, str]] = [({"eps_aux": f"{aux:g}"}, f"epsilon of sources {aux:g}") for aux in _FIGURE_8_AUX]
    for axis, (epsilon, gamma) in zip(axes, panes, strict=True):
        for policy, style in ((OURS, "-"), (PAPER, ":")):
            lines(axis, _pane(rows.where(policy=policy, epsilon=epsilon), gamma), "n_aux", groups, style)
        axis.set_title(f"epsilon {epsilon:g}, gamma {gamma:g}", fontsize=9)
    from_zero(axes, "people of the sources")
    axes[0].set_ylabel("regret")
    axes[0].legend(fontsize=7, title="solid: ours; dotted: published (leaks)", title_fontsize=7)
    return figure


def _pane(rows: Rows, gamma: float) -> Rows:
    """Return the rows of one gamma; what is known without sources becomes the start of every line."""
    found, alone = rows.where(gamma=gamma), [row for row in rows if row["n_aux"] == 0 and "gamma" not in row]
    return Rows([*found, *({**row, "eps_aux": f"{aux:g}"} for row in alone for aux in _FIGURE_8_AUX)])


_CELL: Final = ("epsilon", "gamma", "eps_aux", "n_aux")


def _verdict_of_figure_8(rows: Rows) -> str:
    ours, paper = (rows.where(policy=policy).by(*_CELL) for policy in (OURS, PAPER))
    below = [found.mean()[0] <= paper[cell].mean()[0] for cell, found in ours.items() if cell[-1] and cell in paper]
    compared = f" It is at or below the published in {sum(below)} of {len(below)}." if below else ""
    return _sentence_of_figure_8(rows) + compared


def _sentence_of_figure_8(rows: Rows) -> str:
    ours = rows.where(policy=OURS).by(*_CELL)
    best, worse, cells = 1.0, 0, 0
    for cell, found in ours.items():
        if cell[-1] == 0:
            continue
        (regret, half), (alone, spread) = found.mean(), ours[cell[0], None, None, 0].mean()
        best, cells, worse = min(best, regret / alone), cells + 1, worse + (regret - half > alone + spread)
    return (
        f"Sources lower our regret to {best:.0%} of that without them at best, and raise it beyond both intervals "
        f"in {worse} of {cells} settings."
    )


def _compared_in_figure_8(rows: Rows) -> list[Compared]:
    ours, paper = (rows.where(policy=policy).by(*_CELL) for policy in (OURS, PAPER))
    found = []
    for cell in ours:
        epsilon, gamma, aux, size = cell
        of = f", {size:,} people of sources at {aux}, gamma {gamma:g}" if size else ", no sources"
        found.append(Compared(f"epsilon {epsilon:g}{of}", told(paper.get(cell, Rows())), "", told(ours[cell])))
    return found


FIGURE_8: Final = Reproduction(
    "paper-1-figure-8",
    "Paper 1, Figure 8: regret against people of the sources",
    _rows_of_figure_8,
    _draw_figure_8,
    _verdict_of_figure_8,
    _sentence_of_figure_8,
    _compared_in_figure_8,
    minutes=10,
    reads=("published",),
)

_KAPPAS: Final = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_FIGURE_9_GAMMAS: Final = tuple(round(0.2 * step, 1) for step in range(11))
_FIGURE_9_SIZES: Final = (10_000, 50_000)
_FIGURE_9_AUX: Final = {"kappa": (1.0, 8.0), "gamma": (2.0, 8.0)}
"""Epsilons of the sources, by panel."""
_ORDERED_SIZES: Final = (10_000, 20_000, 50_000, 100_000)
_ORDERED_EPSILONS: Final = (1.0, 2.0)
_ORDERS: Final = {"first_sup": (8.0, 2.0), "first_inf": (2.0, 8.0)}
"""The better source first, or last; the names are those of the logs."""
_HONEST: Final = "honest"
"""The paper's algorithm as a policy of rows, which takes sources as they are listed."""
_WORDS_OF_ORDER: Final = {"first_sup": "better first", "first_inf": "better last"}


def _rows_of_figure_9(effort: Effort) -> Iterator[Row]:
    n, sizes = (4000, (2000,)) if effort.quick else (40_000, _FIGURE_9_SIZES)
    kappas, gammas = ((0.0, 1.0), (0.0, 2.0)) if effort.quick else (_KAPPAS, _FIGURE_9_GAMMAS)
    ordered: tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]] = (10_000,), (10_000,), (1.0,)
    if not effort.quick:
        ordered = (10_000, 80_000), _ORDERED_SIZES[::3], _ORDERED_EPSILONS
    yield from run(
        [
            *(_case("kappa", n, *point) for point in product(sizes, _FIGURE_9_AUX["kappa"], (0.2,), kappas)),
            *(_case("gamma", n, *point) for point in product(sizes, _FIGURE_9_AUX["gamma"], gammas, (1.0,))),
            *(_ordered(*case) for case in product(*ordered, _ORDERS, (OURS, _HONEST))),
        ],
        effort,
    )
    path = effort.data.get("published", "")
    for panel, epsilons in _FIGURE_9_AUX.items():
        drawn = {"n": (n,), "M": (2,), "epsilon": (2.0,), "n_aux": sizes, "eps_aux": [f"{aux:g}" for aux in epsilons]}
        yield from ({**row, "panel": panel} for row in published(path, panel, **drawn))
    of_order = {"n": ordered[0], "n_aux": _ORDERED_SIZES, "epsilon": ordered[2], "gamma": (0.0,)}
    for row in published(path, "order_of_auxiliary", **of_order):
        yield {**row, "panel": "order", "order": row["eps_aux"]}


def _case(panel: str, n: int, size: int, aux: float, gamma: float, kappa: float) -> ReproductionCase:
    facts = {"panel": panel, "n": n, "n_aux": size, "eps_aux": f"{aux:g}", "gamma": gamma, "kappa": kappa}
    return ReproductionCase({**facts, "epsilon": 2.0}, instance(n, 2.0, two_sources(size, aux, gamma, kappa)))


def _ordered(n: int, size: int, epsilon: float, order: str, policy: str) -> ReproductionCase:
    # In the paper's algorithm sources come as listed; in ours names are all that changes.
    algorithm = OUR_ALGORITHM if policy == OURS else THEIR_ALGORITHM
    sources = [source(f"s{place}", size, aux) for place, aux in enumerate(_ORDERS[order])]
    facts = {"panel": "order", "policy": policy, "epsilon": epsilon, "n": n, "n_aux": size, "order": order}
    return ReproductionCase(facts, instance(n, epsilon, sources, algorithm))


def _draw_figure_9(title: str, rows: Rows) -> Figure:
    ordered = rows.where(panel="order")
    people = ordered.values("n")
    figure, axes = panels(len(_FIGURE_9_AUX) + len(people), title, height=3.8)
    for axis, panel in zip(axes, _FIGURE_9_AUX, strict=False):
        ours, paper = (rows.where(panel=panel, policy=policy) for policy in (OURS, PAPER))
        groups: list[tuple[Row, str]] = [
            ({"n_aux": size, "eps_aux": aux}, f"{size:,} at epsilon {aux}")
            for size, aux in sorted(ours.by("n_aux", "eps_aux"))
        ]
        lines(axis, ours, panel, groups)
        lines(axis, paper, panel, groups, ":")
        from_zero([axis], panel)
        axis.legend(fontsize=6, title="solid: ours; dotted: published (leaks)", title_fontsize=6)
    axes[0].set_ylabel("regret")
    for axis, n in zip(axes[len(_FIGURE_9_AUX) :], people, strict=True):
        _draw_orders(axis, ordered.where(n=n), f"order of sources, {n:,} people")
    return figure


def _draw_orders(axis: Any, rows: Rows, title: str) -> None:
    groups: list[tuple[Row, str]] = [
        ({"order": order, "epsilon": epsilon}, f"{_WORDS_OF_ORDER[order]}, epsilon {epsilon:g}")
        for epsilon, order in sorted(rows.where(policy=OURS).by("epsilon", "order"))
    ]
    for policy, style in ((OURS, ".-"), (_HONEST, "--"), (PAPER, ":")):
        lines(axis, rows.where(policy=policy), "n_aux", groups, style)
    axis.set_xlabel("people of each source")
    axis.set_yscale("log")
    axis.set_title(title, fontsize=9)
    styles = "solid: ours; dashed: the paper's, honest;\ndotted: published (leaks)"
    axis.legend(fontsize=6, title=styles, title_fontsize=6)


def _verdict_of_figure_9(rows: Rows) -> str:
    sentences = []
    for panel, words in (("kappa", "arms played alike (kappa 1) or not (kappa 0)"), ("gamma", "shifted people")):
        ours, paper = (_span(rows.where(panel=panel, policy=policy), panel) for policy in (OURS, PAPER))
        sentences.append(f"With {words} our regret is {ours}" + (f", the published {paper}." if paper else "."))
    return " ".join([*sentences, _sentence_of_figure_9(rows)])


def _gaps(rows: Rows, policy: str) -> list[float]:
    """Return, in every cell of the order's panel, how much more the better source last costs than first, as a share."""
    ordered = rows.where(panel="order", policy=policy)
    last, first = (ordered.where(order=order).by("n", "n_aux", "epsilon") for order in ("first_inf", "first_sup"))
    return [last[cell].mean()[0] / first[cell].mean()[0] - 1 for cell in first]


def _sentence_of_figure_9(rows: Rows) -> str:
    ours, paper = (_gaps(rows, policy) for policy in (OURS, PAPER))
    beside = f", the published by {min(paper):+.0%} to {max(paper):+.0%}" if paper else ""
    return (
        f"The better source last and not first changes our regret by {min(ours):+.0%} to {max(ours):+.0%}{beside}: "
        "in ours the better one begins, whatever the order of the spec."
    )


def _compared_in_figure_9(rows: Rows) -> list[Compared]:
    found = []
    for panel in _FIGURE_9_AUX:
        facts = ("n_aux", "eps_aux", panel)
        ours, paper = (rows.where(panel=panel, policy=policy).by(*facts) for policy in (OURS, PAPER))
        for cell in sorted(ours):
            what = f"{panel} {cell[2]:g}, {cell[0]:,} people of sources at {cell[1]}"
            found.append(Compared(what, told(paper.get(cell, Rows())), "", told(ours[cell])))
    for n, size, epsilon, order in sorted(rows.where(panel="order").by("n", "n_aux", "epsilon", "order")):
        own = rows.where(panel="order", n=n, n_aux=size, epsilon=epsilon, order=order)
        what = f"{_WORDS_OF_ORDER[order]}, {n:,} people after {size:,} of each source, epsilon {epsilon:g}"
        found.append(Compared(what, *(told(own.where(policy=policy)) for policy in (PAPER, _HONEST, OURS))))
    return found


def _span(rows: Rows, panel: str) -> str:
    """Return the smallest and the largest mean regret of a line's points; nothing without rows."""
    found = [some.mean()[0] for some in rows.by("n_aux", "eps_aux", panel).values()]
    return f"{min(found):,.0f} to {max(found):,.0f}" if found else ""


FIGURE_9: Final = Reproduction(
    "paper-1-figure-9",
    "Paper 1, Figure 9: quality and order of the sources",
    _rows_of_figure_9,
    _draw_figure_9,
    _verdict_of_figure_9,
    _sentence_of_figure_9,
    _compared_in_figure_9,
    minutes=20,
    reads=("published",),
)
