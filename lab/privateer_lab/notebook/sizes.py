"""Computes how small an effect can be found, and how many people it takes, under every trust model."""

import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final

from privateer_core.errors import SpecError
from privateer_core.privacy.trust import TRUST
from privateer_core.spec.spec import Spec
from privateer_lab.answer_tables import rows_of
from privateer_lab.notebook.evaluation import wanted
from privateer_lab.notebook.specs import SpecLike
from privateer_lab.notebook.specs import spec as read
from privateer_lab.notebook.tabular import ResultTable, table_of
from privateer_lab.planning.plain_tests import LEAST, LOOKS, PEOPLE, plain_test
from privateer_lab.planning.plans import EPSILONS, Variant, epsilons_of, foreseen, trust_models, variants

MODELS: Final = tuple(TRUST)
_NEEDED = "people for the effect wanted"
_STEPS: Final = 40
_CLOSE: Final = 1e-3
_MOST: Final = 10_000_000_000


def detectable(
    spec: SpecLike | None = None,
    *,
    people: int | None = None,
    trust: Iterable[str] = MODELS,
    epsilon: Iterable[float] | float = EPSILONS,
    **plan: Any,
) -> ResultTable:
    """Return the smallest effects that an A/B test finds, under every trust model and epsilon.

    Parameters
    ----------
    spec
        A test with a control, as `spec` takes it; None: a plain one, as ``plan`` says.
    people
        People whose reports count; the spec's by default.
    trust, epsilon
        Trust models, and values of epsilon for those that promise something.
    **plan
        Of a plain test, whose shares of arms are fixed: ``arms`` (2 of them), the control's mean reward ``rate`` (.5),
        ``power`` (.8), ``level`` (.05), most ``looks`` (8), ``delta`` (1e-6). Rewards are 0 or 1.

    Returns
    -------
    A row for each promise and effect, in the units of rewards; the model that promises nothing is the yardstick:
    ``times`` says how many times larger an effect must be than there.

    Raises
    ------
    SpecError
        If there is no such plan, or the spec's learner foresees no effects.

    Examples
    --------
    >>> import privateer_lab as lab
    >>> for row in lab.detectable(people=40000, trust=["none", "central"], epsilon=1).rows():
    ...     print(row["model"], row["epsilon"], row["least effect"])
    none None 0.01435
    central 1.0 0.0144
    """
    found = _over(_planned(spec, people, None, plan), trust, epsilon, _least)
    return _compared("the smallest effects that are found", found, LEAST)


def sample_size(
    effect: float,
    spec: SpecLike | None = None,
    *,
    trust: Iterable[str] = MODELS,
    epsilon: Iterable[float] | float = EPSILONS,
    **plan: Any,
) -> ResultTable:
    """Return how many people it takes to find an effect, under every trust model and epsilon.

    Parameters
    ----------
    effect
        The effect, in the units of rewards.
    spec, trust, epsilon, **plan
        As in `detectable`. With segments in the spec a row says how many people it takes in all for one of them.

    Raises
    ------
    SpecError
        If there is no such plan, or the spec's learner foresees no effects.

    Examples
    --------
    >>> import privateer_lab as lab
    >>> for row in lab.sample_size(0.02, trust=["none", "local"], epsilon=2).rows():
    ...     print(row["model"], row["people"])
    none 20592
    local 35508
    """
    found = _over(_planned(spec, None, effect, plan), trust, epsilon, _enough)
    return _compared(f"people for an effect of {effect:g}", found, "people")


def _planned(spec: SpecLike | None, people: int | None, effect: float | None, plan: dict[str, Any]) -> Spec:
    """Return the spec of a test with so many people, if given, that is to find an effect, if given."""
    if effect is not None:
        wanted(effect, "effect", 0.0, float("inf"))
    if people is not None and not (isinstance(people, int) and people >= 1):
        raise SpecError("must be a whole number of at least 1", field="people", remedy="change it")
    if spec is None:
        base = plain_test(**plan)
        return read(_sized(base, people or PEOPLE), {} if effect is None else {"algorithm.effect": effect})
    if plan:
        remedy = "set them in the spec"
        raise SpecError("must not be given beside a spec", field=next(iter(plan)), remedy=remedy)
    base = read(spec, {} if effect is None else {"algorithm.effect": effect})
    return base if people is None else _sized(base, people)


def _sized(spec: Any, people: int) -> Spec:
    """Return a test with so many people, whose first look has a part of them, no fewer than the test's own."""
    size = min(people, max(spec.experiment.round_size, people // LOOKS))
    return read(spec, {"experiment.horizon": people, "experiment.round_size": size})


def _over(
    base: Spec, trust: Iterable[str], epsilon: Iterable[float] | float, found: Callable[[Spec], list[dict[str, Any]]]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return rows for every promise, and why there are none for some."""
    rows, refused = [], []
    for model in trust_models(trust, MODELS):
        for one in epsilons_of(epsilon) if TRUST[model].promises else [math.inf]:
            try:
                (variant,) = variants(base, [model], [one])
                made = found(variant.spec)
            except SpecError as error:
                refused.append(error)
                continue
            promise = {"model": model, "epsilon": variant.spec.privacy.epsilon, "delta": variant.spec.privacy.delta}
            rows += [{**promise, **row} for row in made]
    if not rows:
        raise refused[0]
    return rows, [str(error) for error in refused]


def _foreseen(spec: Spec) -> list[dict[str, Any]]:
    """Return the rows of the first table that the spec's learner foresees."""
    tables = [table for one in foreseen([Variant("", 0.0, spec)]) for table in one["tables"][:1]]
    if not tables or LEAST not in tables[0].names:
        detail = "has a learner that foresees no effects"
        raise SpecError(detail, field="algorithm.name", remedy="give a test with a control, or no spec at all")
    return [row for titled in rows_of(tables[0]) for row in titled.rows]


def _least(spec: Spec) -> list[dict[str, Any]]:
    people = spec.experiment.horizon
    return [{**_place(row), "people": people, LEAST: row.get(LEAST)} for row in _foreseen(spec)]


def _enough(spec: Spec) -> list[dict[str, Any]]:
    """Return how many people each effect takes, in all."""

    @cache
    def needed(people: int) -> list[dict[str, Any]]:
        return _foreseen(_sized(spec, people))

    least = _fewest(spec)
    first = needed(max(PEOPLE, least))
    return [{**_place(row), "people": _settled(needed, place, least)} for place, row in enumerate(first)]


def _fewest(spec: Any) -> int:
    return max(int(spec.experiment.round_size), int(spec.privacy.min_batch) if spec.privacy.trust.batched else 0)


def _settled(needed: Callable[[int], list[dict[str, Any]]], place: int, fewest: int) -> int:
    """Return the number of people whose own plan needs as many for one effect: noise depends on how many there are.

    Raises
    ------
    SpecError
        If nobody can plan for so many.
    """
    people = max(PEOPLE, fewest)
    for _ in range(_STEPS):
        after = max(int(needed(people)[place][_NEEDED]), fewest)
        if after > _MOST:
            raise SpecError("is too small for any plan", field="effect", remedy="raise it, or epsilon")
        if abs(after - people) <= _CLOSE * people:
            break
        people = after
    return max(people, after)


def _place(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("segment", "arm")}


def _compared(title: str, found: tuple[list[dict[str, Any]], list[str]], figure: str) -> ResultTable:
    """Return a table that also compares with the model that promises nothing, if it is there."""
    rows, refused = found
    plain = {(row["segment"], row["arm"]): row[figure] for row in rows if row["epsilon"] is None}
    for row in rows if plain else ():
        least = plain[row["segment"], row["arm"]]
        row["times"] = row[figure] / least if row[figure] is not None and least is not None else None
    return table_of(title, rows, [f"Left out: {one}" for one in refused])
