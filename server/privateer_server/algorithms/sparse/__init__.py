"""Learners of high-dimensional bandits."""

from privateer_core.algorithms.sparse.spec import SparseSpec
from privateer_server.algorithms import Learner
from privateer_server.algorithms.sparse.epochs import EpochLearner
from privateer_server.algorithms.sparse.sums import SumLearner


def learner(spec: SparseSpec) -> Learner:
    """Return the learner of a spec."""
    return EpochLearner(spec) if spec.privacy.trust.curated else SumLearner(spec)
