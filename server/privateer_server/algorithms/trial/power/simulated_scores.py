"""The power of a trial with adaptive shares, by simulation of its statistics, look by look, in many runs at once.

Formulas take shares as planned. Where an allocation rule starves an arm, that arm's estimate stays as poor as few
people make it. Here normal numbers take the place of hits; everything after them, weights, scores, allocation and
boundaries, is what the learner itself uses.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
from scipy.special import ndtri
from typing_extensions import override

from privateer_core.arrays import Array, Bools
from privateer_server.algorithms.trial.allocation import allocate_arms
from privateer_server.algorithms.trial.evidence.epochs import (
    Epoch,
    PlannedEpoch,
    TrialDesign,
    common_weights,
    contrast_variances,
)
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence, average_contributions
from privateer_server.algorithms.trial.evidence.variances import PlannedValues
from privateer_server.algorithms.trial.evidence.weighted_sums import Sums
from privateer_server.algorithms.trial.group_sequential import critical_values, information_fractions
from privateer_server.algorithms.trial.treatment_effects import compute_direct_weight, half_widths

RUNS: Final = 2000
"""Simulated trials: a power of .8 has a standard error of .009; three such, about a line, find an effect."""
_N_ROUGH_RUNS: Final = 300  # trials of each step of a search for where to look closely
_MAX_SEGMENTS: Final = 64_000
"""Most segments that all trials have together; fewer trials are simulated where each has many."""
_MIN_RUNS: Final = 200
_N_BISECTIONS: Final = 5
_MAX_PEOPLE_RATIO: Final = 1e4
_SEARCH_MULTIPLES: Final = (0.88, 1.0, 1.14)
"""Between these multiples of what the rough search finds, the normal quantile of the power is close to a line."""
_SEED: Final = 5


@dataclass(frozen=True, eq=False)
class AdaptivePlan:
    """The plan of a trial as numbers, with value equality so that it can be a cache key."""

    # rule, floor: how shares adapt, and the least share of an arm
    rule: str
    floor: float
    rate: float  # mean reward under the control, in (0, 1)
    design: TrialDesign  # level, people and shares planned; every segment of it is simulated
    epochs: tuple[PlannedEpoch, ...]  # as their mechanisms will be calibrated
    # the part of people who are asked about everybody, as about one segment, where some are
    everybody: "AdaptivePlan | None" = None
    waiting: float = 0.0  # how many of these people choose between somebody's choice and the report on it

    @property
    def _key(self) -> tuple[object, ...]:
        """The facts by which plans are equal, hashable."""
        design = self.design
        arrays = (tuple(design.arms.tolist()), tuple(design.segments.tolist()))
        facts = (design.alpha, design.people, design.counted, design.hit, self.waiting)
        everybody_key = self.everybody._key if self.everybody else ()
        return (self.rule, self.floor, self.rate, *facts, *arrays, self.epochs, everybody_key)

    @override
    def __hash__(self) -> int:
        return hash(self._key)

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, AdaptivePlan) and self._key == other._key

    def for_segment(self, share: float) -> "AdaptivePlan":
        """Return the plan for a single segment of this share."""
        return replace(self, design=replace(self.design, segments=np.array([share])), everybody=None)

    def scale_people(self, times: float) -> "AdaptivePlan":
        """Return the plan with ``times`` as many participants under unchanged randomization."""
        epochs = tuple(replace(epoch, people=epoch.people * times) for epoch in self.epochs)
        everybody = self.everybody.scale_people(times) if self.everybody else None
        design = replace(self.design, people=self.design.people * times)
        return replace(self, design=design, epochs=epochs, everybody=everybody)

    @property
    def times(self) -> tuple[float, ...]:
        """Information fractions of the looks."""
        return information_fractions(np.cumsum([epoch.people for epoch in self.epochs]), self.design.people)


@dataclass(frozen=True)
class SimulatedScores:
    """Scores of simulated trials at every look, and the trials' regret."""

    # times, alpha: information fractions of the looks, and the level
    times: tuple[float, ...]
    alpha: float
    # segments, average: shape (looks, runs, J, K) and (looks, runs, K)
    segments: Array
    average: Array
    half_widths: Array  # shape (runs, J, K), of intervals at the end; nan where there is none
    # mean reward that people did not get for want of the best arm of their segment, of all of a trial together
    reward_lost: float

    def power(self, scores: Array) -> Array:
        """Return the share of runs that cross a boundary at any look; axis 1 of ``scores`` is that of runs."""
        return np.asarray(self._find_crossings(scores).any(axis=0).mean(axis=0))

    def decision_times(self, scores: Array) -> Array:
        """Return the mean share of participants at the first crossing of a boundary; 1 without one."""
        crossed = self._find_crossings(scores)
        ends = np.array(self.times)[crossed.argmax(axis=0)]
        return np.asarray(np.where(crossed.any(axis=0), ends, 1.0).mean(axis=0))

    def _find_crossings(self, scores: Array) -> Bools:
        critical = critical_values(self.times, self.alpha)
        return np.asarray(np.abs(np.nan_to_num(scores)) > critical.reshape(-1, *(1,) * (scores.ndim - 1)))


def simulate_scores(plan: AdaptivePlan, effects: Array, n_runs: int = RUNS, seed: int = _SEED) -> SimulatedScores:
    """Return the scores and regret of simulated trials of a plan.

    effects (J, K): of the treatments, on the scale of rewards from 0 to 1. Two calls with one seed use the same normal
        numbers.
    """
    n_segments, treatments = effects.shape
    design = replace(plan.design, segments=np.tile(plan.design.segments, n_runs))
    means = np.concatenate([np.zeros((n_segments, 1)), effects], axis=1) + plan.rate
    rates, rng = np.tile(np.clip(means, 0.0, 1.0), (n_runs, 1)), np.random.default_rng(seed)
    evidence, common = TrialEvidence.begin(design), Sums.empty(design)
    averages, policies, reward_lost = [], [np.tile(design.arms, (len(rates), 1))], 0.0
    for look, planned in enumerate(plan.epochs):
        deciders = _deciding_shares(plan, look)
        mixed_shares = np.asarray(sum(share * policies[version] for version, share in enumerate(deciders) if share))
        epoch = replace(_draw_epoch(design, planned, rates, mixed_shares, rng), trials=n_runs)
        evidence = evidence.add(epoch)
        regret = rates.max(axis=1) - (mixed_shares * rates).sum(axis=1)
        reward_lost += planned.people * float(design.segments @ regret) / n_runs
        if n_segments > 1:
            common = common.add(epoch, _sum_weights(design, epoch, n_runs))
            averages.append(_average_scores(common, design, n_runs))
        if planned is not plan.epochs[-1]:
            policies.append(allocate_arms(evidence, plan.rule, plan.floor, n_runs))
    scores = evidence.scores.reshape(-1, n_runs, n_segments, treatments)
    average = np.array(averages) if averages else scores[:, :, 0]
    widths = half_widths(evidence).reshape(n_runs, n_segments, treatments)
    simulated = SimulatedScores(plan.times, design.alpha, scores, average, widths, reward_lost)
    return _join_direct_scores(plan, plan.everybody, simulated, effects, seed + 1) if plan.everybody else simulated


def _deciding_shares(plan: AdaptivePlan, look: int) -> Array:
    """Return the share of an epoch's reports that each policy so far decided, (look + 1,).

    Report i in the order of choices is by the latest policy when i participants less those waiting had reported.
    """
    ends = np.cumsum([0.0, *(epoch.people for epoch in plan.epochs)])
    begins = ends[: look + 1] + plan.waiting * (np.arange(look + 1) > 0)
    switch_points = np.clip([*begins, np.inf], ends[look], ends[look + 1])
    return np.asarray(np.diff(switch_points) / (ends[look + 1] - ends[look]))


def _join_direct_scores(
    plan: AdaptivePlan, everybody_plan: AdaptivePlan, summed: SimulatedScores, effects: Array, seed: int
) -> SimulatedScores:
    """Return scores of averages from reports on all participants and the sum over segments, joined as a look does."""
    average_effects = plan.design.segments @ effects / plan.design.segments.sum()
    direct = simulate_scores(everybody_plan, average_effects[None], summed.average.shape[1], seed)
    weight = compute_direct_weight(TrialEvidence.begin(plan.design), TrialEvidence.begin(everybody_plan.design))
    average = np.asarray(np.sqrt(weight) * direct.average + np.sqrt(1 - weight) * summed.average)
    return replace(summed, average=average, reward_lost=summed.reward_lost + direct.reward_lost)


def _draw_epoch(
    design: TrialDesign, planned: PlannedEpoch, rates: Array, shares: Array, rng: np.random.Generator
) -> Epoch:
    """Draw the hits of an epoch from normal distributions with the moments of counts."""
    n, p = planned.people, design.segments[:, None]
    if design.counted:
        positive_rates = planned.keep * p * rates + planned.other
        negative_rates = planned.keep * p * (1 - rates) + planned.other
    else:
        # Hits are public slots: others' answers are as often positive as negative.
        positive_rates = design.hit / 2 + planned.keep * p * (rates - 0.5)
        negative_rates = design.hit - positive_rates
    if planned.values:
        hits_per_person = (planned.keep * p, positive_rates, positive_rates + negative_rates)
        return _draw_value_epoch(planned, planned.values, shares, hits_per_person, rates, rng)
    positive, negative = (
        expected + np.sqrt(expected + planned.noise) * rng.standard_normal(rates.shape)
        for expected in (n * shares * positive_rates, n * shares * negative_rates)
    )
    return Epoch(n, positive, positive + negative, planned.keep, planned.other, planned.noise, shares)


def _draw_value_epoch(
    planned: PlannedEpoch,
    values: PlannedValues,
    shares: Array,
    hits_per_person: tuple[Array, Array, Array],
    rates: Array,
    rng: np.random.Generator,
) -> Epoch:
    """Draw the number of hits, the sum of their values, and squares that give the planned variance.

    Noise of a curator is drawn in what hits count above their mean; that of their number hardly matters beside it.

    hits_per_person: a segment's own hits, the sum of values, and all hits.
    """
    own_hits, value_sums, all_hits = hits_per_person
    expected_hits, mean = planned.people * shares * all_hits, value_sums / all_hits
    hit_variances = values.hit_variance(own_hits, all_hits, rates)
    count_deviations = np.sqrt(expected_hits + values.parts.count * planned.noise)
    hits = np.maximum(expected_hits + count_deviations * rng.standard_normal(expected_hits.shape), 1.0)
    deviations = np.sqrt(expected_hits * hit_variances + planned.noise * values.parts.noise_about(mean))
    totals = hits * mean + deviations * rng.standard_normal(expected_hits.shape)
    facts = (planned.keep, planned.other, planned.noise, shares)
    return Epoch(planned.people, totals, hits, *facts, hits * hit_variances + np.square(totals) / hits, values.parts)


def _sum_weights(design: TrialDesign, epoch: Epoch, n_runs: int) -> Array:
    """Return the weights of an epoch in sums over the segments of each run."""
    planned, actual = contrast_variances(design, epoch)
    planned = np.broadcast_to(planned, actual.shape)
    weights = common_weights(_place_runs_side_by_side(planned, n_runs), _place_runs_side_by_side(actual, n_runs))
    n_segments, treatments = len(weights), planned.shape[1]
    return np.asarray(weights.reshape(n_segments, n_runs, treatments).swapaxes(0, 1).reshape(actual.shape))


def _average_scores(sums: Sums, design: TrialDesign, n_runs: int) -> Array:
    side_by_side = sums.map_arrays(lambda rows: _place_runs_side_by_side(rows, n_runs))
    return average_contributions(side_by_side, design).scores.reshape(n_runs, -1)


def _place_runs_side_by_side(rows: Array, n_runs: int) -> Array:
    """Return rows (runs J, K, ...), the segments of each run, as (J, runs K, ...): runs side by side."""
    by_segment = rows.reshape(n_runs, -1, *rows.shape[1:]).swapaxes(0, 1)
    return by_segment.reshape(len(by_segment), -1, *rows.shape[2:])


@lru_cache(maxsize=256)
def find_minimum_detectable_effect(plan: AdaptivePlan, arm: int, power: float, guess: float) -> float:
    """Return the minimum effect of a single treatment that is detected with this probability.

    It is one upwards; downwards only where rewards cannot rise so far.

    It is on the scale of rewards from 0 to 1, and infinite if neither rewards of 1 nor of 0 are told from those of the
    control.

    plan: of one segment. Of several the average effect is meant, where all have the same effect.
    arm: the treatment, from 0.
    guess: the effect by formulas for planned shares.
    """

    def search(sign: int, max_effect: float) -> float:
        def find_power(effect: float, runs: int) -> float:
            return _simulate_detection(plan, arm, sign * effect, runs)[0]

        return _solve_power(find_power, power, guess / 2, max_effect, choose_run_count(plan))

    upward_effect = search(1, 1 - plan.rate)
    return upward_effect if np.isfinite(upward_effect) else search(-1, plan.rate)


def find_people_ratio(plan: AdaptivePlan, arm: int, power: float, effect: float, guess: float) -> float:
    """Return the sample size ratio that detects an effect with this probability; infinite above 10,000."""

    def find_power(people_ratio: float, runs: int) -> float:
        return _simulate_detection(plan.scale_people(people_ratio), arm, effect, runs)[0]

    return _solve_power(find_power, power, guess / 4, max(_MAX_PEOPLE_RATIO, guess), choose_run_count(plan))


@lru_cache(maxsize=256)
def simulate_power(plan: AdaptivePlan, arm: int, effect: float) -> tuple[float, float]:
    """Return the power for an effect, and the mean share of participants until its decision.

    One plan is simulated here and three in a search: with twice the trials the standard error is .006.
    """
    return _simulate_detection(plan, arm, effect, 2 * choose_run_count(plan))


def choose_run_count(plan: AdaptivePlan) -> int:
    """Return the number of simulated trials."""
    return max(_MIN_RUNS, min(RUNS, _MAX_SEGMENTS // len(plan.design.segments)))


def _solve_power(find_power: Callable[[float, int], float], power: float, low: float, limit: float, runs: int) -> float:
    """Return the value at which a rising probability is ``power``, up to a maximum; infinite beyond it."""
    low = high = min(low, limit)
    while find_power(high, _N_ROUGH_RUNS) < power:
        if high >= limit:
            return float("inf")
        low, high = high, min(2 * high, limit)
    low = low if low < high else high / 8
    for _ in range(_N_BISECTIONS):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if find_power(middle, _N_ROUGH_RUNS) >= power else (middle, high)
    points = np.minimum(high * np.array(_SEARCH_MULTIPLES), limit)
    quantiles = ndtri(np.clip([find_power(float(point), runs) for point in points], 0.5 / runs, 1 - 0.5 / runs))
    if quantiles[-1] <= quantiles[0]:
        return float(high)
    slope, start = np.polyfit(np.log(points), quantiles, 1)
    solution = float(np.exp((ndtri(power) - start) / slope))
    return solution if solution <= limit else float("inf")


def _simulate_detection(plan: AdaptivePlan, arm: int, effect: float, n_runs: int) -> tuple[float, float]:
    """Return the simulated power for the average effect of one arm, and the mean share of participants until then."""
    effects = np.zeros((len(plan.design.segments), len(plan.design.arms) - 1))
    effects[:, arm] = effect
    simulated = simulate_scores(plan, effects, n_runs)
    return float(simulated.power(simulated.average)[arm]), float(simulated.decision_times(simulated.average)[arm])
