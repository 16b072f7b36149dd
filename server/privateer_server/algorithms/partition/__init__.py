"""What learns in the partition bandit (paper 1): tuned, with a proof, and as published."""

from typing import Any

from privateer_core.algorithms.partition import PartitionSpec
from privateer_server.algorithms.partition.cohorts import CohortLearner
from privateer_server.algorithms.partition.learner import PartitionLearner
from privateer_server.algorithms.partition.proved import ProvedPartitionLearner
from privateer_server.algorithms.partition.published import PublishedPartitionLearner


def learner(spec: PartitionSpec) -> CohortLearner[Any]:
    """Return the learner that a spec names."""
    if spec.privacy.calibration == "published":
        return PublishedPartitionLearner(spec)
    return ProvedPartitionLearner(spec) if spec.algorithm.confidence == "proved" else PartitionLearner(spec)
