"""Paper 1, Figure 8: regret against the size of the auxiliary data, by their quality."""

from collections.abc import Iterator
from itertools import product
from typing import Final

from matplotlib.figure import Figure

from privateer_lab.pages.plots import from_zero, panels
from privateer_papers.paper_1.setting import PAPER, instance, published, two_sources
from privateer_papers.reproduction import OURS, Effort, Reproduction, ReproductionCase, Row, Rows, lines, run

_SIZES: Final = (0, 10_000, 20_000, 50_000, 100_000)
_GAMMAS: Final = (0.0, 0.2, 2.0)
_TARGETS: Final = (1.0, 2.0)
_AUX: Final = (1.0, 2.0, 4.0, 8.0)


def _rows(effort: Effort) -> Iterator[Row]:
    n, sizes = (4000, (0, 2000)) if effort.quick else (80_000, _SIZES)
    gammas, targets = ((0.0, 2.0), (1.0,)) if effort.quick else (_GAMMAS, _TARGETS)
    cases = []
    for epsilon in targets:
        cases.append(ReproductionCase({"epsilon": epsilon, "n_aux": 0}, instance(n, epsilon)))
        for gamma, aux, size in product(gammas, _AUX, sizes[1:]):
            facts = {"epsilon": epsilon, "gamma": gamma, "eps_aux": f"{aux:g}", "n_aux": size}
            cases.append(ReproductionCase(facts, instance(n, epsilon, two_sources(size, aux, gamma))))
    yield from run(cases, effort)
    drawn = {"n": (n,), "n_aux": sizes, "gamma": gammas, "epsilon": targets}
    yield from published(effort.published, "sample_size_source", M=(2,), kappa=(1.0,), **drawn)


def _draw(title: str, rows: Rows) -> Figure:
    panes = list(product(rows.values("epsilon"), rows.values("gamma")))
    figure, axes = panels(len(panes), title)
    groups: list[tuple[Row, str]] = [({"eps_aux": f"{aux:g}"}, f"epsilon of sources {aux:g}") for aux in _AUX]
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
    return Rows([*found, *({**row, "eps_aux": f"{aux:g}"} for row in alone for aux in _AUX)])


def _verdict(rows: Rows) -> str:
    facts = ("epsilon", "gamma", "eps_aux", "n_aux")
    ours, paper = (rows.where(policy=policy).by(*facts) for policy in (OURS, PAPER))
    best, worse, cells, below = 1.0, 0, 0, []
    for cell, found in ours.items():
        if cell[-1] == 0:
            continue
        (regret, half), (alone, spread) = found.mean(), ours[cell[0], None, None, 0].mean()
        best, cells, worse = min(best, regret / alone), cells + 1, worse + (regret - half > alone + spread)
        if cell in paper:
            below.append(regret <= paper[cell].mean()[0])
    compared = f" It is at or below the published in {sum(below)} of {len(below)}." if below else ""
    return (
        f"Sources lower our regret to {best:.0%} of that without them at best, and raise it beyond both intervals "
        f"in {worse} of {cells} settings.{compared}"
    )


FIGURE_8: Final = Reproduction(
    "paper-1-figure-8", "Paper 1, Figure 8: regret against people of the sources", _rows, _draw, _verdict
)
