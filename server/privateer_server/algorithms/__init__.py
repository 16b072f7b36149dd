"""Learners, found by the names of their algorithms: pure functions from state and release to state."""

from importlib import import_module
from typing import Any, Protocol, TypeAlias

from privateer_core.answer.facts import Table
from privateer_core.spec import Spec
from privateer_server.algorithms.rounds_learner import Bulk, NewRound, RoundsLearner, Step, must_agree

Learner: TypeAlias = RoundsLearner[Any, Any, Any]
"""A learner of any algorithm."""


class Foreseeing(Protocol):
    """A learner that knows what it can find before anybody is asked."""

    def foreseen(self, waiting: float = 0.0) -> tuple[Table, ...]:
        """Return what can be found, where so many people choose between somebody's choice and the report on it."""
        ...


def learner_for(spec: Spec) -> Learner:
    """Return the learner that a spec names."""
    made: Learner = import_module(f"privateer_server.algorithms.{spec.algorithm.name}").learner(spec)
    return made


__all__ = ["Bulk", "Foreseeing", "Learner", "NewRound", "RoundsLearner", "Step", "learner_for", "must_agree"]
