"""Learners of linear and generalized linear bandits."""

from privateer.algorithms.linear.spec import LinearSpec
from privateer_server.algorithms import Learner
from privateer_server.algorithms.linear.joint import JointLearner
from privateer_server.algorithms.linear.residual import ResidualLearner


def learner(spec: LinearSpec) -> Learner:
    """Return the learner of a spec."""
    return JointLearner(spec) if spec.algorithm.report == "joint" else ResidualLearner(spec)
