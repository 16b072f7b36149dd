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

from matplotlib.figure import Figure

from privateer_lab.render.pictures import COLOURS, create_panels
from privateer_lab.simulation.simulate import simulate_once
from privateer_papers.growth import Slope, SlopeClaims, fit_slope, label_log_axes, log_slope, plot_growth, rate_curve
from privateer_papers.paper_3.privatelasso import PrivateLasso
from privateer_papers.paper_3.regret import COEFFICIENTS, PUBLISHED, build_spec, play_peers
from privateer_papers.reproduction import OURS, Effort, Reproduction, Row, Rows, TableLine

_FEATURES: Final = 100
_SPARSITY: Final = len(COEFFICIENTS)
_DELTA: Final = 1e-6
_BARE_POLICY: Final = "privateer, no privacy"
_FAILURE_PROBABILITY: Final = 0.05
_ROUND_SIZES: Final = {"people": 1000, "epsilon": 2000, "worst": 1000}
"""Round sizes: at epsilon 1/4 no coefficient can be found in smaller rounds."""
_FACTS: Final = {"people": "people", "epsilon": "epsilon", "worst": "people"}
_PANEL_LABELS: Final = {
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


_UPPER_BOUNDS: Final = {"people": theorem_2, "epsilon": theorem_2, "worst": theorem_3}


@dataclass(frozen=True)
class Lemma4Conditions:
    """Conditions of Lemma 4 on the threshold lambda, for a design of independent uniform numbers in [-1, 1].

    Second moments are a third of the identity: the compatibility phi^2 is 1/(3 s), and the least sparse eigenvalue 1/3.
    Symmetry and balance hold with constants 1. C_X and the sizes of supports are larger than the 1 and the s that are
    taken here, so that the paper's conditions are stricter.
    """

    max_threshold: float  # so small lambda has to be for the smallest coefficient to be seen
    min_threshold_times_epsilon: float  # times 1 / epsilon: so large it has to be for noise not to be

    @classmethod
    def from_smallest_coefficient(cls, size: float) -> "Lemma4Conditions":
        """Return the conditions for coefficients of which the smallest has this size."""
        phi_squared, s = 1 / (3 * _SPARSITY), _SPARSITY
        weight = 4 * s / phi_squared + math.sqrt((1 + 4 / phi_squared) * s)
        min_threshold = 128 * s * math.log(2 * s**1.5 * s * s / _FAILURE_PROBABILITY) * math.log(1 / _DELTA)
        return cls(size / (4 * weight), min_threshold)

    @property
    def epsilon(self) -> float:
        """The smallest epsilon at which both conditions can be satisfied."""
        return self.min_threshold_times_epsilon / self.max_threshold


def play(panel: str, policy: str, people: int, epsilon: float, size: float, seed: int) -> Row:
    """Return the regret of one run."""
    promise = {"model": "none"} if policy == _BARE_POLICY else {"model": "central", "epsilon": epsilon, "delta": _DELTA}
    spec: Any = build_spec(_FEATURES, people, promise, size, _ROUND_SIZES[panel])
    if policy == PUBLISHED:
        final = play_peers(spec, seed, {PUBLISHED: PrivateLasso})[-1]
        regret = final["regret"] * final["uniform"]
    else:
        regret = simulate_once(spec, seed).regret
    facts = {"panel": panel, "policy": policy, "people": people, "epsilon": epsilon, "size": size, "seed": seed}
    return {**facts, "regret": regret}


def _rows(effort: Effort) -> Iterator[Row]:
    """Yield the rows by people, by epsilon, and by size of the worst coefficient."""
    quick = effort.quick
    people = (2**11, 2**12, 2**13) if quick else (2**12, 2**13, 2**14, 2**15, 2**16, 2**17)
    epsilons = (0.5, 1.0, 2.0) if quick else (0.25, 0.5, 1.0, 2.0, 4.0)
    sizes = (0.5, 1.0) if quick else (0.0625, 0.125, 0.25, 0.5, 1.0)
    policies = (OURS, PUBLISHED, _BARE_POLICY)
    settings = [
        *(("people", policy, count, 1.0, 1.0) for policy, count in product(policies, people)),
        *(("epsilon", policy, people[-1], epsilon, 1.0) for policy, epsilon in product(policies[:2], epsilons)),
        *(
            ("worst", policy, count, 1.0, size)
            for policy, count, size in product(policies[:2], people if quick else people[::2], sizes)
        ),
    ]
    yield from effort.play(play, settings)


def worst_rows(rows: Rows) -> Rows:
    """Return, for each policy, horizon and seed, the row with the largest regret over sizes of the coefficients."""
    cells = rows.where(panel="worst").group_by("policy", "people", "seed").values()
    return Rows(max(cell, key=lambda row: float(row["regret"])) for cell in cells)


def _select(rows: Rows, panel: str) -> Rows:
    return worst_rows(rows) if panel == "worst" else rows.where(panel=panel)


def fit_slopes(rows: Rows) -> dict[str, dict[str, Slope]]:
    """Fit the slope of each policy's regret in each panel, beside that of the upper bound, logarithms included."""
    fits = {}
    for panel, fact in _FACTS.items():
        subset = _select(rows, panel)
        promised = log_slope(*rate_curve(subset, fact, _UPPER_BOUNDS[panel], "people", "epsilon"))
        groups = subset.group_by("policy").items()
        fits[panel] = {policy: fit_slope(group, fact, promised=promised) for (policy,), group in groups}
    return fits


def _draw(title: str, rows: Rows) -> Figure:
    """Draw regret in each panel, with fitted slopes and the bounds from above and below."""
    figure, axes = create_panels(len(_FACTS), title, height=4.2)
    for axis, (panel, fits) in zip(axes, fit_slopes(rows).items(), strict=True):
        fact, subset = _FACTS[panel], _select(rows, panel)
        for colour, (policy, fit) in zip(COLOURS, fits.items(), strict=False):
            plot_growth(axis, subset.where(policy=policy), fact, f"{policy}: {fit}", colour)
        label = f"{'Theorem 3' if panel == 'worst' else 'Theorem 2'}, constant 1: {fits[OURS].promised:.2f}"
        bounds = (_UPPER_BOUNDS[panel], "--", label), (theorem_4, ":", "Theorem 4, from below")
        for bound, style, text in bounds:
            curve = rate_curve(subset, fact, bound, "people", "epsilon")
            axis.plot(*curve, style, color="#555555", label=text)
        label_log_axes(axis, _PANEL_LABELS[panel], fact, base=2)
    axes[0].set_ylabel("regret")
    return figure


def _floor_note(rows: Rows) -> Iterator[str]:
    """Yield a sentence about the part of our regret that does not depend on epsilon."""
    epsilons, (regret, _) = rows.where(panel="epsilon", policy=OURS).curve("epsilon")
    share = regret[-1] / regret[epsilons.index(1.0)]
    yield (
        f"From epsilon 1 to {epsilons[-1]:g} it falls to {share:.0%} alone: what is left does not depend on epsilon, "
        f"since the first {_ROUND_SIZES['epsilon']:,} people get arms by chance."
    )


LEMMA: Final = Lemma4Conditions.from_smallest_coefficient(min(abs(coefficient) for coefficient in COEFFICIENTS))
_CLAIMS: Final = SlopeClaims(
    _PANEL_LABELS,
    fit_slopes,
    (OURS, PUBLISHED),
    "Regret grows faster than the upper bounds in {ours} of {total} ways of ours and in {theirs} of PrivateLASSO's; "
    f"its lemma of support recovery says nothing below epsilon {LEMMA.epsilon:,.0f}.",
    "in {claim}, our regret has the slope {fit}, the upper bound {fit.promised:.2f}.",
    "slope in {claim}",
    heading=f"Slopes are of log regret, d = {_FEATURES}; the bounds' at the same points, logarithms included.",
    notes={"epsilon": _floor_note},
)


def _remark(rows: Rows) -> list[str]:
    """Explain which figures the slopes fit, and from which epsilon Lemma 4 applies."""
    return [
        *_CLAIMS.remarks(rows),
        f"Lemma 4 asks that lambda be at most {LEMMA.max_threshold:.2g} for the smallest coefficient to be seen, and "
        f"at least {LEMMA.min_threshold_times_epsilon:,.0f} / epsilon for noise not to be (s = {_SPARSITY}, delta "
        f"{_DELTA:g}, failure {_FAILURE_PROBABILITY:g}). Theorem 4 has the same bound from below at every epsilon "
        "below 1, and so shows no price of privacy there.",
    ]


def _compare(rows: Rows) -> list[TableLine]:
    """List the slopes of each panel, and the epsilon from which Lemma 4 applies."""
    lemma = TableLine("epsilon from which Lemma 4 says something", "any", f"{LEMMA.epsilon:,.0f}", "")
    return [*_CLAIMS.compare(rows), lemma]


THEOREMS: Final = Reproduction(
    "paper-3-theorems",
    "Paper 3, Theorems 2 to 4: slopes of regret",
    *(_rows, _draw, _CLAIMS.sentence, _compare),
    minutes=15,
    warnings=_CLAIMS.warn_of_steep_slopes,
    remarks=_remark,
)
