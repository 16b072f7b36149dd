"""The learner of trials (Li, Shi and Simchi-Levi 2025), and its statistics."""

from privateer_server.algorithms.trial.learner import learner

__all__ = ["learner"]
