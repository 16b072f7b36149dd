"""Paper 2, Theorems 11 and 12 and Corollary 4: bandits, the best arm and stochastic convex losses, by T and epsilon."""

import math
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from privateer_core.algorithms import parse_spec
from privateer_core.spec.spec import Spec
from privateer_lab.render.pictures import COLOURS, create_panels
from privateer_lab.simulation.simulate import simulate_once
from privateer_papers.growth import Slope, SlopeClaims, fit_slope, label_log_axes, log_slope, plot_growth, rate_curve
from privateer_papers.paper_2.slopes import PrivateLoss, search_interval
from privateer_papers.reproduction import Effort, Reproduction, Row, Rows

CALIBRATIONS: Final = ("tight", "published")
_DELTA: Final = 1e-5
_N_ARMS: Final = 10
_N_ROUNDS: Final = 200
_MAX_ROUND_SIZE: Final = 1000
"""Largest round size: as published all participants of a round play one arm."""
_BEST_ARM_HORIZON: Final = 20_000_000
"""Largest number of participants for the best arm, more than any run needs."""


class TheoremClaim(NamedTuple):
    """The rate that a theorem claims for a figure."""

    # what grows, in what
    fact: str
    figure: str
    words: str  # what the page calls it
    rate: Callable[[float, float], float]  # the paper's, of people and epsilon, with constant 1


def _log_rate(people: float, epsilon: float) -> float:
    """Return (13): ln T / epsilon^2."""
    return math.log(people) / epsilon**2


def _proxy(_people: float, epsilon: float) -> float:
    """Return the variance proxy of Theorem 12, to which samples are proportional: 1/4 + sigma^2."""
    return PrivateLoss(epsilon, _DELTA).proxy


def _square_root_rate(people: float, epsilon: float) -> float:
    """Return sqrt(T) / epsilon with the logarithms of the host's own bound (Agarwal et al. 2011, Theorem 1)."""
    return math.sqrt(people * math.log(people)) * math.log(people) / epsilon


CLAIMS: Final = {
    "bandit": TheoremClaim("people", "regret", "Theorem 11: regret of a bandit in T", _log_rate),
    "bandit-epsilon": TheoremClaim("epsilon", "regret", "Theorem 11: regret of a bandit in epsilon", _log_rate),
    "best-arm": TheoremClaim(
        "epsilon", "samples", "Theorem 12: people until the best arm is known, in epsilon", _proxy
    ),
    "stochastic-convex": TheoremClaim(
        "people", "regret", "Corollary 4: stochastic convex losses, in T", _square_root_rate
    ),
}


def _build_spec(kind: str, people: int, epsilon: float, finds_best: bool) -> Spec:
    """Build the spec of a Bernoulli bandit, by our algorithm or by the published one."""
    size = max(10, min(people // _N_ROUNDS, _MAX_ROUND_SIZE))
    table: Row = {"name": "theorems", "arms": [f"arm-{index}" for index in range(_N_ARMS)], "horizon": people}
    promise: Row = {"model": "local", "epsilon": epsilon}
    name, min_round_fraction = ("bandit", 0.02) if kind == "tight" else ("paper-2-bandit", 0.0)
    if kind == "published":
        promise["delta"] = _DELTA
    return parse_spec(
        {
            "experiment": {**table, "round_size": size, "min_round_fraction": min_round_fraction},
            "privacy": promise,
            "algorithm": {"name": name, **({"objective": "best-arm"} if finds_best else {})},
            "population": {"name": "bernoulli"},
        }
    )


def play(claim: str, kind: str, people: int, epsilon: float, seed: int) -> Row:
    """Return a row with the figures of a run."""
    facts: Row = {"claim": claim, "kind": kind, "people": people, "epsilon": epsilon, "seed": seed}
    if claim == "stochastic-convex":
        loss = PrivateLoss(epsilon, _DELTA if kind == "published" else 0.0)
        return {**facts, "regret": search_interval(loss, people, seed).regret}
    run = simulate_once(_build_spec(kind, people, epsilon, claim == "best-arm"), seed)
    return {**facts, "regret": run.regret, "uniform": run.uniform_regret, "samples": run.facts["samples"]}


def _list_settings(*, quick: bool) -> list[tuple[str, str, int, float]]:
    """List the claim, kind, number of people and epsilon of all runs."""
    people = (10_000, 30_000, 100_000) if quick else (10_000, 30_000, 100_000, 300_000, 1_000_000)
    promises = (0.5, 0.7, 1.0) if quick else (0.25, 0.35, 0.5, 0.7, 1.0)
    # The published rule takes 4 million people at epsilon 1.
    published = (2.0, 3.0, 4.0) if quick else (1.0, 2.0, 3.0, 4.0)
    long_horizons = [10**exponent for exponent in (5, 6, 7, 8, 9)]
    return [
        *(("bandit", kind, count, 1.0) for kind in CALIBRATIONS for count in people),
        *(("bandit-epsilon", kind, people[-1], epsilon) for kind in CALIBRATIONS for epsilon in promises),
        *(("best-arm", "tight", _BEST_ARM_HORIZON, epsilon) for epsilon in promises),
        *(("best-arm", "published", _BEST_ARM_HORIZON, epsilon) for epsilon in published),
        *(("stochastic-convex", kind, count, 1.0) for kind in CALIBRATIONS for count in long_horizons),
    ]


def _rows(effort: Effort) -> Iterator[Row]:
    yield from effort.play(play, _list_settings(quick=effort.quick))


def _select(rows: Rows, claim: str, kind: str) -> Rows:
    return rows.where(claim=claim, kind=kind)


def fit_claim_slope(rows: Rows, name: str, kind: str) -> Slope:
    """Fit the slope of a theorem's figure, beside that of the paper's rate at the same points, logarithms included."""
    claim, subset = CLAIMS[name], _select(rows, name, kind)
    promised = log_slope(*rate_curve(subset, claim.fact, claim.rate, "people", "epsilon"))
    return fit_slope(subset, claim.fact, claim.figure, promised)


def fit_slopes(rows: Rows) -> dict[str, dict[str, Slope]]:
    """Fit the slope of each claim's figure by kind."""
    return {name: {kind: fit_claim_slope(rows, name, kind) for kind in CALIBRATIONS} for name in CLAIMS}


def _draw(title: str, rows: Rows) -> Figure:
    """Draw the figure of each claim, with fitted slopes and the paper's rate."""
    figure, axes = create_panels(len(CLAIMS), title, height=3.8)
    for axis, (name, fits) in zip(axes, fit_slopes(rows).items(), strict=True):
        claim = CLAIMS[name]
        for colour, (kind, fit) in zip(COLOURS, fits.items(), strict=False):
            subset = _select(rows, name, kind)
            x, means = plot_growth(axis, subset, claim.fact, f"{kind}: {fit}", colour, figure=claim.figure)
            rate = means[0] * (np.array(x) / x[0]) ** fit.promised
            axis.plot(x, rate, "--", color=colour, linewidth=0.8)
        label_log_axes(axis, claim.words, claim.fact, size=7)
        axis.set_ylabel(claim.figure)
        axis.legend(fontsize=6, title="dashed: the paper's", title_fontsize=6)
    return figure


_COMPARED: Final = SlopeClaims(
    CLAIMS,
    fit_slopes,
    CALIBRATIONS,
    "Of {total} rates the paper's is exceeded {ours} times by ours, and {theirs} times by its algorithms as published.",
    "{claim.words}: ours has the slope {fit}, the paper's rate {fit.promised:.2f}.",
    "slope, {claim.words}",
    heading=f"Slopes are under local privacy (published: delta {_DELTA:g}), and the paper's at the same points.",
)
THEOREMS: Final = Reproduction(
    "paper-2-theorems",
    "Paper 2, Theorems 11 and 12, Corollary 4: slopes",
    *(_rows, _draw, _COMPARED.sentence, _COMPARED.compare),
    minutes=15,
    warnings=_COMPARED.warn_of_steep_slopes,
    remarks=_COMPARED.remarks,
)
