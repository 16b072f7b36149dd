"""What to expect of an experiment, as figures: a row for the spec, and one for each change of it."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from scipy.special import stdtrit

from privateer_core.answer.people import People
from privateer_core.spec.spec import Spec
from privateer_lab.environments.own_people import OWN
from privateer_lab.environments.rows import OF
from privateer_lab.planning.expectation.choices import Kind, VariedSpec
from privateer_lab.planning.expectation.partial_runs import PartialRun
from privateer_lab.planning.plain_tests import is_test, least_effect
from privateer_lab.planning.plans import people_needed
from privateer_server.rounds.account import account_of
from privateer_server.rounds.loop import Schedule

_OWN_SPREAD: Final = 3
"""Runs from which a row's own spread counts beside that of all rows."""
_DUST: Final = 1e-9


class ExpectedRow(msgspec.Struct, frozen=True):
    """What a spec earns, over all choices of its run; rewards are in their own unit."""

    # what is other than in the spec, and how
    kind: Kind
    change: str
    # the trust model, epsilon (None: nothing is promised), the names of the features, and choices
    model: str
    epsilon: float | None
    features: tuple[str, ...]
    people: int
    # mean reward of a choice, and half of its 95 % interval; None: one run alone has none
    value: float
    margin: float | None
    gain: float  # what a choice earns above the best single option
    value_at_the_end: float  # mean reward of a choice under the last policy
    # after how many choices the policy earns more than the best single option, the median of runs; None: never
    pays_after: int | None
    # where nothing is gained: the least difference between two options that a plain test of as many people finds
    detectable: float | None
    # runs, people whose reports were learned from in a run, and in one that is not cut short, on the average
    runs: int
    learned_from: int
    reach: int
    margin_at_the_end: float | None = None  # half of the 95 % interval of the value at the end

    @property
    def gains(self) -> bool:
        """Whether it earns more than the best single option, beyond chance."""
        return self.gain > (self.margin or 0.0)

    @property
    def is_cut_short(self) -> bool:
        """Whether runs ended before their rounds did."""
        return self.learned_from < 0.9 * self.reach


class Expectation(msgspec.Struct, frozen=True):
    """What to expect of an experiment. Words are made from this alone."""

    # its name, and what is counted: people, or choices for all of them
    experiment: str
    counts: str
    # whether arms are compared with a control, so that what people earn while it runs is the lesser question
    is_test: bool
    # whether rewards are no or yes, and what they are called; empty: nobody said
    is_rate: bool
    reward: str
    # the best single option, and the mean reward of it, of options at random, and of everybody's best option
    single_option: str
    single: float
    random: float
    best: float
    # whether people are made up, and the name of what makes them
    is_made_up: bool
    population: str
    people: People  # the account of the spec's people before anybody is asked
    rows: tuple[ExpectedRow, ...]  # the spec as it is, and what would change
    left_out: tuple[str, ...] = ()  # changes that there was no time for
    is_contextual: bool = True  # whether its algorithm chooses by features

    @property
    def own(self) -> ExpectedRow:
        """The spec as it is."""
        return self.rows[0]

    def compared(self, row: ExpectedRow) -> str:
        """Say whether a change earns more than the spec: "better", "worse", or "level" where that may be chance.

        Empty where it is the spec, or nobody knows what chance does.
        """
        own = self.own
        if row is own or row.margin is None or own.margin is None:
            return ""
        difference = row.value - own.value
        if abs(difference) <= math.hypot(row.margin, own.margin):
            return "level"
        return "better" if difference > 0 else "worse"

    @property
    def by_context(self) -> bool:
        """Whether what is best depends on the person."""
        return self.best - self.single > _DUST * max(abs(self.best), 1.0)

    @property
    def is_tie(self) -> bool:
        """Whether all options are as good as the best one."""
        return not self.by_context and self.single - self.random <= _DUST * max(abs(self.best), 1.0)

    def gains_late(self, row: ExpectedRow) -> bool:
        """Whether a spec earns more than the best single option by the end, beyond chance, and not over its run."""
        above, chance = row.value_at_the_end - self.single, row.margin_at_the_end
        return not row.gains and chance is not None and above > chance


def expectation(spec: Spec, choices: Sequence[VariedSpec], runs: Mapping[int, Sequence[PartialRun]]) -> Expectation:
    """Return what runs say of a spec and its changes; ``runs`` are by the place of the choice, the spec's own first.

    The gain above the best single option varies less from run to run than rewards: values are that option's mean, over
    all runs, and the gain.
    """
    everybody = [one for some in runs.values() for one in some]
    own = runs[0]
    single = float(np.mean([one.single for one in everybody]))
    places = [one.option for one in everybody]
    singles = [one.single for one in own]
    gains = {place: [one.gain for one in some] for place, some in runs.items()}
    last = {place: [one.gain_at_the_end for one in some] for place, some in runs.items()}
    spreads = _Spread(gains, singles), _Spread(last, singles)
    table = spec.population or {}
    per_choice = [(one.run.best_constant_regret, one.run.uniform_regret, one.run.choices) for one in own]
    could = float(np.mean([constant / count for constant, _, count in per_choice]))
    lost = float(np.mean([(uniform - constant) / count for constant, uniform, count in per_choice]))
    rows = [_row(choices[place], some, single, spreads) for place, some in sorted(runs.items())]
    return Expectation(
        experiment=spec.name,
        counts="people" if spec.people_key == "horizon" else "choices",
        is_test=is_test(spec),
        is_rate=spec.reward.is_rate,
        reward=_called(spec),
        left_out=tuple(one.change for place, one in enumerate(choices) if place not in runs),
        single_option=spec.options[max(set(places), key=places.count)],
        single=single,
        random=single - lost,
        best=single + could,
        is_made_up="path" not in table and table.get("name") != OWN,
        population=str(table.get("name", "")),
        people=_planned(spec),
        rows=tuple(rows),
        is_contextual=choices[0].is_contextual,
    )


def _planned(spec: Spec) -> People:
    schedule = Schedule(spec)
    return account_of(schedule, schedule.open(0), 0)


def _called(spec: Spec) -> str:
    """Return what the reward of a file's people is called there."""
    table = spec.population or {}
    observed, rewards = table.get("observed"), table.get("rewards")
    if isinstance(observed, Mapping):
        return str(observed.get("got", ""))
    first = str(rewards[0]) if isinstance(rewards, Sequence) and rewards else ""
    return first.removesuffix(f"{OF}{spec.options[0]}") if first.endswith(f"{OF}{spec.options[0]}") else ""


class _Spread:
    """How much gains vary from run to run.

    by_choice: gains of runs by the place of the choice. Few of one choice say little of its spread, so all of them say
        it together, and a choice has that or its own, whichever is larger.
    singles: means of the best single option, of runs with different people.
    """

    def __init__(self, by_choice: Mapping[int, Sequence[float]], singles: Sequence[float]) -> None:
        self._freedom = sum(len(gains) - 1 for gains in by_choice.values())
        squares = sum(float(np.square(np.array(gains) - np.mean(gains)).sum()) for gains in by_choice.values())
        self._all = squares / self._freedom if self._freedom else 0.0
        self._single = float(np.var(singles, ddof=1)) / len(singles) if len(singles) > 1 else 0.0

    def margin(self, gains: Sequence[float]) -> float | None:
        """Return half of the 95 % interval of a mean reward, by Student's t."""
        if not self._freedom:
            return None
        own = float(np.var(gains, ddof=1)) if len(gains) >= _OWN_SPREAD else 0.0
        error = np.sqrt(max(own, self._all) / len(gains) + self._single)
        return float(stdtrit(self._freedom, 0.975) * error)


def _row(
    choice: VariedSpec, runs: Sequence[PartialRun], single: float, spreads: tuple[_Spread, _Spread]
) -> ExpectedRow:
    gains, last = [one.gain for one in runs], [one.gain_at_the_end for one in runs]
    variant, people = choice.variant, runs[0].run.choices
    gain, margin = float(np.mean(gains)), spreads[0].margin(gains)
    needed = sorted(np.inf if (one := people_needed(run.run, 0.0)) is None else one for run in runs)
    pays = needed[len(needed) // 2]
    return ExpectedRow(
        kind=choice.kind,
        change=choice.change,
        model=variant.model,
        epsilon=variant.epsilon if np.isfinite(variant.epsilon) else None,
        features=tuple(choice.spec.features),
        people=people,
        value=single + gain,
        margin=margin,
        gain=gain,
        value_at_the_end=single + float(np.mean(last)),
        pays_after=int(pays) if np.isfinite(pays) else None,
        detectable=None if gain > (margin or 0.0) else _detectable(choice, people, single),
        runs=len(runs),
        learned_from=int(np.mean([one.run.account.counted for one in runs])),
        reach=int(np.mean([one.reach for one in runs])),
        margin_at_the_end=spreads[1].margin(last),
    )


def _detectable(choice: VariedSpec, people: int, single: float) -> float | None:
    """Return the least effect of a plain test of no and yes; of numbers nobody knows how much they vary."""
    told = choice.spec.reward
    rate = (single - told.low) / told.span
    if told.kind != "binary" or not 0 < rate < 1:
        return None
    found = least_effect(people, 2, rate, choice.variant)
    return None if found is None else found * told.span
