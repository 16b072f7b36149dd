"""Experiments in one process: runs of seeds, whichever way their people report."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_lab.environments import Environment
from privateer_lab.simulation.delayed_reports import LateSimulation, delay_of
from privateer_lab.simulation.parallel import Backend, each
from privateer_lab.simulation.simulation import FIGURES, SENT, ReturningSimulation, Run, Simulation
from privateer_server.rounds.loop import Schedule, Step

__all__ = [
    "Run",
    "Simulation",
    "figures_of",
    "simulate",
    "simulate_in_short",
    "simulate_once",
    "simulation",
    "to_the_end",
]

_FEW: Final = 20
"""Runs that ask a few thousand people each take less time than a second process takes to start."""


def figures_of(spec: Spec) -> list[str]:
    """Name the figures that a run of the spec has."""
    return [*FIGURES, *simulation(spec, 0).facts(), *SENT]


def simulate_once(
    spec: Spec, seed: int, one_by_one: bool = False, watch: Callable[[Step], object] | None = None
) -> Run:
    """Simulate an experiment from its first round to its horizon.

    spec: a spec with a ``population``.
    seed: seeds contexts, rewards, coins and privacy noise: the same seed gives the same run.
    one_by_one: draw people one by one even where their sums could be drawn box by box with the same distribution.
    watch: is called with each step that is played: every round, and the end if anything is left to choose.
    """
    return to_the_end(simulation(spec, seed, one_by_one), watch).outcome()


def to_the_end(run: Simulation, watch: Callable[[Step], object] | None = None) -> Simulation:
    """Play a simulation from where it stands to its horizon, and return it; ``watch`` as in `simulate_once`."""
    while run.step.batch:
        if watch:
            watch(run.step)
        run.close_round()
    if run.finish() and watch:
        watch(run.step)
    return run


def simulation(spec: Spec, seed: int, one_by_one: bool = False, environment: Environment | None = None) -> Simulation:
    """Begin the simulation of a spec, whose people come once or several times, and report at once or late.

    They are the spec's population, unless there is another ``environment``.
    """
    if isinstance(spec, ArmsSpec) and spec.experiment.reports_per_person > 1:
        return ReturningSimulation(spec, seed, environment)
    if delay_of(spec):
        return LateSimulation(spec, seed, environment)
    return Simulation(spec, seed, one_by_one, environment)


def simulate(spec: Spec, seeds: int, jobs: int | None = None, backend: Backend = "processes") -> Iterator[Run]:
    """Yield the runs of seeds 0..seeds-1 as they finish, on ``jobs`` processes; without their paths.

    By default a process a core works on them, or this one alone where runs are shorter than the start of a process.
    """
    few = seeds <= _FEW and Schedule(spec).open(0).policy.draw is not None
    return each(simulate_in_short, [(spec, seed) for seed in range(seeds)], jobs or (1 if few else None), backend)


def simulate_in_short(spec: Spec, seed: int) -> Run:
    """Simulate as `simulate_once` does, and drop the path but for its end: rounds may be many, and so may runs."""
    run = simulate_once(spec, seed)
    return replace(run, path=run.path[-1:])
