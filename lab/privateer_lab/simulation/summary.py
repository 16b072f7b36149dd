"""The summary of a simulation's runs: figures over seeds, the promise and whether it is true, and warnings."""

import math
import time
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
from privateer_lab.planning.admission import concerns_before_start
from privateer_lab.simulation.delayed_reports import assumed
from privateer_lab.simulation.simulate import Run

_ERROR: Final = "effect_error"
"""A root mean square over effects, and so over runs: the mean of several would be one of absolute errors."""
_CLIPPED: Final = 0.01
"""Share of clipped rewards that is worth a warning."""


def interval(values: NDArray[np.float64]) -> float | None:
    """Return half of the 95 % interval of the mean of independent values, (n,), by Student's t; None for one value.

    The interval is exact for normal values; for the regrets of a few runs it is approximate.
    """
    if len(values) < 2:
        return None
    return float(stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / len(values) ** 0.5)


def summary(spec: Spec, runs: list[Run], started: float) -> dict[str, Any]:
    """Return figures over runs, and the account of the people of all; regret intervals are 95 % (`interval`)."""
    runs = sorted(runs, key=lambda run: run.seed)
    wall = time.perf_counter() - started
    means = {name: _mean([run.facts[name] for run in runs]) for name in runs[0].facts}
    means |= {name: _root_mean_square([run.facts[name] for run in runs]) for name in means if name == _ERROR}
    terms = list({(one.event, one.epsilon, one.delta): one for run in runs for one in run.terms}.values())
    return {
        **regret_figures([run.regret for run in runs]),
        "uniform_regret": _mean([run.uniform_regret for run in runs]),
        "best_constant_regret": _mean([run.best_constant_regret for run in runs]),
        "reward_mean": _mean([run.reward for run in runs]),
        **means,
        "clients_mean": _mean([run.costs.people for run in runs]),
        "messages_mean": _mean([run.costs.messages for run in runs]),
        "bytes_mean": _mean([run.costs.bytes for run in runs]),
        "bits_mean": _mean([run.costs.bits for run in runs]),
        "rounds_mean": _mean([run.rounds for run in runs]),
        **promise(spec, terms),
        "assumed": assumed(spec),
        "warnings": [*warnings(spec, terms, means), *behind_the_constant(spec, runs)],
        "users": runs[0].people,
        "people": msgspec.to_builtins(reduce(add, (run.account for run in runs))),
        "seeds": len(runs),
        "users_per_second": sum(run.people for run in runs) / wall,
        "wall_seconds": wall,
        "runs": [{"seed": run.seed, **_known(run.figures())} for run in runs],
    }


def regret_figures(regrets: list[float]) -> dict[str, float | None]:
    """Return the mean regret with its 95 % interval, and the worst."""
    values = np.array(regrets)
    worst = float(np.max(values))
    return {"regret_mean": float(values.mean()), "regret_ci95": interval(values), "regret_worst": worst}


def behind_the_constant(spec: Spec, runs: list[Run]) -> list[str]:
    """Say in how many runs one option for everybody would have earned more than an algorithm that looks at contexts.

    Experiments that compare arms are left out: they go on with arms that they know to be worse.
    """
    learned = [run for run in runs if run.best_constant_regret > 0 and "judged" not in run.facts]
    ratios = [run.regret / run.best_constant_regret for run in learned] if spec.features else []
    behind = [ratio for ratio in ratios if ratio > 1]
    if not behind:
        return []
    where = f"in {len(behind)} of {len(ratios)} runs" if len(ratios) > 1 else "in this run"
    return [
        f"{where} people got less than the best single option would have given them (regret up to {max(behind):.2f} "
        "times as large): what contexts are worth did not repay what learning them costs. More people, a larger "
        'epsilon or fewer features may change that; algorithm.name = "bandit" looks for the best single option alone'
    ]


def _mean(values: list[float]) -> float | None:
    """Return the mean over runs that have the figure; None if none has."""
    some = [value for value in values if not math.isnan(value)]
    return float(np.mean(some)) if some else None


def _root_mean_square(values: list[float]) -> float | None:
    squared = _mean([value**2 for value in values])
    return None if squared is None else math.sqrt(squared)


def _known(figures: dict[str, Any]) -> dict[str, Any]:
    """Return figures with None for what a run does not have."""
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in figures.items()}


def promise(spec: Spec, terms: list[Terms]) -> dict[str, Any]:
    """Return what a person is promised, and the largest delta that the accountant finds at that epsilon.

    A person is in one round, so the promise of an experiment is its worst round's (parallel composition).
    """
    privacy = spec.privacy
    certificate = msgspec.to_builtins(certify(spec.name, privacy, terms)) if terms else None
    promised: dict[str, Any] = {"epsilon": None, "delta": None, "true_delta": None, "holds": None}
    if terms and privacy.trust.promises:
        promised = {
            "epsilon": privacy.epsilon,
            "delta": privacy.delta,
            "true_delta": max(one.true_delta for one in terms),
            "holds": all(one.holds for one in terms),
        }
    return {**promised, "certificate": certificate}


def _too_few(spec: Spec) -> list[str]:
    """Say that rounds have room for more people than come back, if they have."""
    times = spec.reports
    if times == 1 or not isinstance(spec, ArmsSpec):
        return []
    people, most = spec.experiment.horizon // times, spec.largest_batch()
    if most <= people:
        return []
    return [
        f"with experiment.reports_per_person = {times} the horizon is that of {people:,} people, and rounds have up to "
        f"{most:,}, each of another person. Raise experiment.horizon, or lower round_growth, round_size or "
        "reports_per_person"
    ]


def warnings(spec: Spec, terms: list[Terms], facts: dict[str, float | None]) -> list[str]:
    """Say what the figures alone do not say."""
    found, delta = [*concerns_before_start(spec), *_too_few(spec)], spec.privacy.delta
    people = getattr(spec.experiment, spec.people_key)
    if delta * people > 1:
        found.append(
            f"delta {delta:g} protects nobody: a mechanism that publishes the records of {100 * delta:.3g}% of the "
            f"people keeps it. Choose a delta well below 1/{people}; 1e-6 is usual"
        )
    if not all(one.holds for one in terms):
        found.append("the calibration does not keep its promise: compare true_delta with delta")
    if (clipped := facts.get("clipped_share") or 0.0) > _CLIPPED:
        found.append(
            f"at least {clipped:.0%} of the reported averages were clipped: rewards are larger than their stated "
            "range. Widen reward.low and reward.high"
        )
    return found
