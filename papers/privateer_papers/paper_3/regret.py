"""Paper 3: regret of private sparse linear bandits against people, ours and others', with privacy and without."""

import math
from collections.abc import Iterator
from itertools import product
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from privateer_core.algorithms import parse_spec
from privateer_core.spec.spec import Spec
from privateer_lab.pages.plots import COLOURS, panels
from privateer_lab.simulation.parallel import each
from privateer_lab.simulation.simulate import simulate_once
from privateer_papers.paper_3.world import FLIPHAT, PUBLISHED, UNPROTECTED, played, points
from privateer_papers.reproduction import OURS, Effort, Reproduction, Row, Rows

_PEOPLE: Final = 1 << 17
_FEATURES: Final = (100, 1000)
_EPSILON: Final = 1.0
_COEFFICIENTS: Final = (0.5, -0.5, 0.5)
_BARE: Final = "privateer, no privacy"
_RATE: Final = "Theorem 2's rate with constant 1"
_OWN: Final[dict[str, Row]] = {OURS: {"model": "central", "epsilon": _EPSILON, "delta": 1e-6}, _BARE: {"model": "none"}}
_PEERS: Final = "peers"
_STYLES: Final = {_RATE: ":", PUBLISHED: ".--", FLIPHAT: ".--"} | dict.fromkeys(UNPROTECTED, "x--")


_A_TIME: Final = 0.58
"""What a uniform choice among five arms loses, with coefficients of a half and numbers uniform in [-1, 1]."""


def problem(features: int, people: int, privacy: Row) -> Spec:
    """Return the problem: five arms of so many features, three of which matter."""
    return parse_spec(
        {
            "experiment": {
                "name": "paper-3-regret",
                "arms": ["a", "b", "c", "d", "e"],
                "horizon": people,
                "round_size": 1000,
                "round_growth": 1.0,
            },
            "context": {"features": features},
            "reward": {"low": -2.0, "high": 2.0},
            "privacy": privacy,
            "algorithm": {"name": "sparse", "sparsity": len(_COEFFICIENTS)},
            "population": {"name": "needles", "coefficients": list(_COEFFICIENTS)},
        }
    )


def _rows(effort: Effort) -> Iterator[Row]:
    people, sizes = (1 << 12, (20,)) if effort.quick else (_PEOPLE, _FEATURES)
    for features, end in product(sizes, points(people)):
        yield {"policy": _RATE, "d": features, "people": end, "seed": 0, "regret": rate(end)}
    tasks = list(product((*_OWN, _PEERS), sizes, (people,), range(effort.seeds)))
    for rows in each(curves, tasks, effort.jobs, effort.backend):
        yield from rows


def curves(which: str, features: int, people: int, seed: int) -> list[Row]:
    """Return regret over a uniform choice's at the `points` of one run: of ours, or of all others."""
    if which == _PEERS:
        return played(problem(features, people, _OWN[OURS]), seed)
    run = simulate_once(problem(features, people, _OWN[which]), seed)
    times, lost, uniform = np.array([(0, 0.0, 0.0), *((at, own, other) for at, own, _, other in run.path)]).T
    facts: Row = {"policy": which, "d": features, "seed": seed}
    # Within a round of ours the same policy decides for all, so that regret grows with its people.
    return [
        facts | {"people": end, "uniform": other, "regret": float(np.interp(end, times, lost)) / other}
        for end in points(people)
        if (other := float(np.interp(end, times, uniform)))
    ]


def rate(people: int) -> float:
    """Return s^1.5 (ln T)^3 / epsilon over the regret of a uniform choice, which loses about half a reward each time.

    d is not in it.
    """
    return math.sqrt(len(_COEFFICIENTS)) ** 3 * math.log(people) ** 3 / _EPSILON / (_A_TIME * people)


def _draw(title: str, rows: Rows) -> Figure:
    sizes = rows.values("d")
    figure, axes = panels(len(sizes), title, height=4.4)
    for axis, size in zip(axes, sizes, strict=False):
        _panel(axis, rows.where(d=size), size)
    axes[0].legend(fontsize=6)
    return figure


def _panel(axis: Any, rows: Rows, size: int) -> None:
    for colour, (policy,) in enumerate(rows.by("policy")):
        at, (middle, half) = rows.where(policy=policy).curve("people")
        own = COLOURS[colour % len(COLOURS)]
        axis.plot(at, middle, _STYLES.get(policy, ".-"), color=own, label=policy)
        axis.fill_between(at, middle - half, middle + half, color=own, alpha=0.1, linewidth=0)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_ylim(1e-4, 3)
    axis.set_title(f"d = {size:,}", fontsize=9)
    axis.set_xlabel("people")
    axis.set_ylabel("regret over that of a uniform choice")


def verdict(rows: Rows) -> str:
    """Say where each policy stands at every number of people, and what that shows of the paper's claims."""
    said = []
    for size in rows.values("d"):
        found = rows.where(d=size)
        ends = found.values("people")
        said.append(f"Regret over uniform at d = {size:,}, epsilon {_EPSILON:g}, {', '.join(f'{n:,}' for n in ends)}:")
        for (policy,) in found.by("policy"):
            figures = ", ".join(f"{one:.3f}" for one in found.where(policy=policy).curve("people")[1][0])
            said.append(f"  {policy}: {figures}.")
        said.append(_compared(found, ends))
    return "\n".join(said)


def _compared(rows: Rows, ends: list[int]) -> str:
    found = {name: rows.where(policy=name).curve("people")[1] for name in (OURS, FLIPHAT, PUBLISHED)}
    below = sum(own < other for own, other in zip(found[OURS][0], found[FLIPHAT][0], strict=True))
    middle, half = found[PUBLISHED][:, -1]
    better = "better than" if middle + half < 1 else "no better than"
    ratio = found[OURS][0, -1] / rows.where(policy=_BARE, people=ends[-1]).mean()[0]
    return (
        f"  Ours is below FLIPHAT at {below} of {len(ends)} points; published PrivateLASSO is {better} uniform "
        f"({middle:.2f} ± {half:.2f}); privacy multiplies our regret by {ratio:.1f}."
    )


LASSO: Final = Reproduction("paper-3-regret", "Paper 3: private sparse linear bandits", _rows, _draw, verdict)
