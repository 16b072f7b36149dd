"""Which changes an experiment accepts: by where it stands, and by what its algorithm takes."""

from collections.abc import Callable
from typing import Final, Literal, TypeAlias, get_args
from weakref import WeakKeyDictionary

from privateer_core.errors import SpecError
from privateer_core.export import Status
from privateer_core.spec import Spec
from privateer_server.algorithms import learner_for
from privateer_server.experiment import Experiment
from privateer_server.respec import extended, with_arm, without_arm
from privateer_server.rounds import read_schedule

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
_RESPECIFIED: Final[dict[Change, Callable[[Spec], Spec]]] = {
    "extend": lambda spec: extended(spec, 2 * spec.experiment.horizon),
    "retire-arm": lambda spec: without_arm(spec, _first_arm(spec)),
    "add-arm": lambda spec: with_arm(spec, "another arm"),
}

_known: Final[WeakKeyDictionary[Experiment, tuple[tuple[bytes, bytes] | None, frozenset[Change]]]] = WeakKeyDictionary()
"""What is refused, by the specs of an experiment and of a change that waits."""


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
