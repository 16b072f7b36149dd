"""Planning: what an experiment would cost and earn under other promises, before anybody is asked for data."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer.accounting.amplification import shuffled_delta
from privateer.errors import SpecError
from privateer.experiment import BATCH_MAX, BATCH_MIN, Model, Privacy, Spec, parse_spec
from privateer.terms import honest_count
from privateer_lab.interval import interval
from privateer_lab.parallel import Backend, each
from privateer_lab.simulation import Run, simulate_once

MODELS: Final[tuple[Model, ...]] = ("local", "shuffle", "central")
EPSILON_MAX: Final = 16
EPSILONS: Final = (0.5, 1.0, 2.0, 4.0)
SHARES: Final = (0.5, 0.8)
_DELTA: Final = 1e-6
_WINDOW: Final = 1.25
"""What people gain is averaged over this range of their number."""


@dataclass(frozen=True)
class Variant:
    """A spec under one promise."""

    model: Model
    epsilon: float
    spec: Spec


def variants(spec: Spec, models: Iterable[Model], epsilons: Iterable[float]) -> list[Variant]:
    """The spec under each trust model at each epsilon; sources keep what they are promised.

    Under shuffle rounds are made as large as ``min_batch``; where delta is needed and the spec has none it is 1e-6.
    ``local_epsilon_max`` is raised to the largest promise, a source's among them.

    Raises
    ------
    SpecError
        If the spec cannot be under one of them, e.g. with rounds of ``min_batch`` beyond its horizon.
    """
    return [Variant(model, epsilon, _under(spec, model, epsilon)) for model in models for epsilon in epsilons]


def _under(spec: Spec, model: Model, epsilon: float) -> Spec:
    given = spec.privacy.model_dump()
    delta = 0.0 if model == "local" else spec.privacy.delta or _DELTA
    limit = max(epsilon, spec.privacy.local_epsilon_max, *(source.epsilon or 0.0 for source in spec.sources))
    changes = {"model": model, "epsilon": epsilon, "delta": delta, "local_epsilon_max": limit, "calibration": "tight"}
    size = spec.experiment.round_size
    if model == "shuffle":
        size = max(size, spec.privacy.min_batch)
    data = spec.model_dump() | {"privacy": given | changes}
    data["experiment"]["round_size"] = size
    try:
        return parse_spec(data)
    except SpecError as error:
        where = f"{error.field}, under the {model} model at epsilon {epsilon:g}"
        raise SpecError(error.detail, field=where, remedy="change it, or choose others with --models") from None


def runs_of(wanted: list[Variant], seeds: int, jobs: int | None, backend: Backend) -> Iterator[tuple[int, Run]]:
    """Runs of every variant, with its place, as they come."""
    tasks = [(place, variant.spec, seed) for seed in range(seeds) for place, variant in enumerate(wanted)]
    return each(_run, tasks, jobs, backend)


def _run(place: int, spec: Spec, seed: int) -> tuple[int, Run]:
    return place, simulate_once(spec, seed)


def people_needed(run: Run, share: float) -> int | None:
    """People after whom the policy has this share of what the best policy earns above the best constant arm.

    The share is of the people within a quarter more; None if no policy of the run has it, or no arm is worse for
    anybody.
    """
    people, regret, constant, _ = np.array([(0, 0.0, 0.0, 0.0), *run.path]).T
    ends = np.minimum(np.searchsorted(people, _WINDOW * people, side="left"), len(people) - 1)
    lost, could = regret[ends] - regret, constant[ends] - constant
    worthwhile = (could > 0) & (ends > np.arange(len(people)))
    reached = worthwhile & (lost <= (1 - share) * could)
    return int(people[reached][0]) if reached.any() else None


def outcome(variant: Variant, runs: list[Run]) -> dict[str, Any]:
    """What a promise costs and earns: regret with its spread, and people needed (median over seeds)."""
    regret = np.array([run.regret for run in runs])
    constant = float(np.mean([run.best_constant_regret for run in runs]))
    return {
        "model": variant.model,
        "epsilon": variant.epsilon,
        "delta": variant.spec.privacy.delta,
        "people": runs[0].people,
        "regret_mean": float(regret.mean()),
        "regret_ci95": interval(regret),
        "regret_worst": float(regret.max()),
        "best_constant_regret": constant,
        "gain": 1 - float(regret.mean()) / constant if constant > 0 else None,
        "people_needed": {f"{share:g}": _median([people_needed(run, share) for run in runs]) for share in SHARES},
        "path": curve(runs),
    }


def _median(found: list[int | None]) -> int | None:
    """None counts as more than any number."""
    ordered = sorted(found, key=lambda value: (value is None, value))
    return ordered[len(ordered) // 2]


def curve(runs: list[Run], points: int = 24) -> list[dict[str, float]]:
    """Mean and worst regret a person against people, at numbers of people in geometric steps."""
    first, last = max(run.path[0][0] for run in runs), runs[0].people
    at = np.unique(np.geomspace(min(first, last), last, points).astype(np.int64))
    regrets = np.array([_regret_at(run, at) for run in runs]) / at
    rows = zip(at.tolist(), regrets.mean(axis=0).tolist(), regrets.max(axis=0).tolist(), strict=True)
    return [{"people": people, "regret_mean": mean, "regret_worst": worst} for people, mean, worst in rows]


def _regret_at(run: Run, people: NDArray[np.int64]) -> NDArray[np.float64]:
    seen, regret, *_ = np.array([(0, 0.0, 0.0, 0.0), *run.path]).T
    return np.asarray(np.interp(people, seen, regret))


@lru_cache(maxsize=256)
def smallest_batch(privacy: Privacy, epsilon: float, local_epsilon: float) -> int | None:
    """The smallest batch whose reports may cost ``local_epsilon`` alone and keep a promise of ``epsilon`` shuffled.

    One that a spec may name: None if none is large enough. For a report of two symbols; larger alphabets need a
    little more.
    """

    def enough(batch: int) -> bool:
        honest, delta = honest_count(privacy, batch), privacy.delta or _DELTA
        return honest > 0 and shuffled_delta(epsilon, local_epsilon, 2, honest) <= delta

    low, high = BATCH_MIN - 1, BATCH_MIN
    while not enough(high):
        if high == BATCH_MAX:
            return None
        low, high = high, min(4 * high, BATCH_MAX)
    while high - low > max(1, low // 1000):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def batches(spec: Spec, epsilons: Iterable[float]) -> list[dict[str, Any]]:
    """For each promise under shuffle: the smallest ``min_batch`` that doubles a report's epsilon, and that frees it.

    As in the runs (`variants`) a report may cost the promise at least.
    """
    return [_batches(spec.privacy, epsilon, max(epsilon, spec.privacy.local_epsilon_max)) for epsilon in epsilons]


def _batches(privacy: Privacy, epsilon: float, limit: float) -> dict[str, Any]:
    return {
        "epsilon": epsilon,
        "delta": privacy.delta or _DELTA,
        "min_batch_to_double": smallest_batch(privacy, epsilon, 2 * epsilon) if 2 * epsilon <= limit else None,
        "local_epsilon_max": limit,
        "min_batch_at_max": smallest_batch(privacy, epsilon, limit),
    }
