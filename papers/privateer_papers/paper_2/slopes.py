"""The host of paper 2's stochastic convex optimization, with private losses, for points of one dimension.

Agarwal, Foster, Hsu, Kakade and Rakhlin, *Stochastic convex optimization with bandit feedback* (2011), Algorithm 1: an
interval loses a quarter as soon as one of three points in it is known to be worse. Corollary 4 plugs in their Algorithm
2, the same in more dimensions, whose constants are too large for any horizon that can be run.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, NamedTuple, cast

import numpy as np
from matplotlib.figure import Figure

from privateer_core.accounting.gaussian import classic_gaussian_standard_deviation
from privateer_core.algorithms import parse_spec
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_lab.baselines.run import Baseline, play_together
from privateer_lab.render.pictures import COLOURS, create_panels
from privateer_lab.simulation.simulate import simulate_once
from privateer_papers.growth import Slope, SlopeClaims, fit_slope, label_log_axes, plot_growth
from privateer_papers.paper_2.contextual import PaperGeneralizedUcb, PaperLinUcb
from privateer_papers.reproduction import Effort, Reproduction, Row, Rows

BEST: Final = 0.3
"""Losses are 0 or 1, with probability 1/4 + |x - best| / 2 of 1."""
_POINT_POSITIONS: Final = (0.25, 0.5, 0.75)


def expected_loss(point: float) -> float:
    """Return the expected loss of a point in [0, 1]."""
    return 0.25 + abs(point - BEST) / 2


@dataclass(frozen=True)
class PrivateLoss:
    """A loss of 0 or 1 as it is reported."""

    epsilon: float  # local privacy of a report
    delta: float = 0.0  # Above 0: normal noise by the classic constant, as published. 0: one randomized bit.

    @property
    def proxy(self) -> float:
        """The variance proxy of an unbiased report: 1/4 + sigma^2 as published, c^2/4 of a bit."""
        if self.delta:
            return 0.25 + classic_gaussian_standard_deviation(self.epsilon, self.delta) ** 2
        return (1 / math.tanh(self.epsilon / 2)) ** 2 / 4

    def mean(self, point: float, people: int, rng: np.random.Generator) -> float:
        """Draw the mean of a number of unbiased reports on a point."""
        if self.delta:
            noise = classic_gaussian_standard_deviation(self.epsilon, self.delta) / math.sqrt(people)
            return rng.binomial(people, expected_loss(point)) / people + noise * rng.normal()
        truth = math.tanh(self.epsilon / 2)
        bits = rng.binomial(people, 0.5 + truth * (expected_loss(point) - 0.5)) / people
        return float((bits - 0.5) / truth + 0.5)


class IntervalSearch(NamedTuple):
    """The result of a search: the regret of all points, and the remaining interval."""

    regret: float
    low: float
    high: float


def search_interval(loss: PrivateLoss, people: int, seed: int) -> IntervalSearch:
    """Run the interval search with a number of participants, and return its result."""
    rng, low, high, n_free, regret = np.random.default_rng([seed, 8]), 0.0, 1.0, people, 0.0
    n_per_squared_width, width = 2 * loss.proxy * math.log(people), 1.0
    while n_free:
        width /= 2
        means = []
        points = [low + position * (high - low) for position in _POINT_POSITIONS]
        for point in points:
            size = min(n_free, math.ceil(n_per_squared_width / width**2))
            n_free, regret = (n_free - size, regret + size * (expected_loss(point) - expected_loss(BEST)))
            means.append(loss.mean(point, size, rng) if size else math.nan)
        first, middle, last = means
        # A mean is within the width of the truth; where three widths part two of them, the outer quarter is worse.
        if abs(first - last) >= 3 * width or max(first, last) - middle >= 3 * width:
            low, high = (points[0], high) if first > last else (low, points[2])
            width = 1.0
    return IntervalSearch(regret, low, high)


KINDS: Final = ("tight", "published")
_EPSILON: Final = 1.0
_DELTA: Final = 1e-5
"""The delta of published reports; tight reports are pure epsilon."""
_HORIZONS: Final = (10_000, 30_000, 100_000, 300_000, 1_000_000)
_QUICK_HORIZONS: Final = (10_000, 30_000, 100_000)
_N_ROUNDS: Final = 1000
_N_QUICK_ROUNDS: Final = 250
"""Rounds of a run: their size is a share of the horizon, so that the cost of rounds does not bend the slope."""
_MEASUREMENT_DEVIATIONS: Final = (0.01, 0.1)
"""Standard deviations of participants' measurements, of rewards that span 1.5 or 2."""
_MAX_PUBLISHED_ROUND_SIZE: Final = 100
"""Largest number of participants with one direction as published; the paper's rounds have one participant."""


@dataclass(frozen=True)
class Line:
    """A row of the table."""

    exponent: float  # the paper's, of T, without logarithms and constants
    tables: dict[str, Any]  # the sections of the spec but for people, rounds and promise
    # what plays as published; None: the paper's algorithm of the same name does
    literal: Callable[[ArmsSpec, int], Baseline] | None = None
    # the least exponent that there can be, where people measure with noise; None: the paper's may be reached
    min_exponent: float | None = None

    @property
    def promised_exponent(self) -> str:
        """The paper's exponent in words, and the smallest possible exponent if that is larger."""
        names = {3 / 4: "3/4", 2 / 3: "2/3", 1 / 2: "1/2", 0: "0 (log T)"}
        return names[self.exponent] + (
            f", at least {names[self.min_exponent]} with noise" if self.min_exponent is not None else ""
        )

    def build_spec(self, people: int, rounds: int, *, published: bool) -> Spec:
        """Build the experiment for a number of participants, in about a number of rounds."""
        table = {"name": "slopes", "horizon": people, "round_size": people // rounds, **self.tables["experiment"]}
        promise: Row = {"model": "local", "epsilon": _EPSILON}
        if published:
            table |= {"round_size": min(people // rounds, _MAX_PUBLISHED_ROUND_SIZE), "min_round_fraction": 0.0}
            promise |= {"delta": _DELTA}
        algorithm = dict(self.tables["algorithm"])
        if published and not self.literal:
            algorithm["name"] = f"paper-2-{algorithm['name']}"
            algorithm.pop("standard_deviation", None)  # the paper knows of none
        return parse_spec({**self.tables, "experiment": table, "privacy": promise, "algorithm": algorithm})


def _build_ball_tables(loss: str, min_reward: float, **algorithm: Any) -> dict[str, Any]:
    """Return the tables of a spec on a ball in three dimensions, with measurement noise as the algorithm knows it."""
    return {
        "experiment": {},
        "domain": {"shape": "ball", "dimension": 3},
        "reward": {"low": min_reward, "high": 0.0},
        "algorithm": {"name": "convex", **algorithm},
        "population": {"name": "losses", "loss": loss, "deviation": algorithm.get("standard_deviation", 0.0)},
    }


def _build_context_tables(**link: str) -> dict[str, Any]:
    """Return the tables of a spec with two arms and four features, and rounds that grow as in the examples."""
    return {
        "experiment": {"arms": ["a", "b"], "min_round_fraction": 0.3},
        "context": {"features": {f"x{i}": {"low": -1.0, "high": 1.0} for i in range(1, 5)}},
        "algorithm": {"name": "linear", **link},
        "population": {"name": "disjoint", **link},
    }


_ONE: Final = {"feedback": "one-point"}
_TWO: Final = {"feedback": "two-point"}
_CURVED: Final = {"strong_convexity": 1.0}
LINES: Final = {
    "BCO, convex": Line(3 / 4, _build_ball_tables("absolute", -2.0, **_ONE, lipschitz=1.0)),
    "BCO, convex and smooth": Line(2 / 3, _build_ball_tables("quadratic", -1.5, **_ONE, smoothness=1.0)),
    "BCO, strongly convex": Line(2 / 3, _build_ball_tables("quadratic", -1.5, **_ONE, **_CURVED, lipschitz=1.5)),
    "BCO, strongly convex and smooth": Line(1 / 2, _build_ball_tables("quadratic", -1.5, **_ONE, **_CURVED)),
    "two points, convex": Line(1 / 2, _build_ball_tables("absolute", -2.0, **_TWO, lipschitz=1.0)),
    "two points, strongly convex": Line(0, _build_ball_tables("quadratic", -1.5, **_TWO, **_CURVED, lipschitz=1.5)),
    **{
        f"two points, convex, deviation {noise:g}": Line(
            1 / 2,
            _build_ball_tables("absolute", -2.0, **_TWO, lipschitz=1.0, standard_deviation=noise),
            min_exponent=3 / 4,
        )
        for noise in _MEASUREMENT_DEVIATIONS
    },
    **{
        f"two points, strongly convex, deviation {noise:g}": Line(
            0,
            _build_ball_tables("quadratic", -1.5, **_TWO, **_CURVED, lipschitz=1.5, standard_deviation=noise),
            min_exponent=1 / 2,
        )
        for noise in _MEASUREMENT_DEVIATIONS
    },
    "contextual linear": Line(3 / 4, _build_context_tables(), PaperLinUcb),
    "generalized linear": Line(3 / 4, _build_context_tables(link="logistic"), PaperGeneralizedUcb),
}


def play(row: str, kind: str, people: int, rounds: int, seed: int) -> Row:
    """Return a row with the regret of a run, and the regret of decisions at random."""
    line, published = LINES[row], kind == "published"
    spec = line.build_spec(people, rounds, published=published)
    facts = {"row": row, "kind": kind, "people": people, "seed": seed}
    if published and line.literal:
        arms = cast(ArmsSpec, spec)
        (run,) = play_together(arms, {row: line.literal(arms, seed)}, seed)
        return {**facts, "regret": run.regret}
    result = simulate_once(spec, seed)
    return {**facts, "regret": result.regret, "uniform": result.uniform_regret}


def _rows(effort: Effort) -> Iterator[Row]:
    """Yield the rows of all lines of the table by kind, horizon and seed."""
    horizons, rounds = (_QUICK_HORIZONS, _N_QUICK_ROUNDS) if effort.quick else (_HORIZONS, _N_ROUNDS)
    settings = product(horizons, LINES, KINDS)
    yield from effort.play(play, ((row, kind, people, rounds) for people, row, kind in settings))


def fit_slopes(rows: Rows) -> dict[str, dict[str, Slope]]:
    """Fit the slope of regret for each line of the table, by kind."""
    return {
        name: {kind: fit_slope(rows.where(row=name, kind=kind), promised=line.exponent) for kind in KINDS}
        for name, line in LINES.items()
    }


def _remark(rows: Rows) -> list[str]:
    """Say what slopes are of, and each row's regret over that of decisions at random in the end."""
    first, *_, last = rows.values("people")
    shares = []
    for name in LINES:
        uniform = rows.where(row=name, kind="tight", people=last).mean("uniform")[0]
        parts = (f"{kind} {rows.where(row=name, kind=kind, people=last).mean()[0] / uniform:.2g}" for kind in KINDS)
        shares.append(f"{name}: {', '.join(parts)}")
    return [
        f"Slopes are of log regret in log T from T = {first:,} to {last:,}, local epsilon {_EPSILON:g} (published: "
        f"delta {_DELTA:g}).",
        f"Regret over that of decisions at random at the last T: {'; '.join(shares)}.",
    ]


def _draw(title: str, rows: Rows) -> Figure:
    """Draw regret by horizon for each line of the table, with fitted slopes and the paper's exponent."""
    figure, axes = create_panels(len(LINES), title)
    for axis, (name, fits) in zip(axes, fit_slopes(rows).items(), strict=True):
        subset = rows.where(row=name)
        for colour, (kind, fit) in zip(COLOURS, fits.items(), strict=False):
            values, means = plot_growth(axis, subset.where(kind=kind), "people", f"{kind}: {fit}", colour)
            if kind == "tight":
                paper = means[0] * (np.array(values) / values[0]) ** fit.promised
                axis.plot(values, paper, "--", color="#555555", label=f"paper: {LINES[name].promised_exponent}")
        values, (chance, _) = subset.where(kind="tight").curve("people", "uniform")
        axis.plot(values, chance, ":", color="#555555", label="at random: 1")
        label_log_axes(axis, name, "people, T")
    axes[0].set_ylabel("regret")
    return figure


_CLAIMS: Final = SlopeClaims(
    LINES,
    fit_slopes,
    KINDS,
    "Regret grows faster than the paper's exponent in {ours} of {total} rows of ours, and in {theirs} of the "
    "algorithms as published.",
    "{name}: our regret grows with T to the {fit}, the paper's with {claim.promised_exponent}.",
    "{name}, exponent of T",
    "{claim.promised_exponent}",
)
SLOPES: Final = Reproduction(
    "paper-2-table-1",
    "Paper 2, Table 1: slopes of regret",
    *(_rows, _draw, _CLAIMS.sentence, _CLAIMS.compare),
    minutes=60,
    warnings=_CLAIMS.warn_of_steep_slopes,
    remarks=_remark,
)
