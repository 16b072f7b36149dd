"""Paper 1, Figure 7: regret against people at several epsilons, without and with auxiliary data."""

from collections.abc import Iterator
from typing import Any, Final

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

_EPSILONS: Final = (1.0, 2.0, 4.0, 8.0, 1024.0)
_PEOPLE: Final = (10_000, 20_000, 40_000, 60_000, 80_000, 120_000, 160_000)
HONEST: Final = "ldpmab"
_AUX: Final = (5000, 8.0)


class Figure7:
    """Ours, the paper's algorithm made honest, and the published figures, whose code leaks every person's bin."""

    name = "paper-1-figure-7"
    title = "Paper 1, Figure 7: regret against people"

    def rows(self, effort: Effort) -> Iterator[Row]:
        """As `Reproduction.rows`."""
        people = (2000, 10_000) if effort.quick else _PEOPLE
        epsilons = (1.0, 8.0) if effort.quick else _EPSILONS
        cases = []
        for epsilon in epsilons:
            for n in people:
                facts = {"epsilon": epsilon, "n": n}
                honest = (HONEST,) if epsilon < 1024 else ("tree",)
                cases.append(Case(facts | {"n_aux": 0}, Instance(n, epsilon).spec, honest))
                if epsilon < 1024:
                    helped = Instance(n, epsilon, sources=[source("aux", *_AUX)])
                    cases.append(Case(facts | {"n_aux": 5000}, helped.spec))
        paper = [row for row in _published(effort.published) if row["n"] in people and row["epsilon"] in epsilons]
        yield from run(cases, effort)
        yield from paper

    def draw(self, rows: list[Row]) -> Figure:
        """As `Reproduction.draw`."""
        figure, axes = panels(3, self.title, height=4.2)
        for axis, n_aux, title in zip(
            axes, (0, 5000), ("(a) no auxiliary data", "(b) 5,000 people at epsilon 8 first"), strict=False
        ):
            for policy, style in ((OURS, "-"), (HONEST, "--"), (PAPER, ":")):
                _lines(axis, rows, style, policy=policy, n_aux=n_aux)
            axis.set_title(title, fontsize=9)
        for n_aux, style in ((0, "-"), (5000, "--")):
            _lines(axes[2], rows, style, policy=OURS, n_aux=n_aux)
        axes[2].set_title("ours alone (solid: a, dashed: b)", fontsize=9)
        for axis in axes:
            axis.set_ylim(bottom=0)
            axis.set_xlabel("people")
            in_thousands(axis)
        axes[0].set_ylabel("regret")
        axes[0].legend(
            fontsize=7, title="solid: ours; dashed: the paper's, honest;\ndotted: published (leaks)", title_fontsize=7
        )
        return figure

    def verdict(self, rows: list[Row]) -> str:
        """As `Reproduction.verdict`."""
        told = []
        for n_aux, words in ((0, "Without auxiliary data"), (5000, "With it")):
            below, cells, honest = 0, 0, []
            for epsilon in values(rows, "epsilon"):
                for n in values(rows, "n"):
                    facts = {"epsilon": epsilon, "n": n, "n_aux": n_aux}
                    ours, paper = mean(rows, policy=OURS, **facts)[0], mean(rows, policy=PAPER, **facts)[0]
                    if known(ours, paper) and epsilon < 1024:
                        cells, below = cells + 1, below + (ours <= paper)
                    other = mean(rows, policy=HONEST, **facts)[0]
                    if known(ours, other):
                        honest.append(other / ours)
            if cells:
                told.append(f"{words} our regret is at or below the published in {below} of {cells} cells.")
            if honest:
                told.append(
                    f"{words} the paper's algorithm, honest, loses {min(honest):.1f} to {max(honest):.1f} times ours."
                )
        told.append(
            "The published figures come from code that is not epsilon-LDP: a bin's noise is added for its people alone."
        )
        return " ".join(told)


def _lines(axis: Any, rows: list[Row], style: str, **facts: Any) -> None:
    """Regret against people with its interval, a line for each epsilon."""
    for colour, epsilon in zip(COLOURS, values(rows, "epsilon"), strict=False):
        people = values(rows, "n", epsilon=epsilon, **facts)
        if not people:
            continue
        middle, spread = zip(*(mean(rows, n=n, epsilon=epsilon, **facts) for n in people), strict=True)
        label = f"epsilon {epsilon:g}" if epsilon < 1024 else "no privacy"
        axis.plot(people, middle, style, color=colour, label=label if style == "-" else None, linewidth=1.3)
        low, high = ([m + s * d for m, d in zip(middle, spread, strict=True)] for s in (-1, 1))
        axis.fill_between(people, low, high, color=colour, alpha=0.12, linewidth=0)


def _published(path: str) -> Iterator[Row]:
    # The logs hold several runs without auxiliary data; these are the ones of all sizes, and the lower regrets.
    yield from published(path, "sample_size_target", n_aux=0)
    for row in published(path, "sample_size_target", gamma=0.0, kappa=1.0, n_aux=5000, M=1):
        if row["eps_aux"] == "8":
            yield row
