"""Paper 1, Figure 7, and the same for the supplement's rewards: regret against people at several epsilons.

Without and with auxiliary data: ours, the paper's algorithm made honest, and the published figures, whose code leaks
every person's bin.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final

from matplotlib.figure import Figure

from privateer_lab.render.pictures import create_panels, format_axes_from_zero
from privateer_papers.paper_1 import setting
from privateer_papers.paper_1.baseline import Printed
from privateer_papers.reproduction import (
    OURS,
    BaselineCase,
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

_EPSILONS: Final = (1.0, 2.0, 4.0, 8.0, setting.NO_PRIVACY)
_N_SOURCE: Final = 5000


@dataclass(frozen=True)
class RegretByPeople:
    """A reproduction of regret on a problem against the number of participants."""

    problem: setting.SquareProblem
    people: tuple[int, ...]  # numbers of people

    def make_reproduction(self, name: str, title: str, minutes: int) -> Reproduction:
        """Build the reproduction."""
        functions = (self.rows, self.draw, self.sentence, self.compared)
        return Reproduction(name, title, *functions, minutes=minutes, reads=("published",), remarks=self.remarks)

    def rows(self, effort: Effort) -> Iterator[Row]:
        """Yield a row for each policy, promise, number of participants and seed."""
        people = (2000, 10_000) if effort.quick else self.people
        epsilons = (1.0, 8.0) if effort.quick else _EPSILONS
        problem = self.problem
        auxiliary = setting.build_source("aux", _N_SOURCE, 8.0, problem=problem)
        cases: list[ReproductionCase] = []
        for epsilon, n in product(epsilons, people):
            facts, is_private = {"epsilon": epsilon, "n": n}, epsilon < setting.NO_PRIVACY
            without_source = setting.build_instance(n, epsilon, problem=problem)
            cases.append(
                ReproductionCase({**facts, "n_aux": 0}, without_source, (setting.LDPMAB if is_private else "tree",))
            )
            if is_private:
                printed_facts = {**facts, "n_aux": 0, "policy": setting.PRINTED}
                cases.append(BaselineCase(printed_facts, without_source, baseline=Printed))
                with_source = setting.build_instance(n, epsilon, [auxiliary], problem=problem)
                cases.append(ReproductionCase({**facts, "n_aux": _N_SOURCE}, with_source))
        yield from run_cases(cases, effort)
        # The logs hold several runs without auxiliary data; these are the ones of all sizes, and the lower regrets.
        path, drawn_facts = effort.data.get("published", ""), {"n": people, "epsilon": epsilons}
        yield from setting.read_published(path, "sample_size_target", problem, n_aux=(0,), **drawn_facts)
        source_facts = {"n_aux": (_N_SOURCE,), "eps_aux": ("8",), "M": (1,), "gamma": (0.0,), "kappa": (1.0,)}
        yield from setting.read_published(path, "sample_size_target", problem, **source_facts, **drawn_facts)

    def draw(self, title: str, rows: Rows) -> Figure:
        """Draw the regret of ours, of the paper's algorithm made private, and as published."""
        figure, axes = create_panels(3, title, height=4.2)
        groups: list[tuple[Row, str]] = [
            ({"epsilon": epsilon}, f"epsilon {epsilon:g}" if epsilon < setting.NO_PRIVACY else "no privacy")
            for epsilon in rows.values("epsilon")
        ]
        for axis, n_aux, panel_title in (
            (axes[0], 0, "(a) no auxiliary data"),
            (axes[1], _N_SOURCE, "(b) 5,000 people at epsilon 8 first"),
        ):
            for policy, style in ((OURS, "-"), (setting.LDPMAB, "--"), (setting.PAPER, ":")):
                draw_lines(axis, rows.where(policy=policy, n_aux=n_aux), "n", groups, style, band=True)
            axis.set_title(panel_title, fontsize=9)
        for n_aux, style in ((0, "-"), (_N_SOURCE, "--")):
            draw_lines(axes[2], rows.where(policy=OURS, n_aux=n_aux), "n", groups, style, band=True)
        axes[2].set_title("ours alone (solid: a, dashed: b)", fontsize=9)
        format_axes_from_zero(axes, "people")
        axes[0].set_ylabel("regret")
        axes[0].legend(
            fontsize=7, title="solid: ours; dashed: the paper's, honest;\ndotted: published (leaks)", title_fontsize=7
        )
        return figure

    def remarks(self, rows: Rows) -> list[str]:
        """Say in how many cells ours is below the published, and what the algorithms as printed lose."""
        texts = []
        for n_aux, prefix in ((0, "Without auxiliary data"), (_N_SOURCE, "With it")):
            our, paper = (_mean_regrets(rows.where(policy=policy, n_aux=n_aux)) for policy in (OURS, setting.PAPER))
            is_below = [our[cell] <= regret for cell, regret in paper.items() if cell in our]
            if is_below:
                count = f"{sum(is_below)} of {len(is_below)}"
                texts.append(f"{prefix} our regret is at or below the published in {count} cells.")
        return [*texts, self._compare_printed(rows)]

    @staticmethod
    def _compare_printed(rows: Rows) -> str:
        """Say what the algorithms as printed lose beside the authors' code made private, and beside random arms."""
        printed, peer = (
            _mean_regrets(rows.where(policy=policy, n_aux=0)) for policy in (setting.PRINTED, setting.LDPMAB)
        )
        chance = {
            cell: subset.mean("uniform")[0] for cell, subset in rows.where(policy=OURS).group_by("epsilon", "n").items()
        }
        ratios, shares = ([regret / others[cell] for cell, regret in printed.items()] for others in (peer, chance))
        return (
            f"Algorithms 1 and 2 as printed lose {min(ratios):.2f} to {max(ratios):.2f} times as much as the authors' "
            f"code, both honest: {min(shares):.0%} to {max(shares):.0%} of what random arms lose."
        )

    def sentence(self, rows: Rows) -> str:
        """Return a sentence with the ratios of the private baseline's regret to ours."""
        our, peer = (_mean_regrets(rows.where(policy=policy, n_aux=0)) for policy in (OURS, setting.LDPMAB))
        ratios = [peer[cell] / our[cell] for cell in peer]
        return (
            f"With honest noise the paper's algorithm loses {min(ratios):.1f} to {max(ratios):.1f} times as much as "
            "ours; what the paper published leaks everybody's bin."
        )

    def compared(self, rows: Rows) -> list[TableLine]:
        """Return a line that compares regrets for each cell."""
        cells = sorted(rows.where(policy=OURS).group_by("epsilon", "n", "n_aux"))
        table = []
        for epsilon, n, n_aux in cells:
            subset = rows.where(epsilon=epsilon, n=n, n_aux=n_aux)
            promise = f"epsilon {epsilon:g}" if epsilon < setting.NO_PRIVACY else "no privacy"
            label = f"{promise}, {n:,} people" + (f" after {n_aux:,}" if n_aux else "")
            table.append(
                TableLine(
                    label, *(mean_text(subset.where(policy=policy)) for policy in (setting.PAPER, setting.LDPMAB, OURS))
                )
            )
            if printed_rows := subset.where(policy=setting.PRINTED):
                table.append(TableLine(f"{label}, Algorithms 1 and 2 as printed", "", mean_text(printed_rows)))
        return table


def _mean_regrets(rows: Rows) -> dict[tuple[float, int], float]:
    """Return mean regret by epsilon and number of participants, without the rows of no privacy."""
    return {
        cell: subset.mean()[0] for cell, subset in rows.group_by("epsilon", "n").items() if cell[0] < setting.NO_PRIVACY
    }


FIGURE_7: Final = RegretByPeople(
    setting.PEAKS, (10_000, 20_000, 40_000, 60_000, 80_000, 120_000, 160_000)
).make_reproduction("paper-1-figure-7", "Paper 1, Figure 7: regret against people", 30)
SUPPLEMENT: Final = RegretByPeople(setting.QUADRANTS, (10_000, 40_000, 160_000)).make_reproduction(
    "paper-1-supplement", "Paper 1, supplement: regret against people, two arms that change places", 15
)
