"""Paper 1, Figure 6: without, with good and with weak auxiliary data, on the whole and at one point."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from matplotlib.figure import Figure

from privateer.algorithms.partition import PartitionPolicy
from privateer_lab.plots import COLOURS, panels
from privateer_lab.reproductions.base import Effort, Instance, Row, source
from privateer_lab.simulation import simulate_once

_POINT: Final = np.array([[1 / 3, 1 / 3]])
_PEOPLE: Final = 1000
_SETTINGS: Final = {
    "no auxiliary data": [],
    "500 people at epsilon 8": [source("good", 500, 8.0)],
    "500 people at epsilon .5, shifted by gamma 5": [source("weak", 500, 0.5, 5.0)],
}


class Figure6:
    """At epsilon 1; the paper shows one trial, here are means over seeds of what each round's policy does."""

    name = "paper-1-figure-6"
    title = "Paper 1, Figure 6: a jump start"

    def rows(self, effort: Effort) -> Iterator[Row]:
        """As `Reproduction.rows`: regret a person so far, and the shares of arms at (1/3, 1/3), round by round."""
        for setting, sources in _SETTINGS.items():
            spec = Instance(_PEOPLE, 1.0, sources=sources).spec
            for seed in range(effort.seeds):
                policies: list[PartitionPolicy] = []
                run = simulate_once(spec, seed, watch=policies.append)
                shares = [_shares(policy) for policy in policies[-len(run.path) :]]
                for (people, regret, *_), share in zip(run.path, shares, strict=True):
                    arms = {f"arm_{place}": value for place, value in enumerate(share)}
                    yield {"setting": setting, "seed": seed, "people": people, "regret": regret / people, **arms}

    def draw(self, rows: list[Row]) -> Figure:
        """As `Reproduction.draw`."""
        figure, axes = panels(4, self.title)
        for colour, setting in zip(COLOURS, _SETTINGS, strict=False):
            at, regret = _means(rows, setting, "regret")
            axes[0].plot(at, regret, color=colour, label=setting)
        axes[0].set_title("mean regret so far", fontsize=9)
        axes[0].set_ylim(bottom=0)
        axes[0].legend(fontsize=6)
        for axis, setting in zip(axes[1:], _SETTINGS, strict=True):
            arms = [_means(rows, setting, f"arm_{place}") for place in range(3)]
            axis.stackplot(
                arms[0][0], *(share for _, share in arms), colors=COLOURS[:3], labels=["arm 1 (best)", "arm 2", "arm 3"]
            )
            axis.set_title(f"arms at (1/3, 1/3):\n{setting}", fontsize=7)
        axes[1].legend(fontsize=6, frameon=True, framealpha=0.9)
        for axis in axes:
            axis.set_xlabel("people")
        return figure

    def verdict(self, rows: list[Row]) -> str:
        """As `Reproduction.verdict`."""
        ends = {setting: _means(rows, setting, "regret")[1][-1] for setting in _SETTINGS}
        best = {setting: _means(rows, setting, "arm_0")[1][-1] for setting in _SETTINGS}
        told = [
            f"{setting}: regret {ends[setting]:.3f} a person, best arm at (1/3, 1/3) {best[setting]:.0%} at last"
            for setting in _SETTINGS
        ]
        return "; ".join(told) + "."


def _shares(policy: PartitionPolicy) -> list[float]:
    """Chance of each arm at the point."""
    return [float(share) for share in policy.shares[policy.locate(_POINT)[0]]]


def _means(rows: list[Row], setting: str, figure: str) -> tuple[list[int], list[float]]:
    chosen = [row for row in rows if row["setting"] == setting]
    at = sorted({row["people"] for row in chosen})
    return at, [float(np.mean([row[figure] for row in chosen if row["people"] == people])) for people in at]
