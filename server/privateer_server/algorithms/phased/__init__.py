"""The learner of distributed phased elimination (paper 5)."""

from privateer_server.algorithms.phased.learner import learner

__all__ = ["learner"]
