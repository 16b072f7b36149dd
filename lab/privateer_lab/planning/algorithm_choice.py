"""Choice of an experiment's algorithm, features and arms by their mean reward in simulated runs."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.environments import Environment
from privateer_lab.planning.expectation.expected import Unit
from privateer_lab.planning.expectation.partial_runs import PartialRun, restrict_to, run_partially
from privateer_lab.planning.other_algorithms import (
    candidate_names,
    contextual_algorithms,
    featureless_algorithm,
    to_tables,
    with_own_rounds,
)
from privateer_lab.tables import shorten

_SEARCH_SECONDS: Final = 8.0
"""Processor time after which only short runs begin."""
_RUN_SECONDS: Final = 4.0
"""Longest processor time of a run; the remaining participants follow its last policy."""
_MIN_FULL_RUNS: Final = 1
"""Number of specs with all features that always run if subsets are candidates."""
_N_REPEATED: Final = 3
"""Number of candidates, best first, that have a second run."""
_MIN_GAIN_SHARE: Final = 0.05
"""Least advantage of an algorithm over the default one, as a share of the potential gain of contexts."""
_ROUNDING_ERROR: Final = 1e-9
MakeEnvironment = Callable[[ArmsSpec, int], Environment]
Candidate = tuple[str, tuple[str, ...]]
"""An algorithm, and its features."""
QuantileVariant = Callable[[ArmsSpec], ArmsSpec | None]


@dataclass(frozen=True)
class AlgorithmChoice:
    """A chosen algorithm, with the mean rewards of all candidates."""

    name: str  # of the chosen algorithm
    rewards: Mapping[str, float]  # mean reward of a person, in the reward's unit, by algorithm
    single: float  # that of the best single arm
    max_gain: float  # the gain of a participant from the best arm by features
    is_rate: bool  # whether rewards are rates
    # mean reward with cut points of numbers from the data; None: not tried, or not clearly more
    quantile_reward: float | None = None
    is_tie: bool = False  # whether all arms are equally good for all participants
    kept_features: tuple[str, ...] | None = None  # the selected features; None: all
    n_features: int = 0  # the number of all features
    n_without_privacy: int | None = None  # the number of features without privacy; None: not computed
    # mean reward with all features, by the best algorithm; None: not tried
    full_reward: float | None = None
    # the selected arms, and the dropped ones
    options: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    best_option: str = ""  # the best single arm
    subset_reward: float | None = None  # that of the best tried subset, if all features are selected

    @property
    def sentence(self) -> str:
        """The reasons for the choice, as a paragraph."""
        return " ".join([self._say_means(), *self._say_features(), *self._say_others(), *self._say_plain()])

    @property
    def reason(self) -> str:
        """The number of selected features, and the reason, in a line."""
        if self.kept_features is None:
            explanation = "fewer were not tried: `privateer plan` tries some"
            if self.subset_reward is not None:
                reward, fewer = self._unit.write(self.rewards[self.name]), self._unit.write(self.subset_reward)
                explanation = f"in these runs they earn more than fewer do, {reward} instead of {fewer}"
            return f"{self.n_features} of {self.n_features} features kept, because {explanation}"
        fraction, n_more = f"{len(self.kept_features)} of {self.n_features} features", self.n_without_privacy or 0
        if self.kept_features and n_more > len(self.kept_features):
            return f"{fraction}: more would cost more noise than they tell; without privacy {n_more}"
        if self.kept_features:
            return f"{fraction}: the others add no more than chance"
        without_privacy = f"; without privacy {n_more} would" if n_more else ""
        condition = "; if options are worth what these rows say"  # chance may say it of options that are alike
        best_comparison = f"{condition}, {shorten(self.best_option)} for everybody earns more than trying others"
        explanation = best_comparison if self.best_option and self.single > max(self.rewards.values()) else ""
        return f"{fraction}: none tells enough to earn more than one option for all{without_privacy}{explanation}"

    @property
    def shortfall(self) -> str:
        """Return a clause that says by how much the best single arm earns more; empty if it does not."""
        single, reward = self._unit.write(self.single), self._unit.write(self.rewards[self.name])
        if self.is_tie or self.single <= self.rewards[self.name] or single == reward:
            return ""
        option = f"{shorten(self.best_option)} for everybody" if self.best_option else "the best single option"
        return f"{option} earns more than this draft on these people, {single} instead of {reward}"

    @property
    def _unit(self) -> Unit:
        return Unit(self.is_rate, max(abs(reward - self.single) for reward in self.rewards.values()))

    def _say_features(self) -> Iterator[str]:
        """Name the selected features, and the arms that were left out."""
        if self.kept_features is not None:
            kept_names = f" Kept: {', '.join(map(shorten, self.kept_features))}." if self.kept_features else ""
            reward = None if self.full_reward is None else self._unit.write(self.full_reward)
            comparison = f" With all of them it would earn {reward}." if reward and not self.is_tie else ""
            yield f"{self.reason[0].upper()}{self.reason[1:]}.{kept_names}{comparison}"
        if self.dropped:
            yield f"{self.options_reason}. Left out: {', '.join(map(shorten, self.dropped))}."

    @property
    def options_reason(self) -> str:
        """The number of selected arms, and the reason, in a line."""
        n = len(self.options)
        return f"{n} of {n + len(self.dropped)} options: in this log the others add less than trying them costs"

    def _say_means(self) -> str:
        """Compare the chosen algorithm's reward with that of the best single option, and with those of the others."""
        write, is_plain = (self._unit.write, self.name == featureless_algorithm() and self.kept_features is None)
        note = ", since the spec has no [context.features]" if is_plain else ""
        if self.is_tie:
            return (
                f"On these people all options are equal, so that everything earns {write(self.single)}. "
                f"algorithm.name is {self.name!r}{note}."
            )
        comparisons = [f"{name!r} {write(value)}" for name, value in self.rewards.items() if name != self.name]
        comparison = f" ({', '.join(comparisons)})" if comparisons else ""
        highest = max(self.rewards.values())
        remark = ", more than any of them" if self.single > highest and write(self.single) != write(highest) else ""
        name = f", {shorten(self.best_option)}," if self.best_option else ""
        return (
            f"In runs on these people this earns {write(self.rewards[self.name])}; the best single option{name} earns "
            f"{write(self.single)}{remark}. algorithm.name is {self.name!r}{note}{comparison}."
        )

    def _say_others(self) -> Iterator[str]:
        """Name algorithms that were not tried, and say why a higher reward was not chosen."""
        by_context = self.name != featureless_algorithm()
        untried_names = [repr(name) for name in candidate_names() if name not in self.rewards]
        if untried_names and by_context and not self.kept_features:
            yield f"Not tried, as the spec does not fit or time was short: {', '.join(untried_names)}."
        contextual = [name for name in self.rewards if name in contextual_algorithms()]
        best = max(contextual, key=self.rewards.__getitem__, default=self.name)
        if by_context and self.max_gain > 0 and best != self.name and self.rewards[best] > self.rewards[self.name]:
            min_gain = self._unit.points(_MIN_GAIN_SHARE * self.max_gain)
            yield f"Less than {min_gain} more, a twentieth of what choosing by features could gain, do not count."
        if self.quantile_reward is not None:
            reward = self._unit.write(self.quantile_reward)
            yield f"Cut points of numbers from the data earn {reward}: confirm that they may be public."

    def _say_plain(self) -> Iterator[str]:
        """Say whether the algorithm without features is sufficient."""
        plain = featureless_algorithm()
        if self.name == plain or plain not in self.rewards:
            return
        if self.max_gain <= 0:
            reason = "All options are equal" if self.is_tie else "One option is best"
            yield (
                f"{reason} for all of these people, so features gain nothing here. {self.name!r} stays in "
                f"case yours differ; if not, leave out [context.features]: {plain!r}, which knows none, is enough."
            )
        elif self.rewards[plain] > self.rewards[self.name]:
            yield f"{plain!r}, which knows no features, earns more: to use it, leave out [context.features]."


def choose_algorithm(
    specs: Mapping[str, ArmsSpec],
    make_environment: MakeEnvironment,
    make_quantile_variant: QuantileVariant | None = None,
    subsets: Mapping[Candidate, ArmsSpec] | None = None,
) -> AlgorithmChoice | SpecError:
    """Choose the contextual algorithm with the highest mean reward in runs; return an error if none of them can run.

    specs: the experiment by algorithm, at least one; the featureless one is chosen only if it is the only one.
    make_environment: makes the environment of a spec and a seed.
    make_quantile_variant: returns a spec with cut points of numbers from the data; None if it is the same.
    subsets: the experiment with fewer features and arms, if allowed: a subset is chosen unless all features earn
        clearly more.
    """
    full_specs = {(name, tuple(spec.features)): spec for name, spec in specs.items()}
    full_spec = max(specs.values(), key=lambda spec: len(spec.features))
    # Slow learners come last with all features, since time may not suffice for all of them.
    order = dict(reversed(full_specs.items())) if subsets is not None else full_specs
    every_spec = {**(subsets or {}), **{key: spec for key, spec in order.items() if key not in (subsets or {})}}
    n_certain = len(full_specs) if subsets is None else len(subsets) + _MIN_FULL_RUNS
    runs, refused = _run_all(every_spec, make_environment, full_spec, n_certain)
    full = [key for key in full_specs if key[0] in contextual_algorithms()] or list(full_specs)
    runnable = [key for key in full if key in runs] or [key for key in runs if key in (subsets or {})]
    if not runnable:
        return refused[full[0]]
    all_runs = [run for repeats in runs.values() for run in repeats]
    best_option = full_spec.options[max(all_runs, key=lambda run: run.single).arm]
    single = float(np.mean([run.single for run in all_runs]))
    max_gain = float(np.mean([run.run.best_constant_regret / run.run.choices for run in all_runs]))
    is_tie = all(run.run.uniform_regret <= _ROUNDING_ERROR * run.run.choices for run in all_runs)
    # If one arm is best for all participants, the runs are no evidence for or against an algorithm.
    margin = _MIN_GAIN_SHARE * max_gain or np.inf
    rewards = {key: single + float(np.mean([run.gain for run in repeats])) for key, repeats in runs.items()}
    best = _prefer(rewards, max(runnable, key=rewards.__getitem__), runnable[0], margin)
    if subsets is not None:
        best_subset = max((key for key in runs if key in subsets or not key[1]), key=rewards.__getitem__, default=best)
        best = _prefer(rewards, best, best_subset, margin)
    every_spec[best], gain = _with_all_options(every_spec[best], rewards[best] - single, make_environment, full_spec)
    rewards[best] = single + gain
    variant = make_quantile_variant(every_spec[best]) if make_quantile_variant else None
    variant_runs = _run_all({best: variant}, make_environment, full_spec, 1)[0].get(best, []) if variant else []
    gains = [run.gain for run in variant_runs]
    quantile_reward = single + float(np.mean(gains)) if gains else -np.inf
    name, features = best
    comparable = [key for key in rewards if key[1] == features or not key[1] or not features]
    has_fewer_features = features != full[0][1]
    return AlgorithmChoice(
        name,
        {key[0]: max(rewards[other] for other in comparable if other[0] == key[0]) for key in comparable},
        single,
        max_gain,
        specs[name].reward.is_rate,
        quantile_reward if quantile_reward - rewards[best] > margin else None,
        is_tie,
        features if has_fewer_features else None,
        len(full[0][1]),
        full_reward=max(rewards[key] for key in runnable) if has_fewer_features else None,
        options=(options := every_spec[best].options),
        dropped=tuple(option for option in full_spec.options if option not in options),
        best_option="" if is_tie else best_option,
        subset_reward=max(
            (rewards[key] for key in runs if key in (subsets or {}) and key[1] != features), default=None
        ),
    )


def _with_all_options(spec: ArmsSpec, gain: float, factory: MakeEnvironment, full: ArmsSpec) -> tuple[ArmsSpec, float]:
    """Return the spec with all arms, and its gain, unless the given arms gain more."""
    tables = to_tables(spec)
    tables["experiment"] |= {"arms": list(full.options)}
    spec_with_all, key = with_own_rounds(tables, spec.algorithm.name), (spec.algorithm.name, tuple(spec.features))
    if spec_with_all is None or spec.options == full.options:
        return spec, gain
    runs = _run_all({key: spec_with_all}, factory, full, 1)[0].get(key, [])
    gain_with_all = float(np.mean([run.gain for run in runs])) if runs else -np.inf
    return (spec, gain) if gain > gain_with_all else (spec_with_all, gain_with_all)


def _prefer(rewards: Mapping[Candidate, float], challenger: Candidate, default: Candidate, margin: float) -> Candidate:
    """Return the default candidate, unless the challenger earns clearly more."""
    return challenger if rewards[challenger] - rewards[default] > margin else default


def _run_all(
    specs: Mapping[Candidate, ArmsSpec], factory: MakeEnvironment, full: ArmsSpec, n_certain: int
) -> tuple[dict[Candidate, list[PartialRun]], dict[Candidate, SpecError]]:
    """Run the first candidates, and as time allows all others and the best again; return runs and errors."""
    runs: dict[Candidate, list[PartialRun]] = {}
    errors: dict[Candidate, SpecError] = {}
    start = time.process_time()

    def run_candidate(key: Candidate, seed: int) -> None:
        run = run_partially(specs[key], seed, _RUN_SECONDS, lambda s: restrict_to(factory(full, s), full, specs[key]))
        if isinstance(run, PartialRun):
            runs.setdefault(key, []).append(run)
        else:
            errors[key] = run

    for index, candidate in enumerate(specs):
        if index < n_certain or time.process_time() - start < _SEARCH_SECONDS:
            run_candidate(candidate, 0)
    for candidate in sorted(runs, key=lambda key: -runs[key][0].gain)[:_N_REPEATED]:
        if runs[candidate][0].seconds < _RUN_SECONDS / 2 or time.process_time() - start < _SEARCH_SECONDS:
            run_candidate(candidate, 1)
    return runs, errors
