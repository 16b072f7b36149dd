"""Paper 1, Figures 8 and 9: effects of the size, the quality and the order of auxiliary data on regret.

Figure 8 has regret against the size of the auxiliary data; Figure 9 against rare arms, shifted contexts and the order
of sources.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any, Final

from matplotlib.figure import Figure

from privateer_lab.render.pictures import create_panels, format_axes_from_zero
from privateer_papers.paper_1 import setting
from privateer_papers.reproduction import (
    OURS,
    Effort,
    Reproduction,
    ReproductionCase,
    Row,
    Rows,
    TableLine,
    draw_lines,
    mean_text,
    run_cases,
)

_FIGURE_8_SIZES: Final = (0, 10_000, 20_000, 50_000, 100_000)
_FIGURE_8_GAMMAS: Final = (0.0, 0.2, 2.0)
_TARGET_EPSILONS: Final = (1.0, 2.0)
_EPSILONS_8: Final = (1.0, 2.0, 4.0, 8.0)


def _rows_of_figure_8(effort: Effort) -> Iterator[Row]:
    """Yield the rows of two sources by size, gamma and epsilon, then those of the authors' public logs."""
    n, sizes = (4000, (0, 2000)) if effort.quick else (80_000, _FIGURE_8_SIZES)
    gammas, targets = ((0.0, 2.0), (1.0,)) if effort.quick else (_FIGURE_8_GAMMAS, _TARGET_EPSILONS)
    cases = []
    for epsilon in targets:
        cases.append(ReproductionCase({"epsilon": epsilon, "n_aux": 0}, setting.build_instance(n, epsilon)))
        for gamma, aux, size in product(gammas, _EPSILONS_8, sizes[1:]):
            facts = {"epsilon": epsilon, "gamma": gamma, "eps_aux": f"{aux:g}", "n_aux": size}
            cases.append(
                ReproductionCase(facts, setting.build_instance(n, epsilon, setting.build_two_sources(size, aux, gamma)))
            )
    yield from run_cases(cases, effort)
    drawn_facts = {"n": (n,), "n_aux": sizes, "gamma": gammas, "epsilon": targets}
    yield from setting.read_published(
        effort.data.get("published", ""), "sample_size_source", M=(2,), kappa=(1.0,), **drawn_facts
    )


def _draw_figure_8(title: str, rows: Rows) -> Figure:
    """Draw regret by the size of sources, ours and as published, for each epsilon and gamma."""
    panels = list(product(rows.values("epsilon"), rows.values("gamma")))
    figure, axes = create_panels(len(panels), title)
    groups: list[tuple[Row, str]] = [({"eps_aux": f"{aux:g}"}, f"epsilon of sources {aux:g}") for aux in _EPSILONS_8]
    for axis, (epsilon, gamma) in zip(axes, panels, strict=True):
        for policy, style in ((OURS, "-"), (setting.PAPER, ":")):
            draw_lines(axis, _panel_rows(rows.where(policy=policy, epsilon=epsilon), gamma), "n_aux", groups, style)
        axis.set_title(f"epsilon {epsilon:g}, gamma {gamma:g}", fontsize=9)
    format_axes_from_zero(axes, "people of the sources")
    axes[0].set_ylabel("regret")
    axes[0].legend(fontsize=7, title="solid: ours; dotted: published (leaks)", title_fontsize=7)
    return figure


def _panel_rows(rows: Rows, gamma: float) -> Rows:
    """Return the rows of a gamma, with the rows without sources as the start of every line."""
    bare_rows = [row for row in rows if row["n_aux"] == 0 and "gamma" not in row]
    starts = ({**row, "eps_aux": f"{aux:g}"} for row in bare_rows for aux in _EPSILONS_8)
    return Rows([*rows.where(gamma=gamma), *starts])


_CELL_FACTS: Final = ("epsilon", "gamma", "eps_aux", "n_aux")


def _sentence_of_figure_8(rows: Rows) -> str:
    """Say by how much sources lower our regret at best, and how often they raise it."""
    our = rows.where(policy=OURS).group_by(*_CELL_FACTS)
    low, n_worse, n_cells = 1.0, 0, 0
    for cell, subset in our.items():
        if cell[-1] == 0:
            continue
        (regret, width), (baseline, base) = (subset.mean(), our[cell[0], None, None, 0].mean())
        low, n_cells, n_worse = (min(low, regret / baseline), n_cells + 1, n_worse + (regret - width > baseline + base))
    return (
        f"Sources lower our regret to {low:.0%} of that without them at best, and raise it beyond both intervals "
        f"in {n_worse} of {n_cells} settings."
    )


def _compare_figure_8(rows: Rows) -> list[TableLine]:
    """List regret in each setting, as published and ours."""
    cells, paper = (rows.where(policy=policy).group_by(*_CELL_FACTS) for policy in (OURS, setting.PAPER))
    table = []
    for cell in cells:
        epsilon, gamma, aux, size = cell
        words = f", {size:,} people of each source at {aux}, gamma {gamma:g}" if size else ", no sources"
        table.append(
            TableLine(f"epsilon {epsilon:g}{words}", mean_text(paper.get(cell, Rows())), "", mean_text(cells[cell]))
        )
    return table


FIGURE_8: Final = Reproduction(
    "paper-1-figure-8",
    "Paper 1, Figure 8: regret against people of each source",
    *(_rows_of_figure_8, _draw_figure_8, _sentence_of_figure_8, _compare_figure_8),
    minutes=10,
    reads=("published",),
)

_FIGURE_9_KAPPAS: Final = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_FIGURE_9_GAMMAS: Final = tuple(round(0.2 * step, 1) for step in range(11))
_FIGURE_9_SIZES: Final = (10_000, 50_000)
_FIGURE_9_EPSILONS: Final = {"kappa": (1.0, 8.0), "gamma": (2.0, 8.0)}
"""Epsilons of the sources, by panel."""
_ORDERED_SIZES: Final = (10_000, 20_000, 50_000, 100_000)
_ORDERED_EPSILONS: Final = (1.0, 2.0)
_ORDERS: Final = {"first_sup": (8.0, 2.0), "first_inf": (2.0, 8.0)}
"""Epsilons of the sources with the better source first, or last, by the names in the authors' logs."""
_LDPMAB: Final = "honest"
"""The paper's algorithm as a policy in rows; it uses sources in the listed order."""
_ORDER_LABELS: Final = {"first_sup": "better first", "first_inf": "better last"}


def _rows_of_figure_9(effort: Effort) -> Iterator[Row]:
    """Yield the rows by kappa, gamma and order of sources, then those of the authors' public logs."""
    n, sizes = (4000, (2000,)) if effort.quick else (40_000, _FIGURE_9_SIZES)
    kappas, gammas = ((0.0, 1.0), (0.0, 2.0)) if effort.quick else (_FIGURE_9_KAPPAS, _FIGURE_9_GAMMAS)
    order_settings: tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]] = (10_000,), (10_000,), (1.0,)
    if not effort.quick:
        order_settings = (10_000, 80_000), _ORDERED_SIZES[::3], _ORDERED_EPSILONS
    yield from run_cases(
        [
            *(_make_case("kappa", n, *point) for point in product(sizes, _FIGURE_9_EPSILONS["kappa"], (0.2,), kappas)),
            *(_make_case("gamma", n, *point) for point in product(sizes, _FIGURE_9_EPSILONS["gamma"], gammas, (1.0,))),
            *(_make_order_case(*case) for case in product(*order_settings, _ORDERS, (OURS, _LDPMAB))),
        ],
        effort,
    )
    path = effort.data.get("published", "")
    for panel, epsilons in _FIGURE_9_EPSILONS.items():
        facts = {"n": (n,), "M": (2,), "epsilon": (2.0,), "n_aux": sizes, "eps_aux": [f"{aux:g}" for aux in epsilons]}
        yield from ({**row, "panel": panel} for row in setting.read_published(path, panel, **facts))
    order_facts = {"n": order_settings[0], "n_aux": _ORDERED_SIZES, "epsilon": order_settings[2], "gamma": (0.0,)}
    for row in setting.read_published(path, "order_of_auxiliary", **order_facts):
        yield {**row, "panel": "order", "order": row["eps_aux"]}


def _make_case(panel: str, n: int, size: int, aux: float, gamma: float, kappa: float) -> ReproductionCase:
    """Make the case of two sources with this size, epsilon, gamma and kappa."""
    facts = {"panel": panel, "n": n, "n_aux": size, "eps_aux": f"{aux:g}", "gamma": gamma, "kappa": kappa}
    return ReproductionCase(
        {**facts, "epsilon": 2.0}, setting.build_instance(n, 2.0, setting.build_two_sources(size, aux, gamma, kappa))
    )


def _make_order_case(n: int, size: int, epsilon: float, order: str, policy: str) -> ReproductionCase:
    """Make the case of sources in an order, for ours or for the paper's algorithm."""
    # In the paper's algorithm sources come as listed; in ours names are all that changes.
    algorithm = setting.OUR_ALGORITHM if policy == OURS else setting.PUBLISHED_ALGORITHM
    sources = [setting.build_source(f"s{index}", size, aux) for index, aux in enumerate(_ORDERS[order])]
    facts = {"panel": "order", "policy": policy, "epsilon": epsilon, "n": n, "n_aux": size, "order": order}
    return ReproductionCase(facts, setting.build_instance(n, epsilon, sources, algorithm))


def _draw_figure_9(title: str, rows: Rows) -> Figure:
    """Draw regret by kappa and by gamma, and by the order of sources for each number of people."""
    ordered_rows = rows.where(panel="order")
    people = ordered_rows.values("n")
    figure, axes = create_panels(len(_FIGURE_9_EPSILONS) + len(people), title, height=3.8)
    for axis, panel in zip(axes, _FIGURE_9_EPSILONS, strict=False):
        our, paper = (rows.where(panel=panel, policy=policy) for policy in (OURS, setting.PAPER))
        groups: list[tuple[Row, str]] = [
            ({"n_aux": size, "eps_aux": aux}, f"{size:,} at epsilon {aux}")
            for size, aux in sorted(our.group_by("n_aux", "eps_aux"))
        ]
        draw_lines(axis, our, panel, groups)
        draw_lines(axis, paper, panel, groups, ":")
        format_axes_from_zero([axis], panel)
        axis.legend(fontsize=6, title="solid: ours; dotted: published (leaks)", title_fontsize=6)
    axes[0].set_ylabel("regret")
    for axis, n in zip(axes[len(_FIGURE_9_EPSILONS) :], people, strict=True):
        _draw_orders(axis, ordered_rows.where(n=n), f"order of sources, {n:,} people")
    return figure


def _draw_orders(axis: Any, rows: Rows, title: str) -> None:
    """Draw regret by the size of sources for each order and epsilon, of three policies."""
    groups: list[tuple[Row, str]] = [
        ({"order": order, "epsilon": epsilon}, f"{_ORDER_LABELS[order]}, epsilon {epsilon:g}")
        for epsilon, order in sorted(rows.where(policy=OURS).group_by("epsilon", "order"))
    ]
    for policy, style in ((OURS, ".-"), (_LDPMAB, "--"), (setting.PAPER, ":")):
        draw_lines(axis, rows.where(policy=policy), "n_aux", groups, style)
    axis.set(xlabel="people of each source", yscale="log")
    axis.set_title(title, fontsize=9)
    styles = "solid: ours; dashed: the paper's, honest;\ndotted: published (leaks)"
    axis.legend(fontsize=6, title=styles, title_fontsize=6)


def _compute_order_gaps(rows: Rows, policy: str) -> list[float]:
    """Return, for every cell of the order's panel, the relative increase of regret if the better source is last."""
    ordered_rows = rows.where(panel="order", policy=policy)
    last, first = (
        ordered_rows.where(order=order).group_by("n", "n_aux", "epsilon") for order in ("first_inf", "first_sup")
    )
    return [last[cell].mean()[0] / first[cell].mean()[0] - 1 for cell in first]


def _sentence_of_figure_9(rows: Rows) -> str:
    """Say what it changes that the better source is last."""
    our, paper = (_compute_order_gaps(rows, policy) for policy in (OURS, setting.PAPER))
    published_clause = f", the published by {min(paper):+.0%} to {max(paper):+.0%}" if paper else ""
    return (
        f"The better source last and not first changes our regret by {min(our):+.0%} to {max(our):+.0%}"
        f"{published_clause}: in ours the better one begins, whatever the order of the spec."
    )


def _compare_figure_9(rows: Rows) -> list[TableLine]:
    """List regret by kappa, gamma and order, as published, by the paper's algorithm and ours."""
    table = []
    for panel in _FIGURE_9_EPSILONS:
        facts = ("n_aux", "eps_aux", panel)
        our, paper = (rows.where(panel=panel, policy=policy).group_by(*facts) for policy in (OURS, setting.PAPER))
        for cell in sorted(our):
            label = f"{panel} {cell[2]:g}, {cell[0]:,} people of each source at {cell[1]}"
            table.append(TableLine(label, mean_text(paper.get(cell, Rows())), "", mean_text(our[cell])))
    for n, size, epsilon, order in sorted(rows.where(panel="order").group_by("n", "n_aux", "epsilon", "order")):
        subset = rows.where(panel="order", n=n, n_aux=size, epsilon=epsilon, order=order)
        label = f"{_ORDER_LABELS[order]}, {n:,} people after {size:,} of each source, epsilon {epsilon:g}"
        table.append(
            TableLine(label, *(mean_text(subset.where(policy=policy)) for policy in (setting.PAPER, _LDPMAB, OURS)))
        )
    return table


FIGURE_9: Final = Reproduction(
    "paper-1-figure-9",
    "Paper 1, Figure 9: quality and order of the sources",
    *(_rows_of_figure_9, _draw_figure_9, _sentence_of_figure_9, _compare_figure_9),
    minutes=20,
    reads=("published",),
)
