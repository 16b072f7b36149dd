"""Runs the spec and its changes within a time, those first that say most."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from privateer_core.errors import SpecError
from privateer_lab.planning.expectation.choices import Choice
from privateer_lab.planning.expectation.partial_runs import PartialRun
from privateer_lab.planning.plans import Refused
from privateer_lab.simulation.parallel import Backend, each

SECONDS: Final = 10.0
_START: Final = 1.0
"""Seconds until a command's modules are there."""
_PROCESS: Final = 1.6
"""Seconds until a further process is there."""
_AFTER_THE_FIRST_ROUND: Final = 0.75
"""Share of the time that runs take after their first round, at most."""
_RUNS: Final = {"as it is": 4, "trust": 2, "features": 2}
"""Runs of each kind of change; one of others. What varies is known from all together."""
_MOST: Final = 4
"""How many times as many there are, if there is time."""
Task: TypeAlias = tuple[int, Choice, int, float]
Show: TypeAlias = Callable[[Iterable[Any], int], list[Any]]
"""Collects what comes, of so many; less if somebody interrupts."""


@dataclass(frozen=True)
class _Came:
    place: int
    seed: int
    run: PartialRun | SpecError


class Search:
    """Runs by choice.

    Parameters
    ----------
    choices
        The spec as it is, and changes.
    show
        Collects runs as they come.
    jobs, backend
        As `each` takes them.

    Attributes
    ----------
    runs
        By the place of the choice.
    refused
        Choices that their learner refuses.
    is_interrupted
        Whether somebody ended the search.
    """

    def __init__(self, choices: Sequence[Choice], show: Show, jobs: int | None, backend: Backend) -> None:
        self._choices, self._show = choices, show
        self._jobs, self._backend = jobs or os.cpu_count() or 1, backend
        self._came: list[_Came] = []
        self.is_interrupted = False

    @property
    def runs(self) -> dict[int, list[PartialRun]]:
        """Return runs by the place of the choice, in the order of seeds, of those that have any.

        Raises
        ------
        SpecError
            If the learner refuses the spec itself.
        """
        found: dict[int, list[PartialRun]] = {}
        for one in sorted(self._came, key=lambda one: (one.place, one.seed)):
            if isinstance(one.run, PartialRun):
                found.setdefault(one.place, []).append(one.run)
            elif not one.place:
                raise one.run
        return found

    @property
    def refused(self) -> list[Refused]:
        """Choices that their learner refuses, and why."""
        errors = {one.place: one.run for one in self._came if isinstance(one.run, SpecError)}
        variants = [(self._choices[place].variant, error) for place, error in errors.items()]
        return [Refused(variant.model, variant.epsilon, error) for variant, error in variants]

    def whole(self, seeds: int) -> None:
        """Run each choice with so many seeds, to its end."""
        self._take([(place, one, seed, float("inf")) for seed in range(seeds) for place, one in self._all()])

    def within(self, seconds: float, started: float) -> None:
        """Run for a time, in seconds of each core; ``started`` is the processor time at the beginning.

        Each run has its part of the time. If some need less, there are more runs.
        """
        waits = _START + (_PROCESS if self._jobs > 1 else 0.0) + time.process_time() - started
        total = max(0.0, seconds - waits) * self._jobs
        first = [(place, one, seed) for seed in range(max(_RUNS.values())) for place, one in self._all(seed)]
        each_has = _AFTER_THE_FIRST_ROUND * total / len(first)
        self._take([(*one, each_has) for one in first])
        spent = sum(one.run.seconds for one in self._came if isinstance(one.run, PartialRun))
        times = min(_MOST - 1, int((total - spent) / spent)) if spent else 0
        if not self.is_interrupted and times > 0:
            runs = {place: len(some) for place, some in self.runs.items()}
            more = range(max(runs.values()) * (times + 1))
            self._take(
                [
                    (place, self._choices[place], seed, each_has)
                    for seed in more
                    for place, had in runs.items()
                    if had <= seed < had * (times + 1)
                ]
            )

    def _all(self, seed: int = 0) -> list[tuple[int, Choice]]:
        return [(place, one) for place, one in enumerate(self._choices) if seed < _RUNS.get(one.kind, 1)]

    def _take(self, tasks: list[Task]) -> None:
        came = self._show(each(_played, tasks, self._jobs, self._backend), len(tasks))
        self._came += came
        self.is_interrupted = self.is_interrupted or len(came) < len(tasks)


def _played(place: int, choice: Choice, seed: int, seconds: float) -> _Came:
    return _Came(place, seed, choice.play(seed, seconds))
