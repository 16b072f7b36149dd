"""The learner of bandits without context (Zheng et al. 2020)."""

from privateer_server.algorithms.bandit.learner import learner

__all__ = ["learner"]
