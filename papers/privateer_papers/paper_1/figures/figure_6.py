"""Paper 1, Figure 6: without, with good and with weak auxiliary data, on the whole and at one point."""

from collections.abc import Iterator
from typing import Final, cast

import numpy as np
from matplotlib.figure import Figure

from privateer_core.algorithms.partition import PartitionPolicy
from privateer_lab.pages.plots import COLOURS, from_zero, panels
from privateer_lab.simulation.simulate import simulate_once
from privateer_papers.paper_1.setting import instance, source
from privateer_papers.reproduction import Effort, Reproduction, Row, Rows, lines
from privateer_server.rounds.loop import Step

_POINT: Final = np.array([[1 / 3, 1 / 3]])
_PEOPLE: Final = 1000
_SETTINGS: Final = {
    "no auxiliary data": [],
    "500 people at epsilon 8": [source("good", 500, 8.0)],
    "500 people at epsilon .5, shifted by gamma 5": [source("weak", 500, 0.5, 5.0)],
}


def _rows(effort: Effort) -> Iterator[Row]:
    """Give regret a person so far, and each arm's probability at the point, round by round, at epsilon 1."""
    for setting, sources in _SETTINGS.items():
        spec = instance(_PEOPLE, 1.0, sources)
        for seed in range(effort.seeds):
            steps: list[Step] = []
            path = simulate_once(spec, seed, watch=steps.append).path
            for (people, regret, *_), step in zip(path, steps[-len(path) :], strict=True):
                policy = cast(PartitionPolicy, step.policy)
                shares = policy.shares[policy.locate(_POINT)[0]]
                arms = {f"arm_{place}": float(share) for place, share in enumerate(shares)}
                yield {"setting": setting, "seed": seed, "people": people, "regret": regret / people, **arms}


def _draw(title: str, rows: Rows) -> Figure:
    """Draw means over seeds of what each round's policy does; the paper shows one trial."""
    figure, axes = panels(4, title)
    lines(axes[0], rows, "people", [({"setting": setting}, setting) for setting in _SETTINGS])
    axes[0].set_title("mean regret so far", fontsize=9)
    axes[0].legend(fontsize=6)
    for axis, setting in zip(axes[1:], _SETTINGS, strict=True):
        curves = [rows.where(setting=setting).curve("people", f"arm_{place}") for place in range(3)]
        shares = [shares for _, (shares, _) in curves]
        axis.stackplot(curves[0][0], *shares, colors=COLOURS[:3], labels=["arm 1 (best)", "arm 2", "arm 3"])
        axis.set_title(f"arms at (1/3, 1/3):\n{setting}", fontsize=7)
    axes[1].legend(fontsize=6, frameon=True, framealpha=0.9)
    from_zero(axes, "people")
    return figure


def _verdict(rows: Rows) -> str:
    sentences = []
    for setting in _SETTINGS:
        last = rows.where(setting=setting, people=rows.where(setting=setting).values("people")[-1])
        sentences.append(
            f"{setting}: regret {last.mean()[0]:.3f} a person, and in the end {last.mean('arm_0')[0]:.0%} for the best "
            "arm at (1/3, 1/3)"
        )
    return "; ".join(sentences) + "."


FIGURE_6: Final = Reproduction("paper-1-figure-6", "Paper 1, Figure 6: a jump start", _rows, _draw, _verdict)
