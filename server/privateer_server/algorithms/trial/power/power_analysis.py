"""Power analysis of a trial before anybody is asked: least effects, power, and how many people it takes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.trial import TrialSpec
from privateer_server.algorithms.trial.evidence.epochs import PlannedEpoch
from privateer_server.algorithms.trial.group_sequential import decision_time, drift_of, power
from privateer_server.algorithms.trial.power.planned_designs import TrialDesigns, planned_epochs
from privateer_server.algorithms.trial.power.planned_deviations import deviations, looks_of, people_needed
from privateer_server.algorithms.trial.power.simulated_scores import (
    AdaptivePlan,
    least_effect,
    people_times,
    power_of,
    runs_of,
    simulated,
)

Array = NDArray[np.float64]

_SIZES: Final = 4
"""Segments of so many sizes are simulated; between them, what a formula is wrong by follows the size's logarithm."""
_ROUNDS: Final = 6
_STEEP: Final = 0.95
_TRIALS: Final = 700
"""Trials of several segments each, by which allocations are compared: a power's standard error is .02 at most."""


@dataclass(frozen=True)
class PlannedOutcome:
    """What a trial finds of an effect, and what that costs; on the scale of rewards from 0 to 1."""

    power: float  # probability to find it in a segment, on average over people
    half_width: float  # mean half-width of segments' intervals at the end; infinite where there is none
    lost: float  # reward that people do not get for want of the better arm, of all together


@dataclass(frozen=True)
class PowerAnalysis:
    """A trial before its first person.

    Where shares are fixed, formulas know all of it. Where they adapt, and for strict intervals, statistics are
    simulated. An effect is that of one treatment, upwards if rewards can rise so far; others do as the control does.
    """

    # plans, epochs: what is planned, and how its mechanisms will be calibrated
    plans: TrialDesigns
    epochs: tuple[PlannedEpoch, ...]
    # rule, floor, strict: the allocation, the least share of an arm, and whether intervals are strict
    rule: str
    floor: float
    # rate, target: mean reward under the control, and the power wanted
    rate: float
    target: float
    people: float  # all people
    strict: bool
    arms: tuple[int, ...]  # treatments to tell apart, from 0; one stands for all where all are planned alike
    waiting: float = 0.0  # how many people choose between somebody's choice and the report on it

    @property
    def formulas(self) -> bool:
        """Whether formulas know what can be found."""
        return self.rule == "fixed" and not self.strict

    def least(self) -> Array:
        """Return the least effects found with the power wanted, (J, K); with one row more for the average of several.

        On the scale of rewards from 0 to 1; infinite where there is none.
        """
        guess = self._least()
        if self.formulas:
            return np.where(guess > max(self.rate, 1 - self.rate), np.inf, guess)
        return self._simulated(lambda plan, arm, row: least_effect(plan, arm, self.target, guess[row, arm]), guess)

    def corrected(self, least: Array, families: Array) -> Array:
        """Return least effects that are decided too, where all others of their family are none: Holm's worst case.

        least: those whose own interval leaves 0 out, (rows, K).
        families (rows,): of how many effects each row's is one.
        """
        alpha, times = self.plans.segments.alpha, looks_of(self.plans.segments, self.epochs)
        drifts = {int(size): drift_of(times, alpha / size, self.target) for size in np.unique(families)}
        found = least * np.array([[drifts[int(size)] / self._drift] for size in families])
        return np.where(found > max(self.rate, 1 - self.rate), np.inf, found)

    def power(self, effect: float) -> tuple[Array, Array]:
        """Return the probability of finding an effect, and the mean share of the people until it is; as `least`."""
        drift = effect / self._deviations(effect)
        alpha, times = self.plans.segments.alpha, looks_of(self.plans.segments, self.epochs)
        found = np.reshape(power(times, alpha, drift.ravel()), drift.shape)
        until = np.vectorize(lambda one: decision_time(times, alpha, float(one)))(drift)
        if self.formulas:
            return found, until
        return (
            self._simulated(lambda plan, arm, _: power_of(plan, arm, effect)[0]),
            self._simulated(lambda plan, arm, _: power_of(plan, arm, effect)[1]),
        )

    def people_for(self, effect: float) -> Array:
        """Return with how many people, in all, an effect is found with the power wanted; as `least`."""
        design = self.plans.segments
        needed = people_needed(design, self.epochs, self._middle(effect), effect, self.target)
        guess = self.people / design.people * needed
        if len(design.segments) > 1:
            overall = self.people * np.square(self._drift * self._deviations(effect)[-1] / effect)
            guess = np.concatenate([guess, overall[None]])
        if self.formulas:
            return guess
        times = guess / self.people
        found = self._simulated(
            lambda plan, arm, row: people_times(plan, arm, self.target, effect, float(times[row, arm])), times
        )
        return np.asarray(self.people * found)

    def outcome(self, effect: float) -> "PlannedOutcome":
        """Return what comes of an effect that one treatment has in every segment."""
        plan = self._plan()
        effects = np.zeros((len(plan.design.segments), len(plan.design.arms) - 1))
        effects[:, self.arms[0]] = effect
        found = simulated(plan, effects, min(_TRIALS, runs_of(plan)))
        powers = found.power(found.segments)[:, self.arms[0]]
        widths = found.half_widths[..., self.arms[0]]
        asked = plan.design.people + (plan.everybody.design.people if plan.everybody else 0.0)
        return PlannedOutcome(
            float(plan.design.segments @ powers),
            float(np.nanmean(widths)) if np.isfinite(widths).any() else float("inf"),
            found.lost * self.people / asked,
        )

    @property
    def _drift(self) -> float:
        return drift_of(looks_of(self.plans.segments, self.epochs), self.plans.segments.alpha, self.target)

    def _middle(self, effect: Array | float) -> Array:
        """Return the mean reward of both arms, by which an interval judges their variances: downwards where it must."""
        half = np.asarray(effect) / 2
        middle = self.rate + np.where(self.rate + 2 * half > 1, -half, half)
        return np.asarray(np.clip(middle, min(self.rate, 1 - _STEEP), max(self.rate, _STEEP)))

    def _least(self) -> Array:
        """Return the least effects at planned shares. An effect moves the mean, and the mean the effect."""
        found = self._drift * self._deviations(0.0)
        for _ in range(_ROUNDS):
            found = self._drift * self._deviations(found)
        return found

    def _deviations(self, effects: Array | float) -> Array:
        """Return standard deviations at planned shares of effects in segments, and of their average."""
        design, whole = self.plans.segments, self.plans.everybody
        size, treatments = len(design.segments), len(design.arms) - 1
        rates = np.broadcast_to(self._middle(effects), (size + (size > 1), treatments))
        segments = deviations(design, self.epochs, rates[:size])
        if size == 1:
            return segments
        summed = design.segments[:, None] * deviations(design, self.epochs, rates[size:])
        precision = 1 / np.square(summed).sum(axis=0)
        if whole is not None:
            precision = precision + 1 / np.square(deviations(whole, self._asked, rates[size:])[0])
        return np.concatenate([segments, 1 / np.sqrt(precision)[None]])

    @property
    def _asked(self) -> tuple[PlannedEpoch, ...]:
        """Return epochs of the people who are asked about everybody."""
        whole = self.plans.everybody
        times = whole.people / self.plans.segments.people if whole else 0.0
        return tuple(replace(epoch, people=epoch.people * times) for epoch in self.epochs)

    def _plan(self) -> AdaptivePlan:
        own = AdaptivePlan(self.rule, self.floor, self.rate, self.plans.segments, self.epochs)
        own = replace(own, waiting=self.waiting * self.plans.segments.people / self.people)
        whole = self.plans.everybody
        beside = (
            None
            if whole is None
            else replace(own, design=whole, epochs=self._asked, waiting=self.waiting * whole.people / self.people)
        )
        return replace(own, strict=self.strict, everybody=beside)

    def _simulated(self, figure: Callable[[AdaptivePlan, int, int], float], guess: Array | None = None) -> Array:
        """Return a figure of every segment and treatment, and of their average.

        Of few sizes of segments it is simulated, and between them it is interpolated: as a multiple of the guess, if
        there is one.
        """
        plan, shares = self._plan(), self.plans.segments.segments
        size, treatments = len(shares), len(plan.design.arms) - 1
        rows = np.argsort(shares)[np.linspace(0, size - 1, min(size, _SIZES)).round().astype(int)]
        sizes, places = np.unique(shares[rows].round(9), return_index=True)
        found = np.empty((size + (size > 1), treatments))
        scale = np.ones(found.shape) if guess is None else guess
        for arm in self.arms:
            known = [figure(plan.of(float(shares[row])), arm, row) / scale[row, arm] for row in rows[places]]
            found[:size, arm] = scale[:size, arm] * np.interp(np.log(shares), np.log(sizes), known)
            if size > 1:
                found[size, arm] = figure(replace(plan, strict=False), arm, size)
        for arm in set(range(treatments)) - set(self.arms):
            found[:, arm] = found[:, self.arms[0]]
        return found


def power_analysis(spec: TrialSpec, plans: TrialDesigns, waiting: float = 0.0) -> PowerAnalysis:
    """Return what a spec can find, before anybody is asked; ``waiting`` people choose before somebody reports."""
    section = spec.algorithm
    return PowerAnalysis(
        plans,
        tuple(planned_epochs(spec)),
        section.allocation,
        spec.floor,
        spec.rate,
        section.power,
        spec.experiment.horizon,
        section.intervals == "strict",
        tuple(a for a, _ in told_apart(spec)),
        waiting,
    )


def told_apart(spec: TrialSpec) -> list[tuple[int, str]]:
    """Return treatments by number and name, or one instead of all where their planned shares are equal."""
    arms = list(enumerate(spec.options[1:]))
    return [(0, "each")] if len(arms) > 1 and len(set(spec.arm_shares[1:])) == 1 else arms
