"""Runs the spec and its changes within a time, those first that say most."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final, TypeAlias

from privateer_core.errors import SpecError
from privateer_lab.planning.expectation.choices import VariedSpec
from privateer_lab.planning.expectation.partial_runs import PartialRun
from privateer_lab.planning.plans import Refused
from privateer_lab.simulation.parallel import Backend, each

SECONDS: Final = 10.0
_SHARE: Final = 0.3
"""Share of the time of a core that one run may take."""
_FIRST: Final = {"as it is": 0, "features": 1, "trust": 2, "algorithm": 3}
"""Kinds of changes that come first, in this order; then the spec again, for the spread, and the others."""
_OWN_FIRST: Final = 3
"""Runs of the spec before the last changes have one."""
_SEEDS: Final = {"as it is": 16, "trust": 8, "features": 8}
"""Most runs of each kind; others have half as many."""
_END: Final = 1.0
"""Seconds that it takes to say what was found."""
Show: TypeAlias = Callable[[Iterable[Any], int], list[Any]]
"""Collects what comes, of so many; less if somebody interrupts."""


@dataclass(frozen=True)
class Time:
    """How long to compute."""

    seconds: float  # processor time of each process; infinite: every run comes to its end
    # The process that asks, and its processor time at the beginning. Others begin when they start.
    process: int
    started: float

    @property
    def left(self) -> float:
        """Seconds that are left here."""
        return self.seconds - time.process_time() + (self.started if os.getpid() == self.process else 0.0)


@dataclass(frozen=True)
class _Came:
    place: int
    seed: int
    run: PartialRun | SpecError | None


class Search:
    """Runs by choice.

    choices: the spec as it is, and changes.
    show: collects runs as they come.
    jobs, backend: as `each` takes them.
    """

    def __init__(self, choices: Sequence[VariedSpec], show: Show, jobs: int | None, backend: Backend) -> None:
        self._choices, self._show = choices, show
        self._jobs, self._backend = jobs, backend
        self._came: list[_Came] = []
        self.is_interrupted = False  # whether somebody ended the search

    @property
    def runs(self) -> dict[int, list[PartialRun]]:
        """Return runs by the place of the choice, in the order of seeds, of those that have any."""
        found: dict[int, list[PartialRun]] = {}
        for one in sorted(self._came, key=lambda one: (one.place, one.seed)):
            if isinstance(one.run, PartialRun):
                found.setdefault(one.place, []).append(one.run)
        return found

    @property
    def refused(self) -> dict[int, Refused]:
        """Return choices that their learner refuses, by their place, and why."""
        errors = {one.place: one.run for one in self._came if isinstance(one.run, SpecError)}
        variants = {place: self._choices[place].variant for place in errors}
        return {place: Refused(one.model, one.epsilon, errors[place]) for place, one in variants.items()}

    def whole(self, seeds: int) -> None:
        """Run each choice with so many seeds, to its end."""
        self._take([(place, seed) for seed in range(seeds) for place in range(len(self._choices))], inf, 0.0)

    def within(self, seconds: float, started: float) -> None:
        """Run for a time, in seconds of each core; ``started`` is the processor time here at the beginning.

        Where there is little, those that say most have it, and others are left out.
        """
        tasks = [
            (place, seed)
            for place, one in enumerate(self._choices)
            for seed in range(_SEEDS.get(one.kind, _SEEDS["trust"] // 2))
        ]
        self._take(sorted(tasks, key=self._urgency), seconds - _END, started)

    def _urgency(self, task: tuple[int, int]) -> tuple[int, int, int]:
        """Return numbers that are smaller for what says more: each choice once, the spec again before the last ones."""
        place, seed = task
        if not place and 0 < seed < _OWN_FIRST:
            return 0, len(_FIRST), 0
        return seed, _FIRST.get(self._choices[place].kind, len(_FIRST)), place

    def _take(self, tasks: list[tuple[int, int]], seconds: float, started: float) -> None:
        allowed = Time(seconds, os.getpid(), started)
        work = [(place, self._choices[place], seed, allowed) for place, seed in tasks]
        came = self._show(each(_played, work, self._jobs, self._backend), len(work))
        self._came += came
        self.is_interrupted = len(came) < len(work)


def _played(place: int, choice: VariedSpec, seed: int, allowed: Time) -> _Came:
    """Run a choice if there is time; the spec itself once, however little there is."""
    left = allowed.left
    if left <= 0 and (place or seed):
        return _Came(place, seed, None)
    return _Came(place, seed, choice.play(seed, min(left, _SHARE * allowed.seconds)))
