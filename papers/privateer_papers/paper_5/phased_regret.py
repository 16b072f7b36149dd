"""Paper 5, Figure 2 and Table 1: regret and traffic of distributed phased elimination."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from privateer_core.algorithms.phased import PhasedSpec
from privateer_core.spec.sections import parse_section
from privateer_lab.pages.plots import COLOURS, in_thousands, panels
from privateer_lab.simulation.parallel import each
from privateer_lab.simulation.simulate import Run, simulate_once
from privateer_papers.paper_5.dp_dpe import DpDpeSpec
from privateer_papers.reproduction import Compared, Effort, Reproduction, Row, Rows, lines, told

_EPSILONS: Final = (1.0, 5.0, 10.0, 15.0)
_DELTAS: Final = (0.25, 1e-6)
"""The paper's, and one that protects."""
ALPHA: Final = 0.8
"""How fast the number of clients grows from phase to phase."""
_MODELS: Final = ("central", "shuffle", "local")
VARIANTS: Final = (("none", "tight"), *((model, kind) for kind in ("tight", "published") for model in _MODELS))
_COLOURS: Final = dict(zip(("none", *_MODELS), COLOURS, strict=False))
_CURVE: Final = (None, 10.0)
"""Epsilons whose runs are drawn in time."""
_POINTS: Final = 60
"""Times at which a curve is read."""


def section_7(
    model: str,
    calibration: str = "tight",
    epsilon: float | None = None,
    delta: float | None = None,
    horizon: int = 1_000_000,
    people: int = 100_000,
    **algorithm: Any,
) -> PhasedSpec:
    """Return the instance of Section 7 under a trust model; ``algorithm`` has further keys of that section."""
    promise = {} if epsilon is None else {"epsilon": epsilon, "delta": delta}
    kind, name = (PhasedSpec, "phased") if calibration == "tight" else (DpDpeSpec, "paper-5-dp-dpe")
    shuffled = {"min_batch": 2, "honest_fraction": 1.0} if model == "shuffle" else {}
    data = {
        "experiment": {"name": "dpe", "horizon": horizon, "people": people},
        "actions": {"count": 1000, "dimension": 20, "seed": 1},
        "reward": {"low": -1.0, "high": 1.0},
        "privacy": {"model": model, **promise, **shuffled},
        "algorithm": {"name": name, "alpha": ALPHA, "client_deviation": 0.1, **algorithm},
        "population": {"name": "linear"},
    }
    return parse_section(kind, data)


def variants(effort: Effort, deltas: Sequence[float], epsilons: Sequence[float]) -> Iterator[tuple[Row, Run]]:
    """Give the runs of every trust model, calibration and promise as they come, with what rows say of them."""
    tasks = []
    for seed, (model, calibration) in product(range(effort.seeds), VARIANTS):
        for delta, epsilon in [(None, None)] if model == "none" else product(deltas, epsilons):
            facts = {"model": model, "calibration": calibration, "epsilon": epsilon, "delta": delta, "seed": seed}
            tasks.append((facts, section_7(model, calibration, epsilon, delta)))
    yield from each(_play, tasks, effort.jobs, effort.backend)


def _play(facts: Row, spec: PhasedSpec) -> tuple[Row, Run]:
    return facts, simulate_once(spec, facts["seed"])


def figures(run: Run) -> Row:
    """Return a run's regret, what was sent, and whether its promise is true."""
    deltas = [terms.true_delta for terms in run.terms if terms.trust.promises]
    return {
        "regret": run.regret,
        "uniform_regret": run.uniform_regret,
        **run.facts,
        **asdict(run.costs),
        "rounds": run.rounds,
        "true_delta": max(deltas, default=None),
        "holds": all(terms.holds for terms in run.terms),
    }


def curve(run: Run) -> Iterator[Row]:
    """Give regret a round at times spread evenly on a logarithmic scale, as if a phase interleaved its plays."""
    times, lost = np.array([(0, 0.0), *(point[:2] for point in run.path)]).T
    for moment in np.unique(np.geomspace(100, times[-1], _POINTS).astype(int)):
        yield {"time": int(moment), "regret": float(np.interp(moment, times, lost) / moment)}


def fixed_clients(effort: Effort) -> Iterator[tuple[Row, Run]]:
    """Give runs of phases that ask more and more people (DPE), and as many in each (DPE-FixedU), at equal cost.

    Cost is the paper's: numbers sent, clients times actions played. U is the whole number with the cost nearest to
    DPE's, since the number of phases and of actions depends on it.
    """
    spec = section_7("none")
    growing = _runs(spec, effort)
    target, low, high = _cost(growing), 1, max(spec.clients(run.rounds) for run in growing)
    tried: dict[int, list[Run]] = {}
    while low <= high:
        middle = (low + high) // 2
        tried[middle] = _runs(section_7("none", fixed_clients=middle), effort)
        low, high = (middle + 1, high) if _cost(tried[middle]) < target else (low, middle - 1)
    clients = min(tried, key=lambda count: abs(_cost(tried[count]) - target))
    for name, runs in (("DPE", growing), (f"DPE-FixedU, U = {clients}", tried[clients])):
        for run in runs:
            yield {"algorithm": name, "numbers_sent": _cost(runs), "seed": run.seed}, run


def _runs(spec: PhasedSpec, effort: Effort) -> list[Run]:
    return list(each(simulate_once, [(spec, seed) for seed in range(effort.seeds)], effort.jobs, effort.backend))


def _cost(runs: list[Run]) -> float:
    """Return the mean number of reals sent: our reports have 32 bits for each."""
    return float(np.mean([run.costs.bits for run in runs])) / 32


def _figure_rows(effort: Effort) -> Iterator[Row]:
    for facts, run in variants(effort, (0.25,), (1.0, 10.0) if effort.quick else _EPSILONS):
        yield {"panel": "a", **facts, **figures(run)}
        if facts["epsilon"] in _CURVE:
            yield from ({"panel": "b", **facts, **point} for point in curve(run))
    for facts, run in fixed_clients(effort):
        yield from ({"panel": "c", **facts, **point} for point in curve(run))


def _draw_figure(title: str, rows: Rows) -> Figure:
    figure, axes = panels(3, title, height=3.8)
    ends, paths, sizes = (rows.where(panel=panel) for panel in "abc")
    promised = Rows(row for row in ends if row["model"] != "none")
    flat = ({**row, "epsilon": epsilon} for row in ends.where(model="none") for epsilon in promised.values("epsilon"))
    ends = Rows([*promised, *flat])
    models: list[tuple[Row, str]] = [({"model": model}, model) for model in ("none", *_MODELS)]
    for calibration, style in (("tight", ".-"), ("published", ".:")):
        lines(axes[0], ends.where(calibration=calibration), "epsilon", models, style)
        lines(axes[1], paths.where(calibration=calibration), "time", models, style[1:])
    lines(axes[2], sizes, "time", [({"algorithm": name}, name) for (name,) in sizes.by("algorithm")])
    axes[0].set_yscale("log")
    axes[0].set_ylim(bottom=axes[0].get_ylim()[0] / 8)  # room for the legend
    axes[0].set_xlabel("epsilon (delta .25)")
    axes[0].set_ylabel("regret")
    for axis in axes[1:]:
        axis.set_xscale("log")
        axis.set_xlabel("rounds")
        axis.set_ylabel("regret a round")
    axes[0].legend(fontsize=7, loc="lower left", title="solid: tight; dotted: published", title_fontsize=7)
    axes[2].legend(fontsize=7)
    return figure


def _table_rows(effort: Effort) -> Iterator[Row]:
    for facts, run in variants(effort, _DELTAS, (10.0,)):
        yield {**facts, **figures(run)}


def _draw_table(title: str, rows: Rows) -> Figure:
    figure, axes = panels(3, title, height=4.0)
    bars, colours = {}, []
    for model, calibration in VARIANTS:
        for (delta,), found in sorted(rows.where(model=model, calibration=calibration).by("delta").items()):
            bars[f"{model}, {calibration}" + (f", delta {delta:g}" if delta else "")] = found
            colours.append(_COLOURS[model])
    for axis, what in zip(axes, ("regret", "messages", "bits"), strict=True):
        axis.barh(range(len(bars)), [found.mean(what)[0] for found in bars.values()], color=colours)
        axis.set_yticks(range(len(bars)), list(bars) if axis is axes[0] else [], fontsize=6)
        axis.set_title(what, fontsize=9)
    in_thousands(axes[0])
    for axis in axes[1:]:
        axis.set_xscale("log")
    return figure


def verdict(rows: Rows) -> str:
    """Say what final regrets show of the paper's claims: shuffle against central, local against shuffle, learning."""
    sentences = []
    rows = Rows(row for row in rows if "holds" in row)
    cells = rows.where(model="shuffle").by("delta", "calibration", "epsilon")
    for delta, calibration, epsilon in sorted(cells, key=lambda cell: (cell[0], cell[1] != "tight", cell[2])):
        found = rows.where(delta=delta, calibration=calibration, epsilon=epsilon)
        central, shuffle, local = (found.where(model=model).mean()[0] for model in _MODELS)
        uniform = found.mean("uniform_regret")[0]
        kept = "the promises hold" if all(row["holds"] for row in found) else "a promise is false"
        sentences.append(
            f"{calibration} at ({epsilon:g}, {delta:g}): shuffle loses {shuffle / central:.2f} times as much as "
            f"central and {shuffle / uniform:.2f} of what a uniform choice loses, local {local / shuffle:.1f} times as "
            f"much as shuffle; {kept}."
        )
    if not sentences:
        raise LookupError("no shuffled runs")
    return " ".join(sentences)


def _sentence(rows: Rows) -> str:
    ends = Rows(row for row in rows if "holds" in row)
    at = {"epsilon": ends.where(model="shuffle").values("epsilon")[-1], "delta": _DELTAS[0]}
    shares = []
    for calibration in ("tight", "published"):
        found = ends.where(calibration=calibration, **at)
        shares.append(found.where(model="shuffle").mean()[0] / found.where(model="central").mean()[0])
    return (
        f"With shuffling our regret is {shares[0]:.2f} times that with a curator at ({at['epsilon']:g}, "
        f"{_DELTAS[0]:g}); with the paper's bits it is {shares[1]:.2f} times, where the paper says that they are alike."
    )


def _compared(rows: Rows) -> list[Compared]:
    ends, found = Rows(row for row in rows if "holds" in row), []
    found.append(Compared("regret without privacy", "", "", told(ends.where(model="none"))))
    promises = Rows(row for row in ends if row["model"] != "none").by("delta", "epsilon")
    for (delta, epsilon), model in product(sorted(promises), _MODELS):
        own = ends.where(delta=delta, epsilon=epsilon, model=model)
        pair = (told(own.where(calibration=calibration)) for calibration in ("published", "tight"))
        found.append(Compared(f"regret, {model} at ({epsilon:g}, {delta:g})", "", *pair))
    return found


def _of_traffic(rows: Rows) -> list[Compared]:
    """Add what is sent to the table of regrets."""
    found = _compared(rows)
    for model, what in product(_MODELS, ("messages", "bits")):
        own = rows.where(model=model, delta=_DELTAS[0])
        pair = (told(own.where(calibration=calibration), what) for calibration in ("published", "tight"))
        found.append(Compared(f"{what}, {model} at delta {_DELTAS[0]:g}", "a rate alone", *pair))
    return found


FIGURE_2: Final = Reproduction(
    "paper-5-figure-2",
    "Paper 5, Figure 2: distributed phased elimination",
    _figure_rows,
    _draw_figure,
    verdict,
    _sentence,
    _compared,
    minutes=1,
)
TABLE_1: Final = Reproduction(
    "paper-5-table-1",
    "Paper 5, Table 1: regret, messages and bits at epsilon 10",
    _table_rows,
    _draw_table,
    verdict,
    _sentence,
    _of_traffic,
    minutes=1,
)
