"""Paper 3, Theorems 2, 3 and 4: regret against people, epsilon and the size of coefficients, beside the bounds.

Theorem 2 (with a margin): s^1.5 (ln T)^3 / epsilon. Theorem 3 (without): s^1.5 sqrt(T) (ln T)^2 / epsilon. Theorem 4,
from below: ln T min{s ln d, s ln d / epsilon}, in which privacy has no price below epsilon 1. No single problem is
without a margin: what Theorem 3 bounds is the largest regret over sizes of the coefficients, at each number of people.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from privateer_lab.pages.plots import COLOURS, panels
from privateer_lab.simulation.parallel import each
from privateer_lab.simulation.simulate import simulate_once
from privateer_papers.growth import Slope, draw_growth, scale_growth, slope
from privateer_papers.paper_3.privatelasso import PrivateLasso
from privateer_papers.paper_3.regret import COEFFICIENTS, PUBLISHED, played, problem
from privateer_papers.reproduction import OURS, Compared, Effort, Reproduction, Row, Rows

_FEATURES: Final = 100
_SPARSITY: Final = len(COEFFICIENTS)
_DELTA: Final = 1e-6
_BARE: Final = "privateer, no privacy"
_FAILURE: Final = 0.05
_ROUNDS: Final = {"people": 1000, "epsilon": 2000, "worst": 1000}
"""People of a round: at epsilon 1/4 no coefficient can be found in fewer."""
_PANELS: Final = {"people": "people", "epsilon": "epsilon", "worst": "people"}
_WORDS: Final = {
    "people": "T, with a margin",
    "epsilon": "epsilon, with a margin",
    "worst": "T, at the worst size of the coefficients",
}


def theorem_2(people: float, epsilon: float) -> float:
    """Return the rate with a margin, with constant 1."""
    return float(_SPARSITY**1.5 * math.log(people) ** 3 / epsilon)


def theorem_3(people: float, epsilon: float) -> float:
    """Return the rate without a margin, with constant 1."""
    return float(_SPARSITY**1.5 * math.sqrt(people) * math.log(people) ** 2 / epsilon)


def theorem_4(people: float, epsilon: float) -> float:
    """Return the bound from below, of rewards whose variance is 1."""
    content = _SPARSITY * math.log(_FEATURES)
    return math.log(people) * min(content, content / epsilon)


_BOUNDS: Final = {"people": theorem_2, "epsilon": theorem_2, "worst": theorem_3}


@dataclass(frozen=True)
class Lemma4:
    """What Lemma 4 asks of the threshold lambda, for a design whose numbers are independent and uniform in [-1, 1].

    Second moments are a third of the identity: the compatibility phi^2 is 1/(3 s), and the least sparse eigenvalue 1/3.
    Symmetry and balance hold with constants 1. C_X and the sizes of supports are larger than the 1 and the s that are
    taken here, so that the paper's conditions are stricter.
    """

    most: float  # so small lambda has to be for the smallest coefficient to be seen
    least: float  # times 1 / epsilon: so large it has to be for noise not to be

    @classmethod
    def of(cls, smallest: float) -> "Lemma4":
        """Return the conditions for coefficients of which the smallest has this size."""
        phi_squared, s = 1 / (3 * _SPARSITY), _SPARSITY
        weight = 4 * s / phi_squared + math.sqrt((1 + 4 / phi_squared) * s)
        noise = 128 * s * math.log(2 * s**1.5 * s * s / _FAILURE) * math.log(1 / _DELTA)
        return cls(smallest / (4 * weight), noise)

    @property
    def epsilon(self) -> float:
        """The least epsilon at which both can hold."""
        return self.least / self.most


def play(panel: str, policy: str, people: int, epsilon: float, size: float, seed: int) -> Row:
    """Return the regret of one run."""
    promise = {"model": "none"} if policy == _BARE else {"model": "central", "epsilon": epsilon, "delta": _DELTA}
    spec: Any = problem(_FEATURES, people, promise, size, _ROUNDS[panel])
    if policy == PUBLISHED:
        last = played(spec, seed, {PUBLISHED: PrivateLasso})[-1]
        regret = last["regret"] * last["uniform"]
    else:
        regret = simulate_once(spec, seed).regret
    facts = {"panel": panel, "policy": policy, "people": people, "epsilon": epsilon, "size": size, "seed": seed}
    return {**facts, "regret": regret}


def _rows(effort: Effort) -> Iterator[Row]:
    quick = effort.quick
    people = (2**11, 2**12, 2**13) if quick else (2**12, 2**13, 2**14, 2**15, 2**16, 2**17)
    epsilons = (0.5, 1.0, 2.0) if quick else (0.25, 0.5, 1.0, 2.0, 4.0)
    sizes = (0.5, 1.0) if quick else (0.0625, 0.125, 0.25, 0.5, 1.0)
    policies = (OURS, PUBLISHED, _BARE)
    settings = [
        *(("people", policy, count, 1.0, 1.0) for policy, count in product(policies, people)),
        *(("epsilon", policy, people[-1], epsilon, 1.0) for policy, epsilon in product(policies[:2], epsilons)),
        *(
            ("worst", policy, count, 1.0, size)
            for policy, count, size in product(policies[:2], people if quick else people[::2], sizes)
        ),
    ]
    tasks = [(*setting, seed) for seed in range(effort.seeds) for setting in settings]
    yield from each(play, tasks, effort.jobs, effort.backend)


def worst(rows: Rows) -> Rows:
    """Return, for each policy, number of people and seed, the row of the size of coefficients that costs the most."""
    cells = rows.where(panel="worst").by("policy", "people", "seed").values()
    return Rows(max(cell, key=lambda row: float(row["regret"])) for cell in cells)


def _of(rows: Rows, panel: str) -> Rows:
    return worst(rows) if panel == "worst" else rows.where(panel=panel)


def rates(rows: Rows, panel: str) -> tuple[list[Any], NDArray[np.float64]]:
    """Return the points of a panel, and its upper bound at each."""
    points = {row[_PANELS[panel]]: row for row in _of(rows, panel)}
    at = sorted(points)
    return at, np.array([_BOUNDS[panel](points[x]["people"], points[x]["epsilon"]) for x in at])


def promised(rows: Rows, panel: str) -> float:
    """Return the slope of the upper bound over a panel's points, its logarithms included."""
    at, bound = rates(rows, panel)
    return float(np.polyfit(np.log(at), np.log(bound), 1)[0])


def slopes(rows: Rows, panel: str) -> dict[str, Slope]:
    """Return the slope of each policy's regret in what a panel changes."""
    return {policy: slope(own, _PANELS[panel]) for (policy,), own in _of(rows, panel).by("policy").items()}


def _draw(title: str, rows: Rows) -> Figure:
    figure, axes = panels(len(_PANELS), title, height=4.2)
    for axis, (panel, fact) in zip(axes, _PANELS.items(), strict=True):
        own = _of(rows, panel)
        for colour, (policy, found) in zip(COLOURS, slopes(rows, panel).items(), strict=False):
            draw_growth(axis, own.where(policy=policy), fact, f"{policy}: {found}", colour)
        at, bound = rates(rows, panel)
        name = "Theorem 3" if panel == "worst" else "Theorem 2"
        axis.plot(at, bound, "--", color="#555555", label=f"{name}, constant 1: {promised(rows, panel):.2f}")
        points = {row[fact]: row for row in own}
        below = [theorem_4(points[x]["people"], points[x]["epsilon"]) for x in at]
        axis.plot(at, below, ":", color="#555555", label="Theorem 4, from below")
        scale_growth(axis, _WORDS[panel], fact, base=2)
    axes[0].set_ylabel("regret")
    return figure


def _verdict(rows: Rows) -> str:
    said = [f"Slopes of log regret, d = {_FEATURES}; the bounds' at the same points, logarithms included:"]
    for panel in _PANELS:
        theirs = promised(rows, panel)
        figures = "; ".join(
            f"{name} {one}, {one.beside(theirs)} the bound's" for name, one in slopes(rows, panel).items()
        )
        said.append(f"{_WORDS[panel]}: {theirs:.2f}; {figures}.")
    lemma = Lemma4.of(min(abs(one) for one in COEFFICIENTS))
    said.append(
        f"Lemma 4 asks that lambda be at most {lemma.most:.2g} for the smallest coefficient to be seen, and at least "
        f"{lemma.least:,.0f} / epsilon for noise not to be (s = {_SPARSITY}, delta {_DELTA:g}, failure {_FAILURE:g}): "
        f"it says nothing below epsilon {lemma.epsilon:,.0f}. Theorem 4 has the same bound from below at every epsilon "
        "below 1, and so shows no price of privacy there."
    )
    return "\n".join(said)


def _above(rows: Rows, policy: str) -> list[str]:
    return [panel for panel in _PANELS if slopes(rows, panel)[policy].is_above(promised(rows, panel))]


def _sentence(rows: Rows) -> str:
    ours, theirs = (len(_above(rows, policy)) for policy in (OURS, PUBLISHED))
    lemma = Lemma4.of(min(abs(one) for one in COEFFICIENTS))
    return (
        f"Regret grows faster than the upper bounds in {ours} of {len(_PANELS)} ways of ours and in {theirs} of "
        f"PrivateLASSO's; its lemma of support recovery says nothing below epsilon {lemma.epsilon:,.0f}."
    )


def _warnings(rows: Rows) -> list[str]:
    said = []
    for panel in _above(rows, OURS):
        own = f"in {_WORDS[panel]}, our regret has the slope {slopes(rows, panel)[OURS]}"
        said.append(f"{own}, the upper bound {promised(rows, panel):.2f}.")
        if panel == "epsilon":
            said[-1] += f" {_floor(rows)}"
    return said


def _floor(rows: Rows) -> str:
    """Say how little of our regret is left to privacy from epsilon 1 on."""
    at, (regret, _) = rows.where(panel="epsilon", policy=OURS).curve("epsilon")
    share = regret[-1] / regret[at.index(1.0)]
    return (
        f"From epsilon 1 to {at[-1]:g} it falls to {share:.0%} alone: what is left does not depend on epsilon, since "
        f"the first {_ROUNDS['epsilon']:,} people get arms by chance."
    )


def _compared(rows: Rows) -> list[Compared]:
    lines = []
    for panel in _PANELS:
        found = slopes(rows, panel)
        pair = (str(found[policy]) for policy in (PUBLISHED, OURS))
        lines.append(Compared(f"slope in {_WORDS[panel]}", f"{promised(rows, panel):.2f}", *pair))
    lemma = Lemma4.of(min(abs(one) for one in COEFFICIENTS))
    lines.append(Compared("epsilon from which Lemma 4 says something", "any", f"{lemma.epsilon:,.0f}", ""))
    return lines


THEOREMS: Final = Reproduction(
    "paper-3-theorems",
    "Paper 3, Theorems 2 to 4: slopes of regret",
    _rows,
    _draw,
    _verdict,
    _sentence,
    _compared,
    minutes=15,
    warnings=_warnings,
)
