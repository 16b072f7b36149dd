"""Learners of high-dimensional bandits (paper 3)."""

from privateer_server.algorithms.sparse.learner import learner

__all__ = ["learner"]
