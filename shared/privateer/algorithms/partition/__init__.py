"""The partition bandit (paper 1): its spec, and its policy, a partition of contexts with active arms in its bins."""

from typing import Final

from privateer.algorithms import Algorithm
from privateer.algorithms.partition.bins import DEPTH_MAX, corners
from privateer.algorithms.partition.policy import PartitionPolicy, by_whole
from privateer.algorithms.partition.spec import PartitionSection, PartitionSpec

ALGORITHM: Final = Algorithm(PartitionSpec, PartitionPolicy)

__all__ = ["ALGORITHM", "DEPTH_MAX", "PartitionPolicy", "PartitionSection", "PartitionSpec", "by_whole", "corners"]
