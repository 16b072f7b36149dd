"""Paper 1, Figures 7 to 9: regret on simulated people, and what auxiliary data change.

Figure 7 has regret against people at several epsilons, without and with auxiliary data: ours, the paper's algorithm
made honest, and the published figures, whose code leaks every person's bin. Figure 8 has regret against the size of the
auxiliary data, by their quality; Figure 9 what that quality changes: rare arms, shifted people, order.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from privateer_lab.pages.plots import COLOURS, from_zero, panels
from privateer_papers.paper_1.setting import HONEST, PAPER, UNPRIVATE, instance, published, source, two_sources
from privateer_papers.paper_1.setting import OURS as OUR_ALGORITHM
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

_EPSILONS: Final = (1.0, 2.0, 4.0, 8.0, UNPRIVATE)
_FIGURE_7_PEOPLE: Final = (10_000, 20_000, 40_000, 60_000, 80_000, 120_000, 160_000)
_FIGURE_7_AUX: Final = 5000


def _rows_of_figure_7(effort: Effort) -> Iterator[Row]:
    people = (2000, 10_000) if effort.quick else _FIGURE_7_PEOPLE
    epsilons = (1.0, 8.0) if effort.quick else _EPSILONS
    cases = []
    for epsilon, n in product(epsilons, people):
        facts, private = {"epsilon": epsilon, "n": n}, epsilon < UNPRIVATE
        cases.append(ReproductionCase({**facts, "n_aux": 0}, instance(n, epsilon), (HONEST if private else "tree",)))
        if private:
            cases.append(
                ReproductionCase(
                    {**facts, "n_aux": _FIGURE_7_AUX}, instance(n, epsilon, [source("aux", _FIGURE_7_AUX, 8.0)])
                )
            )
    yield from run(cases, effort)
    # The logs hold several runs without auxiliary data; these are the ones of all sizes, and the lower regrets.
    drawn = {"n": people, "epsilon": epsilons}
    yield from published(effort.data.get("published", ""), "sample_size_target", n_aux=(0,), **drawn)
    helped = {"n_aux": (_FIGURE_7_AUX,), "eps_aux": ("8",), "M": (1,), "gamma": (0.0,), "kappa": (1.0,)}
    yield from published(effort.data.get("published", ""), "sample_size_target", **helped, **drawn)


def _draw_figure_7(title: str, rows: Rows) -> Figure:
    figure, axes = panels(3, title, height=4.2)
    groups: list[tuple[Row, str]] = [
        ({"epsilon": epsilon}, f"epsilon {epsilon:g}" if epsilon < UNPRIVATE else "no privacy")
        for epsilon in rows.values("epsilon")
    ]
    for axis, n_aux, words in (
        (axes[0], 0, "(a) no auxiliary data"),
        (axes[1], _FIGURE_7_AUX, "(b) 5,000 people at epsilon 8 first"),
    ):
        for policy, style in ((OURS, "-"), (HONEST, "--"), (PAPER, ":")):
            lines(axis, rows.where(policy=policy, n_aux=n_aux), "n", groups, style, band=True)
        axis.set_title(words, fontsize=9)
    for n_aux, style in ((0, "-"), (_FIGURE_7_AUX, "--")):
        lines(axes[2], rows.where(policy=OURS, n_aux=n_aux), "n", groups, style, band=True)
    axes[2].set_title("ours alone (solid: a, dashed: b)", fontsize=9)
    from_zero(axes, "people")
    axes[0].set_ylabel("regret")
    axes[0].legend(
        fontsize=7, title="solid: ours; dashed: the paper's, honest;\ndotted: published (leaks)", title_fontsize=7
    )
    return figure


def _verdict_of_figure_7(rows: Rows) -> str:
    sentences = []
    for n_aux, words in ((0, "Without auxiliary data"), (_FIGURE_7_AUX, "With it")):
        ours, paper, honest = (_regrets(rows.where(policy=policy, n_aux=n_aux)) for policy in (OURS, PAPER, HONEST))
        below = [ours[cell] <= regret for cell, regret in paper.items() if cell in ours]
        ratios = [regret / ours[cell] for cell, regret in honest.items() if cell in ours]
        if below:
            sentences.append(f"{words} our regret is at or below the published in {sum(below)} of {len(below)} cells.")
        if ratios:
            sentences.append(
                f"{words} the paper's algorithm, honest, loses {min(ratios):.1f} to {max(ratios):.1f} times ours."
            )
    sentences.append(
        "The published figures come from code that is not epsilon-LDP: only the people of a bin add its noise."
    )
    return " ".join(sentences)


def _regrets(rows: Rows) -> dict[tuple[float, int], float]:
    """Return mean regret by epsilon and people, where the paper is private."""
    return {cell: some.mean()[0] for cell, some in rows.by("epsilon", "n").items() if cell[0] < UNPRIVATE}


def _sentence_of_figure_7(rows: Rows) -> str:
    ours, honest = (_regrets(rows.where(policy=policy, n_aux=0)) for policy in (OURS, HONEST))
    ratios = [honest[cell] / ours[cell] for cell in honest]
    return (
        f"With honest noise the paper's algorithm loses {min(ratios):.1f} to {max(ratios):.1f} times as much as ours; "
        "what the paper published leaks everybody's bin."
    )


def _compared_in_figure_7(rows: Rows) -> list[Compared]:
    cells = sorted(rows.where(policy=OURS).by("epsilon", "n", "n_aux"))
    found = []
    for epsilon, n, n_aux in cells:
        own = rows.where(epsilon=epsilon, n=n, n_aux=n_aux)
        promise = f"epsilon {epsilon:g}" if epsilon < UNPRIVATE else "no privacy"
        what = f"{promise}, {n:,} people" + (f" after {n_aux:,}" if n_aux else "")
        found.append(Compared(what, *(told(own.where(policy=policy)) for policy in (PAPER, HONEST, OURS))))
    return found


FIGURE_7: Final = Reproduction(
    "paper-1-figure-7",
    "Paper 1, Figure 7: regret against people",
    _rows_of_figure_7,
    _draw_figure_7,
    _verdict_of_figure_7,
    _sentence_of_figure_7,
    _compared_in_figure_7,
    minutes=30,
    reads=("published",),
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
_ORDERS: Final = {"first_sup": (8.0, 2.0), "first_inf": (2.0, 8.0)}
"""The better source first, or last; the names are those of the logs."""
_WORDS_OF_ORDER: Final = {"first_sup": "better first", "first_inf": "better last"}


def _rows_of_figure_9(effort: Effort) -> Iterator[Row]:
    n, sizes = (4000, (2000,)) if effort.quick else (40_000, _FIGURE_9_SIZES)
    kappas, gammas = ((0.0, 1.0), (0.0, 2.0)) if effort.quick else (_KAPPAS, _FIGURE_9_GAMMAS)
    people = (2000,) if effort.quick else (10_000, 80_000)
    yield from run(
        [
            *(_case("kappa", n, *point) for point in product(sizes, _FIGURE_9_AUX["kappa"], (0.2,), kappas)),
            *(_case("gamma", n, *point) for point in product(sizes, _FIGURE_9_AUX["gamma"], gammas, (1.0,))),
            *(_ordered(*case) for case in product(people, (1.0, 2.0), _ORDERS, (OURS, "honest"))),
        ],
        effort,
    )
    for panel, epsilons in _FIGURE_9_AUX.items():
        drawn = {"n": (n,), "M": (2,), "epsilon": (2.0,), "n_aux": sizes, "eps_aux": [f"{aux:g}" for aux in epsilons]}
        yield from ({**row, "panel": panel} for row in published(effort.data.get("published", ""), panel, **drawn))


def _case(panel: str, n: int, size: int, aux: float, gamma: float, kappa: float) -> ReproductionCase:
    facts = {"panel": panel, "n": n, "n_aux": size, "eps_aux": f"{aux:g}", "gamma": gamma, "kappa": kappa}
    return ReproductionCase({**facts, "epsilon": 2.0}, instance(n, 2.0, two_sources(size, aux, gamma, kappa)))


def _ordered(n: int, epsilon: float, order: str, policy: str) -> ReproductionCase:
    # In the paper's algorithm sources come as listed; in ours names are all that changes.
    algorithm = OUR_ALGORITHM if policy == OURS else THEIR_ALGORITHM
    sources = [source(f"s{place}", min(10_000, n), aux, 0.2) for place, aux in enumerate(_ORDERS[order])]
    facts = {"panel": "order", "policy": policy, "epsilon": epsilon, "n": n, "order": order}
    return ReproductionCase(facts, instance(n, epsilon, sources, algorithm))


def _draw_figure_9(title: str, rows: Rows) -> Figure:
    figure, axes = panels(3, title, height=3.8)
    for axis, panel in zip(axes, _FIGURE_9_AUX, strict=False):
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
    words = _WORDS_OF_ORDER
    for policy, order in product(names, words):
        found = rows.where(policy=policy, order=order).by("n", "epsilon")
        bars[f"{names[policy]}\n{words[order]}"] = np.mean([some.mean()[0] / n for (n, _), some in found.items()])
    colours = [COLOURS[1], COLOURS[1], COLOURS[0], COLOURS[0]]
    axis.bar_label(axis.bar(list(bars), list(bars.values()), color=colours), fmt="%.3f", fontsize=7)
    axis.set_title("order: regret a person", fontsize=9)
    axis.tick_params(axis="x", labelsize=6)


def _verdict_of_figure_9(rows: Rows) -> str:
    sentences = []
    for panel, words in (("kappa", "arms played alike (kappa 1) or not (kappa 0)"), ("gamma", "shifted people")):
        ours, paper = (_span(rows.where(panel=panel, policy=policy), panel) for policy in (OURS, PAPER))
        sentences.append(f"With {words} our regret is {ours}" + (f", the published {paper}." if paper else "."))
    return " ".join([*sentences, _sentence_of_figure_9(rows)])


def _sentence_of_figure_9(rows: Rows) -> str:
    ordered = rows.where(panel="order", policy=OURS)
    last, first = (ordered.where(order=order).by("n", "epsilon") for order in ("first_inf", "first_sup"))
    gaps = [last[cell].mean()[0] / first[cell].mean()[0] - 1 for cell in first]
    return (
        f"The order of sources changes our regret by {min(gaps):+.0%} to {max(gaps):+.0%}: the better one begins, "
        "whatever the order of the spec."
    )


def _compared_in_figure_9(rows: Rows) -> list[Compared]:
    found = []
    for panel in _FIGURE_9_AUX:
        facts = ("n_aux", "eps_aux", panel)
        ours, paper = (rows.where(panel=panel, policy=policy).by(*facts) for policy in (OURS, PAPER))
        for cell in sorted(ours):
            what = f"{panel} {cell[2]:g}, {cell[0]:,} people of sources at {cell[1]}"
            found.append(Compared(what, told(paper.get(cell, Rows())), "", told(ours[cell])))
    for n, epsilon, order in sorted(rows.where(panel="order").by("n", "epsilon", "order")):
        own = rows.where(panel="order", n=n, epsilon=epsilon, order=order)
        what = f"{_WORDS_OF_ORDER[order]}, {n:,} people, epsilon {epsilon:g}"
        found.append(Compared(what, "a picture", *(told(own.where(policy=policy)) for policy in ("honest", OURS))))
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
