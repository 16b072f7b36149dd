"""The learner of bandits on a convex set (Zheng et al. 2020)."""

from privateer_server.algorithms.convex.learner import learner

__all__ = ["learner"]
