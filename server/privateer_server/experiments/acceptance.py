"""Specs that change while an experiment runs, and which changes it accepts: by where it stands, and by its algorithm.

Every change is a new public spec, checked as a whole.
"""

from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from privateer_core.algorithms import parse_spec
from privateer_core.errors import SpecError
from privateer_core.spec.arms import ARMS_MIN, ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_server.algorithms import learner_for
from privateer_server.experiments.changes import CHANGES, Change, Clone, SpecChange, Verb
from privateer_server.experiments.experiment import Experiment
from privateer_server.rounds.open_round import read_schedule

_known: Final[WeakKeyDictionary[Experiment, tuple[tuple[bytes, bytes] | None, frozenset[Verb]]]] = WeakKeyDictionary()
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


def accepted_changes(experiment: Experiment) -> list[Verb]:
    """Return the changes that make sense where an experiment stands, and that its algorithm does not refuse.

    One of them may still be refused for its own figures, such as a horizon that is too short.
    """
    status, waiting = experiment.status, experiment.current.plan.spec
    about, refused = _known.get(experiment, (None, frozenset()))
    if about != (experiment.current.schedule.encoded, waiting):
        # What an algorithm refuses follows from the specs, so it is asked once for each, and not at every version.
        refused = frozenset(change.verb for change in CHANGES if _is_refused(experiment, change, waiting))
        _known[experiment] = (experiment.current.schedule.encoded, waiting), refused
    fitting = [change.verb for change in CHANGES if not change.when or status in change.when]
    return [verb for verb in fitting if verb not in refused]


def _is_refused(experiment: Experiment, change: type[Change], waiting: bytes) -> bool:
    """Whether the algorithm refuses a change, beside one that waits: its learner is asked to carry it out."""
    spec, state = experiment.spec, experiment.current.step.state
    try:
        if issubclass(change, SpecChange):
            before = read_schedule(waiting).spec if waiting else spec
            learner_for(change.example(before).respec(before)).changed(state, spec)
        elif issubclass(change, Clone):
            learner_for(spec).begun(state, spec)
    except SpecError:
        return True
    return False
