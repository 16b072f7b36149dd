"""Paper 1, Figure 8: regret against the size of the auxiliary data, by their quality."""

from collections.abc import Iterator
from typing import Final

from matplotlib.figure import Figure

from privateer_lab.plots import COLOURS, panels
from privateer_lab.reproductions.base import (
    OURS,
    Case,
    Effort,
    Instance,
    Row,
    in_thousands,
    known,
    mean,
    run,
    source,
    values,
)
from privateer_lab.reproductions.published import PAPER, published

_SIZES: Final = (0, 10_000, 20_000, 50_000, 100_000)
_GAMMAS: Final = (0.0, 0.2, 2.0)
_TARGETS: Final = (1.0, 2.0)
_AUX: Final = (1.0, 2.0, 4.0, 8.0)


class Figure8:
    """Two sources of one epsilon; the sizes are of both together, where the paper does not say: the harder reading."""

    name = "paper-1-figure-8"
    title = "Paper 1, Figure 8: regret against people of the sources"

    def rows(self, effort: Effort) -> Iterator[Row]:
        """As `Reproduction.rows`."""
        sizes = (0, 2000) if effort.quick else _SIZES
        gammas, targets = ((0.0, 2.0), (1.0,)) if effort.quick else (_GAMMAS, _TARGETS)
        n = 4000 if effort.quick else 80_000
        cases = []
        for epsilon in targets:
            cases.append(Case({"epsilon": epsilon, "n_aux": 0}, Instance(n, epsilon).spec))
            for gamma in gammas:
                for aux in _AUX:
                    for size in sizes[1:]:
                        sources = [source(name, size // 2, aux, gamma) for name in ("one", "two")]
                        facts = {"epsilon": epsilon, "gamma": gamma, "eps_aux": f"{aux:g}", "n_aux": size}
                        cases.append(Case(facts, Instance(n, epsilon, sources=sources).spec))
        paper = [
            row
            for row in published(effort.published, "sample_size_source", n=n, M=2, kappa=1.0)
            if row["gamma"] in gammas and row["epsilon"] in targets and row["n_aux"] in sizes
        ]
        yield from run(cases, effort)
        yield from paper

    def draw(self, rows: list[Row]) -> Figure:
        """As `Reproduction.draw`."""
        panes = [(epsilon, gamma) for epsilon in values(rows, "epsilon") for gamma in values(rows, "gamma")]
        figure, axes = panels(len(panes), self.title, height=3.4)
        for axis, (epsilon, gamma) in zip(axes, panes, strict=True):
            for colour, aux in zip(COLOURS, (f"{one:g}" for one in _AUX), strict=False):
                for policy, style in ((OURS, "-"), (PAPER, ":")):
                    at, found = _curve(rows, {"policy": policy, "epsilon": epsilon}, {"gamma": gamma, "eps_aux": aux})
                    label = f"epsilon of sources {aux}" if policy == OURS else None
                    axis.plot(at, found, style, color=colour, label=label)
            axis.set_title(f"epsilon {epsilon:g}, gamma {gamma:g}", fontsize=9)
            axis.set_xlabel("people of the sources")
            in_thousands(axis)
            axis.set_ylim(bottom=0)
        axes[0].set_ylabel("regret")
        axes[0].legend(fontsize=7, title="solid: ours; dotted: published (leaks)", title_fontsize=7)
        return figure

    def verdict(self, rows: list[Row]) -> str:
        """As `Reproduction.verdict`."""
        best, worse, cells, below, compared = 1.0, 0, 0, 0, 0
        for epsilon in values(rows, "epsilon", policy=OURS):
            alone, spread = mean(rows, policy=OURS, epsilon=epsilon, n_aux=0)
            for gamma in values(rows, "gamma", policy=OURS):
                for aux in values(rows, "eps_aux", policy=OURS):
                    for size in values(rows, "n_aux", policy=OURS)[1:]:
                        facts = {"epsilon": epsilon, "gamma": gamma, "eps_aux": aux, "n_aux": size}
                        ours, width = mean(rows, policy=OURS, **facts)
                        cells, worse = cells + 1, worse + (ours - width > alone + spread)
                        best = min(best, ours / alone)
                        paper = mean(rows, policy=PAPER, **facts)[0]
                        if known(paper):
                            compared, below = compared + 1, below + (ours <= paper)
        told = (
            f"Sources lower our regret to {best:.0%} of that without them at best, and raise it beyond both intervals "
        )
        told += f"in {worse} of {cells} settings."
        return told + (f" It is at or below the published in {below} of {compared}." if compared else "")


def _curve(rows: list[Row], facts: Row, source_facts: Row) -> tuple[list[int], list[float]]:
    """Regrets by people of the sources, from none of them on if that is known."""
    sizes = values(rows, "n_aux", **facts, **source_facts)
    found = [mean(rows, n_aux=size, **facts, **source_facts)[0] for size in sizes]
    start = mean(rows, n_aux=0, **facts)[0]
    if not sizes or sizes[0] == 0 or not known(start):
        return sizes, found
    return [0, *sizes], [start, *found]
