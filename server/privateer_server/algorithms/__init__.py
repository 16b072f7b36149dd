"""Learners, found by the names of their algorithms: pure functions from state and release to state."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from privateer_core.answer.facts import Table
from privateer_core.plugins import Plugins
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_server.algorithms.gain_rounds import GainLearner
from privateer_server.algorithms.rounds_learner import NewRound, RoundsLearner, RoundVolume, Step, require_equal

Learner: TypeAlias = RoundsLearner[Any, Any, Any]
"""A learner of any algorithm."""


class ForecastingLearner(Protocol):
    """A learner that can forecast its results before the first report."""

    def build_forecast(self, waiting: float = 0.0, shares: Sequence[float] | None = None) -> tuple[Table, ...]:
        """Return the forecast, if ``waiting`` participants choose between a choice and the report on it."""
        ...


LEARNERS: Final = Plugins[Callable[[Any], Learner]](
    "privateer.learners", "distribution that brings its learner", "algorithm.name"
)
"""What makes the learner of a spec, by the algorithm's name."""


def learner_for(spec: Spec) -> Learner:
    """Return the learner of the algorithm that a spec names, which asks for the gain, too, if the spec says so."""
    learner = LEARNERS[spec.algorithm.name](spec.learning)
    return GainLearner(spec, learner) if isinstance(spec, ArmsSpec) and spec.gain_people else learner


__all__ = [
    "LEARNERS",
    "ForecastingLearner",
    "Learner",
    "NewRound",
    "RoundVolume",
    "RoundsLearner",
    "Step",
    "learner_for",
    "require_equal",
]
