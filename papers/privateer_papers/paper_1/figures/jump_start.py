"""Paper 1, Figure 6: a start without, with good and with weak auxiliary data, on the whole and at one point."""

from collections.abc import Iterator
from typing import Any, Final, cast

import numpy as np
from matplotlib.figure import Figure

from privateer_core.algorithms.partition import PartitionPolicy
from privateer_lab.environments import environment_for
from privateer_lab.pages.plots import COLOURS, panels
from privateer_lab.simulation.simulate import simulate_once
from privateer_papers.paper_1.setting import instance, source
from privateer_papers.reproduction import Compared, Effort, Reproduction, Row, Rows, told
from privateer_server.rounds.loop import Step

_POINT: Final = np.array([[1 / 3, 1 / 3]])
_PEOPLE: Final = 1000
_ALONE: Final = "no auxiliary data"
_GOOD: Final = "500 people at epsilon 8"
_SETTINGS: Final = {
    _ALONE: [],
    _GOOD: [source("good", 500, 8.0)],
    "500 people at epsilon .5, shifted by gamma 5": [source("weak", 500, 0.5, 5.0)],
}
_ARMS: Final = ("arm 1 (best)", "arm 2", "arm 3")


def _rows(effort: Effort) -> Iterator[Row]:
    """Give, round by round at epsilon 1, mean regret so far on the whole and at the point, and each arm's share there.

    The paper shows the share of people so far who were given an arm; that of the next round shows eliminations sooner.
    """
    for setting, sources in _SETTINGS.items():
        spec = instance(_PEOPLE, 1.0, sources)
        for seed in range(effort.seeds):
            environment: Any = environment_for(spec, seed)
            (means,) = environment.means(_POINT)
            steps: list[Step] = []
            path = simulate_once(spec, seed, watch=steps.append).path
            before, lost = 0, 0.0
            for (people, regret, *_), step in zip(path, steps[-len(path) :], strict=True):
                policy = cast(PartitionPolicy, step.policy)
                shares = policy.shares[policy.locate(_POINT)[0]]
                lost += (people - before) * float(shares @ (means.max() - means))
                before = people
                arms = {f"arm_{place}": float(share) for place, share in enumerate(shares)}
                facts = {"setting": setting, "seed": seed, "people": people, "left": int((shares > 0).sum())}
                yield {**facts, "regret": regret / people, "local": lost / people, **arms}


def eliminations(rows: Rows) -> list[int]:
    """Return the numbers of people after which a second and the last suboptimal arm is dropped at the point.

    Medians over seeds, of those that more than half of them drop.
    """
    found = []
    for left in (2, 1):
        ends = [
            min((row["people"] for row in one if row["left"] <= left), default=None) for one in rows.by("seed").values()
        ]
        dropped = [end for end in ends if end is not None]
        if 2 * len(dropped) > len(ends):
            found.append(int(np.median(dropped)))
    return found


def _draw(title: str, rows: Rows) -> Figure:
    """Draw means over seeds of what each round's policy does; the paper shows one trial."""
    figure, axes = panels(3 * len(_SETTINGS), title, height=2.6)
    for column, (setting, colour) in enumerate(zip(_SETTINGS, COLOURS, strict=False)):
        found, above = rows.where(setting=setting), axes[column :: len(_SETTINGS)]
        for axis, figure_of in zip(above, ("regret", "local"), strict=False):
            at, (middle, half) = found.curve("people", figure_of)
            axis.plot(at, middle, color=colour)
            axis.fill_between(at, np.maximum(middle - half, 0), middle + half, color=colour, alpha=0.12, linewidth=0)
            axis.set_ylim(0, 0.6)
        curves = [found.curve("people", f"arm_{place}") for place in range(len(_ARMS))]
        above[2].stackplot(curves[0][0], *(shares for _, (shares, _) in curves), colors=COLOURS[:3], labels=_ARMS)
        for axis, people in ((axis, people) for axis in above for people in eliminations(found)):
            axis.axvline(people, color="#000000", linestyle="--", linewidth=0.8)
        above[0].set_title(setting, fontsize=8)
        above[2].set_xlabel("people")
    for axis, words in zip(
        axes[:: len(_SETTINGS)], ("mean regret so far", "at (1/3, 1/3)", "arms at (1/3, 1/3)"), strict=True
    ):
        axis.set_ylabel(words)
    axes[-len(_SETTINGS)].legend(fontsize=6, frameon=True, framealpha=0.9)
    return figure


def _last(rows: Rows, setting: str) -> Rows:
    found = rows.where(setting=setting)
    return found.where(people=found.values("people")[-1])


def _verdict(rows: Rows) -> str:
    sentences = []
    for setting in _SETTINGS:
        last, when = _last(rows, setting), eliminations(rows.where(setting=setting))
        dropped = ", ".join(f"{people:,}" for people in when) or "never"
        sentences.append(
            f"{setting}: regret {last.mean()[0]:.3f} a person, {last.mean('local')[0]:.3f} at (1/3, 1/3), where the "
            f"best arm has {last.mean('arm_0')[0]:.0%} in the end; arms dropped there after {dropped} people"
        )
    return "; ".join(sentences) + "."


def _sentence(rows: Rows) -> str:
    alone, good = (_last(rows, setting).mean()[0] for setting in (_ALONE, _GOOD))
    return (
        f"500 good people before them lower our regret of {_PEOPLE:,} from {alone:.3f} to {good:.3f} a person, as the "
        "paper draws it."
        if good < alone
        else f"500 good people before them do not lower our regret of {_PEOPLE:,}, {alone:.3f} a person ({good:.3f})."
    )


def _compared(rows: Rows) -> list[Compared]:
    return [
        Compared(f"{words}: {setting}", "a picture", "", told(_last(rows, setting), name, ".3f"))
        for setting in _SETTINGS
        for words, name in (("regret a person", "regret"), ("at (1/3, 1/3)", "local"))
    ]


FIGURE_6: Final = Reproduction(
    "paper-1-figure-6",
    "Paper 1, Figure 6: what auxiliary data change",
    _rows,
    _draw,
    _verdict,
    _sentence,
    _compared,
    minutes=1,
)
