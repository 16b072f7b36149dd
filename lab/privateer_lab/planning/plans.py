"""Plans of a spec under several privacy promises: variants, detectable effects, regret and batches."""

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
from privateer_core.privacy.record import describe_terms
from privateer_core.privacy.terms import report_allotment
from privateer_core.privacy.trust import BATCH_MIN, TRUST, Crowd, count_honest
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.privacy import BATCH_MAX, Privacy
from privateer_core.spec.spec import Spec
from privateer_lab.environments import environment_for
from privateer_lab.simulation.delayed_reports import expected_pending
from privateer_lab.simulation.parallel import Backend, run_tasks
from privateer_lab.simulation.scores import encode_contexts, is_comparing
from privateer_lab.simulation.simulate import regret_figures
from privateer_lab.simulation.simulation import Run
from privateer_server.algorithms import ForecastingLearner, learner_for
from privateer_server.rounds.schedule import Schedule

_MAX_SAMPLE: Final = 20_000
"""Most simulated participants from whom segment shares are estimated."""


def find_segment_shares(spec: Spec) -> dict[str, float]:
    """Return the share of a spec's participants in each segment, in order; empty without population or segments."""
    if spec.population is None or not isinstance(spec, ArmsSpec):
        return {}
    policy: Any = Schedule(spec).open(0).policy
    if not is_comparing(policy):
        return {}
    compared = ((group, name, arm) for name, group, arm, _ in policy.comparisons(spec) if group is not None)
    names = {group: name.removeprefix(f"{spec.options[arm]}: ") for group, name, arm in compared}
    if len(names) < 2:
        return {}
    contexts = environment_for(spec, 0).contexts(0, min(_MAX_SAMPLE, spec.experiment.horizon), np.random.default_rng(0))
    groups: NDArray[np.int64] = policy.groups(encode_contexts(contexts, spec))
    counts = np.bincount(groups, minlength=max(names) + 1) / len(groups)
    return {name: float(counts[group]) for group, name in sorted(names.items())}


def find_unstated_shares(spec: Spec) -> list[float] | None:
    """Return the shares of segments, if the spec does not declare them; None if it does, or if they are unknown."""
    return (list(find_segment_shares(spec).values()) or None) if has_unstated_shares(spec) else None


def has_unstated_shares(spec: Spec) -> bool:
    """Whether the spec has segments without declared shares."""
    segments = getattr(spec, "segments", None)
    return segments is not None and segments.proportions is None


PROMISING: Final = tuple(name for name, row in TRUST.items() if row.promises)
"""Trust models that promise an epsilon."""
MODELS: Final = tuple(name for name in PROMISING if TRUST[name].is_served)
"""Those of them that services run, which plans compare by default."""
_PROMISE_KEYS: Final = frozenset({"min_batch", "local_epsilon_max"})
"""Keys of ``[privacy]`` whose defaults depend on the promise."""
EPSILON_MAX: Final = 16
EPSILONS: Final = (0.5, 1.0, 2.0, 4.0)
GAIN_SHARES: Final = (0.5, 0.8)
_DELTA: Final = 1e-6
_WINDOW_RATIO: Final = 1.25
"""Gains are averaged over this range of the number of choices."""


@dataclass(frozen=True)
class Variant:
    """A spec under one promise."""

    model: str
    epsilon: float
    spec: Spec


@dataclass(frozen=True)
class Refusal:
    """A promise that an experiment cannot keep, or under which it cannot reach its goal."""

    model: str
    epsilon: float
    error: SpecError

    @property
    def as_row(self) -> dict[str, Any]:
        """The row of a plan."""
        return {"model": self.model, "epsilon": self.epsilon, "why": str(self.error)}


def check_trust_models(names: Iterable[str], allowed: Sequence[str] = PROMISING, field: str = "trust") -> list[str]:
    """Check names of trust models, a nonempty list of allowed names."""
    models = [names] if isinstance(names, str) else list(names)
    if not models or not set(models) <= set(allowed):
        detail = "must be trust models that are served here"
        raise SpecError(detail, field=field, remedy=f"choose from {', '.join(allowed)}")
    return models


def check_epsilons(values: Iterable[Any] | float, field: str = "epsilon") -> list[float]:
    """Check values of epsilon, a nonempty list of values in range."""
    epsilons = [values] if isinstance(values, int | float) else list(values)
    if not epsilons or not all(isinstance(epsilon, int | float) and 0 < epsilon <= EPSILON_MAX for epsilon in epsilons):
        detail = f"must be numbers above 0, at most {EPSILON_MAX}"
        raise SpecError(detail, field=field, remedy="give a number or several, such as .5, 1 and 2")
    return [float(epsilon) for epsilon in epsilons]


def find_promises(spec: Spec, models: Iterable[str], epsilons: Iterable[float]) -> tuple[list[Variant], list[Refusal]]:
    """Return the possible variants, and the refused promises; raise the first error if no variant is possible."""
    variants, refused = try_promises(spec, models, epsilons)
    if not variants:
        raise refused[0].error
    return variants, refused


def try_promises(spec: Spec, models: Iterable[str], epsilons: Iterable[float]) -> tuple[list[Variant], list[Refusal]]:
    """Return the possible variants, and the refused promises, as `make_variants` makes them."""
    variants, refused = list[Variant](), list[Refusal]()
    for model, epsilon in _combine_promises(models, epsilons):
        try:
            variants.append(Variant(model, epsilon, _with_promise(spec, model, epsilon)))
        except SpecError as error:
            refused.append(Refusal(model, epsilon, error))
    return variants, refused


def make_variants(spec: Spec, models: Iterable[str], epsilons: Iterable[float]) -> list[Variant]:
    """Return the spec under each trust model at each epsilon; sources keep their own promises.

    A model that promises nothing has one variant, whose epsilon is infinite. If participants return, all have as many
    choices. Where reports are shuffled, rounds of a fixed size become as large as ``min_batch``. Where delta is needed
    and the spec has none, it is 1e-6. Keys of ``[privacy]`` and ``round_size`` that the spec does not say are those of
    each promise; ``local_epsilon_max`` rises to the largest promise, including those of sources. Keys that need a batch
    are left out where there is none.
    """
    promises = _combine_promises(models, epsilons)
    return [Variant(model, epsilon, _with_promise(spec, model, epsilon)) for model, epsilon in promises]


def _combine_promises(models: Iterable[str], epsilons: Iterable[float]) -> list[tuple[str, float]]:
    values = tuple(epsilons)
    return [(model, value) for model in models for value in (values if TRUST[model].promises else (math.inf,))]


def _with_promise(spec: Spec, model: str, epsilon: float) -> Spec:
    """Change the spec's promise, and the keys that must follow; refuse one that then cannot be parsed."""
    row, tables = TRUST[model], spec.model_dump(exclude_none=True)
    for name in _PROMISE_KEYS - spec.privacy.model_fields_set:
        del tables["privacy"][name]
    if "round_size" not in spec.experiment.model_fields_set:
        tables["experiment"].pop("round_size", None)
    delta = (spec.privacy.delta or _DELTA) if row.delta_least else 0.0
    tables["privacy"] |= {"model": model, "epsilon": epsilon, "delta": delta}
    if not row.promises:
        del tables["privacy"]["epsilon"]
    if row.crowd is Crowd.BATCH and any(mechanism.pure for mechanism in row.serves[spec.question].mechanisms):
        tables["privacy"]["local_epsilon_max"] = _find_local_epsilon_limit(spec, Privacy(model=model, epsilon=epsilon))
    if row.crowd is not Crowd.BATCH:
        batched_keys = spec.capabilities.batched_keys
        tables["algorithm"] = {key: value for key, value in tables["algorithm"].items() if key not in batched_keys}
    if row.crowd is Crowd.BATCH and "round_size" in tables["experiment"]:
        min_batch = tables["privacy"].get("min_batch", Privacy(model=model, epsilon=epsilon).min_batch)
        tables["experiment"]["round_size"] = max(tables["experiment"]["round_size"], min_batch)
    if (times := spec.experiment.reports_per_person) > 1:
        # The horizon counts reports: it changes to keep the number of choices if the trust model draws one report.
        table, choices = tables["experiment"], spec.experiment.horizon * times // spec.reports
        table["horizon"] = max(1, choices // times) if row.crowd is Crowd.NOBODY else choices
        if "round_size" in table:
            table["round_size"] = min(table["round_size"], table["horizon"])
    try:
        return parse_spec(tables)
    except SpecError as error:
        remedy = "change it, or choose other trust models"
        raise SpecError(error.detail, field=_name_field(error, model, epsilon), remedy=remedy) from None


def _name_field(error: SpecError, model: str, epsilon: float) -> str:
    """Return the field of an error, with the promise under which it occurs."""
    return f"{error.field}, under the {model} model at epsilon {epsilon:g}"


def _find_local_epsilon_limit(spec: Spec, promise: Privacy) -> float:
    """Return the largest epsilon of a single report: the spec's or the default, and no less than any promise."""
    is_stated = "local_epsilon_max" in spec.privacy.model_fields_set
    stated = spec.privacy.local_epsilon_max if is_stated else promise.local_epsilon_max
    others = [source.epsilon or 0.0 for source in spec.sources] + [tier.epsilon for tier in spec.privacy.tiers]
    return max(promise.bound, stated, *others)


def name_promise_in_error(spec: Spec, error: SpecError) -> SpecError:
    """Name the promise in a learner's error, such as too few participants for its goal."""
    field = _name_field(error, spec.privacy.model, spec.privacy.bound)
    remedy = f"{error.remedy or 'change it'}; or choose other trust models and epsilons"
    return SpecError(error.detail, field=field, remedy=remedy)


def count_until_gain_share(run: Run, share: float) -> int | None:
    """Return the number of participants after which the policy has a share of the potential gain, or None.

    The policy keeps the share from there to the end, in every window of the next quarter of participants that ends
    within the run. None if it does not, or there is no potential gain. If a choice is made for all participants,
    choices are counted.
    """
    n_choices, regret, constant, _ = _read_path(run)
    is_whole = (n_choices > 0) & (_WINDOW_RATIO * n_choices <= n_choices[-1])
    starts = np.flatnonzero(is_whole)
    ends = np.searchsorted(n_choices, _WINDOW_RATIO * n_choices[starts], side="left")
    losses, potential_gains = regret[ends] - regret[starts], constant[ends] - constant[starts]
    is_reached = (potential_gains > 0) & (losses <= (1 - share) * potential_gains)
    n_kept = int(np.logical_and.accumulate(is_reached[::-1]).sum())
    return int(n_choices[starts[-n_kept]]) if n_kept else None


def _read_path(run: Run) -> NDArray[np.float64]:
    """Return a run's path as columns, from the origin, shape (4, points)."""
    return np.array([(0, 0.0, 0.0, 0.0), *run.path]).T


def summarize_promise(variant: Variant, runs: list[Run]) -> dict[str, Any]:
    """Summarize runs under a promise: regret with its interval, and participants needed (median over seeds)."""
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
        "people_needed": {
            f"{share:g}": median_count([count_until_gain_share(run, share) for run in runs]) for share in GAIN_SHARES
        },
        "path": average_regret_curve(runs),
    }


def plan_effects(
    variants: Iterable[Variant], jobs: int | None = 1, backend: Backend = "processes"
) -> list[dict[str, Any]]:
    """Return the planned effects under each promise, for learners that plan them in advance."""
    tasks = [(variant,) for variant in variants if hasattr(type(learner_for(variant.spec)), "build_forecast")]
    if not tasks:
        return []
    plans = {(plan["model"], plan["epsilon"]): plan for plan in run_tasks(_plan_variant, tasks, jobs, backend)}
    return [plans[variant.model, variant.epsilon] for (variant,) in tasks]


def _plan_variant(variant: Variant) -> dict[str, Any]:
    learner = cast(ForecastingLearner, learner_for(variant.spec))
    tables = learner.build_forecast(expected_pending(variant.spec), find_unstated_shares(variant.spec))
    return {"model": variant.model, "epsilon": variant.epsilon, "tables": tables}


def drop_infinity(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Replace infinite epsilons of rows by None, since documents have no infinity."""
    return [{**row, "epsilon": row["epsilon"] if math.isfinite(row["epsilon"]) else None} for row in rows]


def median_count(values: list[int | None]) -> int | None:
    """Return the upper median of counts, in which None counts as infinite; None if that is the median."""
    ordered = sorted(values, key=lambda value: (value is None, value))
    return ordered[len(ordered) // 2]


def average_regret_curve(runs: list[Run], points: int = 24) -> list[dict[str, float]]:
    """Return mean and worst regret per choice against the number of choices, on a geometric grid."""
    first, last = max(run.path[0][0] for run in runs), runs[0].choices
    grid = np.unique(np.geomspace(min(first, last), last, points).astype(np.int64))
    curves = [_read_path(run) for run in runs]
    regrets = np.array([np.interp(grid, n_choices, regret) for n_choices, regret, *_ in curves]) / grid
    rows = zip(grid.tolist(), regrets.mean(axis=0).tolist(), regrets.max(axis=0).tolist(), strict=True)
    return [{"people": people, "regret_mean": mean, "regret_worst": worst} for people, mean, worst in rows]


@lru_cache(maxsize=256)
def find_smallest_batch(privacy: Privacy, epsilon: float, local_epsilon: float, reports: int = 1) -> int | None:
    """Return the smallest batch of reports of ``local_epsilon`` that keeps a promise of ``epsilon``, or None.

    A participant's ``reports`` share the promise. None if no batch that a spec may name is large enough. The number
    is for reports of two symbols, which need the most (docs/privacy/vectors.md): larger alphabets, and symbols
    of vectors, need fewer.
    """
    delta = privacy.delta or _DELTA
    share = report_allotment(privacy.trust, epsilon, delta, reports)

    def is_sufficient(batch: int) -> bool:
        n_honest = count_honest(privacy, batch)
        if share is not None and n_honest:
            return share.can_cover(ShuffledResponse(local_epsilon, 2, n_honest))
        return n_honest > 0 and shuffled_delta(epsilon, local_epsilon, 2, n_honest) <= delta

    low, high = BATCH_MIN - 1, BATCH_MIN
    while not is_sufficient(high):
        if high == BATCH_MAX:
            return None
        low, high = high, min(4 * high, BATCH_MAX)
    while high - low > max(1, low // 1000):
        middle = (low + high) // 2
        low, high = (low, middle) if is_sufficient(middle) else (middle, high)
    return high


def describe_batches(variants: Iterable[Variant]) -> list[dict[str, Any]]:
    """Return, for each batched promise, the least ``min_batch`` for twice the epsilon of a report, and for its maximum.

    Without a batch the epsilon of a report is the promise's, shared by a participant's reports.
    Reports without an epsilon of their own are left out: they are private in a batch of any size or in none.
    """
    rows = []
    for variant in variants:
        terms, privacy, epsilon = variant.spec.first_terms(""), variant.spec.privacy, variant.epsilon
        if terms is None or terms.trust.crowd is not Crowd.BATCH or not math.isfinite(terms.mechanism.local_epsilon):
            continue
        limit, reports = privacy.local_epsilon_max, variant.spec.reports
        double = 2 * epsilon / reports
        to_double = find_smallest_batch(privacy, epsilon, double, reports) if double <= limit else None
        at_max = find_smallest_batch(privacy, epsilon, limit, reports)
        row = {"epsilon": epsilon, "delta": privacy.delta, "min_batch_to_double": to_double}
        rows.append(row | {"local_epsilon_max": limit, "min_batch_at_max": at_max})
    return rows


def describe_first_rounds(variants: Iterable[Variant]) -> list[dict[str, Any]]:
    """Return the batch size of each first round, and the mechanism of a report as records name it.

    A round that begins with several bins, of levels or of many features, has more keys than are planned here; where
    events are rare that may change the mechanism.
    """
    rows = []
    for variant in variants:
        if (terms := variant.spec.first_terms("")) is not None:
            row = {"model": variant.model, "epsilon": variant.epsilon, "people": terms.batch_size}
            rows.append(row | {"mechanism": describe_terms(terms).mechanism["type"]})
    return rows
