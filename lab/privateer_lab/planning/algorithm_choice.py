"""Which algorithm an experiment has: the one that earns most in runs on simulated people."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from privateer_core.spec.arms import ArmsSpec
from privateer_lab.environments import Environment
from privateer_lab.planning.expectation.kept_features import KeptFeatures
from privateer_lab.planning.expectation.partial_runs import PartialRun, played
from privateer_lab.planning.expectation.words import Unit
from privateer_lab.planning.other_algorithms import by_features, without_features

_SECONDS: Final = 4.0
"""Processor time after which no further seed begins."""
_RUN: Final = 4.0
"""Processor time of a run: who is left then gets what the last policy gives."""
_SEEDS: Final = 2
_MORE: Final = 0.05
"""Another algorithm than the usual one must earn more by such a share of what choosing by context could gain."""
People = Callable[[ArmsSpec, int], Environment]
Drawn = Callable[[str], ArmsSpec | None]


@dataclass(frozen=True)
class AlgorithmChoice:
    """An algorithm, and what it and others earned.

    Attributes
    ----------
    name
        The one that was chosen.
    earned
        Mean reward of a person, in the reward's unit, by algorithm.
    single
        That of the best single option.
    margin
        Differences up to this one say nothing.
    is_rate
        Whether rewards are rates.
    drawn
        Mean reward of a person with cut points of numbers from the data; None: nobody tried, or it is not more.
    """

    name: str
    earned: Mapping[str, float]
    single: float
    margin: float
    is_rate: bool
    drawn: float | None = None

    @property
    def sentence(self) -> str:
        """Say why."""
        plain = without_features()
        why = ", since the spec has no [context.features]" if self.name == plain else ""
        write = Unit(self.is_rate, max(abs(one - self.single) for one in self.earned.values())).write
        others = [f"{one!r} {write(value)}" for one, value in self.earned.items() if one != self.name]
        compared = f" ({', '.join(others)})" if others else ""
        said = f"algorithm.name is {self.name!r}{why}: in runs on these people it earns {write(self.earned[self.name])}"
        more = ", more than any of them" if self.single >= max(self.earned.values()) else ""
        said += f"{compared}; the best single option earns {write(self.single)}{more}."
        if self.drawn is not None:
            said += f" Cut points of numbers from the data earn {write(self.drawn)}: confirm that they may be public."
        if self.earned.get(plain, -np.inf) - self.earned[self.name] <= self.margin:
            return said
        return f"{said} {plain!r}, which knows no features, earns more: to use it, leave out [context.features]."


def choice_of(specs: Mapping[str, ArmsSpec], people: People, drawn: Drawn | None = None) -> AlgorithmChoice | None:
    """Return what earns most of the algorithms that choose by features; None where none of them can be run.

    Parameters
    ----------
    specs
        The same experiment by algorithm. Where none chooses by features, the other one is the choice.
    people
        Makes the people of a spec and a seed.
    drawn
        Returns the spec of an algorithm with cut points of numbers from the data, where it is another one.
    """
    runs = _runs(specs, people)
    wanted = [name for name in by_features() if name in specs] or list(specs)
    chosen = [name for name in wanted if name in runs]
    if not chosen:
        return None
    seeds = min(len(some) for some in runs.values())
    everybody = [one for some in runs.values() for one in some]
    single = float(np.mean([one.single for one in everybody]))
    could = float(np.mean([one.run.best_constant_regret / one.run.choices for one in everybody]))
    # Where one option is best for everybody, nothing speaks for or against an algorithm.
    margin = _MORE * could or np.inf
    earned = {name: single + float(np.mean([one.gain for one in some[:seeds]])) for name, some in runs.items()}
    best, usual = max(chosen, key=lambda name: earned[name]), chosen[0]
    name = best if earned[best] - earned[usual] > margin else usual
    changed = drawn(name) if drawn else None
    gains = [one.gain for one in _runs({name: changed}, people).get(name, [])[:seeds]] if changed else []
    by_cuts = single + float(np.mean(gains)) if gains else -np.inf
    better = by_cuts - earned[name] > margin
    return AlgorithmChoice(name, earned, single, margin, specs[name].reward.is_rate, by_cuts if better else None)


def _runs(specs: Mapping[str, ArmsSpec], people: People) -> dict[str, list[PartialRun]]:
    """Return runs by algorithm, of as many seeds as there is time for; one whose learner refuses has none."""
    found: dict[str, list[PartialRun]] = {}
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
    return found
