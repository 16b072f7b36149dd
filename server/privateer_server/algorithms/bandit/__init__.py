"""The learner of bandits without context (paper 2)."""

from privateer_server.algorithms.bandit.learner import learner

__all__ = ["learner"]
