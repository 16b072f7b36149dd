"""Rounds that measure what choosing by context gains, for every algorithm that does."""

from privateer_server.algorithms.gain_rounds.gain_learner import GainLearner

__all__ = ["GainLearner"]
