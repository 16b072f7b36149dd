"""Specs that change while an experiment runs, and which changes it accepts: by where it stands, and by its algorithm.

Every change is a new public spec, checked as a whole.
"""

from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias, get_args
from weakref import WeakKeyDictionary

from privateer_core.algorithms import parse_spec
from privateer_core.answer.export import Status
from privateer_core.errors import SpecError
from privateer_core.spec.arms import ARMS_MIN, ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_server.algorithms import learner_for
from privateer_server.experiments.experiment import Experiment
from privateer_server.rounds.open_round import read_schedule

Change: TypeAlias = Literal["pause", "resume", "extend", "stop", "retire-arm", "add-arm", "clone", "delete"]
"""What an operator can do with an experiment."""
_ALWAYS: Final[frozenset[Status]] = frozenset(get_args(Status))
_WHEN: Final[dict[Change, frozenset[Status]]] = {
    "pause": frozenset({"open", "draining"}),
    "resume": frozenset({"paused"}),
    "extend": frozenset({"open", "paused", "draining", "finished"}),
    "stop": frozenset({"open", "paused", "draining"}),
    "retire-arm": frozenset({"open", "paused", "draining"}),
    "add-arm": frozenset({"open", "paused"}),
    "clone": _ALWAYS,
    "delete": _ALWAYS,
}
_known: Final[WeakKeyDictionary[Experiment, tuple[tuple[bytes, bytes] | None, frozenset[Change]]]] = WeakKeyDictionary()
"""What is refused, by the specs of an experiment and of a change that waits."""


def extended(spec: Spec, horizon: int) -> Spec:
    """Return the spec with a longer horizon.

    Raises
    ------
    SpecError
        If it is shorter.
    """
    before = spec.experiment.horizon
    if horizon < before:
        detail = f"must be at least the {before} that it is"
        raise SpecError(detail, field="experiment.horizon", remedy="raise it, or stop the experiment")
    return _changed(spec, lambda tables: tables["experiment"].update(horizon=horizon))


def with_arm(spec: Spec, arm: str) -> Spec:
    """Return the spec with one more arm, the last; one that it has changes nothing.

    Raises
    ------
    SpecError
        If the arm was retired, the name cannot be one, or there are no arms.
    """
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
    """Return the spec with an arm retired; one that is retired changes nothing.

    Raises
    ------
    SpecError
        If there is no such arm, or too few are left.
    """
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


_RESPECIFIED: Final[dict[Change, Callable[[Spec], Spec]]] = {
    "extend": lambda spec: extended(spec, 2 * spec.experiment.horizon),
    "retire-arm": lambda spec: without_arm(spec, _first_arm(spec)),
    "add-arm": lambda spec: with_arm(spec, "another arm"),
}


def accepted_changes(experiment: Experiment) -> list[Change]:
    """Return the changes that make sense where an experiment stands, and that its algorithm does not refuse.

    One of them may still be refused for its own figures, such as a horizon that is too short.
    """
    status, waiting = experiment.status, experiment.current.plan.spec
    about, refused = _known.get(experiment, (None, frozenset()))
    if about != (experiment.current.schedule.encoded, waiting):
        # What an algorithm refuses follows from the specs, so it is asked once for each, and not at every version.
        refused = _refused(experiment, waiting)
        _known[experiment] = (experiment.current.schedule.encoded, waiting), refused
    return [change for change in get_args(Change) if status in _WHEN[change] and change not in refused]


def _refused(experiment: Experiment, waiting: bytes) -> frozenset[Change]:
    """Return the changes that the algorithm refuses, beside one that waits: its learner is asked to carry out each."""
    spec, state = experiment.spec, experiment.current.step.state
    before = read_schedule(waiting).spec if waiting else spec
    tries: dict[Change, Callable[[], object]] = {
        change: lambda respec=respec: learner_for(respec(before)).changed(state, spec)  # type: ignore[misc]
        for change, respec in _RESPECIFIED.items()
    }
    tries["clone"] = lambda: learner_for(spec).begun(state, spec)
    return frozenset(change for change, tried in tries.items() if _is_refused(tried))


def _is_refused(tried: Callable[[], object]) -> bool:
    try:
        tried()
    except SpecError:
        return True
    return False


def _first_arm(spec: Spec) -> str:
    """Return an arm that is not retired; empty where arms have no names."""
    retired = getattr(spec.experiment, "retired", ())
    return next((arm for arm in getattr(spec.experiment, "arms", ()) if arm not in retired), "")
