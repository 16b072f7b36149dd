"""Learners of high-dimensional bandits (Shukla 2024)."""

from privateer_server.algorithms.sparse.learner import learner

__all__ = ["learner"]
