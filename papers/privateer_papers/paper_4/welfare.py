"""Paper 4, Theorems 3.1 and 4.6: the loss of participants after an experiment by its recommendation, at every alpha.

The paper's simple regret is what anybody loses at most by the arm that is left in their bin: O(n^(-1/(2 + d)) sqrt(log
n)) for every alpha (Theorem 4.6). Squared error times regret^(2/(2 + d)) is of order 1 at least (Theorem 3.1). Both for
one covariate and for two, with effects that do not change signs where bins end.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from privateer_lab.render.pictures import COLOURS, create_panels
from privateer_papers.growth import Slope, fit_slope, label_log_axes
from privateer_papers.paper_4.frontier import play_matching, play_published
from privateer_papers.paper_4.world import World
from privateer_papers.reproduction import Effort, Reproduction, Row, Rows, TableLine, mean_text

_PHASE: Final = 0.137
_EPSILON: Final = 1.0
OUR_MODELS: Final = {"ours, none": "none", "ours, central": "central", "ours, local": "local"}
"""Names in rows, and their trust models."""
PEERS: Final = {"ConSE": None, "DP-ConSE": _EPSILON}
_HORIZONS: Final = (100_000, 1_000_000, 10_000_000, 100_000_000)
_QUICK_HORIZONS: Final = (100_000, 1_000_000, 10_000_000)
_ALPHA_PARTS: Final = (0.0, 0.5, 1.0)
"""Shares of the largest alpha, 1 / (2 + d)."""
_PUBLISHED_PEERS: Final = {"ours, none": "ConSE", "ours, central": "DP-ConSE", "ours, local": ""}


def rate_slope(dimension: int) -> float:
    """Return the exponent of n in Theorem 4.6."""
    return -1 / (2 + dimension)


def play(policy: str, dimension: int, people: int, part: float, seed: int) -> Row:
    """Return a row with the outcome of a trial; ``product`` is that of Theorem 3.1, of regret and squared error."""
    world, alpha = World(dimension, _PHASE), part / (2 + dimension)
    if policy in OUR_MODELS:
        outcome = play_matching(OUR_MODELS[policy], people, alpha, _EPSILON, seed, world)
    else:
        outcome = play_published(people, alpha, PEERS[policy], "algorithm", seed, world)
    regret = outcome.regret * world.uniform * people
    facts = {"policy": policy, "d": dimension, "people": people, "part": part, "seed": seed}
    return {**facts, **outcome._asdict(), "product": outcome.error**2 * regret ** (2 / (2 + dimension))}


def _rows(effort: Effort) -> Iterator[Row]:
    """Yield the rows of each policy by dimension, number of people, alpha and seed."""
    people = _QUICK_HORIZONS if effort.quick else _HORIZONS
    settings = product((1, 2), people, _ALPHA_PARTS, (*OUR_MODELS, *PEERS))
    yield from effort.play(play, ((policy, dimension, count, part) for dimension, count, part, policy in settings))


def fit_slopes(rows: Rows, dimension: int) -> dict[str, Slope]:
    """Fit, by policy, the slope in n of the largest loss of a participant, at the largest alpha."""
    subset = rows.where(d=dimension, part=_ALPHA_PARTS[-1])
    return {
        policy: fit_slope(subset.where(policy=policy), "people", "worst", rate_slope(dimension))
        for policy in (*OUR_MODELS, *PEERS)
    }


def _last_rows(rows: Rows) -> Rows:
    return rows.where(people=rows.values("people")[-1])


def _draw(title: str, rows: Rows) -> Figure:
    """Draw the largest loss by number of people and by alpha, for one and two covariates."""
    figure, axes = create_panels(4, title, height=3.8)
    for dimension, axis in ((1, axes[0]), (2, axes[1])):
        _draw_growth(axis, rows.where(d=dimension), dimension)
    for dimension, axis in ((1, axes[2]), (2, axes[3])):
        subset = _last_rows(rows).where(d=dimension)
        for colour, policy in zip(COLOURS, (*OUR_MODELS, *PEERS), strict=False):
            alpha_parts, (means, _) = subset.where(policy=policy).curve("part", "worst")
            axis.plot(np.array(alpha_parts) / (2 + dimension), means, ".-", color=colour, label=policy)
        axis.set_title(f"d = {dimension}, n = {subset[0]['people']:,}", fontsize=9)
        axis.set(yscale="log", xlabel="alpha")
    axes[0].set_ylabel("loss after the experiment, at most")
    return figure


def _draw_growth(axis: Any, rows: Rows, dimension: int) -> None:
    """Draw the growth of the largest loss, with fitted slopes and the rate of Theorem 4.6."""
    subset = rows.where(part=_ALPHA_PARTS[-1])
    for colour, (policy, fit) in zip(COLOURS, fit_slopes(rows, dimension).items(), strict=False):
        x, (means, _) = subset.where(policy=policy).curve("people", "worst")
        axis.plot(x, means, ".-" if policy in OUR_MODELS else ".:", color=colour, label=f"{policy}: {fit}")
    counts = np.array(subset.values("people"), np.float64)
    rate = np.power(counts, rate_slope(dimension)) * np.sqrt(np.log(counts))
    axis.plot(counts, rate, "--", color="#555555", label=f"Theorem 4.6, constant 1: {rate_slope(dimension):.2f}")
    label_log_axes(axis, f"d = {dimension}, the largest alpha", "people, n")


def _describe_losses(rows: Rows) -> list[str]:
    """Describe largest losses at each alpha, and the least product of Theorem 3.1."""
    final, texts = _last_rows(rows), []
    for dimension, policy in product((1, 2), (*OUR_MODELS, *PEERS)):
        subset = rows.where(d=dimension, policy=policy)
        losses = ", ".join(f"{loss:.3f}" for loss in _last_rows(subset).curve("part", "worst")[1][0])
        min_product = min(cell.mean("product")[0] for cell in subset.group_by("people", "part").values())
        texts.append(f"d = {dimension}, {policy}: {losses}; {min_product:.2g}.")
    heading = (
        f"The most that anybody loses after the experiment, at alpha 0, half and all of 1/(2 + d), n = "
        f"{final[0]['people']:,}; and the least product of Theorem 3.1, which is of order 1 at least:"
    )
    return [heading, *texts]


def _sentence(rows: Rows) -> str:
    """Say what the recommendations of ours and of DP-ConSE lose."""
    final = _last_rows(rows).where(d=1)
    our_welfare, published_welfare = (
        final.where(policy=policy, part=_ALPHA_PARTS[-1]).mean("welfare")[0] for policy in ("ours, central", "DP-ConSE")
    )
    max_losses = final.where(policy="ours, central").curve("part", "worst")[1][0]
    return (
        f"After {final[0]['people']:,} people with one covariate, what ours recommends loses {our_welfare:.2g} of what "
        f"a coin loses, and what DP-ConSE leaves {published_welfare:.2g}; whatever alpha, nobody loses more by ours "
        f"than {max(max_losses):.3f}."
    )


def _warnings(rows: Rows) -> list[str]:
    """Return warnings for losses that fall more slowly than by Theorem 4.6, which is for a curator, not ``local``."""
    return [
        f"with d = {dimension} what is lost after the experiment has, under '{OUR_MODELS[policy]}', the slope {fit} in "
        f"n, the paper's {rate_slope(dimension):.2f}."
        for dimension in (1, 2)
        for policy, fit in fit_slopes(rows, dimension).items()
        if OUR_MODELS.get(policy) in ("none", "central") and fit.is_above
    ]


def _compare(rows: Rows) -> list[TableLine]:
    """List slopes and final values of the largest loss, as published and ours."""
    lines, final = [], _last_rows(rows)
    for dimension, (our_policy, published_policy) in product((1, 2), _PUBLISHED_PEERS.items()):
        fits, label = fit_slopes(rows, dimension), f"largest loss, d = {dimension}, {OUR_MODELS[our_policy]}"
        texts = {policy: f"{fit} ({fit.side})" for policy, fit in fits.items()}
        slopes = (f"{rate_slope(dimension):.2f}", texts.get(published_policy, ""), texts[our_policy])
        lines.append(TableLine(f"slope in n of the {label}", *slopes))
        subset = final.where(d=dimension, part=_ALPHA_PARTS[-1])
        pair = (mean_text(subset.where(policy=policy), "worst", ".3f") for policy in (published_policy, our_policy))
        lines.append(TableLine(f"{label}, at the largest alpha", "", *pair))
    return lines


WELFARE: Final = Reproduction(
    "paper-4-welfare",
    "Paper 4, Theorems 3.1 and 4.6: welfare after the experiment",
    *(_rows, _draw, _sentence, _compare),
    minutes=5,
    warnings=_warnings,
    remarks=_describe_losses,
)
