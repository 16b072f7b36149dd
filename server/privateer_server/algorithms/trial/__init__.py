"""The trial's learner and its statistics."""

from privateer_core.algorithms.trial import TrialSpec
from privateer_server.algorithms.trial.learner import TrialLearner


def learner(spec: TrialSpec) -> TrialLearner:
    """Return the learner of a spec."""
    return TrialLearner(spec)
