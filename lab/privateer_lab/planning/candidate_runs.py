"""Runs of candidate specs on the same participants: each once, and the best again until their gains are certain."""

import time
from collections.abc import Callable, Iterable
from math import hypot, inf, sqrt
from typing import Final, NamedTuple

import numpy as np
from scipy.special import stdtrit

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.environments import Environment
from privateer_lab.planning.expectation.partial_runs import PartialRun, restrict_to, run_partially

MakeEnvironment = Callable[[ArmsSpec, int], Environment]
_SEARCH_SECONDS: Final = 8.0
"""Processor time after which only short runs begin."""
_RUN_SECONDS: Final = 4.0
"""Longest processor time of a run; the remaining participants follow its last policy."""
_REPEATS: Final = ((3, 2), (6, 3), (3, 8))
"""Numbers of candidates, best first, and of the runs that they have at least, in the order of steps."""
_MIN_RUNS_FOR_OWN_VARIANCE: Final = 4
"""Fewest runs of a candidate whose own variance counts."""
_MIN_STANDARD_ERRORS: Final = 2.0
"""Standard errors of the difference by which a candidate is clearly better."""


class Candidate(NamedTuple):
    """An algorithm with features and arms, by which a spec is found."""

    algorithm: str
    features: tuple[str, ...]
    options: tuple[str, ...]

    @classmethod
    def from_spec(cls, spec: ArmsSpec) -> "Candidate":
        """Return the candidate of a spec."""
        return cls(spec.algorithm.name, tuple(spec.features), spec.options)


class CandidateRuns:
    """Runs of candidates, and the gains above the best single arm that they show."""

    def __init__(self, full_spec: ArmsSpec, make_environment: MakeEnvironment) -> None:
        """Prepare runs on the people of a spec with all features and arms."""
        self._full_spec, self._make_environment = full_spec, make_environment
        self.specs: dict[Candidate, ArmsSpec] = {}
        self.runs: dict[Candidate, list[PartialRun]] = {}
        self.errors: dict[Candidate, SpecError] = {}

    def run(self, specs: Iterable[ArmsSpec], n_certain: int) -> None:
        """Run the first specs, and as time allows all others and the best again."""
        start = time.process_time()
        new = {Candidate.from_spec(spec): spec for spec in specs}
        self.specs |= new
        for index, candidate in enumerate(new):
            if index < n_certain or time.process_time() - start < _SEARCH_SECONDS:
                self._run_once(candidate)
        start = time.process_time()
        for n_best, n_runs in _REPEATS:
            best = sorted((key for key in new if key in self.runs), key=self.gain, reverse=True)[:n_best]
            plain = [key for key in new if key in self.runs and not key.features]  # whose runs take no time
            for candidate in dict.fromkeys([*plain, *best]):
                seconds = max(run.seconds for run in self.runs[candidate])
                is_short = n_runs == _REPEATS[0][1] and seconds < _RUN_SECONDS / 2
                for _ in range(len(self.runs[candidate]), n_runs):
                    if is_short or time.process_time() - start + seconds < _SEARCH_SECONDS:
                        self._run_once(candidate)

    def _run_once(self, key: Candidate) -> None:
        spec, full, make = self.specs[key], self._full_spec, self._make_environment
        seed = len(self.runs.get(key, []))
        run = run_partially(spec, seed, _RUN_SECONDS, lambda s: restrict_to(make(full, s), full, spec))
        if isinstance(run, PartialRun):
            self.runs.setdefault(key, []).append(run)
        else:
            self.errors[key] = run

    @property
    def all_runs(self) -> list[PartialRun]:
        """The runs of all candidates."""
        return [run for runs in self.runs.values() for run in runs]

    def gain(self, key: Candidate) -> float:
        """Return the mean gain of a candidate; minus infinity without a run."""
        runs = self.runs.get(key, [])
        return float(np.mean([run.gain for run in runs])) if runs else -inf

    def margin(self, key: Candidate) -> float | None:
        """Return the half-width of the 95 % interval of a candidate's gain; None with too few runs."""
        error, degrees_of_freedom = self._standard_error(key)
        return float(stdtrit(degrees_of_freedom, 0.975)) * error if degrees_of_freedom else None

    def is_clearly_better(self, key: Candidate, other: Candidate) -> bool:
        """Whether a candidate gains more than another by two standard errors of the difference."""
        error = hypot(self._standard_error(key)[0], self._standard_error(other)[0])
        return self.gain(key) - self.gain(other) > _MIN_STANDARD_ERRORS * error

    def _standard_error(self, key: Candidate) -> tuple[float, int]:
        """Return the standard error of a candidate's gain, with the variance of all if its runs are few; and its df."""
        n_runs = len(self.runs[key])
        others = self.runs.values() if n_runs < _MIN_RUNS_FOR_OWN_VARIANCE else [self.runs[key]]
        groups = [np.array([run.gain for run in runs]) for runs in others]
        degrees_of_freedom = sum(len(gains) - 1 for gains in groups)
        sum_of_squares = sum(float(np.square(gains - gains.mean()).sum()) for gains in groups)
        return sqrt(sum_of_squares / max(1, degrees_of_freedom) / n_runs), degrees_of_freedom
