"""The learner of distributed phased elimination (Li, Zhou and Ji 2024)."""

from privateer_server.algorithms.phased.learner import learner

__all__ = ["learner"]
