"""Runs within a time limit, and specs with a subset of features and arms on the same population."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.errors import SpecError
from privateer_core.policies.policy import Arms
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_lab.environments import Environment, PlayedRewards
from privateer_lab.simulation.scores import Point
from privateer_lab.simulation.simulate import make_simulation
from privateer_lab.simulation.simulation import Run, Simulation

Array = NDArray[np.float64]


class KeptFeatures(Environment):
    """An environment restricted to the features, and arms (None: all), with these indices."""

    def __init__(
        self, environment: Environment, features: Sequence[int], n_features: int, options: Sequence[int] | None = None
    ) -> None:
        self._environment, self._options = environment, None if options is None else np.array(options)
        self._feature_order = [*features, *(j for j in range(n_features) if j not in features)]

    def _restore_order(self, contexts: Array) -> Array:
        restored = contexts.copy()
        restored[:, self._feature_order] = contexts[:, : len(self._feature_order)]
        return restored

    @override
    def contexts(self, n_previous: int, n_participants: int, rng: np.random.Generator) -> Array:
        contexts = self._environment.contexts(n_previous, n_participants, rng)
        return np.concatenate([contexts[:, self._feature_order], contexts[:, len(self._feature_order) :]], axis=1)

    @override
    def means(self, contexts: Array) -> Array:
        means = self._environment.means(self._restore_order(contexts))
        return means if self._options is None else means[:, self._options]

    @override
    def rewards(self, contexts: Array, decisions: Any, rng: np.random.Generator) -> Array:
        return self._environment.rewards(self._restore_order(contexts), self._map_decisions(decisions), rng)

    @override
    def play(self, decisions: Any, contexts: Array) -> PlayedRewards:
        """Return expected rewards; the best and the constant options include arms that are left out."""
        return self._environment.play(self._map_decisions(decisions), self._restore_order(contexts))

    def _map_decisions(self, decisions: Any) -> Any:
        return decisions if self._options is None else Arms(self._options[decisions.arms])

    @override
    def before(self, contexts: Array, names: Sequence[str]) -> Array:
        return self._environment.before(self._restore_order(contexts), names)


def restrict_to(environment: Environment, full_spec: ArmsSpec, spec: ArmsSpec) -> Environment:
    """Restrict the environment of ``full_spec`` to the features and arms of ``spec``."""
    names, options = list(full_spec.features), None
    if spec.options != full_spec.options:
        options = [full_spec.options.index(option) for option in spec.options]
    if list(spec.features) == names and options is None:
        return environment
    return KeptFeatures(environment, [names.index(name) for name in spec.features], len(names), options)


_MIN_ROUNDS: Final = 4
"""Fewest rounds of a run, since the first rounds are little better than chance."""
_FINAL_FRACTION: Final = 50
"""The end of a run is at least its last fiftieth: rounds of 333 leave one of 1,000 participants to the last policy."""
_MAX_FINAL_PARTICIPANTS: Final = 20_000
"""Most participants from whom the last policy's mean reward is estimated."""


@dataclass(frozen=True)
class PartialRun:
    """A run over the whole horizon, of which a part may be extrapolated."""

    run: Run  # after a time-out the rest follows the last policy
    single: float  # mean reward of the best single arm, in the reward's unit
    arm: int  # the index of that arm
    worst: float  # mean reward of the worst single arm
    is_cut: bool  # whether it timed out before its last round
    seconds: float  # processor time of the run

    @property
    def reach(self) -> int:
        """The number of participants whose reports it learns from without a time-out."""
        account = self.run.account
        return account.reachable if self.is_cut else account.counted

    @property
    def gain(self) -> float:
        """The mean reward of a choice above that of the best single arm, over the run."""
        return (self.run.best_constant_regret - self.run.regret) / self.run.choices

    @property
    def gain_at_the_end(self) -> float:
        """The mean gain of a choice over the best single arm under the last policy, or more if few follow it."""
        before, last = _find_last_part(self.run.path, self.run.choices // _FINAL_FRACTION)
        return ((last[2] - before[2]) - (last[1] - before[1])) / (last[0] - before[0])


def run_partially(
    spec: Spec, seed: int, seconds: float, make_environment: Callable[[int], Environment] | None = None
) -> PartialRun | SpecError:
    """Run a spec for ``seconds`` of processor time, but at least a few rounds; return an error if it is refused.

    The time is this process's, from the second round, since the first also reads files and calibrates. With infinite
    seconds a run depends on its seed alone.
    """
    start = time.process_time()
    try:
        # Participants who measure the gain count as followers of the last policy, whose gain is estimated here.
        run = make_simulation(spec.learning, seed, environment=make_environment(seed) if make_environment else None)
        run.choices += spec.experiment.horizon - spec.learning.experiment.horizon
        round_start = start
        while run.step.batch_size and _has_time_for_round(run, time.process_time() - round_start, seconds):
            run.close_round()
            round_start = time.process_time() if run.rounds == 1 else round_start
        _play_last_policy(run)
    except SpecError as error:
        return error
    by_option = run.score.played.by_option / run.score.played.times
    best = int(by_option.argmax())
    completed = _extend_to_horizon(run.build_run(), run.choices)
    single, worst = float(by_option[best]), float(by_option.min())
    return PartialRun(completed, single, best, worst, run.step.batch_size > 0, time.process_time() - start)


def _has_time_for_round(run: Simulation, seconds_spent: float, seconds: float) -> bool:
    """Whether the next round would end in time, at the mean cost of a participant so far."""
    if run.rounds < _MIN_ROUNDS or math.isinf(seconds) or not isinstance(run.spec, ArmsSpec):
        return True
    return seconds_spent * (1 + run.step.batch_size / max(run.people, 1)) <= seconds


def _play_last_policy(run: Simulation) -> None:
    """Simulate the last policy to the horizon, or for enough participants to estimate its mean reward."""
    n_remaining = run.choices - run.people
    if n_remaining <= _MAX_FINAL_PARTICIPANTS or not isinstance(run.spec, ArmsSpec):
        run.finish()
        return
    run.choose(run.step.policy, _MAX_FINAL_PARTICIPANTS)
    run.path.append(run.score.point)


def _find_last_part(path: tuple[Point, ...], min_choices: int = 1) -> tuple[Point, Point]:
    """Return the end points of a path's last part with ``min_choices``; late reports close rounds without choices."""
    last, start = path[-1], (0, 0.0, 0.0, 0.0)
    return next((point for point in reversed(path) if last[0] - point[0] >= max(min_choices, 1)), start), last


def _extend_to_horizon(run: Run, choices: int) -> Run:
    """Extrapolate the last part of a run's path to all choices of the experiment."""
    before, last = map(np.array, _find_last_part(run.path))
    if last[0] >= choices:
        return run
    _, regret, best_constant, uniform = (last + (last - before) * (choices - last[0]) / (last[0] - before[0])).tolist()
    return replace(
        run,
        regret=regret,
        best_constant_regret=best_constant,
        uniform_regret=uniform,
        path=(*run.path, (choices, regret, best_constant, uniform)),
    )
