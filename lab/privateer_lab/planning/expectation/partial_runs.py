"""Runs that end where their time is over: later people get what the last policy gives."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_lab.environments import Environment
from privateer_lab.simulation.scores import Point
from privateer_lab.simulation.simulate import simulation
from privateer_lab.simulation.simulation import Run, Simulation

_LEAST: Final = 4
"""Rounds of each run, at least: the first ones tell little more than chance does."""
_PART: Final = 50
"""The end of a run is its last fiftieth, at least: rounds of 333 leave one person of 1,000 for the last policy."""
_SAMPLE: Final = 20_000
"""People, at most, who show what the last policy gives to all that are left."""


@dataclass(frozen=True)
class PartialRun:
    """A run over the whole horizon, and how far somebody learned in it."""

    run: Run  # The run. Where its time was over before the horizon, the rest follows the last policy.
    single: float  # mean reward to expect of the option that is best for all together, in the reward's unit
    option: int  # the place of that option
    is_cut: bool  # whether its time was over before its rounds were
    seconds: float  # processor time of the run

    @property
    def reach(self) -> int:
        """People whose reports it learns from, if it is not cut short."""
        account = self.run.account
        return account.reachable if self.is_cut else account.counted

    @property
    def gain(self) -> float:
        """What a choice earns above the best single option, on average of the run."""
        return (self.run.best_constant_regret - self.run.regret) / self.run.choices

    @property
    def gain_at_the_end(self) -> float:
        """What a choice earns above the best single option under the last policy.

        Where only few follow it, those before them count too.
        """
        before, last = _last_part(self.run.path, self.run.choices // _PART)
        return ((last[2] - before[2]) - (last[1] - before[1])) / (last[0] - before[0])


def played(
    spec: Spec, seed: int, seconds: float, people: Callable[[int], Environment] | None = None
) -> PartialRun | SpecError:
    """Run a spec until ``seconds`` of processor time are over, at least a few rounds; return a refusal if there is one.

    The time is that of this process, so that other work on the machine changes nothing. It begins with the second
    round: the first one also reads files and calibrates. A run that is not cut short depends on its seed alone.

    spec, seed: as `simulate_once` takes them.
    seconds: processor time; infinite: the run comes to its end.
    people: makes the environment of a seed; by default that of the spec.
    """
    started = time.process_time()
    try:
        # People who measure the gain count as followers of the last policy, since its gain is what is asked here.
        run = simulation(spec.learning, seed, environment=people(seed) if people else None)
        run.choices += spec.experiment.horizon - spec.learning.experiment.horizon
        begins = started
        while run.step.batch and _in_time(run, time.process_time() - begins, seconds):
            run.close_round()
            begins = time.process_time() if run.rounds == 1 else begins
        _finish(run)
    except SpecError as error:
        return error
    by_option = run.score.played.by_option / run.score.played.times
    best = int(by_option.argmax())
    found = _to_the_horizon(run.outcome(), run.choices)
    return PartialRun(found, float(by_option[best]), best, run.step.batch > 0, time.process_time() - started)


def _in_time(run: Simulation, spent: float, seconds: float) -> bool:
    """Tell whether the next round would end in time, if a person costs as much as so far."""
    if run.rounds < _LEAST or math.isinf(seconds) or not isinstance(run.spec, ArmsSpec):
        return True
    return spent * (1 + run.step.batch / max(run.people, 1)) <= seconds


def _finish(run: Simulation) -> None:
    """Play the last policy to the end, or as long as it takes to see what it gives."""
    left = run.choices - run.people
    if left <= _SAMPLE or run.cells or not isinstance(run.spec, ArmsSpec):
        run.finish()
        return
    run.choose(run.step.policy, _SAMPLE)
    run.path.append(run.score.point)


def _last_part(path: tuple[Point, ...], least: int = 1) -> tuple[Point, Point]:
    """Return the ends of the last part of a path with ``least`` choices; late reports close rounds without any."""
    last = path[-1]
    return next((one for one in reversed(path) if last[0] - one[0] >= max(least, 1)), (0, 0.0, 0.0, 0.0)), last


def _to_the_horizon(run: Run, choices: int) -> Run:
    """Return the run with as many choices as its experiment has: the last part of its path goes on."""
    before, last = map(np.array, _last_part(run.path))
    if last[0] >= choices:
        return run
    _, regret, constant, uniform = (last + (last - before) * (choices - last[0]) / (last[0] - before[0])).tolist()
    return replace(
        run,
        regret=regret,
        best_constant_regret=constant,
        uniform_regret=uniform,
        path=(*run.path, (choices, regret, constant, uniform)),
    )
