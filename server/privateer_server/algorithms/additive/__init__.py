"""What learns additive bandits."""

from privateer_server.algorithms.additive.learner import AdditiveLearner

__all__ = ["AdditiveLearner"]
