"""A first look at what promises cost and earn, within seconds: one run of each, as far as it comes."""

import os
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from privateer_core.errors import SpecError
from privateer_core.spec.spec import Spec
from privateer_lab.planning.plans import Came, Variant, refusal
from privateer_lab.simulation.parallel import Backend, each
from privateer_lab.simulation.simulate import simulation
from privateer_lab.simulation.simulation import Run

SECONDS: Final = 4.5
"""Time of each core for all first runs. A process takes two more to start, and a round is played to its end."""
SEED: Final = 0


@dataclass(frozen=True)
class Begun:
    """The outcome of a variant's first run.

    Attributes
    ----------
    place
        That of the variant.
    run
        The run so far, or why the learner refuses the variant.
    whole
        Whether it came to its end.
    """

    place: int
    run: Run | SpecError
    whole: bool

    @property
    def came(self) -> Came:
        """A run as a plan takes it."""
        return self.place, self.run


def begun(wanted: list[Variant], jobs: int | None, backend: Backend, seconds: float) -> Generator[Begun, None, None]:
    """Run every variant with one seed, each for its part of the time, and yield what comes."""
    workers = min(jobs or os.cpu_count() or 1, len(wanted))
    tasks = [(place, variant.spec, seconds * workers / len(wanted)) for place, variant in enumerate(wanted)]
    return each(_begin, tasks, jobs, backend)


def _begin(place: int, spec: Spec, seconds: float) -> Begun:
    """Play rounds until the time is over, at least one; beside other work it comes as far, and takes longer."""
    ends = time.process_time() + seconds
    try:
        run = simulation(spec, SEED)
        while run.step.batch:
            run.close_round()
            if time.process_time() >= ends:
                return Begun(place, run.outcome(), whole=False)
        run.finish()
        return Begun(place, run.outcome(), whole=True)
    except SpecError as error:
        return Begun(place, refusal(spec, error), whole=True)


def so_far(wanted: list[Variant], found: list[Begun]) -> list[dict[str, Any]]:
    """Return the regret of every variant, and of chance, after as many choices as all runs came to."""
    runs = [(wanted[one.place], one.run) for one in sorted(found, key=lambda one: one.place)]
    kept = [(variant, run) for variant, run in runs if isinstance(run, Run)]
    people = min(run.choices for _, run in kept)
    return [_row(variant, run, people) for variant, run in kept]


def _row(variant: Variant, run: Run, people: int) -> dict[str, Any]:
    seen, regrets, _, randoms = np.array([(0, 0.0, 0.0, 0.0), *run.path]).T
    regret, uniform = (float(np.interp(people, seen, curve)) for curve in (regrets, randoms))
    return {
        "model": variant.model,
        "epsilon": variant.epsilon,
        "people": people,
        "regret": regret,
        "uniform_regret": uniform,
    }
