"""Which algorithm an experiment has: the one that earns most in runs on simulated people."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.environments import Environment
from privateer_lab.planning.expectation.kept_features import KeptFeatures
from privateer_lab.planning.expectation.partial_runs import PartialRun, played
from privateer_lab.planning.expectation.words import Unit
from privateer_lab.planning.other_algorithms import by_features, candidate_names, without_features

_SECONDS: Final = 4.0
"""Processor time after which no further seed begins."""
_RUN: Final = 4.0
"""Processor time of a run: who is left then gets what the last policy gives."""
_SEEDS: Final = 2
_MORE: Final = 0.05
"""Another algorithm than the usual one must earn more by such a share of what choosing by context could gain."""
_DUST: Final = 1e-9
People = Callable[[ArmsSpec, int], Environment]
Drawn = Callable[[str], ArmsSpec | None]


@dataclass(frozen=True)
class AlgorithmChoice:
    """An algorithm, and what it and others earned."""

    name: str  # the one that was chosen
    earned: Mapping[str, float]  # mean reward of a person, in the reward's unit, by algorithm
    single: float  # that of the best single option
    could: float  # what a choice by features could gain a person, if all were known
    is_rate: bool  # whether rewards are rates
    # mean reward of a person with cut points of numbers from the data; None: nobody tried, or it is not clearly more
    drawn: float | None = None
    is_tie: bool = False  # whether all options are as good as each other for all of these people

    @property
    def sentence(self) -> str:
        """Say why."""
        return " ".join((self._earned(), *self._others(), *self._plain()))

    @property
    def _unit(self) -> Unit:
        return Unit(self.is_rate, max(abs(one - self.single) for one in self.earned.values()))

    def _earned(self) -> str:
        write, plain = self._unit.write, self.name == without_features()
        why = ", since the spec has no [context.features]" if plain else ""
        others = [f"{one!r} {write(value)}" for one, value in self.earned.items() if one != self.name]
        compared = f" ({', '.join(others)})" if others else ""
        most = max(self.earned.values())
        more = ", more than any of them" if self.single > most and write(self.single) != write(most) else ""
        single = "every option by itself" if self.is_tie else "the best single option"
        return (
            f"algorithm.name is {self.name!r}{why}: in runs on these people it earns {write(self.earned[self.name])}"
            f"{compared}; {single} earns {write(self.single)}{more}."
        )

    def _others(self) -> Iterator[str]:
        """Say what was not tried, and why what earned more is not chosen."""
        by_context = self.name != without_features()
        untried = [repr(one) for one in candidate_names() if one not in self.earned]
        if untried and by_context:
            yield f"Not tried, as the spec does not fit: {', '.join(untried)}."
        best = max((one for one in self.earned if one in by_features()), key=self.earned.__getitem__, default=self.name)
        if by_context and self.could > 0 and best != self.name and self.earned[best] > self.earned[self.name]:
            least = self._unit.points(_MORE * self.could)
            yield f"Less than {least} more, a twentieth of what choosing by features could gain, do not count."
        if self.drawn is not None:
            earn = self._unit.write(self.drawn)
            yield f"Cut points of numbers from the data earn {earn}: confirm that they may be public."

    def _plain(self) -> Iterator[str]:
        """Say where the algorithm that knows no features is enough."""
        plain = without_features()
        if self.name == plain or plain not in self.earned:
            return
        if self.could <= 0:
            alike = "All options are equal" if self.is_tie else "One option is best"
            yield (
                f"{alike} for all of these people, so features gain nothing here. {self.name!r} stays in "
                f"case yours differ; if not, leave out [context.features]: {plain!r}, which knows none, is enough."
            )
        elif self.earned[plain] > self.earned[self.name]:
            yield f"{plain!r}, which knows no features, earns more: to use it, leave out [context.features]."


def choice_of(specs: Mapping[str, ArmsSpec], people: People, drawn: Drawn | None = None) -> AlgorithmChoice | SpecError:
    """Return what earns most of the algorithms that choose by features; a refusal where none of them can be run.

    specs: the same experiment by algorithm, at least one. Where none chooses by features, the other one is the choice.
    people: makes the people of a spec and a seed.
    drawn: returns the spec of an algorithm with cut points of numbers from the data, where it is another one.
    """
    runs, refused = _runs(specs, people)
    wanted = [name for name in by_features() if name in specs] or list(specs)
    chosen = [name for name in wanted if name in runs]
    if not chosen:
        return refused[wanted[0]]
    seeds = min(len(some) for some in runs.values())
    everybody = [one for some in runs.values() for one in some]
    single = float(np.mean([one.single for one in everybody]))
    could = float(np.mean([one.run.best_constant_regret / one.run.choices for one in everybody]))
    is_tie = all(one.run.uniform_regret <= _DUST * one.run.choices for one in everybody)
    # Where one option is best for everybody, nothing speaks for or against an algorithm.
    margin = _MORE * could or np.inf
    earned = {name: single + float(np.mean([one.gain for one in some[:seeds]])) for name, some in runs.items()}
    best, usual = max(chosen, key=lambda name: earned[name]), chosen[0]
    name = best if earned[best] - earned[usual] > margin else usual
    changed = drawn(name) if drawn else None
    gains = [one.gain for one in _runs({name: changed}, people)[0].get(name, [])[:seeds]] if changed else []
    by_cuts = single + float(np.mean(gains)) if gains else -np.inf
    better = by_cuts - earned[name] > margin
    return AlgorithmChoice(name, earned, single, could, specs[name].reward.is_rate, by_cuts if better else None, is_tie)


def _runs(specs: Mapping[str, ArmsSpec], people: People) -> tuple[dict[str, list[PartialRun]], dict[str, SpecError]]:
    """Return runs by algorithm, of as many seeds as there is time for, and refusals of learners and people."""
    found: dict[str, list[PartialRun]] = {}
    refused: dict[str, SpecError] = {}
    started, known = time.process_time(), next(iter(specs.values()), None)
    for seed in range(_SEEDS):
        for name, spec in specs.items():
            if seed and (name not in found or time.process_time() - started > _SECONDS):
                continue

            def environment(own: int, spec: ArmsSpec = spec) -> Environment:
                assert known is not None
                return (
                    people(spec, own)
                    if spec.features or not known.features
                    else KeptFeatures(people(known, own), (), len(known.features))
                )

            run = played(spec, seed, _RUN, environment)
            if isinstance(run, PartialRun):
                found.setdefault(name, []).append(run)
            else:
                refused[name] = run
    return found, refused
