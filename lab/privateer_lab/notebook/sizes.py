"""Minimum detectable effects and sample sizes of A/B tests, under every trust model."""

import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final

from privateer_core.errors import SpecError
from privateer_core.privacy.trust import TRUST, Crowd
from privateer_core.spec.spec import Spec
from privateer_lab.notebook.evaluation import check_between
from privateer_lab.notebook.specs import SpecLike
from privateer_lab.notebook.specs import spec as read_spec
from privateer_lab.notebook.tabular import ResultTable, build_table
from privateer_lab.planning import plans
from privateer_lab.planning.expectation.choices import DEFAULT_PARTICIPANTS, LEAST_EFFECT_COLUMN, LOOKS, make_plain_test
from privateer_lab.render.tables import part_tables

MODELS: Final = tuple(name for name, row in TRUST.items() if row.is_served)
_REQUIRED_COLUMN = "people for the effect wanted"
_MAX_ITERATIONS: Final = 40
_RELATIVE_TOLERANCE: Final = 1e-3
_MAX_PARTICIPANTS: Final = 10_000_000_000


def detectable(
    spec: SpecLike | None = None,
    *,
    people: int | None = None,
    trust: Iterable[str] = MODELS,
    epsilon: Iterable[float] | float = plans.EPSILONS,
    **plan: Any,
) -> ResultTable:
    """Return the minimum detectable effects of an A/B test, under every trust model and epsilon.

    Parameters
    ----------
    spec
        A test with a control, as `spec` takes it; None: a plain test with the settings of ``plan``.
    people
        The number of participants whose reports count; the spec's by default.
    trust, epsilon
        Trust models, and values of epsilon for the models that promise privacy.
    **plan
        Of a plain test, with fixed shares of the arms: number of ``arms`` (2), the control's mean reward ``rate`` (.5),
        ``power`` (.8), ``level`` (.05), most ``looks`` (8), ``delta`` (1e-6). Rewards are 0 or 1.

    Returns
    -------
    A row for each promise and effect, in the units of rewards; the model without a promise is the baseline:
    ``times`` is the ratio of the effect to the effect under that model.

    Raises
    ------
    SpecError
        If there is no such plan, or the spec's learner predicts no effects.

    Examples
    --------
    >>> import privateer_lab as lab
    >>> for row in lab.detectable(people=40000, trust=["none", "central"], epsilon=1).rows():
    ...     print(row["model"], row["epsilon"], row["least effect"])
    none None 0.01435
    central 1.0 0.0144
    """
    promises = _rows_by_promise(_build_test(spec, people, None, plan), trust, epsilon, _smallest_effects)
    return _compare_with_no_privacy("the smallest effects that are found", promises, LEAST_EFFECT_COLUMN)


def sample_size(
    effect: float,
    spec: SpecLike | None = None,
    *,
    trust: Iterable[str] = MODELS,
    epsilon: Iterable[float] | float = plans.EPSILONS,
    **plan: Any,
) -> ResultTable:
    """Return the number of participants that a test needs to detect an effect, under every trust model and epsilon.

    Parameters
    ----------
    effect
        The effect, in the units of rewards.
    spec, trust, epsilon, **plan
        As in `detectable`. With segments in the spec a row has the number of all participants for the segment's effect.

    Raises
    ------
    SpecError
        If there is no such plan, or the spec's learner predicts no effects.

    Examples
    --------
    >>> import privateer_lab as lab
    >>> for row in lab.sample_size(0.02, trust=["none", "local"], epsilon=2).rows():
    ...     print(row["model"], row["people"])
    none 20592
    local 35508
    """
    promises = _rows_by_promise(_build_test(spec, None, effect, plan), trust, epsilon, _required_participants)
    return _compare_with_no_privacy(f"people for an effect of {effect:g}", promises, "people")


def _build_test(spec: SpecLike | None, people: int | None, effect: float | None, plan: dict[str, Any]) -> Spec:
    """Build the spec of a test with a number of participants and a target effect, each if given."""
    if effect is not None:
        check_between(effect, "effect", 0.0, float("inf"))
    if people is not None and not (isinstance(people, int) and people >= 1):
        raise SpecError("must be a whole number of at least 1", field="people", remedy="change it")
    changes = {} if effect is None else {"algorithm.minimum_detectable_effect": effect}
    if spec is None:
        return read_spec(_with_participants(make_plain_test(**plan), people or DEFAULT_PARTICIPANTS), changes)
    if plan:
        remedy = "set them in the spec"
        raise SpecError("must not be given beside a spec", field=next(iter(plan)), remedy=remedy)
    base = read_spec(spec, changes)
    return base if people is None else _with_participants(base, people)


def _with_participants(spec: Any, n_participants: int) -> Spec:
    """Return a test with another number of participants; its round size is at least the test's own."""
    size = min(n_participants, max(spec.experiment.round_size, n_participants // LOOKS))
    return read_spec(spec, {"experiment.horizon": n_participants, "experiment.round_size": size})


def _rows_by_promise(
    base: Spec, trust: Iterable[str], epsilon: Iterable[float] | float, predict: Callable[[Spec], list[dict[str, Any]]]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return rows for every trust model and epsilon, and the errors of impossible promises."""
    rows, refused = [], []
    for model in plans.check_trust_models(trust, tuple(TRUST)):
        for value in plans.check_epsilons(epsilon) if TRUST[model].promises else [math.inf]:
            try:
                (variant,) = plans.make_variants(base, [model], [value])
                effects = predict(variant.spec)
            except SpecError as error:
                refused.append(error)
                continue
            promise = {"model": model, "epsilon": variant.spec.privacy.epsilon, "delta": variant.spec.privacy.delta}
            rows += [{**promise, **row} for row in effects]
    if not rows:
        raise refused[0]
    return rows, [str(error) for error in refused]


def _predict_effects(spec: Spec) -> list[dict[str, Any]]:
    """Return the rows of the first table of effects that the spec's learner predicts."""
    tables = [
        table for prediction in plans.plan_effects([plans.Variant("", 0.0, spec)]) for table in prediction["tables"][:1]
    ]
    if not tables or LEAST_EFFECT_COLUMN not in tables[0].names:
        detail = "has a learner that foresees no effects"
        raise SpecError(detail, field="algorithm.name", remedy="give a test with a control, or no spec at all")
    return [row for titled in part_tables(tables[0]) for row in titled.rows]


def _smallest_effects(spec: Spec) -> list[dict[str, Any]]:
    """Build a row for each effect with the least effect that the horizon detects."""
    n_participants = spec.experiment.horizon
    return [
        {**_effect_key(row), "people": n_participants, LEAST_EFFECT_COLUMN: row.get(LEAST_EFFECT_COLUMN)}
        for row in _predict_effects(spec)
    ]


def _required_participants(spec: Spec) -> list[dict[str, Any]]:
    """Return the required number of participants for each effect."""

    @cache
    def predict(n_participants: int) -> list[dict[str, Any]]:
        return _predict_effects(_with_participants(spec, n_participants))

    experiment: Any = spec.experiment
    min_size = max(int(experiment.round_size), spec.privacy.min_batch if spec.privacy.trust.crowd is Crowd.BATCH else 0)
    effects = predict(max(DEFAULT_PARTICIPANTS, min_size))
    return [{**_effect_key(row), "people": _solve_size(predict, index, min_size)} for index, row in enumerate(effects)]


def _solve_size(predict: Callable[[int], list[dict[str, Any]]], index: int, min_participants: int) -> int:
    """Return the number of participants that an effect requires, on which noise depends; refuse a tiny effect."""
    n_participants = max(DEFAULT_PARTICIPANTS, min_participants)
    for _ in range(_MAX_ITERATIONS):
        required = max(int(predict(n_participants)[index][_REQUIRED_COLUMN]), min_participants)
        if required > _MAX_PARTICIPANTS:
            raise SpecError("is too small for any plan", field="effect", remedy="raise it, or epsilon")
        if abs(required - n_participants) <= _RELATIVE_TOLERANCE * n_participants:
            break
        n_participants = required
    return max(n_participants, required)


def _effect_key(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("segment", "arm")}


def _compare_with_no_privacy(title: str, promises: tuple[list[dict[str, Any]], list[str]], figure: str) -> ResultTable:
    """Build a table that compares with the trust model without a promise, if that model is among the rows."""
    rows, refused = promises
    baselines = {(row["segment"], row["arm"]): row[figure] for row in rows if row["epsilon"] is None}
    for row in rows if baselines else ():
        baseline = baselines[row["segment"], row["arm"]]
        row["times"] = row[figure] / baseline if row[figure] is not None and baseline is not None else None
    return build_table(title, rows, [f"Left out: {reason}" for reason in refused])
