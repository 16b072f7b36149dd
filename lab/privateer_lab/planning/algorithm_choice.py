"""Which algorithm an experiment has, and which features: those that earn most in runs on simulated people."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.environments import Environment
from privateer_lab.planning.expectation.kept_features import people_told
from privateer_lab.planning.expectation.partial_runs import PartialRun, played
from privateer_lab.planning.expectation.words import Unit
from privateer_lab.planning.other_algorithms import (
    by_features,
    candidate_names,
    tables_of,
    with_own_rounds,
    without_features,
)
from privateer_lab.tables import shortened

_SECONDS: Final = 8.0
"""Processor time after which no further run begins, unless it is a short one."""
_RUN: Final = 4.0
"""Processor time of a run: who is left then gets what the last policy gives."""
_WIDE: Final = 1
"""Specs with all features that are run in any case where fewer may be kept."""
_AGAIN: Final = 3
"""What earns most in a first run has a second one, so many of them."""
_MORE: Final = 0.05
"""Another algorithm than the usual one must earn more by such a share of what choosing by context could gain."""
_DUST: Final = 1e-9
People = Callable[[ArmsSpec, int], Environment]
Tried = tuple[str, tuple[str, ...]]
"""An algorithm, and its features."""
Drawn = Callable[[ArmsSpec], ArmsSpec | None]


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
    kept: tuple[str, ...] | None = None  # the features that are kept; None: all of them
    among: int = 0  # how many features there are
    unnoised: int | None = None  # how many would be kept without privacy; None: nobody asked
    # mean reward of a person with all features, in the algorithm for which it is most; None: nobody tried
    with_all: float | None = None
    # the options that are kept, and those that are not
    options: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Say why."""
        return " ".join((*self._features(), *self._options(), self._earned(), *self._others(), *self._plain()))

    @property
    def why(self) -> str:
        """Say in a line how many features are kept, and why not more."""
        if self.kept is None:
            return f"all {self.among} features"
        few, more = f"{len(self.kept)} of {self.among} features", self.unnoised or 0
        if self.kept and more > len(self.kept):
            return f"{few}: more would cost more noise than they tell; without privacy {more}"
        if self.kept:
            return f"{few}: others add nothing to them that is more than chance"
        unless = f"; without privacy {more} would" if more else ""
        return f"{few}: none tells enough to earn more than one option for all{unless}"

    @property
    def _unit(self) -> Unit:
        return Unit(self.is_rate, max(abs(one - self.single) for one in self.earned.values()))

    def _features(self) -> Iterator[str]:
        if self.kept is not None:
            named = f" Kept: {', '.join(map(shortened, self.kept))}." if self.kept else ""
            with_all = (
                "" if self.with_all is None else f" With all of them it would earn {self._unit.write(self.with_all)}."
            )
            yield f"{self.why[0].upper()}{self.why[1:]}.{named}{with_all}"

    def _options(self) -> Iterator[str]:
        if self.left_out:
            yield f"{self.why_fewer}. Left out: {', '.join(map(shortened, self.left_out))}."

    @property
    def why_fewer(self) -> str:
        """Say in a line how many options are kept, and why not more."""
        kept = len(self.options)
        return f"{kept} of {kept + len(self.left_out)} options: in this log the others add less than trying them costs"

    def _earned(self) -> str:
        write, plain = self._unit.write, self.name == without_features() and self.kept is None
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
        if untried and by_context and not self.kept:
            yield f"Not tried, as the spec does not fit or time was short: {', '.join(untried)}."
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


def choice_of(
    specs: Mapping[str, ArmsSpec],
    people: People,
    drawn: Drawn | None = None,
    kept: Mapping[Tried, ArmsSpec] | None = None,
) -> AlgorithmChoice | SpecError:
    """Return what earns most of the algorithms that choose by features; a refusal where none of them can be run.

    specs: the same experiment by algorithm, at least one. Where none chooses by features, the other one is the choice.
    people: makes the people of a spec and a seed.
    drawn: returns a spec with cut points of numbers from the data, where it is another one.
    kept: the experiment with fewer features and options, where these may be chosen: one of them is, unless all
        features earn clearly more.
    """
    whole = {(name, tuple(spec.features)): spec for name, spec in specs.items()}
    known = max(specs.values(), key=lambda spec: len(spec.features))
    # Algorithms that learn slowly come last with all features: there is no time for all of them.
    order = dict(reversed(whole.items())) if kept is not None else whole
    every = {**(kept or {}), **{one: spec for one, spec in order.items() if one not in (kept or {})}}
    runs, refused = _runs(every, people, known, len(whole) if kept is None else len(kept) + _WIDE)
    wanted = [one for one in whole if one[0] in by_features()] or list(whole)
    chosen = [one for one in wanted if one in runs] or [one for one in runs if one in (kept or {})]
    if not chosen:
        return refused[wanted[0]]
    everybody = [one for some in runs.values() for one in some]
    single = float(np.mean([one.single for one in everybody]))
    could = float(np.mean([one.run.best_constant_regret / one.run.choices for one in everybody]))
    is_tie = all(one.run.uniform_regret <= _DUST * one.run.choices for one in everybody)
    # Where one option is best for everybody, nothing speaks for or against an algorithm.
    margin = _MORE * could or np.inf
    earned = {one: single + float(np.mean([run.gain for run in some])) for one, some in runs.items()}
    found = _better(earned, max(chosen, key=earned.__getitem__), chosen[0], margin)
    if kept is not None:
        fewer = max((one for one in runs if one in kept or not one[1]), key=earned.__getitem__, default=found)
        found = _better(earned, found, fewer, margin)
    every[found], gain = _with_all_options(every[found], earned[found] - single, people, known)
    earned[found] = single + gain
    changed = drawn(every[found]) if drawn else None
    gains = [one.gain for one in _runs({found: changed}, people, known, 1)[0].get(found, [])] if changed else []
    by_cuts = single + float(np.mean(gains)) if gains else -np.inf
    name, features = found
    beside = [one for one in earned if one[1] == features or not one[1] or not features]
    is_less = features != wanted[0][1]
    return AlgorithmChoice(
        name,
        {one[0]: max(earned[other] for other in beside if other[0] == one[0]) for one in beside},
        single,
        could,
        specs[name].reward.is_rate,
        by_cuts if by_cuts - earned[found] > margin else None,
        is_tie,
        features if is_less else None,
        len(wanted[0][1]),
        with_all=max(earned[one] for one in chosen) if is_less else None,
        options=(options := every[found].options),
        left_out=tuple(one for one in known.options if one not in options),
    )


def _with_all_options(spec: ArmsSpec, gain: float, people: People, known: ArmsSpec) -> tuple[ArmsSpec, float]:
    """Return the spec with all options, and what it gains, unless with fewer it gains more."""
    tables = tables_of(spec)
    tables["experiment"] |= {"arms": list(known.options)}
    whole, one = with_own_rounds(tables, spec.algorithm.name), (spec.algorithm.name, tuple(spec.features))
    if whole is None or spec.options == known.options:
        return spec, gain
    runs = _runs({one: whole}, people, known, 1)[0].get(one, [])
    with_all = float(np.mean([run.gain for run in runs])) if runs else -np.inf
    return (spec, gain) if gain > with_all else (whole, with_all)


def _better(earned: Mapping[Tried, float], other: Tried, usual: Tried, margin: float) -> Tried:
    """Return the usual one, unless the other earns clearly more."""
    return other if earned[other] - earned[usual] > margin else usual


def _runs(
    specs: Mapping[Tried, ArmsSpec], people: People, known: ArmsSpec, first: int
) -> tuple[dict[Tried, list[PartialRun]], dict[Tried, SpecError]]:
    """Return runs of the first specs, and if there is time of others and again of the best; and what is refused."""
    found: dict[Tried, list[PartialRun]] = {}
    refused: dict[Tried, SpecError] = {}
    started = time.process_time()

    def tried(one: Tried, seed: int) -> None:
        run = played(specs[one], seed, _RUN, lambda own: people_told(people(known, own), known, specs[one]))
        if isinstance(run, PartialRun):
            found.setdefault(one, []).append(run)
        else:
            refused[one] = run

    for place, one in enumerate(specs):
        if place < first or time.process_time() - started < _SECONDS:
            tried(one, 0)
    for one in sorted(found, key=lambda one: -found[one][0].gain)[:_AGAIN]:
        if found[one][0].seconds < _RUN / 2 or time.process_time() - started < _SECONDS:
            tried(one, 1)
    return found, refused
