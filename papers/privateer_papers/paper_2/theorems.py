"""Paper 2, Theorems 11 and 12 and Corollary 4: bandits, the best arm and stochastic convex losses, by T and epsilon."""

import math
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from privateer_core.algorithms import parse_spec
from privateer_core.spec.spec import Spec
from privateer_lab.pages.plots import COLOURS, panels
from privateer_lab.simulation.parallel import each
from privateer_lab.simulation.simulate import simulate_once
from privateer_papers.growth import Slope, draw_growth, scale_growth, slope
from privateer_papers.paper_2.shrinking_interval import PrivateLoss, search
from privateer_papers.reproduction import Compared, Effort, Reproduction, Row, Rows

KINDS: Final = ("tight", "published")
_DELTA: Final = 1e-5
_ARMS: Final = 10
_ROUNDS: Final = 200
_ROUND_MAX: Final = 1000
"""People of a round at most: as published they play one arm."""
_HORIZON: Final = 20_000_000
"""People who may be asked for the best arm: nobody needs as many."""


class TheoremClaim(NamedTuple):
    """What a theorem says."""

    # what grows, in what
    fact: str
    figure: str
    words: str  # what the page calls it
    rate: Callable[[float, float], float]  # the paper's, of people and epsilon, with constant 1


def _logarithmic(people: float, epsilon: float) -> float:
    """Return (13): ln T / epsilon^2."""
    return math.log(people) / epsilon**2


def _proxy(_people: float, epsilon: float) -> float:
    """Return the variance proxy of Theorem 12, to which samples are proportional: 1/4 + sigma^2."""
    return PrivateLoss(epsilon, _DELTA).proxy


def _root(people: float, epsilon: float) -> float:
    """Return sqrt(T) / epsilon with the logarithms of the host's own bound (Agarwal et al. 2011, Theorem 1)."""
    return math.sqrt(people * math.log(people)) * math.log(people) / epsilon


CLAIMS: Final = {
    "bandit": TheoremClaim("people", "regret", "Theorem 11: regret of a bandit in T", _logarithmic),
    "bandit-epsilon": TheoremClaim("epsilon", "regret", "Theorem 11: regret of a bandit in epsilon", _logarithmic),
    "best-arm": TheoremClaim(
        "epsilon", "samples", "Theorem 12: people until the best arm is known, in epsilon", _proxy
    ),
    "stochastic-convex": TheoremClaim("people", "regret", "Corollary 4: stochastic convex losses, in T", _root),
}


def _spec(kind: str, people: int, epsilon: float, objective: str) -> Spec:
    size = max(10, min(people // _ROUNDS, _ROUND_MAX))
    table: Row = {"name": "theorems", "arms": [f"arm-{place}" for place in range(_ARMS)], "horizon": people}
    promise: Row = {"model": "local", "epsilon": epsilon}
    name, growth = ("bandit", 0.02) if kind == "tight" else ("paper-2-bandit", 0.0)
    if kind == "published":
        promise["delta"] = _DELTA
    return parse_spec(
        {
            "experiment": {**table, "round_size": size, "round_growth": growth},
            "privacy": promise,
            "algorithm": {"name": name, "objective": objective},
            "population": {"name": "bernoulli"},
        }
    )


def play(claim: str, kind: str, people: int, epsilon: float, seed: int) -> Row:
    """Return what comes of one run."""
    facts: Row = {"claim": claim, "kind": kind, "people": people, "epsilon": epsilon, "seed": seed}
    if claim == "stochastic-convex":
        loss = PrivateLoss(epsilon, _DELTA if kind == "published" else 0.0)
        return {**facts, "regret": search(loss, people, seed).regret}
    run = simulate_once(_spec(kind, people, epsilon, "best-arm" if claim == "best-arm" else "regret"), seed)
    return {**facts, "regret": run.regret, "uniform": run.uniform_regret, "samples": run.facts["samples"]}


def _settings(*, quick: bool) -> list[tuple[str, str, int, float]]:
    people = (10_000, 30_000, 100_000) if quick else (10_000, 30_000, 100_000, 300_000, 1_000_000)
    promises = (0.5, 0.7, 1.0) if quick else (0.25, 0.35, 0.5, 0.7, 1.0)
    # The published rule takes 4 million people at epsilon 1.
    published = (2.0, 3.0, 4.0) if quick else (1.0, 2.0, 3.0, 4.0)
    long = [10**place for place in (5, 6, 7, 8, 9)]
    return [
        *(("bandit", kind, count, 1.0) for kind in KINDS for count in people),
        *(("bandit-epsilon", kind, people[-1], epsilon) for kind in KINDS for epsilon in promises),
        *(("best-arm", "tight", _HORIZON, epsilon) for epsilon in promises),
        *(("best-arm", "published", _HORIZON, epsilon) for epsilon in published),
        *(("stochastic-convex", kind, count, 1.0) for kind in KINDS for count in long),
    ]


def _rows(effort: Effort) -> Iterator[Row]:
    tasks = [(*setting, seed) for seed in range(effort.seeds) for setting in _settings(quick=effort.quick)]
    yield from each(play, tasks, effort.jobs, effort.backend)


def _own(rows: Rows, claim: str, kind: str) -> Rows:
    return rows.where(claim=claim, kind=kind)


def found(rows: Rows, claim: str, kind: str) -> Slope:
    """Return the slope of what a theorem is about."""
    return slope(_own(rows, claim, kind), CLAIMS[claim].fact, CLAIMS[claim].figure)


def promised(rows: Rows, claim: str, kind: str) -> float:
    """Return the slope of the paper's rate over the points of a kind, its logarithms included."""
    points = {row[CLAIMS[claim].fact]: row for row in _own(rows, claim, kind)}
    rates = [CLAIMS[claim].rate(points[x]["people"], points[x]["epsilon"]) for x in sorted(points)]
    return float(np.polyfit(np.log(sorted(points)), np.log(rates), 1)[0])


def _draw(title: str, rows: Rows) -> Figure:
    figure, axes = panels(len(CLAIMS), title, height=3.8)
    for axis, (name, claim) in zip(axes, CLAIMS.items(), strict=True):
        for colour, kind in zip(COLOURS, KINDS, strict=False):
            label = f"{kind}: {found(rows, name, kind)}"
            at, middle = draw_growth(axis, _own(rows, name, kind), claim.fact, label, colour, figure=claim.figure)
            rate = middle[0] * (np.array(at) / at[0]) ** promised(rows, name, kind)
            axis.plot(at, rate, "--", color=colour, linewidth=0.8)
        scale_growth(axis, claim.words, claim.fact, size=7)
        axis.set_ylabel(claim.figure)
        axis.legend(fontsize=6, title="dashed: the paper's", title_fontsize=6)
    return figure


def _verdict(rows: Rows) -> str:
    said = [f"Slopes of logarithms under local privacy (published: delta {_DELTA:g}); the paper's at the same points:"]
    for name, claim in CLAIMS.items():
        parts = []
        for kind in KINDS:
            one, theirs = found(rows, name, kind), promised(rows, name, kind)
            parts.append(f"{kind} {one}, {one.beside(theirs)} the paper's {theirs:.2f}")
        said.append(f"{claim.words}: {'; '.join(parts)}.")
    return "\n".join(said)


def _above(rows: Rows, kind: str) -> list[str]:
    return [name for name in CLAIMS if found(rows, name, kind).is_above(promised(rows, name, kind))]


def _sentence(rows: Rows) -> str:
    ours, theirs = (len(_above(rows, kind)) for kind in KINDS)
    return (
        f"Of {len(CLAIMS)} rates the paper's is exceeded {ours} times by ours, and {theirs} times by its algorithms as "
        "published."
    )


def _warnings(rows: Rows) -> list[str]:
    return [
        f"{CLAIMS[name].words}: ours has the slope {found(rows, name, 'tight')}, the paper's rate "
        f"{promised(rows, name, 'tight'):.2f}."
        for name in _above(rows, "tight")
    ]


def _compared(rows: Rows) -> list[Compared]:
    return [
        Compared(
            f"slope, {claim.words}",
            f"{promised(rows, name, 'tight'):.2f}",
            *(str(found(rows, name, kind)) for kind in reversed(KINDS)),
        )
        for name, claim in CLAIMS.items()
    ]


THEOREMS: Final = Reproduction(
    "paper-2-theorems",
    "Paper 2, Theorems 11 and 12, Corollary 4: slopes",
    _rows,
    _draw,
    _verdict,
    _sentence,
    _compared,
    minutes=15,
    warnings=_warnings,
)
