"""What learns in the partition bandit (paper 1)."""

from privateer_core.algorithms.partition import PartitionSpec
from privateer_server.algorithms import Learner
from privateer_server.algorithms.partition.practical import PartitionLearner


def learner(spec: PartitionSpec) -> Learner:
    """Return the learner that a spec names."""
    return PartitionLearner(spec)
