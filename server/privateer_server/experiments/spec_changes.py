"""Makes specs of specs while an experiment runs; each is checked as a whole."""

from collections.abc import Callable
from typing import Any

from privateer_core.algorithms import parse_spec
from privateer_core.errors import SpecError
from privateer_core.spec.arms import ARMS_MIN, ArmsSpec
from privateer_core.spec.spec import Spec


def extended(spec: Spec, horizon: int) -> Spec:
    """Return the spec with a longer horizon."""
    before = spec.experiment.horizon
    if horizon < before:
        detail = f"must be at least the {before} that it is"
        raise SpecError(detail, field="experiment.horizon", remedy="raise it, or stop the experiment")
    return _changed(spec, lambda tables: tables["experiment"].update(horizon=horizon))


def with_arm(spec: Spec, arm: str) -> Spec:
    """Return the spec with one more arm, the last; one that it has changes nothing."""
    table = _arms(spec).experiment
    if arm in table.retired:
        detail = "an arm of this name was retired, and reports about it still count for it"
        raise SpecError(detail, field="arm", remedy="choose another name")
    if arm in table.arms:
        return spec

    def add(tables: dict[str, Any]) -> None:
        tables["experiment"]["arms"].append(arm)
        for source in tables["sources"]:
            source["shares"].append(0.0)  # nobody played it before

    return _changed(spec, add)


def without_arm(spec: Spec, arm: str) -> Spec:
    """Return the spec with an arm retired; one that is retired changes nothing."""
    table = _arms(spec).experiment
    if arm not in table.arms:
        raise SpecError("is not an arm of the experiment", field="arm", remedy="see experiment.arms")
    if arm in table.retired:
        return spec
    if len(table.arms) - len(table.retired) <= ARMS_MIN:
        detail = f"at least {ARMS_MIN} arms must be left"
        raise SpecError(detail, field="arm", remedy="add an arm first, or stop the experiment")
    return _changed(spec, lambda tables: tables["experiment"].update(retired=[*table.retired, arm]))


def renamed(spec: Spec, name: str, horizon: int | None = None) -> Spec:
    """Return the spec of an experiment of another name, and perhaps another horizon."""
    values = {"name": name} | ({} if horizon is None else {"horizon": horizon})
    return _changed(spec, lambda tables: tables["experiment"].update(values))


def _arms(spec: Spec) -> ArmsSpec:
    if not isinstance(spec, ArmsSpec):
        detail = "an experiment of this algorithm has no arms by name"
        raise SpecError(detail, field="arm", remedy="stop it, and create another experiment with the options wanted")
    return spec


def _changed(spec: Spec, change: Callable[[dict[str, Any]], Any]) -> Spec:
    tables = spec.model_dump(mode="json", exclude_none=True)
    change(tables)
    return parse_spec(tables)
