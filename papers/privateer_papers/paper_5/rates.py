"""Paper 5, Table 1: how regret and traffic grow with T under each trust model, beside the exponents that it prints."""

from collections.abc import Iterator
from itertools import product
from typing import Final

from matplotlib.figure import Figure

from privateer_lab.render.pictures import COLOURS, create_panels
from privateer_lab.simulation.simulate import simulate_once
from privateer_papers.growth import Slope, SlopeClaims, fit_slope, label_log_axes
from privateer_papers.paper_5.phased_regret import ALPHA, VARIANTS, section_7_spec
from privateer_papers.reproduction import Effort, Reproduction, Row, Rows

_PROMISE: Final = (10.0, 0.25)
"""The paper's epsilon and delta."""
_N_PARTICIPANTS: Final = 1_000_000
"""Enough clients for every phase of the longest horizon."""
_HORIZONS: Final = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
_QUICK_HORIZONS: Final = (100_000, 300_000, 1_000_000)
_LONG_HORIZONS: Final = (30_000_000, 100_000_000)
_N_LONG_PARTICIPANTS: Final = 5_000_000
"""Horizons of ours under local privacy beyond those of all, and the people for their phases.

There regret begins to grow as the theorem says only where noise no longer hides every action.
"""
REGRET_POWER: Final = 1 - ALPHA / 2
"""The exponent of T in the leading term of regret, the same under every trust model."""
TRAFFIC_POWERS: Final = {"none": ALPHA, "central": ALPHA, "local": ALPHA, "shuffle": 3 * ALPHA / 2}
"""The exponent of T in what is sent: in numbers, and in bits where shuffled."""
_FIGURES: Final = {"regret": "regret grows", "bits": "bits grow"}
_MODELS: Final = tuple(dict.fromkeys(model for model, _ in VARIANTS))
_LINE_STYLES: Final = {"tight": ".-", "published": ".:"}


def play(model: str, calibration: str, horizon: int, seed: int) -> Row:
    """Return the regret of one run, and the bits that clients send."""
    promise = (None, None) if model == "none" else _PROMISE
    epsilon, delta = promise
    people = _N_LONG_PARTICIPANTS if horizon in _LONG_HORIZONS else _N_PARTICIPANTS
    run = simulate_once(section_7_spec(model, calibration, epsilon, delta, horizon, people), seed)
    facts = {"model": model, "calibration": calibration, "people": horizon, "seed": seed}
    return {**facts, "regret": run.regret, "uniform": run.uniform_regret, "bits": run.costs.bits}


def _rows(effort: Effort) -> Iterator[Row]:
    """Yield the rows of each model and calibration by horizon and seed, with longer horizons for local."""
    settings = product(range(effort.seeds), _QUICK_HORIZONS if effort.quick else _HORIZONS, VARIANTS)
    tasks = [(model, calibration, horizon, seed) for seed, horizon, (model, calibration) in settings]
    if not effort.quick:
        tasks += [("local", "tight", horizon, seed) for seed, horizon in product(range(effort.seeds), _LONG_HORIZONS)]
    yield from effort.run_in_order(play, tasks)


def fit_variant_slope(rows: Rows, figure: str, model: str, calibration: str) -> Slope:
    """Fit the slope of a figure in T under a trust model, up to the longest horizon of all."""
    subset = Rows(row for row in rows.where(model=model, calibration=calibration) if row["people"] <= _HORIZONS[-1])
    return fit_slope(subset, "people", figure, REGRET_POWER if figure == "regret" else TRAFFIC_POWERS[model])


def fit_slopes(rows: Rows) -> dict[tuple[str, str], dict[str, Slope | None]]:
    """Fit the slopes of each figure and trust model by calibration; None where nothing is published."""
    return {
        (figure, model): {
            kind: fit_variant_slope(rows, figure, model, kind) if (model, kind) in VARIANTS else None
            for kind in _LINE_STYLES
        }
        for figure, model in product(_FIGURES, _MODELS)
    }


def fit_late_slope(rows: Rows) -> Slope | None:
    """Fit the slope of our regret under local privacy beyond the common horizons; None without longer horizons."""
    late_rows = Rows(row for row in rows.where(model="local", calibration="tight") if row["people"] >= _HORIZONS[-1])
    return fit_slope(late_rows, promised=REGRET_POWER) if len(late_rows.values("people")) > 1 else None


def _draw(title: str, rows: Rows) -> Figure:
    """Draw regret and bits by rounds, with fitted slopes beside the paper's exponents."""
    figure, axes = create_panels(len(_FIGURES), title, height=4.4)
    for axis, figure_name in zip(axes, _FIGURES, strict=True):
        for model, calibration in VARIANTS:
            fit = fit_variant_slope(rows, figure_name, model, calibration)
            x, (means, _) = rows.where(model=model, calibration=calibration).curve("people", figure_name)
            label = f"{model}, {calibration}: {fit} ({fit.promised:.1f})"
            axis.plot(x, means, _LINE_STYLES[calibration], color=COLOURS[_MODELS.index(model)], label=label)
        if figure_name == "regret":
            x, (means, _) = rows.where(model="none").curve("people", "uniform")
            axis.plot(x, means, ":", color="#555555", label="at random: 1")
        label_log_axes(axis, f"{figure_name} (in brackets: the paper's exponent)", "rounds, T")
    return figure


def _remark(rows: Rows) -> list[str]:
    """Say what slopes are of, regret over that of random actions, and how regret grows at last."""
    last_t, shares = min(rows.values("people")[-1], _HORIZONS[-1]), []
    for model, calibration in VARIANTS:
        last_rows = rows.where(model=model, calibration=calibration, people=last_t)
        shares.append(f"{model}, {calibration} {last_rows.mean()[0] / last_rows.mean('uniform')[0]:.2g}")
    return [
        f"Slopes are in log T from T = {rows.values('people')[0]:,} to {last_t:,} at {_PROMISE}.",
        f"Regret over that of actions at random at the last T: {'; '.join(shares)}.",
        *_describe_late(rows),
    ]


def _describe_late(rows: Rows) -> Iterator[str]:
    """Yield a sentence on the slope of local regret over the long horizons, if these were run."""
    if late_slope := fit_late_slope(rows):
        end = rows.values("people")[-1]
        yield (
            f"From there to T = {end:,} our regret under local grows with {late_slope}, {late_slope.side} the paper's "
            f"{REGRET_POWER:.1f}."
        )


_CLAIMS: Final = SlopeClaims(
    {(figure, model): words for (figure, words), model in product(_FIGURES.items(), TRAFFIC_POWERS)},
    fit_slopes,
    ("tight", "published"),
    "Regret or traffic grows faster than Table 1 says in {ours} of 8 slopes of ours, and in {theirs} of 6 of the "
    "algorithm as published.",
    "under {name[1]} our {claim} with T to the {fit}, the paper's to {fit.promised:.1f}.",
    "exponent of T, {name[0]}, {name[1]}",
    "{fit.promised:.1f}",
    notes={("regret", "local"): _describe_late},
)
RATES: Final = Reproduction(
    "paper-5-rates",
    "Paper 5, Table 1: slopes of regret and traffic in T",
    *(_rows, _draw, _CLAIMS.sentence, _CLAIMS.compare),
    minutes=5,
    warnings=_CLAIMS.warn_of_steep_slopes,
    remarks=_remark,
)
