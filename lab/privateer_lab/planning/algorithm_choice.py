"""Choice of an experiment's algorithm, features and arms by their mean reward in simulated runs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.planning.candidate_runs import Candidate, CandidateRuns, MakeEnvironment
from privateer_lab.planning.expectation.expected import Unit
from privateer_lab.planning.other_algorithms import (
    candidate_names,
    contextual_algorithms,
    featureless_algorithm,
    to_tables,
    with_own_rounds,
)
from privateer_lab.tables import shorten

_MIN_FULL_RUNS: Final = 1
"""Number of specs with all features that always run if subsets are candidates."""
_MIN_GAIN_SHARE: Final = 0.05
"""Least advantage of an algorithm over the default one, as a share of the potential gain of contexts."""
_ROUNDING_ERROR: Final = 1e-9
QuantileVariant = Callable[[ArmsSpec], ArmsSpec | None]


@dataclass(frozen=True)
class AlgorithmChoice:
    """A chosen algorithm, with the mean rewards of all candidates."""

    name: str  # of the chosen algorithm
    rewards: Mapping[str, float]  # mean reward of a person, in the reward's unit, by algorithm
    single: float  # that of the best single arm
    max_gain: float  # the gain of a participant from the best arm by features
    is_rate: bool  # whether rewards are rates
    # mean reward with cut points of numbers from the data, which are then chosen; None: not tried, or not clearly more
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
    margin: float | None = None  # half-width of the 95 % interval of the chosen reward, from runs; None: too few runs
    suspects: tuple[str, ...] = ()  # further features, which may be known only after the choice: they were not tried

    @property
    def sentence(self) -> str:
        """The reasons for the choice, as a paragraph."""
        return " ".join([self._say_means(), *self._say_features(), *self._say_others(), *self._say_plain()])

    @property
    def reason(self) -> str:
        """The number of selected features, and the reasons, in a line."""
        if not self.suspects:
            return self._count_features()
        names = ", ".join(map(shorten, self.suspects))
        return f"{self._count_features()}; left out as perhaps known only after the choice: {names}"

    def _count_features(self) -> str:
        """Return the number of selected features, and why the others that were tried are left out."""
        n_all = self.n_features + len(self.suspects)
        if self.kept_features is None and not self.n_features:
            return f"0 of {n_all} features"
        if self.kept_features is None:
            explanation = "fewer were not tried: `privateer plan` tries some"
            if self.subset_reward is not None:
                reward, fewer = self._unit.write(self.rewards[self.name]), self._unit.write(self.subset_reward)
                explanation = f"in these runs they earn more than fewer do, {reward} instead of {fewer}"
            return f"{self.n_features} of {n_all} features kept, because {explanation}"
        fraction, n_more = f"{len(self.kept_features)} of {n_all} features", self.n_without_privacy or 0
        if self.kept_features and n_more > len(self.kept_features):
            return f"{fraction}: more would cost more noise than they tell; without privacy {n_more}"
        if self.kept_features:
            companion = "it" if len(self.kept_features) == 1 else "them"
            return f"{fraction}: the others add no more than chance beside {companion}"
        condition = "; if options are worth what these rows say"  # chance may say it of options that are alike
        best_comparison = f"{condition}, {self._best_name} for everybody earns more than trying others"
        is_above = self.single > max(*self.rewards.values(), self.reward) + (self.margin or 0.0)
        explanation = best_comparison if self.best_option and is_above else ""
        verdict = (
            f"none tells enough to earn more than one option for all; without privacy {n_more} would"
            if n_more
            else "these rows show none that changes which option is best; they may be too few for a weak one"
        )
        return f"{fraction}: {verdict}{explanation}"

    @property
    def reward(self) -> float:
        """The mean reward of what is chosen, with cut points of numbers from the data where they are."""
        return self.rewards[self.name] if self.quantile_reward is None else self.quantile_reward

    @property
    def gain(self) -> float:
        """The mean reward above that of the best single arm."""
        return self.reward - self.single

    def explain_wide_interval(self, half_width: float) -> str:
        """Say that the gain is less than the half-width with which it would be measured."""
        gain = self._unit.points(max(self.gain, 0.0))
        return f"so few would measure the gain to about {self._unit.margin(half_width)}, and in runs it is {gain}"

    @property
    def shortfall(self) -> str:
        """Return a clause that says what the best single arm earns; empty if the choice clearly earns more."""
        gain, margin = self.gain, self.margin or 0.0
        single, reward = self._unit.write(self.single), self._unit.write(self.reward)
        if self.is_tie or gain > margin or (self.margin is None and (gain > 0 or single == reward)):
            return ""
        option = f"{self._best_name} for everybody" if self.best_option else "the best single option"
        verdict, conjunction = (
            ("earns more than", "instead of") if -gain > margin else ("may earn as much as", "beside")
        )
        return f"{option} {verdict} this draft, which starts anew, {single} {conjunction} {reward}{self._margin}"

    @property
    def _best_name(self) -> str:
        """The best single arm, in quotes: one may be called none."""
        return repr(shorten(self.best_option))

    @property
    def _unit(self) -> Unit:
        return Unit(self.is_rate, max(abs(reward - self.single) for reward in self.rewards.values()))

    @property
    def _margin(self) -> str:
        """What chance does to the mean reward of runs, in parentheses; empty if unknown."""
        return f" ({self._unit.margin(self.margin)})" if self.margin else ""

    def _say_features(self) -> Iterator[str]:
        """Name the selected features, and the arms that were left out."""
        if self.kept_features is not None:
            kept_names = f" Kept: {', '.join(map(shorten, self.kept_features))}." if self.kept_features else ""
            reward = None if self.full_reward is None else self._unit.write(self.full_reward)
            everything = f"all {self.n_features} features" if self.n_features > 1 else "the feature that was tried"
            if self.dropped:
                everything += f" and all {len(self.options) + len(self.dropped)} options"
            comparison = f" With {everything} it would earn {reward}." if reward and not self.is_tie else ""
            yield f"{self.reason[0].upper()}{self.reason[1:]}.{kept_names}{comparison}"
        if self.dropped:
            yield f"{self.options_reason}. Left out: {', '.join(repr(shorten(name)) for name in self.dropped)}."

    @property
    def options_reason(self) -> str:
        """The number of selected arms, and the reason, in a line."""
        fraction = f"{len(self.options)} of {len(self.options) + len(self.dropped)} options"
        return f"{fraction}: in this log the others add less beside these than trying them costs"

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
        highest = max(*self.rewards.values(), self.reward)
        is_above = self.single > highest + (self.margin or 0.0) and write(self.single) != write(highest)
        remark = ", more than any algorithm tried" if is_above else ""
        name = f", {self._best_name}," if self.best_option else ""
        return (
            f"In runs on these people this earns {write(self.reward)}{self._margin}; the best single option"
            f"{name} earns {write(self.single)}{remark}. algorithm.name is {self.name!r}{note}{comparison}."
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
            reward = self._unit.write(self.rewards[self.name])
            yield f"It cuts numbers at points from the data, which may have to stay secret; equal widths earn {reward}."

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
        elif self.rewards[plain] > self.reward + (self.margin or 0.0):
            yield f"{plain!r}, which knows no features, earns more: to use it, leave out [context.features]."


def choose_algorithm(
    specs: Mapping[str, ArmsSpec],
    make_environment: MakeEnvironment,
    make_quantile_variant: QuantileVariant | None = None,
    subsets: Iterable[ArmsSpec] | None = None,
    *,
    has_gain: bool = False,
) -> AlgorithmChoice | SpecError:
    """Choose the contextual algorithm with the highest mean reward in runs; return an error if none of them can run.

    specs: the experiment by algorithm, at least one; the featureless one is chosen only if it is the only one.
    make_environment: makes the environment of a spec and a seed.
    make_quantile_variant: returns a spec with cut points of numbers from the data; None if it is the same.
    subsets: the experiment with fewer features and arms, if allowed: a subset is chosen unless all features earn
        clearly more, and one without features unless others earn clearly more.
    has_gain: whether data show a gain from choosing by features, so that one without has to earn clearly more.
    """
    full_spec = max(specs.values(), key=lambda spec: len(spec.features))
    full = [Candidate.from_spec(spec) for name, spec in specs.items() if name in contextual_algorithms()]
    full = full or [Candidate.from_spec(spec) for spec in specs.values()]
    runs = CandidateRuns(full_spec, make_environment)
    # Slow learners come last with all features, since time may not suffice for all of them.
    reduced = {Candidate.from_spec(spec): spec for spec in subsets or ()}
    others = specs.values() if subsets is None else [*specs.values()][::-1]
    remaining = [spec for spec in others if Candidate.from_spec(spec) not in reduced]
    runs.run([*reduced.values(), *remaining], len(reduced) + _MIN_FULL_RUNS if reduced else len(remaining))
    runnable = [key for key in full if key in runs.runs] or [key for key in reduced if key in runs.runs]
    if not runnable:
        return runs.errors[full[0]]
    single = float(np.mean([run.single for run in runs.all_runs]))
    max_gain = float(np.mean([run.run.best_constant_regret / run.run.choices for run in runs.all_runs]))
    is_tie = all(run.run.uniform_regret <= _ROUNDING_ERROR * run.run.choices for run in runs.all_runs)
    # If one arm is best for all participants, the runs are no evidence for or against an algorithm.
    margin = _MIN_GAIN_SHARE * max_gain or np.inf
    best = max(runnable, key=runs.gain)
    best = best if runs.gain(best) - runs.gain(runnable[0]) > margin else runnable[0]
    if subsets is not None:
        small = [key for key in runs.runs if key in reduced or not key.features]
        best_subset = _choose_subset(runs, small, best, has_gain=has_gain)
        best = best if runs.gain(best) - runs.gain(best_subset) > margin else best_subset
    best = _with_all_options(runs, best, full_spec)
    variant = make_quantile_variant(runs.specs[best]) if make_quantile_variant else None
    quantile_runs = CandidateRuns(full_spec, make_environment)
    quantile_runs.run([variant] if variant else [], 1)
    quantile_gain = quantile_runs.gain(best)
    has_quantiles = quantile_gain - runs.gain(best) > margin
    comparable = [key for key in runs.runs if key.features == best.features or not key.features or not best.features]
    highest = {key.algorithm: key for key in sorted(comparable, key=runs.gain)}
    shown = {key.algorithm: key for key in comparable} | highest | {best.algorithm: best}
    has_fewer_features = best.features != full[0].features
    subset_gains = [runs.gain(key) for key in reduced if key in runs.runs and key.features != best.features]
    return AlgorithmChoice(
        best.algorithm,
        {name: single + runs.gain(key) for name, key in shown.items()},
        single,
        max_gain,
        full_spec.reward.is_rate,
        single + quantile_gain if has_quantiles else None,
        is_tie,
        best.features if has_fewer_features else None,
        len(full[0].features),
        full_reward=single + max(map(runs.gain, runnable)) if has_fewer_features else None,
        options=best.options,
        dropped=tuple(option for option in full_spec.options if option not in best.options),
        best_option="" if is_tie else full_spec.options[max(runs.all_runs, key=lambda run: run.single).arm],
        subset_reward=single + max(subset_gains) if subset_gains else None,
        margin=(quantile_runs if has_quantiles else runs).margin(best),
    )


def _choose_subset(
    runs: CandidateRuns, candidates: Iterable[Candidate], default: Candidate, *, has_gain: bool
) -> Candidate:
    """Choose the best subset by features with ``has_gain``, or else the featureless one, unless the other is better."""
    ranked = sorted(candidates, key=runs.gain, reverse=True)
    best = next((key for key in ranked if key.features), default)
    plain = next((key for key in ranked if not key.features), best)
    usual, other = (best, plain) if has_gain else (plain, best)
    return other if runs.is_clearly_better(other, usual) else usual


def _with_all_options(runs: CandidateRuns, best: Candidate, full_spec: ArmsSpec) -> Candidate:
    """Return the candidate with all arms, unless it gains more with its own."""
    if best.options == full_spec.options:
        return best
    tables = to_tables(runs.specs[best])
    tables["experiment"] |= {"arms": list(full_spec.options)}
    spec = with_own_rounds(tables, best.algorithm)
    if spec is None:
        return best
    if Candidate.from_spec(spec) not in runs.runs:
        runs.run([spec], 1)
    return max(best, Candidate.from_spec(spec), key=runs.gain)
