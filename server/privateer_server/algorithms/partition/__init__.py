"""What learns in the partition bandit (paper 1)."""

from typing import Any

from privateer_core.algorithms.partition import PartitionSpec
from privateer_server.algorithms.partition.cohorts import CohortLearner
from privateer_server.algorithms.partition.learner import PartitionLearner


def learner(spec: PartitionSpec) -> CohortLearner[Any]:
    """Return the learner that a spec names."""
    return PartitionLearner(spec)
