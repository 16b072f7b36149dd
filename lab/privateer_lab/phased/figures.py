"""Paper 5's Figure 2 and Table 1: published beside tight, as tidy rows."""

import math
import time
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from privateer.phased import PhasedSpec
from privateer.sections import parse_section
from privateer_lab.phased.simulation import Run, simulate, summary

Row = dict[str, Any]
EPSILONS: Final = (1.0, 5.0, 10.0, 15.0)
DELTAS: Final = (0.25, 1e-6)
"""The paper's, and one that protects."""
VARIANTS: Final = (
    ("none", "tight"),
    *((model, calibration) for calibration in ("tight", "published") for model in ("central", "shuffle", "local")),
)
_FIGURES: Final = (
    "regret_mean",
    "regret_ci95",
    "uniform_regret",
    "best_action_kept",
    "bits_mean",
    "messages_mean",
    "bytes_mean",
    "phases",
    "true_delta",
    "holds",
    "wall_seconds",
)
_POINTS: Final = 60
"""Times at which a curve is read."""


def section_7(model: str, calibration: str, epsilon: float, delta: float, changes: Row | None = None) -> PhasedSpec:
    """The instance of paper 5, Section 7, under a trust model; ``changes`` are to the algorithm's section."""
    promise = {} if model == "none" else {"epsilon": epsilon, "delta": delta, "calibration": calibration}
    shuffled = {"min_batch": 2, "honest_fraction": 1.0} if model == "shuffle" else {}
    data = {
        "experiment": {"name": "dpe", "horizon": 1_000_000, "people": 100_000},
        "actions": {"count": 1000, "dimension": 20, "seed": 1},
        "reward": {"low": -1.0, "high": 1.0},
        "privacy": {"model": model, **promise, **shuffled},
        "algorithm": {"name": "phased", "alpha": 0.8, "client_deviation": 0.1, **(changes or {})},
        "population": {"name": "linear"},
    }
    return parse_section(PhasedSpec, data)


def table_1(seeds: int, jobs: int | None = None) -> Iterator[Row]:
    """Table 1, measured at epsilon 10: regret, what is sent, and the promise, by trust model and calibration."""
    for delta in DELTAS:
        yield from regrets(seeds, delta, (10.0,), jobs)


def regrets(seeds: int, delta: float, epsilons: tuple[float, ...] = EPSILONS, jobs: int | None = None) -> Iterator[Row]:
    """Figure 2(a): final regret by epsilon, trust model and calibration, with what is sent and the true delta."""
    for model, calibration in VARIANTS:
        for epsilon in (math.inf,) if model == "none" else epsilons:
            spec, started = section_7(model, calibration, epsilon, delta), time.perf_counter()
            found = summary(spec, list(simulate(spec, seeds, jobs)), started)
            promise = {"epsilon": found["epsilon"], "delta": found["delta"]}
            yield {"model": model, "calibration": calibration, **promise, **{key: found[key] for key in _FIGURES}}


def curves(seeds: int, epsilon: float = 10.0, delta: float = 0.25, jobs: int | None = None) -> Iterator[Row]:
    """Figure 2(b): regret per round up to a time, by trust model and calibration."""
    for model, calibration in VARIANTS:
        runs = _runs(section_7(model, calibration, epsilon, delta), seeds, jobs)
        yield from _curve({"model": model, "calibration": calibration}, runs)


def fixed_clients(seeds: int, jobs: int | None = None) -> Iterator[Row]:
    """Figure 2(c): phases that ask more and more people (DPE), and as many in each (DPE-FixedU), at equal cost.

    Cost is the paper's: numbers sent, clients times actions played. U is the whole number with the cost nearest to
    DPE's, since the number of phases and of actions depends on it.
    """
    growing = _runs(section_7("none", "tight", math.inf, 0.0), seeds, jobs)
    target, low, high = _cost(growing), 1, max(phase.clients for run in growing for phase in run.phases)
    tried: dict[int, list[Run]] = {}
    while low <= high:
        middle = (low + high) // 2
        tried[middle] = _runs(section_7("none", "tight", math.inf, 0.0, {"fixed_clients": middle}), seeds, jobs)
        low, high = (middle + 1, high) if _cost(tried[middle]) < target else (low, middle - 1)
    clients = min(tried, key=lambda count: abs(_cost(tried[count]) - target))
    for name, runs in (("DPE", growing), (f"DPE-FixedU, U = {clients}", tried[clients])):
        yield from _curve({"algorithm": name, "numbers_sent": _cost(runs)}, runs)


def _runs(spec: PhasedSpec, seeds: int, jobs: int | None) -> list[Run]:
    return [run for run, _ in simulate(spec, seeds, jobs)]


def _cost(runs: list[Run]) -> float:
    """Mean number of reals sent: our reports have 32 bits for each."""
    return float(np.mean([sum(phase.bits for phase in run.phases) for run in runs])) / 32


def _curve(facts: Row, runs: list[Run]) -> Iterator[Row]:
    """Regret per round at times spread evenly on a logarithmic scale; plays of a phase are taken for interleaved."""
    ends = [np.cumsum([0, *(phase.rounds for phase in run.phases)]) for run in runs]
    lost = [np.cumsum([0.0, *(phase.regret for phase in run.phases)]) for run in runs]
    for moment in np.unique(np.geomspace(100, ends[0][-1], _POINTS).astype(int)):
        each = np.array([np.interp(moment, end, regret) for end, regret in zip(ends, lost, strict=True)]) / moment
        yield {
            **facts,
            "time": int(moment),
            "per_round_regret": float(each.mean()),
            "standard_deviation": float(each.std()),
        }


def verdicts(rows: list[Row]) -> list[Row]:
    """What `regrets` shows of the paper's claims: shuffle against central, local against shuffle, learning at all."""
    by = {(row["model"], row["calibration"], row["epsilon"]): row for row in rows}
    told = []
    for (model, calibration, epsilon), row in by.items():
        if model != "shuffle":
            continue
        central, local = by["central", calibration, epsilon], by["local", calibration, epsilon]
        told.append(
            {
                "calibration": calibration,
                "epsilon": epsilon,
                "shuffle_over_central": row["regret_mean"] / central["regret_mean"],
                "local_over_shuffle": local["regret_mean"] / row["regret_mean"],
                "shuffle_over_uniform": row["regret_mean"] / row["uniform_regret"],
                "private": bool(row["holds"] and central["holds"] and local["holds"]),
            }
        )
    return told
