"""Paper 5, Table 1: how regret and traffic grow with T under each trust model, beside the exponents that it prints."""

from collections.abc import Iterator
from itertools import product
from typing import Final

from matplotlib.figure import Figure

from privateer_lab.pages.plots import COLOURS, panels
from privateer_lab.simulation.parallel import each
from privateer_lab.simulation.simulate import simulate_once
from privateer_papers.growth import Slope, scale_growth, slope
from privateer_papers.paper_5.phased_regret import ALPHA, VARIANTS, section_7
from privateer_papers.reproduction import Compared, Effort, Reproduction, Row, Rows

_PROMISE: Final = (10.0, 0.25)
"""The paper's."""
_PEOPLE: Final = 1_000_000
"""So many that there are clients for every phase of the longest horizon."""
_HORIZONS: Final = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
_FEW: Final = (100_000, 300_000, 1_000_000)
_LONGER: Final = (30_000_000, 100_000_000)
_MORE: Final = 5_000_000
"""Horizons of ours under local privacy beyond those of all, and the people for their phases.

There regret begins to grow as the theorem says only where noise no longer hides every action.
"""
REGRET: Final = 1 - ALPHA / 2
"""The exponent of T in the leading term of regret, the same under every trust model."""
TRAFFIC: Final = {"none": ALPHA, "central": ALPHA, "local": ALPHA, "shuffle": 3 * ALPHA / 2}
"""The exponent of T in what is sent: in numbers, and in bits where shuffled."""
_FIGURES: Final = ("regret", "bits")
_STYLES: Final = {"tight": ".-", "published": ".:"}


def play(model: str, calibration: str, horizon: int, seed: int) -> Row:
    """Return the regret of one run, and the bits that clients send."""
    promise = (None, None) if model == "none" else _PROMISE
    epsilon, delta = promise
    people = _MORE if horizon in _LONGER else _PEOPLE
    run = simulate_once(section_7(model, calibration, epsilon, delta, horizon, people), seed)
    facts = {"model": model, "calibration": calibration, "people": horizon, "seed": seed}
    return {**facts, "regret": run.regret, "uniform": run.uniform_regret, "bits": run.costs.bits}


def _rows(effort: Effort) -> Iterator[Row]:
    settings = product(range(effort.seeds), _FEW if effort.quick else _HORIZONS, VARIANTS)
    tasks = [(model, calibration, horizon, seed) for seed, horizon, (model, calibration) in settings]
    if not effort.quick:
        tasks += [("local", "tight", horizon, seed) for seed, horizon in product(range(effort.seeds), _LONGER)]
    yield from each(play, tasks, effort.jobs, effort.backend)


def _promised(model: str, figure: str) -> float:
    return REGRET if figure == "regret" else TRAFFIC[model]


def slopes(rows: Rows, figure: str) -> dict[tuple[str, str], Slope]:
    """Return the slopes in T of a figure, by trust model and calibration, up to the longest horizon of all."""
    common = Rows(row for row in rows if row["people"] <= _HORIZONS[-1])
    return {
        (model, calibration): slope(common.where(model=model, calibration=calibration), "people", figure)
        for model, calibration in VARIANTS
    }


def later(rows: Rows) -> Slope | None:
    """Return the slope of our regret under local privacy from there on; None where no longer horizon was run."""
    beyond = Rows(row for row in rows.where(model="local", calibration="tight") if row["people"] >= _HORIZONS[-1])
    return slope(beyond) if len(beyond.values("people")) > 1 else None


def _draw(title: str, rows: Rows) -> Figure:
    figure, axes = panels(len(_FIGURES), title, height=4.4)
    models = list(dict.fromkeys(model for model, _ in VARIANTS))
    for axis, what in zip(axes, _FIGURES, strict=True):
        for (model, calibration), found in slopes(rows, what).items():
            at, (middle, _) = rows.where(model=model, calibration=calibration).curve("people", what)
            label = f"{model}, {calibration}: {found} ({_promised(model, what):.1f})"
            axis.plot(at, middle, _STYLES[calibration], color=COLOURS[models.index(model)], label=label)
        if what == "regret":
            at, (middle, _) = rows.where(model="none").curve("people", "uniform")
            axis.plot(at, middle, ":", color="#555555", label="at random: 1")
        scale_growth(axis, f"{what} (in brackets: the paper's exponent)", "rounds, T")
    return figure


def _verdict(rows: Rows) -> str:
    last = min(rows.values("people")[-1], _HORIZONS[-1])
    said = [
        f"Slopes in log T from T = {rows.values('people')[0]:,} to {last:,} at {_PROMISE}; in brackets regret over "
        "that of actions at random at the last T."
    ]
    regret, bits = (slopes(rows, figure) for figure in _FIGURES)
    for model, calibration in VARIANTS:
        own = rows.where(model=model, calibration=calibration)
        share = own.where(people=last).mean()[0] / own.where(people=last).mean("uniform")[0]
        parts = [
            f"{what} {one}, {one.beside(_promised(model, what))} the paper's {_promised(model, what):.1f}"
            for what, one in zip(_FIGURES, (regret[model, calibration], bits[model, calibration]), strict=True)
        ]
        said.append(f"{model}, {calibration}: {'; '.join(parts)} ({share:.2g}).")
    return "\n".join([*said, *_said_of_later(rows)])


def _said_of_later(rows: Rows) -> Iterator[str]:
    if found := later(rows):
        last = rows.values("people")[-1]
        side = found.beside(REGRET)
        yield f"From there to T = {last:,} our regret under local grows with {found}, {side} the paper's {REGRET:.1f}."


def _above(rows: Rows, calibration: str) -> list[tuple[str, str, Slope]]:
    """Return the trust models and figures whose slope is above the paper's by more than two standard errors."""
    return [
        (model, figure, found)
        for figure in _FIGURES
        for (model, kind), found in slopes(rows, figure).items()
        if kind == calibration and found.is_above(_promised(model, figure))
    ]


def _sentence(rows: Rows) -> str:
    ours, theirs = (_above(rows, calibration) for calibration in ("tight", "published"))
    return (
        f"Regret or traffic grows faster than Table 1 says in {len(ours)} of 8 slopes of ours, and in {len(theirs)} of "
        "6 of the algorithm as published."
    )


def _warnings(rows: Rows) -> list[str]:
    said = []
    for model, figure, found in _above(rows, "tight"):
        words = "regret grows" if figure == "regret" else "bits grow"
        said.append(f"under {model} our {words} with T to the {found}, the paper's to {_promised(model, figure):.1f}.")
        if (model, figure) == ("local", "regret"):
            said[-1] = " ".join([said[-1], *_said_of_later(rows)])
    return said


def _compared(rows: Rows) -> list[Compared]:
    lines = []
    for figure in _FIGURES:
        found = slopes(rows, figure)
        for model in TRAFFIC:
            here, ours = (found.get((model, calibration)) for calibration in ("published", "tight"))
            what = f"exponent of T, {figure}, {model}"
            lines.append(Compared(what, f"{_promised(model, figure):.1f}", str(here or ""), str(ours)))
    return lines


RATES: Final = Reproduction(
    "paper-5-rates",
    "Paper 5, Table 1: slopes of regret and traffic in T",
    _rows,
    _draw,
    _verdict,
    _sentence,
    _compared,
    minutes=5,
    warnings=_warnings,
)
