"""Paper 5, Figure 2 and Table 1: regret and traffic of distributed phased elimination."""

from collections.abc import Iterator
from typing import Final

from matplotlib.figure import Figure

from privateer_lab.phased import figures
from privateer_lab.plots import COLOURS, panels
from privateer_lab.reproductions.base import Effort, Row

_QUICK: Final = (1.0, 10.0)
_COLOURS: Final = dict(zip(("none", "central", "shuffle", "local"), COLOURS, strict=False))


class Figure2:
    """Section 7's instance: (a) regret by epsilon, (b) in time, (c) growing against fixed samples of people."""

    name = "paper-5-figure-2"
    title = "Paper 5, Figure 2: distributed phased elimination"

    def rows(self, effort: Effort) -> Iterator[Row]:
        """As `Reproduction.rows`."""
        epsilons = _QUICK if effort.quick else figures.EPSILONS
        for panel, found in (
            ("a", figures.regrets(effort.seeds, 0.25, epsilons, effort.jobs)),
            ("b", figures.curves(effort.seeds, jobs=effort.jobs)),
            ("c", figures.fixed_clients(effort.seeds, effort.jobs)),
        ):
            for row in found:
                yield {"panel": panel, **row}

    def draw(self, rows: list[Row]) -> Figure:
        """As `Reproduction.draw`."""
        figure, axes = panels(3, self.title, height=3.8)
        for model, calibration in figures.VARIANTS:
            style = {"color": _COLOURS[model], "linestyle": "-" if calibration == "tight" else ":"}
            chosen = [row for row in rows if (row.get("model"), row.get("calibration")) == (model, calibration)]
            at, lost = _ends(chosen, _epsilons(rows))
            axes[0].plot(at, lost, label=f"{model}, {calibration}", marker=".", **style)
            axes[1].plot(*_path([row for row in chosen if row["panel"] == "b"]), **style)
        names = dict.fromkeys(row["algorithm"] for row in rows if row["panel"] == "c")
        for colour, name in zip(COLOURS, names, strict=False):
            axes[2].plot(*_path([row for row in rows if row.get("algorithm") == name]), color=colour, label=name)
        axes[0].set_yscale("log")
        axes[0].set_ylim(bottom=axes[0].get_ylim()[0] / 8)  # room for the legend
        axes[0].set_xlabel("epsilon (delta .25)")
        axes[0].set_ylabel("regret")
        for axis in axes[1:]:
            axis.set_xscale("log")
            axis.set_xlabel("rounds")
            axis.set_ylabel("regret a round")
        axes[0].legend(fontsize=6, loc="lower left")
        axes[2].legend(fontsize=6)
        return figure

    def verdict(self, rows: list[Row]) -> str:
        """As `Reproduction.verdict`."""
        return _verdict([row for row in rows if row["panel"] == "a"])


class Table1:
    """What a run costs and sends at epsilon 10, at the paper's delta and at one that protects."""

    name = "paper-5-table-1"
    title = "Paper 5, Table 1: regret, messages and bits at epsilon 10"

    def rows(self, effort: Effort) -> Iterator[Row]:
        """As `Reproduction.rows`."""
        yield from figures.table_1(effort.seeds, effort.jobs)

    def draw(self, rows: list[Row]) -> Figure:
        """As `Reproduction.draw`."""
        figure, axes = panels(2, self.title, height=4.0)
        names = [f"{row['model']}, {row['calibration']}, delta {row['delta'] or 0:g}" for row in rows]
        colours = [_COLOURS[row["model"]] for row in rows]
        for axis, what in zip(axes, ("regret_mean", "bits_mean"), strict=True):
            axis.barh(range(len(rows)), [row[what] for row in rows], color=colours)
            axis.set_yticks(range(len(rows)), names if what == "regret_mean" else [], fontsize=6)
            axis.set_title(what.replace("_mean", ""), fontsize=9)
        axes[1].set_xscale("log")
        return figure

    def verdict(self, rows: list[Row]) -> str:
        """As `Reproduction.verdict`."""
        deltas = sorted({row["delta"] for row in rows if row["model"] != "none"})
        some = ([row for row in rows if row["delta"] == delta] for delta in deltas)
        return " ".join(f"At delta {delta:g}: {_verdict(chosen)}" for delta, chosen in zip(deltas, some, strict=True))


def _ends(chosen: list[Row], epsilons: list[float]) -> tuple[list[float], list[float]]:
    """Final regrets of one model by epsilon; without a promise the same at all."""
    ends = [row for row in chosen if row["panel"] == "a"]
    lost = [row["regret_mean"] for row in ends]
    if ends and ends[0]["model"] == "none":
        return epsilons, lost * len(epsilons)
    return [row["epsilon"] for row in ends], lost


def _path(chosen: list[Row]) -> tuple[list[int], list[float]]:
    return [row["time"] for row in chosen], [row["per_round_regret"] for row in chosen]


def _epsilons(rows: list[Row]) -> list[float]:
    """Those that were promised."""
    return sorted({row["epsilon"] for row in rows if row["panel"] == "a" and row["model"] != "none"})


def _verdict(rows: list[Row]) -> str:
    return " ".join(
        f"{found['calibration']} at epsilon {found['epsilon']:g}: shuffle loses "
        f"{found['shuffle_over_central']:.2f} times central, {found['shuffle_over_uniform']:.2f} of a uniform choice, "
        f"local {found['local_over_shuffle']:.1f} times shuffle; "
        f"{'the claims hold' if found['private'] else 'a claim is false'}."
        for found in figures.verdicts(rows)
    )
