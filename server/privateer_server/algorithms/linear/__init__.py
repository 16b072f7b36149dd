"""Learners of linear and generalized linear bandits (Zheng et al. 2020)."""

from privateer_server.algorithms.linear.learner import learner

__all__ = ["learner"]
