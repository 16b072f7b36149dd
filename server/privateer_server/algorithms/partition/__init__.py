"""The learner of the partition bandit (paper 1)."""

from privateer_server.algorithms.partition.learner import learner

__all__ = ["learner"]
