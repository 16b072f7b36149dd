"""The learner of trials (paper 4), and its statistics."""

from privateer_server.algorithms.trial.learner import learner

__all__ = ["learner"]
