"""Learners of linear and generalized linear bandits (paper 2)."""

from privateer_server.algorithms.linear.learner import learner

__all__ = ["learner"]
