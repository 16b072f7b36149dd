"""Paper 1, Figure 7: regret against people at several epsilons, without and with auxiliary data.

Ours, the paper's algorithm made honest, and the published figures, whose code leaks every person's bin.
"""

from collections.abc import Iterator
from itertools import product
from typing import Final

from matplotlib.figure import Figure

from privateer_lab.pages.plots import from_zero, panels
from privateer_papers.paper_1.setting import HONEST, PAPER, UNPRIVATE, instance, published, source
from privateer_papers.reproduction import OURS, Effort, Reproduction, ReproductionCase, Row, Rows, lines, run

_EPSILONS: Final = (1.0, 2.0, 4.0, 8.0, UNPRIVATE)
_PEOPLE: Final = (10_000, 20_000, 40_000, 60_000, 80_000, 120_000, 160_000)
_AUX: Final = 5000


def _rows(effort: Effort) -> Iterator[Row]:
    people = (2000, 10_000) if effort.quick else _PEOPLE
    epsilons = (1.0, 8.0) if effort.quick else _EPSILONS
    cases = []
    for epsilon, n in product(epsilons, people):
        facts, private = {"epsilon": epsilon, "n": n}, epsilon < UNPRIVATE
        cases.append(ReproductionCase({**facts, "n_aux": 0}, instance(n, epsilon), (HONEST if private else "tree",)))
        if private:
            cases.append(ReproductionCase({**facts, "n_aux": _AUX}, instance(n, epsilon, [source("aux", _AUX, 8.0)])))
    yield from run(cases, effort)
    # The logs hold several runs without auxiliary data; these are the ones of all sizes, and the lower regrets.
    drawn = {"n": people, "epsilon": epsilons}
    yield from published(effort.published, "sample_size_target", n_aux=(0,), **drawn)
    helped = {"n_aux": (_AUX,), "eps_aux": ("8",), "M": (1,), "gamma": (0.0,), "kappa": (1.0,)}
    yield from published(effort.published, "sample_size_target", **helped, **drawn)


def _draw(title: str, rows: Rows) -> Figure:
    figure, axes = panels(3, title, height=4.2)
    groups: list[tuple[Row, str]] = [
        ({"epsilon": epsilon}, f"epsilon {epsilon:g}" if epsilon < UNPRIVATE else "no privacy")
        for epsilon in rows.values("epsilon")
    ]
    for axis, n_aux, words in (
        (axes[0], 0, "(a) no auxiliary data"),
        (axes[1], _AUX, "(b) 5,000 people at epsilon 8 first"),
    ):
        for policy, style in ((OURS, "-"), (HONEST, "--"), (PAPER, ":")):
            lines(axis, rows.where(policy=policy, n_aux=n_aux), "n", groups, style, band=True)
        axis.set_title(words, fontsize=9)
    for n_aux, style in ((0, "-"), (_AUX, "--")):
        lines(axes[2], rows.where(policy=OURS, n_aux=n_aux), "n", groups, style, band=True)
    axes[2].set_title("ours alone (solid: a, dashed: b)", fontsize=9)
    from_zero(axes, "people")
    axes[0].set_ylabel("regret")
    axes[0].legend(
        fontsize=7, title="solid: ours; dashed: the paper's, honest;\ndotted: published (leaks)", title_fontsize=7
    )
    return figure


def _verdict(rows: Rows) -> str:
    sentences = []
    for n_aux, words in ((0, "Without auxiliary data"), (_AUX, "With it")):
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


FIGURE_7: Final = Reproduction("paper-1-figure-7", "Paper 1, Figure 7: regret against people", _rows, _draw, _verdict)
