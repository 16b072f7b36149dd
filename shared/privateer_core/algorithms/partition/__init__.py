"""The partition bandit (Ma et al. 2025): its spec, and its policy, a partition of contexts with active arms."""

from typing import Final

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.partition.bins import DEPTH_MAX, by_whole, corners
from privateer_core.algorithms.partition.policy import PartitionPolicy
from privateer_core.algorithms.partition.spec import PartitionSection, PartitionSpec

ALGORITHM: Final = Algorithm(PartitionSpec, PartitionPolicy)

__all__ = ["ALGORITHM", "DEPTH_MAX", "PartitionPolicy", "PartitionSection", "PartitionSpec", "by_whole", "corners"]
