"""Changes of a running experiment's spec: a longer horizon, one arm more or less, another name.

Checks of the whole spec follow with the parsing of the changed tables. The command line reads this module at its start,
so it imports specs only when they change.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from privateer_core.errors import SpecError

if TYPE_CHECKING:
    from privateer_core.spec.arms import ArmsSpec
    from privateer_core.spec.spec import Spec


def extend_horizon(spec: "Spec", horizon: int) -> "Spec":
    """Return the spec with a longer horizon; refuse a shorter one."""
    old_horizon = spec.experiment.horizon
    if horizon < old_horizon:
        detail = f"must be at least the {old_horizon} that it is"
        raise SpecError(detail, field="experiment.horizon", remedy="raise it, or stop the experiment")
    return _change_tables(spec, lambda tables: tables["experiment"].update(horizon=horizon))


def add_arm(spec: "Spec", arm: str) -> "Spec":
    """Return the spec with an arm appended; an existing arm changes nothing; refuse the name of a retired arm."""
    table = _require_arms_spec(spec).experiment
    if arm in table.retired_arms:
        detail = "an arm of this name was retired, and reports about it still count for it"
        raise SpecError(detail, field="arm", remedy="choose another name")
    if arm in table.arms:
        return spec

    def add(tables: dict[str, Any]) -> None:
        tables["experiment"]["arms"].append(arm)
        for source in tables["sources"]:
            source["min_propensities" if "min_propensities" in source else "shares"].append(0.0)  # it was not played

    return _change_tables(spec, add)


def retire_arm(spec: "Spec", arm: str) -> "Spec":
    """Return the spec with an arm retired; a retired arm changes nothing; refuse to leave fewer than two."""
    from privateer_core.spec.arms import ARMS_MIN

    table = _require_arms_spec(spec).experiment
    if arm not in table.arms:
        raise SpecError("is not an arm of the experiment", field="arm", remedy="see experiment.arms")
    if arm in table.retired_arms:
        return spec
    if len(table.arms) - len(table.retired_arms) <= ARMS_MIN:
        detail = f"at least {ARMS_MIN} arms must be left"
        raise SpecError(detail, field="arm", remedy="add an arm first, or stop the experiment")
    return _change_tables(spec, lambda tables: tables["experiment"].update(retired_arms=[*table.retired_arms, arm]))


def with_name(spec: "Spec", name: str, horizon: int | None = None) -> "Spec":
    """Return the spec with another experiment name, and optionally another horizon."""
    values = {"name": name} | ({} if horizon is None else {"horizon": horizon})
    return _change_tables(spec, lambda tables: tables["experiment"].update(values))


def _require_arms_spec(spec: "Spec") -> "ArmsSpec":
    """Return the spec, or refuse the change if its algorithm has no named arms."""
    from privateer_core.spec.arms import ArmsSpec  # the command line loads this module, and no arrays

    if not isinstance(spec, ArmsSpec):
        detail = "an experiment of this algorithm has no arms by name"
        raise SpecError(detail, field="arm", remedy="stop it, and create another experiment with the options wanted")
    return spec


def _change_tables(spec: "Spec", change: Callable[[dict[str, Any]], Any]) -> "Spec":
    from privateer_core.algorithms import parse_spec

    tables = spec.model_dump(mode="json", exclude_none=True)
    change(tables)
    return parse_spec(tables)
