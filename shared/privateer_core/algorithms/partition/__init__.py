"""Spec and policy of the partition bandit (Ma et al. 2025): a partition of contexts with active arms."""

from typing import Final

from privateer_core.algorithms import Algorithm
from privateer_core.algorithms.partition.policy import DEPTH_MAX, PartitionPolicy, bin_corners, sum_by_parent
from privateer_core.algorithms.partition.spec import PartitionSection, PartitionSpec

ALGORITHM: Final = Algorithm(PartitionSpec, PartitionPolicy)

__all__ = [
    "ALGORITHM",
    "DEPTH_MAX",
    "PartitionPolicy",
    "PartitionSection",
    "PartitionSpec",
    "bin_corners",
    "sum_by_parent",
]
