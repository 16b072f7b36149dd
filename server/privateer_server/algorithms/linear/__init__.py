"""Learners of linear and generalized linear bandits."""

from privateer_core.algorithms.linear.spec import LinearSpec
from privateer_server.algorithms import Learner
from privateer_server.algorithms.linear.continual import ContinualLearner
from privateer_server.algorithms.linear.joint import JointLearner
from privateer_server.algorithms.linear.residual import ResidualLearner


def learner(spec: LinearSpec) -> Learner:
    """Return the learner of a spec."""
    if spec.algorithm.report == "joint":
        return JointLearner(spec)
    return ContinualLearner(spec) if spec.steps else ResidualLearner(spec)
