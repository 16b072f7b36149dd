"""Paper 1, Figure 9: what the quality of the auxiliary data changes: rare arms, shifted people, order."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from matplotlib.figure import Figure

from privateer_lab.plots import COLOURS, panels
from privateer_lab.reproductions.base import OURS, Case, Effort, Instance, Row, mean, run, source, values
from privateer_lab.reproductions.published import PAPER, published

_KAPPAS: Final = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_GAMMAS: Final = tuple(round(0.2 * step, 1) for step in range(11))
_SIZES: Final = (10_000, 50_000)
_ORDERS: Final = {"first_sup": (8.0, 2.0), "first_inf": (2.0, 8.0)}
"""As the logs call them: the better source first, or last."""


class Figure9:
    """Two sources, as in the paper; sizes are of both together."""

    name = "paper-1-figure-9"
    title = "Paper 1, Figure 9: quality and order of the sources"

    def rows(self, effort: Effort) -> Iterator[Row]:
        """As `Reproduction.rows`."""
        n, sizes = (4000, (2000,)) if effort.quick else (40_000, _SIZES)
        kappas, gammas = ((0.0, 1.0), (0.0, 2.0)) if effort.quick else (_KAPPAS, _GAMMAS)
        cases = [
            *(_case("kappa", n, size, aux, 0.2, kappa) for size in sizes for aux in (1.0, 8.0) for kappa in kappas),
            *(_case("gamma", n, size, aux, gamma, 1.0) for size in sizes for aux in (2.0, 8.0) for gamma in gammas),
        ]
        for people in (2000,) if effort.quick else (10_000, 80_000):
            for epsilon in (1.0, 2.0):
                cases += [_ordered(people, epsilon, order, policy) for order in _ORDERS for policy in (OURS, "honest")]
        paper = [
            row | {"panel": panel}
            for panel in ("kappa", "gamma")
            for row in published(effort.published, panel, n=n, M=2)
            if row["epsilon"] == 2 and row["n_aux"] in sizes and row["eps_aux"] in ("1", "2", "8")
        ]
        yield from run(cases, effort)
        yield from paper

    def draw(self, rows: list[Row]) -> Figure:
        """As `Reproduction.draw`."""
        figure, axes = panels(3, self.title, height=3.8)
        for axis, panel in zip(axes[:2], ("kappa", "gamma"), strict=True):
            styles = ((OURS, "-"), (PAPER, ":"))
            for colour, (size, aux) in zip(COLOURS, _lines(rows, panel), strict=False):
                for policy, style in styles:
                    facts: Row = {"panel": panel, "policy": policy, "n_aux": size, "eps_aux": aux}
                    at = values(rows, panel, **facts)
                    label = f"{size:,} at epsilon {aux}" if policy == OURS else None
                    axis.plot(
                        at, [mean(rows, **facts, **{panel: one})[0] for one in at], style, color=colour, label=label
                    )
            axis.set_xlabel(panel)
            axis.set_ylim(bottom=0)
            axis.legend(fontsize=6)
        self._draw_orders(axes[2], rows)
        axes[0].set_ylabel("regret (solid: ours; dotted: published, leaks)")
        return figure

    def _draw_orders(self, axis: object, rows: list[Row]) -> None:
        names, bars = [], []
        for policy in ("honest", OURS):
            for order, words in (("first_sup", "better first"), ("first_inf", "better last")):
                facts: Row = {"panel": "order", "policy": policy, "order": order}
                names.append(f"{'paper, honest' if policy == 'honest' else 'ours'}\n{words}")
                bars.append(float(np.mean([mean(rows, n=n, epsilon=e, **facts)[0] / n for n, e in _panes(rows)])))
        drawn = axis.bar(names, bars, color=[COLOURS[1], COLOURS[1], COLOURS[0], COLOURS[0]])  # type: ignore[attr-defined]
        axis.bar_label(drawn, fmt="%.3f", fontsize=7)  # type: ignore[attr-defined]
        axis.set_title("order: regret a person", fontsize=9)  # type: ignore[attr-defined]
        axis.tick_params(axis="x", labelsize=6)  # type: ignore[attr-defined]

    def verdict(self, rows: list[Row]) -> str:
        """As `Reproduction.verdict`."""
        told = []
        for panel, words in (("kappa", "arms played alike (kappa 1) or not (kappa 0)"), ("gamma", "shifted people")):
            ours, paper = (_span(rows, panel, policy) for policy in (OURS, PAPER))
            told.append(f"With {words} our regret is {ours}" + (f", the published {paper}." if paper else "."))
        ordered: Row = {"panel": "order", "policy": OURS}
        gaps = [
            mean(rows, n=n, epsilon=e, order="first_inf", **ordered)[0]
            / mean(rows, n=n, epsilon=e, order="first_sup", **ordered)[0]
            for n, e in _panes(rows)
        ]
        told.append(
            f"The order of sources changes it by {min(gaps) - 1:+.0%} to {max(gaps) - 1:+.0%}: the better one begins, "
            "whatever the order of the spec."
        )
        return " ".join(told)


def _case(panel: str, n: int, size: int, aux: float, gamma: float, kappa: float) -> Case:
    sources = [source(name, size // 2, aux, gamma, kappa) for name in ("one", "two")]
    facts = {
        "panel": panel,
        "epsilon": 2.0,
        "n": n,
        "n_aux": size,
        "eps_aux": f"{aux:g}",
        "gamma": gamma,
        "kappa": kappa,
    }
    return Case(facts, Instance(n, 2.0, sources=sources).spec)


def _ordered(n: int, epsilon: float, order: str, policy: str) -> Case:
    """Under the published calibration sources come as listed; under ours names are all that changes."""
    calibration = "tight" if policy == OURS else "published"
    sources = [source(f"s{place}", min(10_000, n), aux, 0.2) for place, aux in enumerate(_ORDERS[order])]
    facts = {"panel": "order", "policy": policy, "epsilon": epsilon, "n": n, "order": order}
    return Case(facts, Instance(n, epsilon, calibration, sources).spec)


def _span(rows: list[Row], panel: str, policy: str) -> str:
    """Smallest and largest mean regret in a panel; nothing where it has no rows of the policy."""
    found = [
        mean(rows, policy=policy, panel=panel, n_aux=size, eps_aux=aux, **{panel: one})[0]
        for size, aux in _lines(rows, panel)
        for one in values(rows, panel, policy=policy, panel=panel, n_aux=size, eps_aux=aux)
    ]
    return f"{min(found):,.0f} to {max(found):,.0f}" if found else ""


def _lines(rows: list[Row], panel: str) -> list[tuple[int, str]]:
    chosen = {(row["n_aux"], row["eps_aux"]) for row in rows if row.get("panel") == panel and row["policy"] == OURS}
    return sorted(chosen)


def _panes(rows: list[Row]) -> list[tuple[int, float]]:
    return sorted({(row["n"], row["epsilon"]) for row in rows if row.get("panel") == "order"})
