"""Paper 1, Theorems 2.5, 2.6, 3.3 and 3.4: how regret grows with people, promises and sources, beside the bounds.

For K fixed and epsilon at most 1 both bounds are, but for logarithms, n S^-((1 + beta) / (2 + 2 d)), where S is the
information: n epsilon^2, and for each source (kappa^2 n_Q epsilon_Q^2)^((2 + 2 d) / (2 + 2 d + 2 gamma)). Section 4.1
has d = 2 and the margin beta = 1 (tests check it): gaps grow linearly from where arms change places.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any, Final, NamedTuple

from matplotlib.figure import Figure

from privateer_core.arrays import Array
from privateer_lab.render.pictures import COLOURS, create_panels
from privateer_papers.growth import Slope, SlopeClaims, fit_slope, label_log_axes, log_slope, plot_growth, rate_curve
from privateer_papers.paper_1 import setting
from privateer_papers.reproduction import OURS, Effort, Reproduction, ReproductionCase, Row, Rows, TableLine, run_cases

DIMENSION: Final = 2
MARGIN: Final = 1
EXPONENT: Final = (1 + MARGIN) / (2 + 2 * DIMENSION)
_LINE_STYLES: Final = {setting.LDPMAB: ".--", OURS: ".-", setting.PAPER: ".:"}
_SHIFT_GAMMA: Final = 2.0


class Rate(NamedTuple):
    """A fact that a panel varies, in rows and in words, and the theorems of its bounds."""

    fact: str
    words: str
    theorems: str


RATES: Final = {
    "n": Rate("n", "people", "Theorems 2.5 and 2.6"),
    "epsilon": Rate("epsilon", "epsilon", "Theorems 2.5 and 2.6"),
    "sources": Rate("n_aux", "people of a source like these", "Theorems 3.3 and 3.4"),
    "shifted": Rate("n_aux", "people of a source shifted by gamma 2", "Theorems 3.3 and 3.4"),
}


def compute_information(people: int, epsilon: float, size: int = 0, aux: float = 1.0, gamma: float = 0.0) -> float:
    """Return the information S of participants and of a source with equal shares of the arms (kappa 1)."""
    power = (2 + 2 * DIMENSION) / (2 + 2 * DIMENSION + 2 * gamma)
    return float(people * epsilon**2 + (size * aux**2) ** power)


def compute_bounds(rows: Rows, panel: str) -> tuple[list[Any], Array]:
    """Return the points of a panel, and at each the rate of its theorems, without logarithms, with constant 1."""
    return rate_curve(rows.where(panel=panel), RATES[panel].fact, _bound, "n", "information")


def _bound(people: float, information: float) -> float:
    return float(people * information**-EXPONENT)


def rate_slope(rows: Rows, panel: str) -> float:
    """Return the slope of the bounds over a panel's points, which is constant in participants and epsilon."""
    return log_slope(*compute_bounds(rows, panel))


def _list_cases(effort: Effort) -> Iterator[ReproductionCase]:
    """Yield the cases of all panels: by number of people, epsilon, and sources with and without shift."""
    quick = effort.quick
    for n in (2000, 4000, 8000) if quick else (10_000, 20_000, 40_000, 80_000, 160_000):
        facts: Row = {"panel": "n", "n": n, "epsilon": 1.0, "information": compute_information(n, 1.0)}
        yield ReproductionCase(facts, setting.build_instance(n, 1.0), (setting.LDPMAB,))
    people, promises = (8000, (0.5, 0.7, 1.0)) if quick else (80_000, (0.25, 0.35, 0.5, 0.7, 1.0))
    for epsilon in promises:
        facts = {
            "panel": "epsilon",
            "n": people,
            "epsilon": epsilon,
            "information": compute_information(people, epsilon),
        }
        yield ReproductionCase(facts, setting.build_instance(people, epsilon), (setting.LDPMAB,))
    people, sizes = (4000, (1000, 4000, 16_000)) if quick else (20_000, (5000, 10_000, 20_000, 40_000, 80_000))
    for (panel, gamma), n_source in product({"sources": 0.0, "shifted": _SHIFT_GAMMA}.items(), sizes):
        content = compute_information(people, 1.0, n_source, 1.0, gamma)
        facts = {"panel": panel, "n": people, "n_aux": n_source, "information": content}
        for policy, algorithm in ((OURS, setting.OUR_ALGORITHM), (setting.LDPMAB, setting.PUBLISHED_ALGORITHM)):
            spec = setting.build_instance(people, 1.0, [setting.build_source("one", n_source, 1.0, gamma)], algorithm)
            yield ReproductionCase({**facts, "policy": policy}, spec)


def _rows(effort: Effort) -> Iterator[Row]:
    """Yield the rows of all cases, then those of the authors' public logs."""
    yield from run_cases(list(_list_cases(effort)), effort)
    path = effort.data.get("published", "")
    for row in setting.read_published(path, "sample_size_target", n_aux=(0,), epsilon=(1.0,)):
        if row["n"] >= 10_000:
            yield {**row, "panel": "n", "seed": 0, "information": compute_information(row["n"], 1.0)}


def fit_slopes(rows: Rows) -> dict[str, dict[str, Slope]]:
    """Fit the slope of each policy's regret in each panel."""
    return {
        panel: {
            policy: fit_slope(subset, rate.fact, promised=rate_slope(rows, panel))
            for (policy,), subset in rows.where(panel=panel).group_by("policy").items()
            if len(subset.values(rate.fact)) > 2
        }
        for panel, rate in RATES.items()
    }


def _draw(title: str, rows: Rows) -> Figure:
    """Draw regret in each panel on logarithmic axes, with fitted slopes and the paper's bounds."""
    figure, axes = create_panels(len(RATES), title, height=3.8)
    for axis, (panel, fits) in zip(axes, fit_slopes(rows).items(), strict=True):
        rate, subset = RATES[panel], rows.where(panel=panel)
        for colour, (policy, fit) in zip(COLOURS, fits.items(), strict=False):
            plot_growth(axis, subset.where(policy=policy), rate.fact, f"{policy}: {fit}", colour, _LINE_STYLES[policy])
        values, rates = compute_bounds(rows, panel)
        axis.plot(values, rates, "--", color="#555555", label=f"bounds, constant 1: {rate_slope(rows, panel):.2f}")
        label_log_axes(axis, f"{rate.words}\n{rate.theorems}", rate.fact, size=8)
    axes[0].set_ylabel("regret")
    return figure


_CLAIMS: Final = SlopeClaims(
    RATES,
    fit_slopes,
    (OURS, setting.LDPMAB),
    "Of {total} slopes of our regret {ours} are above the upper bounds', and {theirs} of those of the paper's "
    "algorithm with honest noise.",
    "in {claim.words} our regret has the slope {fit}, the bounds of {claim.theorems} {fit.promised:.2f}.",
    "slope in {claim.words}",
    heading="Slopes are of log regret in the logarithm of what changes; the bounds', without logarithms, are over the "
    "same points.",
)


def _compare(rows: Rows) -> list[TableLine]:
    """List the slopes of each panel: of the bounds and logs, of the paper's algorithm, and ours."""
    return [
        line._replace(published=f"{line.published}; in the logs {fits[setting.PAPER]}")
        if setting.PAPER in fits
        else line
        for line, fits in zip(_CLAIMS.compare(rows), fit_slopes(rows).values(), strict=True)
    ]


GROWTH: Final = Reproduction(
    "paper-1-rates",
    "Paper 1, Theorems 2.5 to 3.4: slopes of regret",
    *(_rows, _draw, _CLAIMS.sentence, _compare),
    minutes=20,
    reads=("published",),
    warnings=_CLAIMS.warn_of_steep_slopes,
    remarks=_CLAIMS.remarks,
)
