"""Paper 1, Figure 7, and the same for the supplement's rewards: regret against people at several epsilons.

Without and with auxiliary data: ours, the paper's algorithm made honest, and the published figures, whose code leaks
every person's bin.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final

from matplotlib.figure import Figure

from privateer_lab.pages.plots import from_zero, panels
from privateer_papers.paper_1.setting import (
    HONEST,
    PAPER,
    PEAKS,
    QUADRANTS,
    UNPRIVATE,
    SquareProblem,
    instance,
    published,
    source,
)
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
_AUX: Final = 5000


@dataclass(frozen=True)
class RegretByPeople:
    """Regret on a problem against its people."""

    problem: SquareProblem
    people: tuple[int, ...]  # numbers of people

    def reproduction(self, name: str, title: str, minutes: int) -> Reproduction:
        """Return what makes it."""
        told_by = (self.rows, self.draw, self.verdict, self.sentence, self.compared)
        return Reproduction(name, title, *told_by, minutes=minutes, reads=("published",))

    def rows(self, effort: Effort) -> Iterator[Row]:
        """Give a row for each policy, promise, number of people and seed."""
        people = (2000, 10_000) if effort.quick else self.people
        epsilons = (1.0, 8.0) if effort.quick else _EPSILONS
        problem = self.problem
        helper = source("aux", _AUX, 8.0, problem=problem)
        cases = []
        for epsilon, n in product(epsilons, people):
            facts, private = {"epsilon": epsilon, "n": n}, epsilon < UNPRIVATE
            alone = instance(n, epsilon, problem=problem)
            cases.append(ReproductionCase({**facts, "n_aux": 0}, alone, (HONEST if private else "tree",)))
            if private:
                helped = instance(n, epsilon, [helper], problem=problem)
                cases.append(ReproductionCase({**facts, "n_aux": _AUX}, helped))
        yield from run(cases, effort)
        # The logs hold several runs without auxiliary data; these are the ones of all sizes, and the lower regrets.
        path, drawn = effort.data.get("published", ""), {"n": people, "epsilon": epsilons}
        yield from published(path, "sample_size_target", problem, n_aux=(0,), **drawn)
        helped_there = {"n_aux": (_AUX,), "eps_aux": ("8",), "M": (1,), "gamma": (0.0,), "kappa": (1.0,)}
        yield from published(path, "sample_size_target", problem, **helped_there, **drawn)

    def draw(self, title: str, rows: Rows) -> Figure:
        """Draw ours, theirs with honest noise, and what is published."""
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

    def verdict(self, rows: Rows) -> str:
        """Count the cells in which ours is below, and say how far."""
        sentences = []
        for n_aux, words in ((0, "Without auxiliary data"), (_AUX, "With it")):
            ours, paper, honest = (_regrets(rows.where(policy=policy, n_aux=n_aux)) for policy in (OURS, PAPER, HONEST))
            below = [ours[cell] <= regret for cell, regret in paper.items() if cell in ours]
            ratios = [regret / ours[cell] for cell, regret in honest.items() if cell in ours]
            if below:
                sentences.append(
                    f"{words} our regret is at or below the published in {sum(below)} of {len(below)} cells."
                )
            if ratios:
                sentences.append(
                    f"{words} the paper's algorithm, honest, loses {min(ratios):.1f} to {max(ratios):.1f} times ours."
                )
        sentences.append(
            "The published figures come from code that is not epsilon-LDP: only the people of a bin add its noise."
        )
        return " ".join(sentences)

    def sentence(self, rows: Rows) -> str:
        """Say how much more the paper's algorithm loses."""
        ours, honest = (_regrets(rows.where(policy=policy, n_aux=0)) for policy in (OURS, HONEST))
        ratios = [honest[cell] / ours[cell] for cell in honest]
        return (
            f"With honest noise the paper's algorithm loses {min(ratios):.1f} to {max(ratios):.1f} times as much as "
            "ours; what the paper published leaks everybody's bin."
        )

    def compared(self, rows: Rows) -> list[Compared]:
        """Set regrets beside each other, a line for each cell."""
        cells = sorted(rows.where(policy=OURS).by("epsilon", "n", "n_aux"))
        found = []
        for epsilon, n, n_aux in cells:
            own = rows.where(epsilon=epsilon, n=n, n_aux=n_aux)
            promise = f"epsilon {epsilon:g}" if epsilon < UNPRIVATE else "no privacy"
            what = f"{promise}, {n:,} people" + (f" after {n_aux:,}" if n_aux else "")
            found.append(Compared(what, *(told(own.where(policy=policy)) for policy in (PAPER, HONEST, OURS))))
        return found


def _regrets(rows: Rows) -> dict[tuple[float, int], float]:
    """Return mean regret by epsilon and people, where the paper is private."""
    return {cell: some.mean()[0] for cell, some in rows.by("epsilon", "n").items() if cell[0] < UNPRIVATE}


FIGURE_7: Final = RegretByPeople(PEAKS, (10_000, 20_000, 40_000, 60_000, 80_000, 120_000, 160_000)).reproduction(
    "paper-1-figure-7", "Paper 1, Figure 7: regret against people", 30
)
SUPPLEMENT: Final = RegretByPeople(QUADRANTS, (10_000, 40_000, 160_000)).reproduction(
    "paper-1-supplement", "Paper 1, supplement: regret against people, two arms that change places", 15
)
