"""Says which changes an experiment accepts: by where it stands, and by its algorithm."""

from typing import Final
from weakref import WeakKeyDictionary

from privateer_core.errors import SpecError
from privateer_server.algorithms import learner_for
from privateer_server.experiments.changes import CHANGES, Change, Clone, SpecChange, Verb
from privateer_server.experiments.experiment import Experiment
from privateer_server.rounds.open_round import read_schedule

_known: Final[WeakKeyDictionary[Experiment, tuple[tuple[bytes, bytes] | None, frozenset[Verb]]]] = WeakKeyDictionary()
"""What is refused, by the specs of an experiment and of a change that waits."""


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
