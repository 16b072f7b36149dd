"""Power analysis of a trial before its start: minimum detectable effects, power, and sample sizes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from privateer_core.algorithms.trial import TrialSpec
from privateer_core.arrays import Array
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.mechanisms.shared_votes import SharedPairs
from privateer_core.primitives.contributions import BITS, ValueParts
from privateer_core.privacy.terms import calibrate
from privateer_server.algorithms.trial.evidence.epochs import (
    PlannedEpoch,
    RewardVariance,
    TrialDesign,
    contrast_sum_variance,
    expected_hits_per_report,
)
from privateer_server.algorithms.trial.evidence.variances import PlannedValues
from privateer_server.algorithms.trial.group_sequential import (
    POWER,
    decision_time,
    find_drift,
    information_fractions,
    power,
)
from privateer_server.algorithms.trial.power.simulated_scores import (
    AdaptivePlan,
    choose_run_count,
    find_minimum_detectable_effect,
    find_people_ratio,
    simulate_power,
    simulate_scores,
)


@dataclass(frozen=True)
class TrialDesigns:
    """The designs of reports on the participant's segment, and of reports on all participants."""

    segments: TrialDesign
    everybody: TrialDesign | None

    def with_shares(self, shares: Sequence[float] | None) -> "TrialDesigns":
        """Return the designs for other shares of segments; an empty segment gets the smallest positive share."""
        if shares is None:
            return self
        weights = np.array(shares)
        return replace(self, segments=replace(self.segments, segments=np.maximum(weights, weights[weights > 0].min())))


def build_designs(spec: TrialSpec) -> TrialDesigns:
    """Return the designs of a spec: participants of all epochs, by their questions."""
    terms, people, questions = spec.first_terms(""), spec.experiment.horizon, spec.questions
    design = TrialDesign(spec.algorithm.significance_level, people, np.array(spec.arm_shares), spec.segment_shares)
    design = replace(design, numeric=spec.is_numeric)
    mechanism = terms.mechanism if terms else None
    if questions:
        design = replace(design, people=people * questions[0].share)
    if not isinstance(mechanism, NamedSymbol) or mechanism.is_named:
        return TrialDesigns(design, None)
    design = replace(design, counted=False, hit=1 / mechanism.buckets)
    everybody_share = next((question.share for question in questions if question.everybody), None)
    if everybody_share is None:
        return TrialDesigns(design, None)
    hit_rate = mechanism.response.gain + 2 * mechanism.response.other
    return TrialDesigns(design, replace(design, people=people * everybody_share, segments=np.ones(1), hit=hit_rate))


def planned_epochs(spec: TrialSpec) -> list[PlannedEpoch]:
    """Return the planned epochs of reports on rewards by segment, with calibrated mechanisms."""
    share = spec.questions[0].share if spec.questions else 1.0
    batches = np.diff([0, *spec.looks]).tolist()
    return [_plan_epoch(spec, batch, batch * share, look) for look, batch in enumerate(batches)]


def _plan_epoch(spec: TrialSpec, batch: int, people: float, look: int) -> PlannedEpoch:
    """Return the epoch of a look, from 0; each earlier look has provided a learned slope."""
    mechanism: Any = calibrate(spec.privacy, batch, spec.question_after_learning(look)).mechanism
    if isinstance(mechanism, CellPairs | SharedPairs):
        values = _plan_values(spec, mechanism.parts, look, rounded=False)
        return PlannedEpoch(people, noise=spec.n_answers * mechanism.noise, values=values)
    levels = mechanism.levels
    keep, false_hit_rate = mechanism.response.gain, spec.n_answers * mechanism.response.other
    values = _plan_values(spec, ValueParts.levels(levels), look, rounded=True)
    if spec.has_arm_in_report:
        return PlannedEpoch(people, keep, noise=people * false_hit_rate * (1 - false_hit_rate), values=values)
    return PlannedEpoch(people, keep, false_hit_rate * levels / 2, values=values)


def _plan_values(spec: TrialSpec, parts: ValueParts, look: int, *, rounded: bool) -> PlannedValues | None:
    """Return the planned distribution of numeric rewards at a look; None if rewards are bits."""
    standard_deviation = spec.standard_deviation_after(look)
    if standard_deviation is None:
        return None
    return PlannedValues.from_moments(spec.base_rate, standard_deviation, parts, rounded=rounded)


_ROUNDING_MARGIN: Final = 1e-3  # people that rounding adds
_N_STEPS: Final = 6


def effect_deviations(design: TrialDesign, epochs: Sequence[PlannedEpoch], rate: float | Array) -> Array:
    """Return standard errors (J, K) of effects after all epochs at planned shares; ``rate`` may be (J, K)."""
    return np.asarray(np.sqrt(sum(_contrast_variance_parts(design, epochs, rate))))


def look_times(design: TrialDesign, epochs: Sequence[PlannedEpoch]) -> tuple[float, ...]:
    """Return information fractions of the epochs."""
    return information_fractions(np.cumsum([epoch.people for epoch in epochs]), design.people)


def required_people(
    design: TrialDesign, epochs: Sequence[PlannedEpoch], rate: float | Array, effect: float, power: float = POWER
) -> Array:
    """Return the sample sizes (J, K) that detect this effect, if all epochs grow proportionally.

    Sampling falls with people and a curator's noise with their square: n solves sd^2 = s/n + l/n^2. As epochs grow
    noise decides less of their weights, so this is solved again with the people found.
    """
    n_people = sum(epoch.people for epoch in epochs)
    target_variance = (effect / find_drift(look_times(design, epochs), design.alpha, power)) ** 2
    ratio: Array = np.ones(1)
    for _ in range(_N_STEPS):
        sampling, noise = _contrast_variance_parts(design, epochs, rate, ratio)
        s, noise_term = sampling * n_people * ratio, np.maximum(noise, 0.0) * np.square(n_people * ratio)
        ratio = (s + np.sqrt(np.square(s) + 4 * target_variance * noise_term)) / (2 * target_variance * n_people)
    return np.asarray(np.ceil(n_people * ratio - _ROUNDING_MARGIN))


def _contrast_variance_parts(
    design: TrialDesign, epochs: Sequence[PlannedEpoch], rate: float | Array, size_ratio: float | Array = 1.0
) -> tuple[Array, Array]:
    """Return the contributions of sampling and noise to the variance of effects, (J, K) each.

    With n the sum of u n_e over epochs of weights u, n' = n^2/(sum of u^2 n_e), v hits per person, and
    th = 1/2 + q p (2 f - 1)/(2 v) the share of them that is positive, of epochs of noise L:
    (v/(q p))^2 th (1 - th) (1/(n' v pi_a) + 1/(n' v pi_0)) and
    sum u^2 L ((1 - f)^2 + f^2) (1/(n q p pi_a)^2 + 1/(n q p pi_0)^2).
    Of numbers, th (1 - th) is the variance of what a hit counts, and (1 - f)^2 + f^2 that of noise about f.
    """
    f, p = np.asarray(rate), design.segments[:, None]
    u = [_compute_epoch_weight(design, epoch, f, size_ratio) for epoch in epochs]
    weighted_epochs = list(zip(u, epochs, strict=True))
    people = [weight * epoch.people * size_ratio for weight, epoch in weighted_epochs]
    n, squared = sum(people), sum(weight * weighted_people for weight, weighted_people in zip(u, people, strict=True))
    q = sum(weighted_people * epoch.keep for weighted_people, epoch in zip(people, epochs, strict=True)) / n
    o = sum(weighted_people * epoch.other for weighted_people, epoch in zip(people, epochs, strict=True)) / n
    v = q * p + 2 * o if design.counted else np.full_like(q * p, design.hit)
    arm_shares = np.stack([design.arms[1:], np.full(len(design.arms) - 1, design.arms[0])], axis=-1)
    mean = np.asarray(0.5 + q * p * (2 * f - 1) / (2 * v))
    hit_variance = mean * (1 - mean)
    if measurable := [(weight, epoch, epoch.values) for weight, epoch in weighted_epochs if epoch.values]:
        hits = (n * v)[..., None] * arm_shares
        measured = [
            values.measurement_bias(np.square(weight) * epoch.noise, hits, f) for weight, epoch, values in measurable
        ]
        hit_variance = np.sqrt(np.square(measured).sum(axis=0))
        spread = sum(
            np.square(weight) * epoch.people * size_ratio * values.hit_variance(q * p, v, f)
            for weight, epoch, values in measurable
        )
        hit_variance = hit_variance + spread / squared
    sampling = np.square(v / (q * p)) * hit_variance / v * squared / np.square(n) * (1 / arm_shares).sum(axis=-1)
    noise = sum(np.square(weight) * epoch.noise * _noise_variance(epoch, f) for weight, epoch in weighted_epochs)
    return sampling, np.asarray(noise * np.square(1 / arm_shares).sum(axis=-1) / np.square(n * q * p))


def _compute_epoch_weight(design: TrialDesign, epoch: PlannedEpoch, f: Array, size_ratio: float | Array) -> Array:
    """Return the weight of an epoch, up to a constant: the root of its reports over its variance at mean rewards f."""
    people = epoch.people * size_ratio
    v = expected_hits_per_report(design, epoch.keep, epoch.other)
    own_hits = epoch.keep * design.segments[:, None]
    mean = 0.5 + own_hits * (2 * f - 1) / (2 * v)
    hit_variance = epoch.values.hit_variance(own_hits, v, f) if epoch.values else mean * (1 - mean)
    variance = contrast_sum_variance(
        people * v, epoch.noise, design.arms[None], RewardVariance(hit_variance, _noise_variance(epoch, f))
    )
    return np.asarray(np.sqrt(people * v / variance))


def _noise_variance(epoch: PlannedEpoch, f: Array) -> Array:
    """Return the variance of noise in the sum of hits' values above f, for parts with unit noise."""
    return np.asarray((epoch.values.parts if epoch.values else BITS).noise_about(f))


_N_SIMULATED_SIZES: Final = 4
"""Segments of so many sizes are simulated; between them, what a formula is wrong by follows the size's logarithm."""
_N_EFFECT_STEPS: Final = 6
_MAX_PLANNED_RATE: Final = 0.95
_MAX_OUTCOME_RUNS: Final = 700
"""Trials of several segments each, by which allocations are compared: a power's standard error is .02 at most."""


@dataclass(frozen=True)
class PlannedOutcome:
    """The power of a trial for an effect, and its cost, on the scale of rewards from 0 to 1."""

    power: float  # probability to find it in a segment, on average over people
    half_width: float  # mean half-width of segments' intervals at the end; infinite where there is none
    reward_lost: float  # reward that people do not get for want of the better arm, of all together


@dataclass(frozen=True)
class PowerAnalysis:
    """The power analysis of a trial.

    Where shares are fixed, formulas know all of it. Where they adapt, statistics are simulated. An effect is that of
    one treatment, upwards if rewards can rise so far; others do as the control does.
    """

    # plans, epochs: what is planned, and how its mechanisms will be calibrated
    plans: TrialDesigns
    epochs: tuple[PlannedEpoch, ...]
    # rule, floor: the allocation, and the least share of an arm
    rule: str
    floor: float
    # rate, target: mean reward under the control, and the power wanted
    rate: float
    target: float
    people: float  # all people
    arms: tuple[int, ...]  # treatments to tell apart, from 0; one stands for all where all are planned alike
    waiting: float = 0.0  # how many people choose between somebody's choice and the report on it

    @property
    def uses_formulas(self) -> bool:
        """Whether formulas give the power, since shares are fixed."""
        return self.rule == "fixed"

    def minimum_detectable_effects(self) -> Array:
        """Return the minimum detectable effects, (J, K), on the scale 0 to 1; infinite where there is none.

        A further row is for the average over several segments.
        """
        guess = self._detectable_effects()
        if self.uses_formulas:
            return np.where(guess > max(self.rate, 1 - self.rate), np.inf, guess)
        return self._simulate(
            lambda plan, arm, row: find_minimum_detectable_effect(plan, arm, self.target, guess[row, arm]), guess
        )

    def apply_holm_correction(self, least_effects: Array, families: Array) -> Array:
        """Return the detectable effects under Holm's correction, if all others of their family are null.

        least_effects: those whose own interval leaves 0 out, (rows, K).
        families (rows,): of how many effects each row's is one.
        """
        alpha, times = self.plans.segments.alpha, look_times(self.plans.segments, self.epochs)
        drifts = {int(size): find_drift(times, alpha / size, self.target) for size in np.unique(families)}
        apply_holm_correction = least_effects * np.array([[drifts[int(size)] / self._drift] for size in families])
        return np.where(apply_holm_correction > max(self.rate, 1 - self.rate), np.inf, apply_holm_correction)

    def power(self, effect: float) -> tuple[Array, Array]:
        """Return the power for an effect, and the mean share of participants until its decision.

        Shapes are those of `minimum_detectable_effects`.
        """
        drift = effect / self._standard_errors(effect)
        alpha, times = self.plans.segments.alpha, look_times(self.plans.segments, self.epochs)
        probabilities = np.reshape(power(times, alpha, drift.ravel()), drift.shape)
        decision_times = np.vectorize(lambda cell_drift: decision_time(times, alpha, float(cell_drift)))(drift)
        if self.uses_formulas:
            return probabilities, decision_times
        powers = self._simulate(lambda plan, arm, _: simulate_power(plan, arm, effect)[0])
        return powers, self._simulate(lambda plan, arm, _: simulate_power(plan, arm, effect)[1])

    def people_for(self, effect: float) -> Array:
        """Return the total sample size that detects an effect with the target power, in each row and of each arm."""
        design = self.plans.segments
        segment_people = required_people(design, self.epochs, self._mean_rates(effect), effect, self.target)
        guess = self.people / design.people * segment_people
        if len(design.segments) > 1:
            overall = self.people * np.square(self._drift * self._standard_errors(effect)[-1] / effect)
            guess = np.concatenate([guess, overall[None]])
        if self.uses_formulas:
            return guess
        guessed_ratios = guess / self.people

        def find_ratio(plan: AdaptivePlan, arm: int, row: int) -> float:
            return find_people_ratio(plan, arm, self.target, effect, float(guessed_ratios[row, arm]))

        return np.asarray(self.people * self._simulate(find_ratio, guessed_ratios))

    def simulate_outcome(self, effect: float) -> "PlannedOutcome":
        """Return the expected outcome of a trial if a treatment has this effect in every segment."""
        plan = self._build_plan()
        effects = np.zeros((len(plan.design.segments), len(plan.design.arms) - 1))
        effects[:, self.arms[0]] = effect
        scores = simulate_scores(plan, effects, min(_MAX_OUTCOME_RUNS, choose_run_count(plan)))
        powers = scores.power(scores.segments)[:, self.arms[0]]
        widths = scores.half_widths[..., self.arms[0]]
        n_planned = plan.design.people + (plan.everybody.design.people if plan.everybody else 0.0)
        return PlannedOutcome(
            float(plan.design.segments @ powers),
            float(np.nanmean(widths)) if np.isfinite(widths).any() else float("inf"),
            scores.reward_lost * self.people / n_planned,
        )

    @property
    def _drift(self) -> float:
        return find_drift(look_times(self.plans.segments, self.epochs), self.plans.segments.alpha, self.target)

    def _mean_rates(self, effect: Array | float) -> Array:
        """Return the mean reward of both arms, which determines their variances; downwards if it cannot rise."""
        half_effect = np.asarray(effect) / 2
        middle = self.rate + np.where(self.rate + 2 * half_effect > 1, -half_effect, half_effect)
        return np.asarray(np.clip(middle, min(self.rate, 1 - _MAX_PLANNED_RATE), max(self.rate, _MAX_PLANNED_RATE)))

    def _detectable_effects(self) -> Array:
        """Return the detectable effects at planned shares, by fixed-point iteration on the mean."""
        effects = self._drift * self._standard_errors(0.0)
        for _ in range(_N_EFFECT_STEPS):
            effects = self._drift * self._standard_errors(effects)
        return effects

    def _standard_errors(self, effects: Array | float) -> Array:
        design, everybody = self.plans.segments, self.plans.everybody
        size, treatments = len(design.segments), len(design.arms) - 1
        rates = np.broadcast_to(self._mean_rates(effects), (size + (size > 1), treatments))
        segments = effect_deviations(design, self.epochs, rates[:size])
        if size == 1:
            return segments
        sum_deviations = design.segments[:, None] * effect_deviations(design, self.epochs, rates[size:])
        precision = 1 / np.square(sum_deviations).sum(axis=0)
        if everybody is not None:
            precision = precision + 1 / np.square(effect_deviations(everybody, self._everybody_epochs, rates[size:])[0])
        return np.concatenate([segments, 1 / np.sqrt(precision)[None]])

    @property
    def _everybody_epochs(self) -> tuple[PlannedEpoch, ...]:
        everybody = self.plans.everybody
        size_ratio = everybody.people / self.plans.segments.people if everybody else 0.0
        return tuple(replace(epoch, people=epoch.people * size_ratio) for epoch in self.epochs)

    def _build_plan(self) -> AdaptivePlan:
        """Return the plan for simulations, of reports by segment and, if there are any, on all participants."""
        plan = AdaptivePlan(self.rule, self.floor, self.rate, self.plans.segments, self.epochs)
        plan = replace(plan, waiting=self.waiting * self.plans.segments.people / self.people)
        everybody = self.plans.everybody
        if everybody is None:
            return plan
        waiting = self.waiting * everybody.people / self.people
        everybody_plan = replace(plan, design=everybody, epochs=self._everybody_epochs, waiting=waiting)
        return replace(plan, everybody=everybody_plan)

    def _simulate(self, figure: Callable[[AdaptivePlan, int, int], float], guess: Array | None = None) -> Array:
        """Return a figure of every segment and treatment, and of their average.

        Of few sizes of segments it is simulated, and between them it is interpolated: as a multiple of the guess, if
        there is one.
        """
        plan, shares = self._build_plan(), self.plans.segments.segments
        size, treatments = len(shares), len(plan.design.arms) - 1
        rows = np.argsort(shares)[np.linspace(0, size - 1, min(size, _N_SIMULATED_SIZES)).round().astype(int)]
        sizes, places = np.unique(shares[rows].round(9), return_index=True)
        figures = np.empty((size + (size > 1), treatments))
        scale = np.ones(figures.shape) if guess is None else guess
        for arm in self.arms:
            ratios = [figure(plan.for_segment(float(shares[row])), arm, row) / scale[row, arm] for row in rows[places]]
            figures[:size, arm] = scale[:size, arm] * np.interp(np.log(shares), np.log(sizes), ratios)
            if size > 1:
                figures[size, arm] = figure(plan, arm, size)
        for arm in set(range(treatments)) - set(self.arms):
            figures[:, arm] = figures[:, self.arms[0]]
        return figures


def analyze_power(spec: TrialSpec, plans: TrialDesigns, waiting: float = 0.0) -> PowerAnalysis:
    """Return the power analysis of a spec; ``waiting`` participants choose between a choice and its report."""
    section = spec.algorithm
    epochs, arms = tuple(planned_epochs(spec)), tuple(a for a, _ in list_treatments(spec))
    facts = (section.allocation, spec.min_arm_share, spec.base_rate, section.power, spec.experiment.horizon)
    return PowerAnalysis(plans, epochs, *facts, arms, waiting)


def list_treatments(spec: TrialSpec) -> list[tuple[int, str]]:
    """Return treatments by number and name, or a single representative if their planned shares are equal."""
    treatments = list(enumerate(spec.options[1:]))
    return [(0, "each")] if len(treatments) > 1 and len(set(spec.arm_shares[1:])) == 1 else treatments
