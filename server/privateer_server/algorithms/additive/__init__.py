"""Learners of additive bandits."""

from privateer_core.algorithms.additive.spec import AdditiveSpec
from privateer_server.algorithms.additive.learner import AdditiveLearner
from privateer_server.algorithms.additive.levels_first import LevelsFirstLearner

__all__ = ["AdditiveLearner", "LevelsFirstLearner", "learner_of"]


def learner_of(spec: AdditiveSpec) -> AdditiveLearner | LevelsFirstLearner:
    """Return the learner of a spec; with a coin plan, the arms' levels are learned first."""
    return LevelsFirstLearner(spec) if spec.has_coin_plan else AdditiveLearner(spec)
