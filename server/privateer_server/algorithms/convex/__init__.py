"""The learner of bandits on a convex set (paper 2)."""

from privateer_server.algorithms.convex.learner import learner

__all__ = ["learner"]
