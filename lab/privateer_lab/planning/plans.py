"""Planning: what an experiment would cost and earn under other promises, before anybody is asked for data."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from privateer_core.accounting.amplification import shuffled_delta
from privateer_core.accounting.events import ShuffledResponse
from privateer_core.algorithms import parse_spec
from privateer_core.errors import SpecError
from privateer_core.privacy.record import planned_of
from privateer_core.privacy.terms import allotment_of
from privateer_core.privacy.trust import BATCH_MIN, TRUST, Trust, honest_people
from privateer_core.spec.privacy import BATCH_MAX, Privacy
from privateer_core.spec.spec import Spec
from privateer_lab.planning.segment_shares import shares_of_segments
from privateer_lab.simulation.delayed_reports import waiting_of
from privateer_lab.simulation.parallel import Backend, each
from privateer_lab.simulation.simulate import Run
from privateer_lab.simulation.summary import regret_figures
from privateer_server.algorithms import Foreseeing, learner_for

MODELS: Final = tuple(name for name, row in TRUST.items() if row.promises)
_OF_PROMISES: Final = frozenset({"min_batch", "local_epsilon_max"})
"""Keys of ``[privacy]`` whose defaults depend on the promise."""
EPSILON_MAX: Final = 16
EPSILONS: Final = (0.5, 1.0, 2.0, 4.0)
SHARES: Final = (0.5, 0.8)
_DELTA: Final = 1e-6
_WINDOW: Final = 1.25
"""Gains are averaged over this range of the number of choices."""


@dataclass(frozen=True)
class Variant:
    """A spec under one promise."""

    model: str
    epsilon: float
    spec: Spec


@dataclass(frozen=True)
class Refused:
    """A promise that an experiment cannot keep, or under which it cannot find what it is for."""

    model: str
    epsilon: float
    error: SpecError

    @property
    def row(self) -> dict[str, Any]:
        """What plans say of it."""
        return {"model": self.model, "epsilon": self.epsilon, "why": str(self.error)}


def trust_models(names: Iterable[str], known: Sequence[str] = MODELS, field: str = "trust") -> list[str]:
    """Return names of trust models; refuse none, and those that are not known here."""
    found = [names] if isinstance(names, str) else list(names)
    if not found or not set(found) <= set(known):
        detail = "must be trust models that are served here"
        raise SpecError(detail, field=field, remedy=f"choose from {', '.join(known)}")
    return found


def epsilons_of(values: Iterable[Any] | float, field: str = "epsilon") -> list[float]:
    """Return values of epsilon; refuse none, and what is no epsilon."""
    found = [values] if isinstance(values, int | float) else list(values)
    if not found or not all(isinstance(one, int | float) and 0 < one <= EPSILON_MAX for one in found):
        detail = f"must be numbers above 0, at most {EPSILON_MAX}"
        raise SpecError(detail, field=field, remedy="give a number or several, such as .5, 1 and 2")
    return [float(one) for one in found]


def possible(spec: Spec, models: Iterable[str], epsilons: Iterable[float]) -> tuple[list[Variant], list[Refused]]:
    """Return the variants that are possible, and why others are not."""
    found: list[Variant] = []
    refused: list[Refused] = []
    promised = tuple(epsilons)
    for model in models:
        for epsilon in promised if TRUST[model].promises else (math.inf,):
            try:
                found += variants(spec, [model], [epsilon])
            except SpecError as error:
                refused.append(Refused(model, epsilon, error))
    if not found:
        raise refused[0].error
    return found, refused


def variants(spec: Spec, models: Iterable[str], epsilons: Iterable[float]) -> list[Variant]:
    """Return the spec under each trust model at each epsilon; sources keep their own promises.

    A model that promises nothing has one variant, whose epsilon is infinite. Where people come back, all have as many
    choices. Where reports are shuffled, rounds of a fixed size become as large as ``min_batch``. Where delta is needed
    and the spec has none, it is 1e-6. Keys of ``[privacy]`` and ``round_size`` that the spec does not say are those of
    each promise; ``local_epsilon_max`` rises to the largest promise, including those of sources. Keys that need a batch
    are left out where there is none.
    """
    promised = tuple(epsilons)
    return [
        Variant(model, epsilon, _under(spec, model, epsilon))
        for model in models
        for epsilon in (promised if TRUST[model].promises else (math.inf,))
    ]


def _under(spec: Spec, model: str, epsilon: float) -> Spec:
    row, data = TRUST[model], spec.model_dump(exclude_none=True)
    for name in _OF_PROMISES - spec.privacy.model_fields_set:
        del data["privacy"][name]
    if "round_size" not in spec.experiment.model_fields_set:
        data["experiment"].pop("round_size", None)
    delta = (spec.privacy.delta or _DELTA) if row.delta_least else 0.0
    data["privacy"] |= {"model": model, "epsilon": epsilon, "delta": delta}
    if not row.promises:
        del data["privacy"]["epsilon"]
    if row.batched and any(mechanism.pure for mechanism in row.serves[spec.question].mechanisms):
        data["privacy"]["local_epsilon_max"] = _limit(spec, Privacy(model=model, epsilon=epsilon))
    if not row.batched:
        data["algorithm"] = {
            key: value for key, value in data["algorithm"].items() if key not in spec.capabilities.batched_keys
        }
    if row.batched and "round_size" in data["experiment"]:
        least = data["privacy"].get("min_batch", Privacy(model=model, epsilon=epsilon).min_batch)
        data["experiment"]["round_size"] = max(data["experiment"]["round_size"], least)
    if spec.experiment.reports_per_person > 1:
        _with_as_many_choices(spec, row, data["experiment"])
    try:
        return parse_spec(data)
    except SpecError as error:
        remedy = "change it, or choose other trust models"
        raise SpecError(error.detail, field=_under_which(error, model, epsilon), remedy=remedy) from None


def _under_which(error: SpecError, model: str, epsilon: float) -> str:
    """Return the field of an error, with the promise under which it is one."""
    return f"{error.field}, under the {model} model at epsilon {epsilon:g}"


def _with_as_many_choices(spec: Spec, row: Trust, table: dict[str, Any]) -> None:
    """Make the horizon, which counts reports, one of as many choices under a trust model that draws one of them."""
    times = spec.experiment.reports_per_person
    choices = spec.experiment.horizon * times // spec.reports
    table["horizon"] = max(1, choices // times) if row.draws_one else choices
    if "round_size" in table:
        table["round_size"] = min(table["round_size"], table["horizon"])


def _limit(spec: Spec, promise: Privacy) -> float:
    """Return the most that a report may cost by itself: what the spec says, or by default. No promise may exceed it."""
    given = "local_epsilon_max" in spec.privacy.model_fields_set
    stated = spec.privacy.local_epsilon_max if given else promise.local_epsilon_max
    return max(promise.bound, stated, *(source.epsilon or 0.0 for source in spec.sources))


def refusal(spec: Spec, error: SpecError) -> SpecError:
    """Return the error of a learner that refuses what a spec alone does not: too few people for what it is to find."""
    where = _under_which(error, spec.privacy.model, spec.privacy.bound)
    remedy = f"{error.remedy or 'change it'}; or choose other trust models and epsilons"
    return SpecError(error.detail, field=where, remedy=remedy)


def people_needed(run: Run, share: float) -> int | None:
    """Return after how many people the policy earns this share of what the best policy earns above the best constant.

    The share is that of the people within a quarter more. It is None if no policy of the run has it, or no constant
    option is worse for anybody. Where a choice is made for everybody, the number is that of the choices.
    """
    people, regret, constant, _ = _curves(run)
    ends = np.minimum(np.searchsorted(people, _WINDOW * people, side="left"), len(people) - 1)
    lost, could = regret[ends] - regret, constant[ends] - constant
    worthwhile = (could > 0) & (ends > np.arange(len(people)))
    reached = worthwhile & (lost <= (1 - share) * could)
    return int(people[reached][0]) if reached.any() else None


def _curves(run: Run) -> NDArray[np.float64]:
    """Return the path from its beginning, shape (4, points)."""
    return np.array([(0, 0.0, 0.0, 0.0), *run.path]).T


def outcome(variant: Variant, runs: list[Run]) -> dict[str, Any]:
    """Return what a promise costs and earns: regret with its spread, and people needed (median over seeds)."""
    figures = regret_figures([run.regret for run in runs])
    mean, constant = figures["regret_mean"], float(np.mean([run.best_constant_regret for run in runs]))
    return {
        "model": variant.model,
        "epsilon": variant.epsilon,
        "delta": variant.spec.privacy.delta,
        "people": runs[0].choices,
        "seeds": len(runs),
        **figures,
        "best_constant_regret": constant,
        "uniform_regret": float(np.mean([run.uniform_regret for run in runs])),
        "gain": 1 - mean / constant if mean is not None and constant > 0 else None,
        "people_needed": {f"{share:g}": _median([people_needed(run, share) for run in runs]) for share in SHARES},
        "path": curve(runs),
    }


def foreseen(wanted: Iterable[Variant], jobs: int | None = 1, backend: Backend = "processes") -> list[dict[str, Any]]:
    """Return what each promise lets a learner find, where learners know it before anybody is asked."""
    tasks = [(variant,) for variant in wanted if hasattr(type(learner_for(variant.spec)), "foreseen")]
    if not tasks:
        return []
    found = {(one["model"], one["epsilon"]): one for one in each(_foresee, tasks, jobs, backend)}
    return [found[variant.model, variant.epsilon] for (variant,) in tasks]


def _foresee(variant: Variant) -> dict[str, Any]:
    learner = cast(Foreseeing, learner_for(variant.spec))
    tables = learner.foreseen(waiting_of(variant.spec), shares_of_segments(variant.spec))
    return {"model": variant.model, "epsilon": variant.epsilon, "tables": tables}


def with_finite(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows whose epsilon is None where nothing is promised, as documents have no infinity."""
    return [{**row, "epsilon": row["epsilon"] if math.isfinite(row["epsilon"]) else None} for row in rows]


def _median(found: list[int | None]) -> int | None:
    """Return the median, where None counts as more than any number."""
    ordered = sorted(found, key=lambda value: (value is None, value))
    return ordered[len(ordered) // 2]


def curve(runs: list[Run], points: int = 24) -> list[dict[str, float]]:
    """Return mean and worst regret a choice against choices, in geometric steps."""
    first, last = max(run.path[0][0] for run in runs), runs[0].choices
    at = np.unique(np.geomspace(min(first, last), last, points).astype(np.int64))
    curves = [_curves(run) for run in runs]
    regrets = np.array([np.interp(at, seen, regret) for seen, regret, *_ in curves]) / at
    rows = zip(at.tolist(), regrets.mean(axis=0).tolist(), regrets.max(axis=0).tolist(), strict=True)
    return [{"people": people, "regret_mean": mean, "regret_worst": worst} for people, mean, worst in rows]


@lru_cache(maxsize=256)
def smallest_batch(privacy: Privacy, epsilon: float, local_epsilon: float, reports: int = 1) -> int | None:
    """Return the smallest batch with which reports of ``local_epsilon`` each keep a promise of ``epsilon`` shuffled.

    So many ``reports`` of a person share the promise. None if no batch that a spec may name is large enough. The number
    is for reports of two symbols, which need the most (docs/privacy/vectors.md): larger alphabets, and symbols
    of vectors, need fewer.
    """
    delta = privacy.delta or _DELTA
    share = allotment_of(privacy.trust, epsilon, delta, reports)

    def enough(batch: int) -> bool:
        honest = honest_people(privacy, batch)
        if share is not None and honest:
            return share.covers(ShuffledResponse(local_epsilon, 2, honest))
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


def batches(wanted: Iterable[Variant]) -> list[dict[str, Any]]:
    """Return, for each promise about a batch, the least ``min_batch`` that doubles a report's epsilon, and at its most.

    Without a batch it would be the promise's, shared by all reports of a person.
    Reports without an epsilon of their own are left out: they are private in a batch of any size or in none.
    """
    return [_batches(one.spec.privacy, one.epsilon, one.spec.reports) for one in wanted if _amplified(one.spec)]


def _amplified(spec: Spec) -> bool:
    terms = spec.planned("")
    return terms is not None and terms.trust.batched and math.isfinite(terms.mechanism.local_epsilon)


def _batches(privacy: Privacy, epsilon: float, reports: int) -> dict[str, Any]:
    limit, double = privacy.local_epsilon_max, 2 * epsilon / reports
    return {
        "epsilon": epsilon,
        "delta": privacy.delta,
        "min_batch_to_double": smallest_batch(privacy, epsilon, double, reports) if double <= limit else None,
        "local_epsilon_max": limit,
        "min_batch_at_max": smallest_batch(privacy, epsilon, limit, reports),
    }


def first_rounds(wanted: Iterable[Variant]) -> list[dict[str, Any]]:
    """Return the people of each first round, and the mechanism of a report as records name it.

    A round that begins with several bins, of levels or of many features, has more keys than are planned here; where
    events are rare that may change the mechanism.
    """
    return [row for one in wanted if (row := _first_round(one))]


def _first_round(variant: Variant) -> dict[str, Any] | None:
    terms = variant.spec.planned("")
    if terms is None:
        return None
    return {
        "model": variant.model,
        "epsilon": variant.epsilon,
        "people": terms.batch,
        "mechanism": planned_of(terms).mechanism["type"],
    }
