"""Simulation of experiments in one process: runs of seeds, and summaries of runs."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from privateer_core.privacy.certificate import certify
from privateer_core.privacy.terms import Terms
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_lab.environments import Environment
from privateer_lab.planning.admission import concerns_before_start
from privateer_lab.simulation.delayed_reports import LateSimulation, describe_assumptions, find_report_delay
from privateer_lab.simulation.parallel import Backend, run_tasks
from privateer_lab.simulation.scores import replace_nan
from privateer_lab.simulation.simulation import COST_FIGURES, FIGURES, ReturningSimulation, Run, Simulation
from privateer_server.rounds.schedule import Schedule, Step

_MAX_SERIAL_RUNS: Final = 20
"""Most runs of a few thousand participants that take less time than the start of a second process."""


def list_figures(spec: Spec) -> list[str]:
    """List the names of the figures of a spec's run."""
    return [*FIGURES, *make_simulation(spec, 0).facts(), *COST_FIGURES]


def simulate_once(spec: Spec, seed: int, watch: Callable[[Step], object] | None = None) -> Run:
    """Simulate a spec with a population to its horizon; a seed gives one run. ``watch`` sees each round and the end."""
    return run_to_end(make_simulation(spec, seed), watch).build_run()


def run_to_end(run: Simulation, watch: Callable[[Step], object] | None = None) -> Simulation:
    """Run a simulation from its current state to the horizon, and return it; ``watch`` as in `simulate_once`."""
    while run.step.batch_size:
        if watch:
            watch(run.step)
        run.close_round()
    if run.finish() and watch:
        watch(run.step)
    return run


def make_simulation(spec: Spec, seed: int, environment: Environment | None = None) -> Simulation:
    """Make a spec's simulation, with returning people, delays or neither, in its population or another environment."""
    if isinstance(spec, ArmsSpec) and spec.experiment.reports_per_person > 1:
        return ReturningSimulation(spec, seed, environment)
    if find_report_delay(spec):
        return LateSimulation(spec, seed, environment)
    return Simulation(spec, seed, environment)


def simulate(spec: Spec, seeds: int, jobs: int | None = None, backend: Backend = "processes") -> Iterator[Run]:
    """Yield the runs of seeds 0..seeds-1 as they finish, on ``jobs`` processes; without their paths.

    The default is one process a core, or this process alone if runs are shorter than the start of a process.
    """
    if not jobs and seeds <= _MAX_SERIAL_RUNS and Schedule(spec).open(0).policy.draw is not None:
        jobs = 1
    return run_tasks(simulate_without_path, [(spec, seed) for seed in range(seeds)], jobs, backend)


def simulate_without_path(spec: Spec, seed: int) -> Run:
    """Simulate as `simulate_once`, and keep only the end of the path, to save memory."""
    run = simulate_once(spec, seed)
    return replace(run, path=run.path[-1:])


_ERROR_FIGURE: Final = "effect_error"
"""The figure that is a root mean square over effects, and therefore over runs."""
_MIN_CLIPPED_SHARE: Final = 0.01
"""Smallest share of clipped rewards that is worth a warning."""


def half_width_95(values: NDArray[np.float64]) -> float | None:
    """Return the half-width of the 95 % interval of a mean of independent values, (n,), by Student's t; None if n < 2.

    The interval is exact for normal values; for the regrets of a few runs it is approximate.
    """
    if len(values) < 2:
        return None
    return float(stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / len(values) ** 0.5)


def is_gaining(runs: Sequence[Run]) -> bool:
    """Whether runs lose significantly less than the best single arm does."""
    gains = np.array([run.best_constant_regret - run.regret for run in runs])
    half_width = half_width_95(gains)
    return half_width is not None and float(gains.mean()) > half_width


def summarize(spec: Spec, runs: list[Run], started: float) -> dict[str, Any]:
    """Summarize runs: means of figures, 95 % intervals of regret (`half_width_95`), and the total account."""
    runs = sorted(runs, key=lambda run: run.seed)
    wall = time.perf_counter() - started
    means = {name: _average_figure([run.facts[name] for run in runs]) for name in runs[0].facts}
    if _ERROR_FIGURE in means:
        squared = _average_figure([run.facts[_ERROR_FIGURE] ** 2 for run in runs])
        means[_ERROR_FIGURE] = None if squared is None else math.sqrt(squared)
    terms = list({(term.event, term.epsilon, term.delta): term for run in runs for term in run.terms}.values())
    return {
        **regret_figures([run.regret for run in runs]),
        "uniform_regret": _average_figure([run.uniform_regret for run in runs]),
        "best_constant_regret": _average_figure([run.best_constant_regret for run in runs]),
        "reward_mean": _average_figure([run.reward for run in runs]),
        **means,
        "clients_mean": _average_figure([run.costs.people for run in runs]),
        "messages_mean": _average_figure([run.costs.messages for run in runs]),
        "bytes_mean": _average_figure([run.costs.bytes for run in runs]),
        "bits_mean": _average_figure([run.costs.bits for run in runs]),
        "rounds_mean": _average_figure([run.rounds for run in runs]),
        **describe_promise(spec, terms),
        "assumed": describe_assumptions(spec),
        "warnings": [*list_warnings(spec, terms, means, gains=is_gaining(runs)), *warn_of_better_constant(spec, runs)],
        "users": runs[0].people,
        "people": msgspec.to_builtins(reduce(add, (run.account for run in runs))),
        "seeds": len(runs),
        "users_per_second": sum(run.people for run in runs) / wall,
        "wall_seconds": wall,
        "runs": [{"seed": run.seed, **replace_nan(run.figures())} for run in runs],
    }


def regret_figures(regrets: list[float]) -> dict[str, float | None]:
    """Return the mean regret with its 95 % interval, and the worst."""
    values = np.array(regrets)
    worst = float(np.max(values))
    return {"regret_mean": float(values.mean()), "regret_ci95": half_width_95(values), "regret_worst": worst}


def warn_of_better_constant(spec: Spec, runs: list[Run]) -> list[str]:
    """Warn if in some runs a single arm would have earned more than a contextual algorithm.

    Experiments that compare arms are left out, since they go on with worse arms by design.
    """
    informative_runs = [run for run in runs if run.best_constant_regret > 0 and "judged" not in run.facts]
    ratios = [run.regret / run.best_constant_regret for run in informative_runs] if spec.features else []
    above = [ratio for ratio in ratios if ratio > 1]
    if not above:
        return []
    scope = f"in {len(above)} of {len(ratios)} runs" if len(ratios) > 1 else "in this run"
    return [
        f"{scope} people got less than the best single option would have given them (regret up to {max(above):.2f} "
        "times as large): what contexts are worth did not repay what learning them costs. More people, a larger "
        'epsilon or fewer features may change that; algorithm.name = "bandit" looks for the best single option alone'
    ]


def _average_figure(values: list[float]) -> float | None:
    """Return the mean over runs with the figure; None without any."""
    observed = [value for value in values if not math.isnan(value)]
    return float(np.mean(observed)) if observed else None


def describe_promise(spec: Spec, terms: list[Terms]) -> dict[str, Any]:
    """Return the promise to a participant, and the largest delta that the accountant computes at its epsilon.

    A participant is in one round, so the promise of an experiment is its worst round's (parallel composition).
    """
    privacy = spec.privacy
    certificate = msgspec.to_builtins(certify(spec.name, privacy, terms)) if terms else None
    promised: dict[str, Any] = {"epsilon": None, "delta": None, "true_delta": None, "holds": None}
    if terms and privacy.trust.promises:
        promised = {
            "epsilon": privacy.epsilon,
            "delta": privacy.delta,
            "true_delta": max(term.true_delta for term in terms),
            "holds": all(term.keeps_promise for term in terms),
        }
    return {**promised, "certificate": certificate}


def _warn_of_few_participants(spec: Spec) -> list[str]:
    """Warn if rounds are larger than the number of returning participants."""
    times = spec.reports
    if times == 1 or not isinstance(spec, ArmsSpec):
        return []
    people, max_batch = spec.experiment.horizon // times, spec.largest_batch()
    if max_batch <= people:
        return []
    return [
        f"with experiment.reports_per_person = {times} the horizon is that of {people:,} people, and rounds have up to "
        f"{max_batch:,}, each of another person. Raise experiment.horizon, or lower min_round_fraction, round_size or "
        "reports_per_person"
    ]


def list_warnings(spec: Spec, terms: list[Terms], facts: dict[str, float | None], *, gains: bool = False) -> list[str]:
    """List warnings about a spec and its runs, which may gain."""
    sentences, delta = [*concerns_before_start(spec, gains=gains), *_warn_of_few_participants(spec)], spec.privacy.delta
    n_participants = getattr(spec.experiment, spec.people_key)
    if delta * n_participants > 1:
        sentences.append(
            f"delta {delta:g} protects nobody: a mechanism that publishes the records of {100 * delta:.3g}% of the "
            f"people keeps it. Choose a delta well below 1/{n_participants}; 1e-6 is usual"
        )
    if not all(term.keeps_promise for term in terms):
        sentences.append("the calibration does not keep its promise: compare true_delta with delta")
    if (clipped := facts.get("clipped_share") or 0.0) > _MIN_CLIPPED_SHARE:
        sentences.append(
            f"at least {clipped:.0%} of the reported averages were clipped: rewards are larger than their stated "
            "range. Widen reward.low and reward.high"
        )
    return sentences
