"""Paper 1, Figure 6: regret without, with good and with weak auxiliary data, over all contexts and at a point."""

from collections.abc import Iterator
from typing import Any, Final, cast

import numpy as np
from matplotlib.figure import Figure

from privateer_core.algorithms.partition import PartitionPolicy
from privateer_lab.environments import environment_for
from privateer_lab.render.pictures import COLOURS, create_panels
from privateer_lab.simulation.simulate import simulate_once
from privateer_papers.paper_1.setting import build_instance, build_source
from privateer_papers.reproduction import Effort, Reproduction, Row, Rows, TableLine, mean_text
from privateer_server.rounds.schedule import Step

_POINT: Final = np.array([[1 / 3, 1 / 3]])
_HORIZON: Final = 1000
_ALONE_LABEL: Final = "no auxiliary data"
_GOOD_LABEL: Final = "500 people at epsilon 8"
_SETTINGS: Final = {
    _ALONE_LABEL: [],
    _GOOD_LABEL: [build_source("good", 500, 8.0)],
    "500 people at epsilon .5, shifted by gamma 5": [build_source("weak", 500, 0.5, 5.0)],
}
_ARM_LABELS: Final = ("arm 1 (best)", "arm 2", "arm 3")


def _rows(effort: Effort) -> Iterator[Row]:
    """Yield, for each round at epsilon 1, mean regret so far over all contexts and at the point, and the arms' shares.

    The paper shows each arm's share so far; the share of the next round shows eliminations sooner.
    """
    for setting, sources in _SETTINGS.items():
        spec = build_instance(_HORIZON, 1.0, sources)
        for seed in range(effort.seeds):
            environment: Any = environment_for(spec, seed)
            (means,) = environment.means(_POINT)
            steps: list[Step] = []
            path = simulate_once(spec, seed, watch=steps.append).path
            n_before, local = 0, 0.0
            for (people, regret, *_), step in zip(path, steps[-len(path) :], strict=True):
                policy = cast(PartitionPolicy, step.policy)
                shares = policy.shares[policy.locate(_POINT)[0]]
                local += (people - n_before) * float(shares @ (means.max() - means))
                n_before = people
                arms = {f"arm_{index}": float(share) for index, share in enumerate(shares)}
                facts = {"setting": setting, "seed": seed, "people": people, "left": int((shares > 0).sum())}
                yield {**facts, "regret": regret / people, "local": local / people, **arms}


def find_elimination_times(rows: Rows) -> list[int]:
    """Return the median numbers of participants after which two arms and one arm are left at the point.

    An elimination counts if more than half of the seeds have it.
    """
    medians = []
    for max_arms in (2, 1):
        elimination_times = [
            min((row["people"] for row in seed_rows if row["left"] <= max_arms), default=None)
            for seed_rows in rows.group_by("seed").values()
        ]
        observed = [end for end in elimination_times if end is not None]
        if 2 * len(observed) > len(elimination_times):
            medians.append(int(np.median(observed)))
    return medians


def _draw(title: str, rows: Rows) -> Figure:
    """Draw means over seeds of regret and shares by round; the paper shows one trial."""
    figure, axes = create_panels(3 * len(_SETTINGS), title, height=2.6)
    for column, (setting, colour) in enumerate(zip(_SETTINGS, COLOURS, strict=False)):
        subset, column_axes = rows.where(setting=setting), axes[column :: len(_SETTINGS)]
        for axis, quantity in zip(column_axes, ("regret", "local"), strict=False):
            x, (means, widths) = subset.curve("people", quantity)
            axis.plot(x, means, color=colour)
            axis.fill_between(x, np.maximum(means - widths, 0), means + widths, color=colour, alpha=0.12, linewidth=0)
            axis.set_ylim(0, 0.6)
        curves = [subset.curve("people", f"arm_{index}") for index in range(len(_ARM_LABELS))]
        column_axes[2].stackplot(
            curves[0][0], *(shares for _, (shares, _) in curves), colors=COLOURS[:3], labels=_ARM_LABELS
        )
        for axis, people in ((axis, people) for axis in column_axes for people in find_elimination_times(subset)):
            axis.axvline(people, color="#000000", linestyle="--", linewidth=0.8)
        column_axes[0].set_title(setting, fontsize=8)
        column_axes[2].set_xlabel("people")
    for axis, label in zip(
        axes[:: len(_SETTINGS)], ("mean regret so far", "at (1/3, 1/3)", "arms at (1/3, 1/3)"), strict=True
    ):
        axis.set_ylabel(label)
    axes[-len(_SETTINGS)].legend(fontsize=6, frameon=True, framealpha=0.9)
    return figure


def _last_rows(rows: Rows, setting: str) -> Rows:
    subset = rows.where(setting=setting)
    return subset.where(people=subset.values("people")[-1])


def _sentence(rows: Rows) -> str:
    """Say by how much good people before them lower our regret."""
    without, with_good = (_last_rows(rows, setting).mean()[0] for setting in (_ALONE_LABEL, _GOOD_LABEL))
    return (
        f"500 good people before them lower our regret of {_HORIZON:,} from {without:.3f} to {with_good:.3f} a person, "
        "as the paper draws it."
        if with_good < without
        else f"500 good people before them do not lower our regret of {_HORIZON:,}, {without:.3f} a person "
        f"({with_good:.3f})."
    )


def _compare(rows: Rows) -> list[TableLine]:
    """List mean regret, that at (1/3, 1/3), and what becomes of the arms there, in each setting."""
    lines = []
    for setting in _SETTINGS:
        final, times = _last_rows(rows, setting), find_elimination_times(rows.where(setting=setting))
        figures = {
            "regret a person": mean_text(final, "regret", ".3f"),
            "at (1/3, 1/3)": mean_text(final, "local", ".3f"),
            "share of the best arm there in the end": f"{final.mean('arm_0')[0]:.0%}",
            "people until arms are dropped there": ", ".join(f"{people:,}" for people in times) or "never",
        }
        lines += [TableLine(f"{label}: {setting}", "a picture", "", figure) for label, figure in figures.items()]
    return lines


FIGURE_6: Final = Reproduction(
    "paper-1-figure-6",
    "Paper 1, Figure 6: what auxiliary data change",
    *(_rows, _draw, _sentence, _compare),
    minutes=1,
)
