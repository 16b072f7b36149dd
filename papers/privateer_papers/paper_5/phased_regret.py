"""Paper 5, Figure 2 and Table 1: regret and traffic of distributed phased elimination."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure
from typing_extensions import override

from privateer_core.algorithms.phased import PhasedSection, PhasedSpec
from privateer_core.spec.sections import parse_section
from privateer_lab.render.pictures import COLOURS, create_panels, format_ticks_in_thousands
from privateer_lab.simulation.simulate import simulate_once
from privateer_lab.simulation.simulation import Run
from privateer_papers.paper_5.dp_dpe import DpDpeSpec
from privateer_papers.reproduction import Effort, Reproduction, Row, Rows, TableLine, draw_lines, mean_text

_EPSILONS: Final = (1.0, 5.0, 10.0, 15.0)
_DELTAS: Final = (0.25, 1e-6)
"""The paper's delta, and a protective delta."""
ALPHA: Final = 0.8
"""Growth exponent of the number of clients from phase to phase."""
_MODELS: Final = ("central", "shuffle", "local")
VARIANTS: Final = (("none", "tight"), *((model, kind) for kind in ("tight", "published") for model in _MODELS))
_COLOURS: Final = dict(zip(("none", *_MODELS), COLOURS, strict=False))
_CURVE_EPSILONS: Final = (None, 10.0)
"""Epsilons of the runs whose regret is drawn over time."""
_MAX_CURVE_POINTS: Final = 60
"""Largest number of points of a curve."""


class FixedSection(PhasedSection):
    """The ``[algorithm]`` of the paper's DPE-FixedU: every phase asks the same number of clients."""

    fixed_clients: int


class FixedSpec(PhasedSpec):
    """An experiment with DPE-FixedU."""

    algorithm: FixedSection

    @override
    def phase_size(self, phase: int) -> int:
        return self.algorithm.fixed_clients


def section_7_spec(
    model: str,
    calibration: str = "tight",
    epsilon: float | None = None,
    delta: float | None = None,
    horizon: int = 1_000_000,
    people: int = 100_000,
    spec_class: type[PhasedSpec] = PhasedSpec,
    **algorithm: Any,
) -> PhasedSpec:
    """Build the spec of Section 7 under a trust model; ``algorithm`` has further keys of its section."""
    promise = {} if epsilon is None else {"epsilon": epsilon, "delta": delta}
    spec_class, name = (spec_class, "phased") if calibration == "tight" else (DpDpeSpec, "paper-5-dp-dpe")
    shuffle_settings = {"min_batch": 2, "honest_fraction": 1.0} if model == "shuffle" else {}
    data = {
        "experiment": {"name": "dpe", "horizon": horizon, "participants": people},
        "actions": {"count": 1000, "dimension": 20, "seed": 1},
        "reward": {"low": -1.0, "high": 1.0},
        "privacy": {"model": model, **promise, **shuffle_settings},
        "algorithm": {"name": name, "alpha": ALPHA, "participant_standard_deviation": 0.1, **algorithm},
        "population": {"name": "linear"},
    }
    return parse_section(spec_class, data)


def run_variants(effort: Effort, deltas: Sequence[float], epsilons: Sequence[float]) -> Iterator[tuple[Row, Run]]:
    """Yield runs of every trust model, calibration and promise with their facts, seed by seed."""
    tasks = []
    for seed, (model, calibration) in product(range(effort.seeds), VARIANTS):
        for delta, epsilon in [(None, None)] if model == "none" else product(deltas, epsilons):
            facts = {"model": model, "calibration": calibration, "epsilon": epsilon, "delta": delta, "seed": seed}
            tasks.append((facts, section_7_spec(model, calibration, epsilon, delta)))
    yield from effort.run_in_order(_play, tasks)


def _play(facts: Row, spec: PhasedSpec) -> tuple[Row, Run]:
    return facts, simulate_once(spec, facts["seed"])


def run_figures(run: Run) -> Row:
    """Return a run's regret, its traffic, and whether its promise is true."""
    deltas = [terms.true_delta for terms in run.terms if terms.trust.promises]
    return {
        "regret": run.regret,
        "uniform_regret": run.uniform_regret,
        **run.facts,
        **asdict(run.costs),
        "rounds": run.rounds,
        "true_delta": max(deltas, default=None),
        "holds": all(terms.keeps_promise for terms in run.terms),
    }


def regret_curve(run: Run) -> Iterator[Row]:
    """Yield regret a round at times at even distances on a logarithmic scale, as if a phase interleaved its plays."""
    times, regrets = np.array([(0, 0.0), *(point[:2] for point in run.path)]).T
    for time in np.unique(np.geomspace(100, times[-1], _MAX_CURVE_POINTS).astype(int)):
        yield {"time": int(time), "regret": float(np.interp(time, times, regrets) / time)}


def run_fixed_clients(effort: Effort) -> Iterator[tuple[Row, Run]]:
    """Yield runs with growing phases (DPE), and with phases of a fixed number of clients (DPE-FixedU), at equal cost.

    Cost is the paper's: numbers sent, clients times actions played. U is the whole number with the cost nearest to
    DPE's, since the number of phases and of actions depends on it.
    """
    spec = section_7_spec("none")
    growing_runs = _run_seeds(spec, effort)
    target, low, high = _mean_numbers_sent(growing_runs), 1, max(spec.phase_size(run.rounds) for run in growing_runs)
    runs_by_clients: dict[int, list[Run]] = {}
    while low <= high:
        middle = (low + high) // 2
        runs_by_clients[middle] = _run_seeds(section_7_spec("none", spec_class=FixedSpec, fixed_clients=middle), effort)
        low, high = (middle + 1, high) if _mean_numbers_sent(runs_by_clients[middle]) < target else (low, middle - 1)
    clients = min(runs_by_clients, key=lambda count: abs(_mean_numbers_sent(runs_by_clients[count]) - target))
    for name, runs in (("DPE", growing_runs), (f"DPE-FixedU, U = {clients}", runs_by_clients[clients])):
        for run in runs:
            yield {"algorithm": name, "numbers_sent": _mean_numbers_sent(runs), "seed": run.seed}, run


def _run_seeds(spec: PhasedSpec, effort: Effort) -> list[Run]:
    return list(effort.run_in_order(simulate_once, [(spec, seed) for seed in range(effort.seeds)]))


def _mean_numbers_sent(runs: list[Run]) -> float:
    """Return the mean number of reals sent: our reports have 32 bits for each."""
    return float(np.mean([run.costs.bits for run in runs])) / 32


def _figure_rows(effort: Effort) -> Iterator[Row]:
    """Yield the rows of final regret, of curves by rounds, and of fixed clients."""
    for facts, run in run_variants(effort, (0.25,), (1.0, 10.0) if effort.quick else _EPSILONS):
        yield {"panel": "a", **facts, **run_figures(run)}
        if facts["epsilon"] in _CURVE_EPSILONS:
            yield from ({"panel": "b", **facts, **point} for point in regret_curve(run))
    for facts, run in run_fixed_clients(effort):
        yield from ({"panel": "c", **facts, **point} for point in regret_curve(run))


def _draw_figure(title: str, rows: Rows) -> Figure:
    """Draw regret by epsilon, and regret by rounds for models and for algorithms."""
    figure, axes = create_panels(3, title, height=3.8)
    finals, curve_rows, client_rows = (rows.where(panel=panel) for panel in "abc")
    subset = Rows(row for row in finals if row["model"] != "none")
    repeated = (
        {**row, "epsilon": epsilon} for row in finals.where(model="none") for epsilon in subset.values("epsilon")
    )
    finals = Rows([*subset, *repeated])
    models: list[tuple[Row, str]] = [({"model": model}, model) for model in ("none", *_MODELS)]
    for calibration, style in (("tight", ".-"), ("published", ".:")):
        draw_lines(axes[0], finals.where(calibration=calibration), "epsilon", models, style)
        draw_lines(axes[1], curve_rows.where(calibration=calibration), "time", models, style[1:])
    draw_lines(
        axes[2], client_rows, "time", [({"algorithm": name}, name) for (name,) in client_rows.group_by("algorithm")]
    )
    axes[0].set(yscale="log", xlabel="epsilon (delta .25)", ylabel="regret")
    axes[0].set_ylim(bottom=axes[0].get_ylim()[0] / 8)  # room for the legend
    for axis in axes[1:]:
        axis.set(xscale="log", xlabel="rounds", ylabel="regret a round")
    axes[0].legend(fontsize=7, loc="lower left", title="solid: tight; dotted: published", title_fontsize=7)
    axes[2].legend(fontsize=7)
    return figure


def _table_rows(effort: Effort) -> Iterator[Row]:
    for facts, run in run_variants(effort, _DELTAS, (10.0,)):
        yield {**facts, **run_figures(run)}


def _draw_table(title: str, rows: Rows) -> Figure:
    """Draw bars of regret, messages and bits for each model, calibration and delta."""
    figure, axes = create_panels(3, title, height=4.0)
    bars, colours = {}, []
    for model, calibration in VARIANTS:
        for (delta,), bar_rows in sorted(rows.where(model=model, calibration=calibration).group_by("delta").items()):
            bars[f"{model}, {calibration}" + (f", delta {delta:g}" if delta else "")] = bar_rows
            colours.append(_COLOURS[model])
    for axis, quantity in zip(axes, ("regret", "messages", "bits"), strict=True):
        axis.barh(range(len(bars)), [bar_rows.mean(quantity)[0] for bar_rows in bars.values()], color=colours)
        axis.set_yticks(range(len(bars)), list(bars) if axis is axes[0] else [], fontsize=6)
        axis.set_title(quantity, fontsize=9)
    format_ticks_in_thousands(axes[0])
    for axis in axes[1:]:
        axis.set_xscale("log")
    return figure


def compare_models(rows: Rows) -> list[str]:
    """Compare final regrets with the paper's claims: shuffle with central, local with shuffle."""
    texts = []
    rows = Rows(row for row in rows if "holds" in row)
    cells = rows.where(model="shuffle").group_by("delta", "calibration", "epsilon")
    for delta, calibration, epsilon in sorted(cells, key=lambda cell: (cell[0], cell[1] != "tight", cell[2])):
        subset = rows.where(delta=delta, calibration=calibration, epsilon=epsilon)
        central, shuffle, local = (subset.where(model=model).mean()[0] for model in _MODELS)
        uniform = subset.mean("uniform_regret")[0]
        promise_note = "the promises hold" if all(row["holds"] for row in subset) else "a promise is false"
        texts.append(
            f"{calibration} at ({epsilon:g}, {delta:g}): shuffle loses {shuffle / central:.2f} times as much as "
            f"central and {shuffle / uniform:.2f} of what a uniform choice loses, local {local / shuffle:.1f} times as "
            f"much as shuffle; {promise_note}."
        )
    if not texts:
        raise LookupError("no shuffled runs")
    return texts


def _sentence(rows: Rows) -> str:
    """Say how many times the regret with a curator shuffling has, ours and as published."""
    finals = Rows(row for row in rows if "holds" in row)
    promise = {"epsilon": finals.where(model="shuffle").values("epsilon")[-1], "delta": _DELTAS[0]}
    shares = []
    for calibration in ("tight", "published"):
        subset = finals.where(calibration=calibration, **promise)
        shares.append(subset.where(model="shuffle").mean()[0] / subset.where(model="central").mean()[0])
    return (
        f"With shuffling our regret is {shares[0]:.2f} times that with a curator at ({promise['epsilon']:g}, "
        f"{_DELTAS[0]:g}); with the paper's bits it is {shares[1]:.2f} times, where the paper says that they are alike."
    )


def _compare_regret(rows: Rows) -> list[TableLine]:
    """List final regret for each promise and model, as published and ours."""
    finals, table = Rows(row for row in rows if "holds" in row), []
    table.append(TableLine("regret without privacy", "", "", mean_text(finals.where(model="none"))))
    promises = Rows(row for row in finals if row["model"] != "none").group_by("delta", "epsilon")
    for (delta, epsilon), model in product(sorted(promises), _MODELS):
        subset = finals.where(delta=delta, epsilon=epsilon, model=model)
        pair = (mean_text(subset.where(calibration=calibration)) for calibration in ("published", "tight"))
        table.append(TableLine(f"regret, {model} at ({epsilon:g}, {delta:g})", "", *pair))
    return table


def _compare_regret_and_traffic(rows: Rows) -> list[TableLine]:
    """Return lines that compare regret and traffic."""
    table = _compare_regret(rows)
    for model, quantity in product(_MODELS, ("messages", "bits")):
        subset = rows.where(model=model, delta=_DELTAS[0])
        pair = (mean_text(subset.where(calibration=calibration), quantity) for calibration in ("published", "tight"))
        table.append(TableLine(f"{quantity}, {model} at delta {_DELTAS[0]:g}", "a rate alone", *pair))
    return table


FIGURE_2: Final = Reproduction(
    "paper-5-figure-2",
    "Paper 5, Figure 2: distributed phased elimination",
    *(_figure_rows, _draw_figure, _sentence, _compare_regret),
    minutes=1,
    remarks=compare_models,
)
TABLE_1: Final = Reproduction(
    "paper-5-table-1",
    "Paper 5, Table 1: regret, messages and bits at epsilon 10",
    *(_table_rows, _draw_table, _sentence, _compare_regret_and_traffic),
    minutes=1,
    remarks=compare_models,
)
