"""The trial's learner and its statistics."""

from privateer_core.algorithms.trial import TrialSpec
from privateer_server.algorithms.trial.learner import TrialLearner
from privateer_server.algorithms.trial.published import PublishedLearner


def learner(spec: TrialSpec) -> TrialLearner | PublishedLearner:
    """Return the learner of a spec."""
    return PublishedLearner(spec) if spec.published else TrialLearner(spec)
