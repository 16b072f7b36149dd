"""The learner of the partition bandit (Ma et al. 2025)."""

from privateer_server.algorithms.partition.learner import learner

__all__ = ["learner"]
